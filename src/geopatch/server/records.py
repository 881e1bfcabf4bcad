"""A stored record as one signal, put together from its windows, and what a gallery holds, looked up now and then."""

from __future__ import annotations

import threading
import time

import numpy as np

from geopatch.engines.engine import Contents
from geopatch.engines.filters import All, Equal, Filter, Order
from geopatch.gallery import Gallery
from geopatch.server.refusal import RefusedError
from geopatch.signal import Signal

FRESH_S = 5.0


class Shelf:
    """Records and metadata of a gallery, counted again when the last count is some seconds old."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._counting = threading.Lock()
        self._counted: tuple[float, Contents] | None = None

    def contents(self) -> Contents:
        with self._counting:
            if self._counted is None or time.monotonic() - self._counted[0] > FRESH_S:
                found = self._gallery.contents()
                self._counted = (time.monotonic(), found)
            return self._counted[1]


def stored_record(gallery: Gallery, name: str, start_s: float, stop_s: float, most: int) -> Signal:
    """What the gallery keeps of a record between two times; NaN where it keeps nothing."""
    where: Filter = All((Equal("record", (name,)), Order("start_s", "<", stop_s), Order("stop_s", ">", start_s)))
    count = gallery.count(where)
    if count > most:
        raise RefusedError(
            422, f"record {name[:100]!r} has {count} windows there, more than {most}; ask for a shorter part"
        )
    windows = [window for part in gallery.scan(where=where) for window in part.windows if window is not None]
    if not windows:
        raise RefusedError(404, f"the gallery keeps no values of record {name[:100]!r} at these times")
    return joined(name, windows)


def joined(name: str, windows: list[Signal]) -> Signal:
    """Windows of one record on one clock; one of another rate or width than the first is left out."""
    first = min(windows, key=lambda window: window.start_s)
    alike = [
        window
        for window in windows
        if window.rate_hz == first.rate_hz and window.values.shape[1] == first.values.shape[1]
    ]
    starts = [round((window.start_s - first.start_s) * first.clock_hz) for window in alike]
    length = max(start + window.length for start, window in zip(starts, alike, strict=True))
    values = np.full((length, first.values.shape[1]), np.nan, dtype=np.float32)
    for start, window in zip(starts, alike, strict=True):
        part = values[start : start + window.length]
        part[...] = np.where(np.isnan(window.values), part, window.values)
    return Signal(values, name, first.rate_hz, first.channels, name, first.start_s)
