"""The formats: a reader for each suffix, from a path to recordings and what was understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.archive import read_arff, read_ts, read_tsv
from geopatch.data.audio import read_audio
from geopatch.data.collection import Collection
from geopatch.data.delimited import line_of, load_polars, read_delimited
from geopatch.data.physionet import read_wfdb, wfdb_metadata, wfdb_parts
from geopatch.data.recording import Recording
from geopatch.data.tables import read_npz
from geopatch.errors import DataError
from geopatch.frames import ReadOptions, TableReading, narwhals, read_table
from geopatch.signal import Signal


@dataclass(frozen=True, eq=False)
class FileReading:
    """The recordings of a file, before they are named by its path."""

    recordings: tuple[Recording, ...]
    labels: npt.NDArray[np.str_] | None = None
    metadata: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    numbered: bool = False  # the ids only count the signals of the file


Reader = Callable[[Path, str, ReadOptions], FileReading]


def companions(path: Path) -> tuple[Path, ...]:
    """The file and those that belong to it."""
    return wfdb_parts(path) if path.suffix.lower() == ".hea" else (path,)


def is_companion(path: Path, names: set[Path]) -> bool:
    """Whether a file belongs to another one, such as the data of a WFDB header."""
    return path.with_suffix(".hea") in names


def text_table(path: Path, id: str, options: ReadOptions) -> FileReading:
    """Commas, semicolons, tabs or blanks between fields; without a header perhaps the archive's form."""
    table = read_delimited(path)
    if table.dialect.rows_are_signals(path.stem):
        return _archive_rows(path, id, options, table.dialect.separator)
    frame = narwhals().from_native(table.frame, eager_only=True)
    reading = read_table(frame, id, options, place=lambda row: f"line {line_of(path, table, row)}")
    return _table_reading(replace(reading, notes=(*table.notes, *reading.notes)))


def _archive_rows(path: Path, id: str, options: ReadOptions, separator: str) -> FileReading:
    return _collection(read_tsv(path, separator), options, "each row is a signal, its class first, as in the archive")


def parquet(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A Parquet file."""
    polars = load_polars("reading a Parquet file")
    return _frame(path, id, options, polars, "Parquet", polars.read_parquet)


def _frame(path: Path, id: str, options: ReadOptions, polars: Any, what: str, read: Callable[..., Any]) -> FileReading:
    try:
        frame = read(path)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path.name} cannot be read as {what}: {reason}; write it again") from error
    return _table_reading(read_table(narwhals().from_native(frame, eager_only=True), id, options))


def _table_reading(reading: TableReading) -> FileReading:
    recordings = tuple(Recording(signal, signal.id) for signal in reading.signals)
    return FileReading(recordings, reading.labels, reading.metadata, reading.notes, reading.numbered)


def archive(read: Callable[[Path], Collection]) -> Reader:
    """A reader of one of the archive's formats."""

    def reader(path: Path, id: str, options: ReadOptions) -> FileReading:
        return _collection(read(path), options, "each row is a signal, as in the archive")

    return reader


def _collection(collection: Collection, options: ReadOptions, note: str) -> FileReading:
    signals = [_completed(signal, options) for signal in collection.signals]
    numbered = [signal.id for signal in signals] == [str(n) for n in range(len(signals))]
    recordings = tuple(Recording(signal, signal.id) for signal in signals)
    return FileReading(recordings, collection.labels, ({},) * len(signals), (note, _rate_note(signals[0])), numbered)


def _completed(signal: Signal, options: ReadOptions) -> Signal:
    """The signal with the rate and units that were given, where it has none of its own."""
    rate_hz = options.rate_hz if signal.rate_hz is None else signal.rate_hz
    units = signal.units
    if options.units is not None:
        names = signal.channels or ("",) * signal.values.shape[1]
        own = units or ("",) * len(names)
        units = tuple(options.unit(name, n) or own[n] for n, name in enumerate(names))
    signal = replace(signal, rate_hz=rate_hz, units=units)
    return signal if options.channels is None else _chosen(signal, options.channels)


def _chosen(signal: Signal, channels: tuple[str, ...]) -> Signal:
    if signal.channels:
        return signal.arranged(channels)
    return replace(signal, channels=channels) if len(channels) == signal.values.shape[1] else signal


def _rate_note(signal: Signal) -> str:
    return "rate not known: a sample counts as a second" if signal.rate_hz is None else f"{signal.rate_hz:g} Hz"


def audio(path: Path, id: str, options: ReadOptions) -> FileReading:
    """The sound itself, between -1 and 1."""
    signal = _completed(read_audio(path, id), options)
    return FileReading((Recording(signal, id),), None, ({},), (f"sound, {_rate_note(signal)} by its header",))


def wfdb(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A WFDB record, with its beats and rhythms where it has annotations."""
    recording, notes = read_wfdb(path.with_suffix("")), ["WFDB record"]
    signal = replace(_completed(recording.signal, options), id=id)
    if len(recording.beat_samples):
        notes.append(f"{len(recording.beat_samples)} annotated beats")
    notes.append(f"{_rate_note(signal)} by its header")
    metadata = wfdb_metadata(path)
    return FileReading((replace(recording, signal=signal),), None, (metadata,), tuple(notes))


def npz(path: Path, id: str, options: ReadOptions) -> FileReading:
    """The arrays of a NumPy archive."""
    return _collection(read_npz(path), options, "array X, a signal in each row")


FORMATS: dict[str, Reader] = {
    ".csv": text_table,
    ".tsv": text_table,
    ".txt": text_table,
    ".parquet": parquet,
    ".npz": npz,
    ".hea": wfdb,
    ".wav": audio,
    ".flac": audio,
    ".mp3": audio,
    ".ogg": audio,
    ".ts": archive(read_ts),
    ".arff": archive(read_arff),
}
