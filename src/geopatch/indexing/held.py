"""Recordings that are in memory already, as files are taken: frames, collections, signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geopatch.data.collection import Collection
from geopatch.data.read import read
from geopatch.data.reading import InputFile, RecordingFile
from geopatch.data.recording import Recording
from geopatch.dataframes import is_frame
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal


@dataclass(frozen=True, eq=False)
class HeldFile(InputFile):
    """A recording in memory, under its own id."""

    signal: Signal | None = None
    label: str | None = None
    metadata: Mapping[str, Any] | None = None

    @cached_property
    def digest(self) -> str:
        """Of its id, rate and values."""
        assert self.signal is not None
        return Collection("held", (self.signal,), None if self.label is None else np.asarray([self.label])).digest()

    def reading(self) -> RecordingFile:
        """What reading it would give."""
        assert self.signal is not None
        labels = None if self.label is None else np.asarray([self.label])
        return RecordingFile(self, (Recording(self.signal, self.id),), labels, (self.metadata or {},), ())


def is_held(paths: Any) -> bool:
    """Whether these are recordings rather than paths."""
    if is_frame(paths) or isinstance(paths, (Collection, Signal)):
        return True
    return isinstance(paths, (list, tuple)) and bool(paths) and all(isinstance(item, Signal) for item in paths)


def held_files(recordings: Any, options: ReadOptions) -> list[InputFile]:
    """A file for each recording."""
    if is_frame(recordings):
        names = ("time", "id", "channels", "units", "rate_hz")
        recordings = read(recordings, **{name: getattr(options, name) for name in names})
    elif isinstance(recordings, (Signal, list, tuple)):
        signals = (recordings,) if isinstance(recordings, Signal) else tuple(recordings)
        recordings = Collection("signals", signals)
    collection: Collection = recordings
    labels = [None] * len(collection) if collection.labels is None else collection.labels.tolist()
    rows = collection.metadata or ({},) * len(collection)
    return [
        HeldFile(Path(signal.id), signal.id, (), False, signal, label, row)
        for signal, label, row in zip(collection.signals, labels, rows, strict=True)
    ]
