"""A running sensor: samples come a chunk at a time, and windows are cut as they fill, as from a whole recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.errors import ConfigError
from geopatch.server.refusal import RefusedError, overloaded
from geopatch.signal import Signal

Values = npt.NDArray[np.float32]
OVERLAP = 2  # each window starts a half window after the one before
FILTER_REACH = 12  # samples of the slower clock that resampling looks to either side


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
        told = Fraction(self.rate_hz).limit_denominator(1000)
        self.ratio = Fraction(self.about.clock_hz).limit_denominator(1000) / told if told else Fraction(0)
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
