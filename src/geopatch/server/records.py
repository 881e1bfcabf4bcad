"""Stored records for drawing, in memory that does not grow with the record; and the contents of a gallery, cached."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Contents
from geopatch.engines.filters import All, Equal, Filter, Order
from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.server.refusal import RefusedError
from geopatch.signal import Signal

CACHE_S = 5.0

Values = npt.NDArray[np.float32]


class RecordStore:
    """Records and metadata of a gallery, counted again when the last count is some seconds old."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._counting = threading.Lock()
        self._counted: tuple[float, Contents] | None = None

    def contents(self) -> Contents:
        with self._counting:
            if self._counted is None or time.monotonic() - self._counted[0] > CACHE_S:
                self._counted = (time.monotonic(), self._gallery.contents())
            return self._counted[1]


@dataclass(frozen=True)
class Drawing:
    """A part of a record: every sample where `bucket` is 1, else the minimum and maximum of each `bucket` samples."""

    signal: Signal  # its values are the rows; two rows, minimum and maximum, for a bucket of more than one sample
    bucket: int
    stop_s: float


class Envelope:
    """Minimum and maximum of the samples in each bucket (N, C).

    Samples may come in any order. Where there would be more than `most` buckets, two become one: the size of the
    arrays depends on `most` alone, whatever times the samples have.
    """

    def __init__(self, most: int, channels: int) -> None:
        self.most, self.bucket = max(most, 2), 1  # samples on both sides of 0 never fit into one bucket
        self.start = self.stop = 0  # samples
        self._first = 0  # number of the first bucket in the arrays
        self._low = self._high = np.full((0, channels), np.nan, dtype=np.float32)

    def add(self, start: int, values: Values) -> None:
        """Samples (T, C) from the one numbered `start`; NaN where nothing was measured."""
        self._make_room(start, start + len(values))
        numbers = np.arange(start, start + len(values)) // self.bucket - self._first
        edges = np.flatnonzero(np.diff(numbers, prepend=-1))
        rows = numbers[edges]
        self._low[rows] = np.fmin(self._low[rows], np.fmin.reduceat(values, edges, axis=0))
        self._high[rows] = np.fmax(self._high[rows], np.fmax.reduceat(values, edges, axis=0))

    def rows(self) -> Values:
        """(samples, C) where each bucket is one sample; else (2 buckets, C), minimum and maximum in turn."""
        first, last = self._span()
        low, high = (part[first - self._first : last - self._first] for part in (self._low, self._high))
        return low if self.bucket == 1 else np.stack([low, high], axis=1).reshape(-1, low.shape[1])

    def _span(self) -> tuple[int, int]:
        return self.start // self.bucket, -(-self.stop // self.bucket)

    def _make_room(self, start: int, stop: int) -> None:
        empty = self.start == self.stop
        self.start, self.stop = (start, stop) if empty else (min(self.start, start), max(self.stop, stop))
        first, last = self._span()
        while last - first > self.most:
            self._double()
            first, last = self._span()
        if self._first <= first and last <= self._first + len(self._low):
            return
        size = min(self.most, 2 * (last - first))
        base = last - size if first < self._first and not empty else first  # spare room on the side that grows
        self._low, self._high = (_moved(part, self._first - base, size) for part in (self._low, self._high))
        self._first = base

    def _double(self) -> None:
        front = self._first % 2
        shape = ((front, (front + len(self._low)) % 2), (0, 0))
        low, high = (np.pad(part, shape, constant_values=np.nan) for part in (self._low, self._high))
        self._low, self._high = np.fmin(low[::2], low[1::2]), np.fmax(high[::2], high[1::2])
        self._first, self.bucket = self._first // 2, 2 * self.bucket


def _moved(part: Values, shift: int, size: int) -> Values:
    """The rows of `part` from row `shift` on, among `size` rows; unused rows may fall off either end."""
    moved = np.full((size, part.shape[1]), np.nan, dtype=np.float32)
    first, last = max(shift, 0), min(shift + len(part), size)
    if first < last:
        moved[first:last] = part[first - shift : last - shift]
    return moved


def draw_record(
    gallery: Gallery, name: str, start_s: float, stop_s: float, points: int | None, most_values: int
) -> Drawing:
    """The values that a gallery keeps of a record between two times, in at most `points` rows.

    Without `points` every sample is in it, and a part with more than `most_values` values is refused. Windows of
    another rate or number of channels than the first one are left out; where windows overlap they are the same.
    """
    where: Filter = All((Equal("record", (name,)), Order("start_s", "<", stop_s), Order("stop_s", ">", start_s)))
    windows = (window for entries in gallery.scan(where=where) for window in entries.windows if window is not None)
    nothing = RefusedError(404, f"the gallery keeps no values of record {name[:100]!r} at these times")
    first = next(windows, None)
    if first is None:
        raise nothing
    clock_hz, channels = first.clock_hz, first.values.shape[1]
    rows = most_values // channels
    envelope = Envelope(rows if points is None else min(points, rows) // 2, channels)
    low, high = (math.ceil(round((edge - first.start_s) * clock_hz, 6)) for edge in (start_s, stop_s))
    for window in chain([first], windows):
        if window.rate_hz != first.rate_hz or window.values.shape[1] != channels:
            continue
        start = round((window.start_s - first.start_s) * clock_hz)
        part = window.values[max(low - start, 0) : max(high - start, 0)]
        if len(part):
            envelope.add(max(start, low), part)
        if points is None and envelope.bucket > 1:
            raise ConfigError(
                f"record {name[:100]!r} has more than {rows} samples there; request a shorter part, "
                "or give `points` to get minima and maxima"
            )
    if envelope.start == envelope.stop:
        raise nothing
    first_s, stop_s = (first.start_s + edge / clock_hz for edge in (envelope.start, envelope.stop))
    return Drawing(Signal(envelope.rows(), name, first.rate_hz, first.channels, name, first_s), envelope.bucket, stop_s)
