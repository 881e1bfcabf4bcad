"""What the reader of a format gives: recordings before they are named by their path, and what was understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.columns import listed
from geopatch.data.collection import Collection
from geopatch.data.recording import Recording
from geopatch.errors import DataError
from geopatch.frames import NO_RATE, TableReading
from geopatch.read_options import ReadOptions
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


def from_table(reading: TableReading, notes: Sequence[str] = ()) -> FileReading:
    """What a table holds, with notes on how it was written before its own."""
    recordings = tuple(Recording(signal, signal.id) for signal in reading.signals)
    return FileReading(recordings, reading.labels, reading.metadata, (*notes, *reading.notes), reading.numbered)


def from_collection(collection: Collection, options: ReadOptions, note: str) -> FileReading:
    """The signals of an archive file."""
    signals = [completed(signal, options) for signal in collection.signals]
    numbered = [signal.id for signal in signals] == [str(n) for n in range(len(signals))]
    recordings = tuple(Recording(signal, signal.id) for signal in signals)
    notes = (f"{len(signals)} signals: {note}", rate_note(collection.signals[0], options))
    return FileReading(recordings, collection.labels, ({},) * len(signals), notes, numbered)


def from_signal(
    signal: Signal, options: ReadOptions, notes: Sequence[str], metadata: Mapping[str, Any] | None = None
) -> FileReading:
    """One recording."""
    recording = Recording(completed(signal, options), signal.id)
    return FileReading((recording,), None, (metadata or {},), (*notes, rate_note(signal, options)))


def completed(signal: Signal, options: ReadOptions) -> Signal:
    """The signal with the rate, channels and units that were named, where it has none of its own."""
    if options.channels is not None:
        signal = _with_channels(signal, options.channels)
    units = signal.units
    if options.units is not None:
        names = signal.channels or ("",) * signal.values.shape[1]
        own = units or ("",) * len(names)
        units = tuple(options.unit(name, n) or own[n] for n, name in enumerate(names))
    return replace(signal, rate_hz=options.rate_hz if signal.rate_hz is None else signal.rate_hz, units=units)


def _with_channels(signal: Signal, channels: tuple[str, ...]) -> Signal:
    if not signal.channels and len(channels) == signal.values.shape[1]:
        return replace(signal, channels=channels)
    missing = [channel for channel in channels if channel not in signal.channels]
    if missing:
        raise DataError(f"there is no channel {missing[0]!r}; there are {listed(signal.channels) or 'none with names'}")
    return signal.arranged(channels)


def rate_note(signal: Signal, options: ReadOptions) -> str:
    """Where the rate of a signal comes from."""
    if signal.rate_hz is None:
        return NO_RATE if options.rate_hz is None else f"{options.rate_hz:g} Hz from the rate given"
    unused = options.rate_hz is not None and options.rate_hz != signal.rate_hz
    note = f"{signal.rate_hz:.10g} Hz by the file"
    return f"{note}; the rate given, {options.rate_hz:g} Hz, is not used" if unused else note


def one_line(error: BaseException) -> str:
    """What a library says, as one short line."""
    return " ".join(str(error).partition("\n")[0].split())[:200] or type(error).__name__
