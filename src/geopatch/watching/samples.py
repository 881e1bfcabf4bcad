"""The samples of a running stream at the rate of a gallery, resampled as they come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError
from geopatch.signal import Signal

FILTER_REACH = 12  # samples of the slower clock that resampling uses on either side

Values = npt.NDArray[np.float32]


@dataclass
class Samples:
    """What is held of a stream: it may be taken up in the middle, and comes out the same however it is cut up."""

    name: str
    rate_hz: float
    clock_hz: float  # of the gallery
    width: int
    channels: tuple[str, ...] = ()
    first: int = 0  # number of the first sample that is held, at the stream's own rate
    held: Values = field(init=False)
    done: int = field(init=False)  # samples at the gallery's rate that have come out so far, from the stream's start

    def __post_init__(self) -> None:
        own = Fraction(self.rate_hz).limit_denominator(1000)
        self.ratio = Fraction(self.clock_hz).limit_denominator(1000) / own if own else Fraction(0)
        if not Fraction(1, 10_000) < self.ratio < 10_000:
            raise ConfigError(f"cannot bring {self.rate_hz:g} Hz to {self.clock_hz:g} Hz; check rate_hz")
        self.reach = 0 if self.ratio == 1 else int(FILTER_REACH * max(1.0, float(1 / self.ratio))) + 1
        self.first = self._block(self.first)
        self.held = np.zeros((0, self.width), dtype=np.float32)
        edge = self.first + self.reach if self.first else 0  # before, the filter would look at what is not there
        self.done = math.ceil(edge * self.ratio)

    @property
    def received(self) -> int:
        """Samples that came, at the stream's own rate, from its start."""
        return self.first + len(self.held)

    def push(self, values: Values, *, last: bool = False) -> Values:
        """The samples (T, C) at the gallery's rate that are complete now; with `last`, all."""
        self.held = np.concatenate([self.held, values]) if len(values) else self.held
        upto = self.received * self.ratio if last else max(self.received - self.reach, 0) * self.ratio
        ready = math.ceil(upto) if last else int(upto)
        if ready <= self.done:
            return np.zeros((0, self.width), dtype=np.float32)
        out = self._resampled()[self.done - int(self.first * self.ratio) : ready - int(self.first * self.ratio)]
        self.done = ready
        kept = max(self.own_sample(self.done), self.first)
        self.held, self.first = self.held[kept - self.first :].copy(), kept
        return out

    def own_sample(self, sample: int) -> int:
        """From which sample of its own on the stream must be sent again, for this one at the gallery's rate."""
        return self._block(math.floor(sample / self.ratio) - 2 * self.reach - 1)

    def _block(self, sample: int) -> int:
        """The last sample up to this one at which both clocks have one."""
        return max(sample // self.ratio.denominator, 0) * self.ratio.denominator

    def _resampled(self) -> Values:
        if self.ratio == 1 or np.isnan(self.held).all():
            size = math.ceil(len(self.held) * self.ratio)
            return self.held if self.ratio == 1 else np.full((size, self.width), np.nan, dtype=np.float32)
        return Signal(self.held, self.name, self.rate_hz).resampled(self.clock_hz).values
