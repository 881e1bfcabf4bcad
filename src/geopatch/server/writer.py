"""What changes the gallery: one change at a time, on a thread and a connection of its own beside the searches.

A running sensor sends its samples a chunk at a time; windows are cut as they fill, as from a whole recording.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.entry import Metadata
from geopatch.errors import ConfigError, GeoPatchError
from geopatch.gallery import Gallery
from geopatch.server.metrics import Metrics
from geopatch.server.refusal import RefusedError, overloaded
from geopatch.server.schema import ChunkIn
from geopatch.server.searcher import one_thread
from geopatch.server.settings import Limits
from geopatch.signal import Signal

Values = npt.NDArray[np.float32]
Json = dict[str, Any]
Result = TypeVar("Result")
OVERLAP = 2  # each window starts a half window after the one before
FILTER_REACH = 12  # samples of the slower clock that resampling uses on either side

log = logging.getLogger(__name__)


class Writer:
    """When a call returns, its change is on disk."""

    def __init__(self, gallery: Gallery, limits: Limits, metrics: Metrics) -> None:
        self.gallery, self._limits, self._metrics = gallery, limits, metrics
        self.streams = Streams(gallery.about, limits.streams)
        self.optimizing = False
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "geopatch-writer", initializer=one_thread)

    async def add(self, signals: Sequence[Signal], metadata: Sequence[Metadata], existing: str) -> Json:
        """Which ids were written, and which were there already and were skipped."""

        def change() -> Json:
            ids = [signal.id for signal in signals]
            known = self.gallery.engine.known(ids) if existing == "skip" else set()
            written = self._add(signals, metadata, existing)
            fresh = [id for id in ids if id not in known]
            return {"written": written, "ids": fresh, "skipped": [id for id in ids if id in known]}

        return await self._run(change)

    async def add_recording(self, signal: Signal, metadata: Metadata, existing: str) -> int:
        """How many windows were cut and written."""

        def change() -> int:
            written = self.gallery.add_recording(signal, metadata=metadata, existing=existing)
            self._metrics.written(written)
            return written

        return await self._run(change)

    async def remove(self, ids: Sequence[str]) -> Json:
        """How many were removed, and which ids were not there."""

        def change() -> Json:
            known = self.gallery.engine.known(list(ids))
            removed = self.gallery.remove(list(ids), missing="ignore")
            self._metrics.removed(removed)
            return {"removed": removed, "missing": [id for id in dict.fromkeys(ids) if id not in known]}

        return await self._run(change)

    async def push(self, chunk: ChunkIn, values: Values) -> Json:
        """Take up the next samples (T, C) of a stream."""
        return await self._run(lambda: self._push(chunk, values))

    async def end(self, stream: str) -> None:
        """Forget a stream; its windows stay."""
        await self._run(lambda: self.streams.end(stream))

    def optimize(self) -> bool:
        """Begin to build the index anew; False where that is under way already. Searches and changes go on."""
        if self.optimizing:
            return False
        self.optimizing = True
        threading.Thread(target=self._optimize, name="geopatch-optimizer", daemon=True).start()
        return True

    def close(self) -> None:
        """Finish the changes that wait, then close the gallery."""
        self._thread.shutdown()
        self.gallery.close()

    async def _run(self, change: Callable[[], Result]) -> Result:
        """The result of a change when its turn has come; 503 where too many wait."""
        if self._waiting >= self._limits.write_queue:
            raise overloaded()
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, change)
        finally:
            self._waiting -= 1

    def _add(self, signals: Sequence[Signal], metadata: Sequence[Metadata], existing: str) -> int:
        written = self.gallery.add(list(signals), metadata=list(metadata), existing=existing)
        self._metrics.written(written)
        return written

    def _push(self, chunk: ChunkIn, values: Values) -> Json:
        stream = self.streams.get(chunk.stream, values, chunk.rate_hz, chunk.channels, chunk.offset or 0)
        cut = stream.push(values, chunk.offset)
        if cut.windows:  # a client that was interrupted sends again what may be there already
            self._add(cut.windows, [chunk.metadata] * len(cut.windows), existing="replace")
        stream.forget(cut)
        return {"received": stream.received, "safe": stream.safe, "ids": [window.id for window in cut.windows]}

    def _optimize(self) -> None:
        try:
            self.gallery.optimize()
        except GeoPatchError:
            log.exception("the gallery could not be optimised")
        finally:
            self.optimizing = False


@dataclass(frozen=True)
class Cut:
    """Windows that are full, and the number of the one after them."""

    windows: tuple[Signal, ...]
    upto: int


@dataclass
class Stream:
    """The samples of one sensor that are not yet in a window, or that the next window repeats."""

    name: str
    rate_hz: float
    width: int
    about: About
    channels: tuple[str, ...] = ()
    first: int = 0  # number of the first sample that is held
    next: int = 0  # window to be cut next
    held: list[Values] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = Fraction(self.rate_hz).limit_denominator(1000)
        self.ratio = Fraction(self.about.clock_hz).limit_denominator(1000) / own if own else Fraction(0)
        if not Fraction(1, 10_000) < self.ratio < 10_000:
            raise ConfigError(f"cannot bring {self.rate_hz:g} Hz to {self.about.clock_hz:g} Hz; check rate_hz")
        self.step = max(self.about.length // OVERLAP, 1)
        self.reach = 0 if self.ratio == 1 else int(FILTER_REACH * max(1.0, float(1 / self.ratio))) + 1
        while self._span(self.next)[0] < self.first:  # taken up in the middle: windows stay on their grid
            self.next += 1

    @property
    def received(self) -> int:
        return self.first + sum(len(part) for part in self.held)

    @property
    def safe(self) -> int:
        """Samples that no window to come will need."""
        return min(max(self._span(self.next)[0], 0), self.received)

    def push(self, values: Values, offset: int | None) -> Cut:
        """Take up a chunk, and give the windows that are full now; they count as cut after `forget`."""
        at = self.received if offset is None else offset
        if at > self.received:
            raise RefusedError(
                409, f"stream {self.name!r} stands at sample {self.received}, got one that starts at {at}"
            )
        fresh = values[self.received - at :]
        if len(fresh):
            self.held.append(fresh)
        upto = self.next
        while self._span(upto)[1] <= self.received:
            upto += 1
        if upto == self.next:
            return Cut((), upto)
        joined = np.concatenate(self.held)
        windows = (self._window(joined, place) for place in range(self.next, upto))
        return Cut(tuple(window for window in windows if window is not None), upto)

    def forget(self, cut: Cut) -> None:
        """These windows are on disk: let go of what only they needed."""
        if cut.upto > self.next:
            self.next = cut.upto
            joined, drop = np.concatenate(self.held), max(self.safe - self.first, 0)
            self.first, self.held = self.first + drop, [joined[drop:].copy()]

    def _span(self, place: int) -> tuple[int, int]:
        """The samples that a window is made from, with those round it that resampling looks at."""
        start, stop = place * self.step / self.ratio, (place * self.step + self.about.length) / self.ratio
        block = max(int((start - self.reach) // self.ratio.denominator), 0)  # where both clocks have a sample
        return (block * self.ratio.denominator, math.ceil(stop) + self.reach) if self.reach else (int(start), int(stop))

    def _window(self, joined: Values, place: int) -> Signal | None:
        """None where nothing was measured."""
        first, stop = self._span(place)
        values = joined[first - self.first : stop - self.first]
        if np.isnan(values).all():
            return None
        skip = place * self.step - int(first * self.ratio)
        timed = Signal(values, self.name, self.rate_hz, self.channels)
        if self.reach:
            timed = timed.resampled(self.about.clock_hz)
        part = timed.values[skip : skip + self.about.length]
        if np.isnan(part).all():
            return None
        start_s = place * self.step / self.about.clock_hz
        name = f"{self.name}@{start_s:.10g}s"
        return Signal(part, name, self.about.rate_hz, self.channels, self.name, start_s)


class Streams:
    """The sensors that are running, each under its name."""

    def __init__(self, about: About, most: int) -> None:
        self._about, self._most = about, most
        self._running: dict[str, Stream] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, name: object) -> bool:
        return name in self._running

    def get(self, name: str, values: Values, rate_hz: float | None, channels: Sequence[str], offset: int) -> Stream:
        """The stream of that name; a new one starts where its first chunk does."""
        rate, width = float(rate_hz or self._about.clock_hz), values.shape[1]
        stream = self._running.get(name)
        if stream is None:
            if len(self._running) >= self._most:
                raise overloaded(f"{self._most} streams are running; end one, or come back later")
            stream = self._running[name] = Stream(name, rate, width, self._about, tuple(channels), first=offset)
        if (stream.rate_hz, stream.width) != (rate, width):
            raise RefusedError(
                409,
                f"stream {name!r} has {stream.width} channels at {stream.rate_hz:g} Hz, got {width} at {rate:g}; "
                "end it first",
            )
        return stream

    def end(self, name: str) -> None:
        """Forget a stream; what is in windows stays in the gallery."""
        if self._running.pop(name, None) is None:
            raise RefusedError(404, f"no stream {name!r} is running")
