"""The formats: a reader for each suffix, from a path to recordings and what was understood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from geopatch.columns import narwhals
from geopatch.data.archive import read_arff, read_ts, read_tsv
from geopatch.data.array_files import read_arrays, read_npy, read_npz
from geopatch.data.audio import audio_tags, read_audio, sound_size
from geopatch.data.collection import Collection
from geopatch.data.delimited import load_polars, read_delimited, read_dialect
from geopatch.data.edf import read_edf
from geopatch.data.file_reading import (
    FileReading,
    Reader,
    from_collection,
    from_signal,
    from_table,
    one_line,
)
from geopatch.data.json_files import read_json
from geopatch.data.source import check_claim
from geopatch.data.wfdb_records import read_record, wfdb_metadata, wfdb_parts
from geopatch.errors import DataError
from geopatch.frames import read_table
from geopatch.read_options import NONE, ReadOptions
from geopatch.signal import Signal

AUDIO = (".wav", ".flac", ".mp3", ".ogg")
SOUND_EXPANSION = 200  # of speech in a small mp3 file
ARCHIVE_FORM = "one in each row, its class first, as in the UCR archive"


def companions(path: Path) -> tuple[Path, ...]:
    """The file and those that belong to it."""
    return wfdb_parts(path) if path.suffix.lower() == ".hea" else (path,)


def is_companion(path: Path, names: set[Path]) -> bool:
    """Whether a file belongs to another one, such as the data of a WFDB header."""
    return path.suffix.lower() != ".hea" and path.with_suffix(".hea") in names


def text_table(path: Path, id: str, options: ReadOptions) -> FileReading:
    """Commas, semicolons, tabs, bars or blanks between fields; without a header perhaps the archive's form."""
    dialect = read_dialect(path)
    if dialect.rows_are_signals(path.stem) and not dialect.decimal_comma:
        return from_collection(read_tsv(path, dialect.separator), options, ARCHIVE_FORM)
    named = tuple(name for name in (options.id,) if name and name.lower() != NONE)
    table = read_delimited(path, named)
    frame = narwhals().from_native(table.frame, eager_only=True)
    return from_table(read_table(frame, id, options, place=table.place), table.notes)


def parquet(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A Parquet file."""
    polars = load_polars("reading a Parquet file")
    return _frame(path, id, options, polars, "Parquet", polars.scan_parquet)


def feather(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A Feather or Arrow file."""
    polars = load_polars("reading a Feather file")
    return _frame(path, id, options, polars, "Feather (version 2)", polars.scan_ipc)


def json_lines(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A row in each line, as a JSON object."""
    polars = load_polars("reading JSON lines")
    return _frame(path, id, options, polars, "JSON lines", polars.scan_ndjson)


def _frame(path: Path, id: str, options: ReadOptions, polars: Any, what: str, scan: Callable[..., Any]) -> FileReading:
    """What a file of polars holds; its rows are counted by its own head before they are read."""
    try:
        lazy = scan(path)
        if what != "JSON lines":
            rows, columns = int(lazy.select(polars.len()).collect().item()), len(lazy.collect_schema())
            check_claim(path, 8 * rows * columns)
        frame = lazy.collect()
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path.name} cannot be read as {what}: {one_line(error)}; write it again") from error
    return from_table(read_table(narwhals().from_native(frame, eager_only=True), id, options))


def archive(read: Callable[[Path], Collection]) -> Reader:
    """A reader of one of the archive's formats."""

    def reader(path: Path, id: str, options: ReadOptions) -> FileReading:
        return from_collection(read(path), options, "one in each row, as in the UEA/UCR archive")

    return reader


def audio(path: Path, id: str, options: ReadOptions) -> FileReading:
    """The sound itself, between -1 and 1, and its tags."""
    check_claim(path, 4 * sound_size(path), SOUND_EXPANSION)
    return from_signal(read_audio(path, id), options, ["sound"], audio_tags(path))


def wfdb(path: Path, id: str, options: ReadOptions) -> FileReading:
    """A WFDB record, with its beats and rhythms where it has annotations."""
    recording = replace(read_record(path.with_suffix("")), subject=id)
    reading = from_signal(replace(recording.signal, id=id), options, ["WFDB record"], wfdb_metadata(path))
    beats = len(recording.beat_samples)
    notes = (*reading.notes, f"{beats} annotated beats") if beats else reading.notes
    return replace(reading, recordings=(replace(recording, signal=reading.recordings[0].signal),), notes=notes)


def npy(path: Path, id: str, options: ReadOptions) -> FileReading:
    """An array (T,) or (T, C) is one recording, (N, T, C) are N signals."""
    array = read_npy(path)
    if array.ndim == 3:
        signals = tuple(Signal.from_array(values, str(n)) for n, values in enumerate(array))
        return from_collection(Collection(id, signals), options, f"one in each of the {len(array)} parts of the array")
    if array.ndim not in (1, 2):
        raise DataError(f"{path.name}: expected an array (T,), (T, C) or (N, T, C), got {array.ndim} dimensions")
    signal = Signal.from_array(array, id)
    return from_signal(signal, options, [f"one recording, an array of {' x '.join(map(str, array.shape))}"])


def npz(path: Path, id: str, options: ReadOptions) -> FileReading:
    """`X` with a signal in each row; or columns of equal length as in a table; or one array."""
    arrays = read_arrays(path)
    rates = [arrays.pop(name) for name in ("rate_hz", "fs") if name in arrays and "X" not in arrays]
    plain = {name: array for name, array in arrays.items() if array.ndim and array.dtype.kind in "fiubMmU"}
    if "X" in arrays or "X_train" in arrays or not plain:
        return from_collection(read_npz(path), options, "one in each row of the array X")
    rate_hz = float(rates[0].reshape(())) if rates and rates[0].size == 1 and rates[0].dtype.kind in "fiu" else None
    name, first = next(iter(plain.items()))
    if len(plain) == 1 and first.ndim < 3 and first.dtype.kind not in "MmU":
        return from_signal(Signal.from_array(first, id, rate_hz), options, [f"one recording, array {name!r}"])
    if len(plain) == 1 or len({array.shape for array in plain.values()}) > 1 or first.ndim > 1:
        raise DataError(f"{path.name}: expected X, one array, or columns of equal length, got {', '.join(plain)}")
    frame = load_polars("reading columns of an .npz file").DataFrame(plain)
    options = replace(options, rate_hz=options.rate_hz or rate_hz)
    return from_table(read_table(narwhals().from_native(frame, eager_only=True), id, options))


FORMATS: dict[str, Reader] = {
    ".csv": text_table,
    ".tsv": text_table,
    ".txt": text_table,
    ".parquet": parquet,
    ".feather": feather,
    ".arrow": feather,
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": read_json,
    ".npy": npy,
    ".npz": npz,
    ".hea": wfdb,
    ".edf": read_edf,
    ".bdf": read_edf,
    **dict.fromkeys(AUDIO, audio),
    ".ts": archive(read_ts),
    ".arff": archive(read_arff),
}
