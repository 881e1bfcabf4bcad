"""What sensors and clocks do to a query: other speeds, a part of it, a shift, noise, a wandering level, gain, a gap.

Windows keep their length. What was not measured stays so; a window of which nothing measured would be left stays as it
is. Marks (anchors) go where the samples go that they stand at.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.signal import Signal
from geopatch.warp import read_at

SEED = 1337
SPEEDS = 6  # pieces of a window that have a speed of their own
TURNS = (0.5, 2.0)  # of a wander within a window
LEAST_GAIN, MOST_GAIN = 0.6, 1.6  # at strength 1

Floats = npt.NDArray[np.float64]


def generator(place: int, name: str) -> np.random.Generator:
    """The random numbers of one window under one distortion."""
    return np.random.default_rng((SEED, place, zlib.crc32(name.encode())))


def speeds(signal: Signal, strength: float, place: int) -> Signal:
    """Six pieces of equal length, each with a part of the window whose length is log-normal of this spread."""
    steps = np.exp(strength * generator(place, "speed").normal(size=SPEEDS))
    ends = np.concatenate([[0.0], np.cumsum(steps / steps.sum())]) * (signal.length - 1)
    pieces = np.linspace(0, signal.length - 1, SPEEDS + 1)
    marks = signal.anchors
    if marks is not None and signal.length > 1:
        outside = (marks < 0) | (marks > signal.length - 1)
        marks = np.where(outside, marks, np.interp(marks, ends, pieces))
    return _read(signal, np.interp(np.arange(signal.length), pieces, ends), marks)


def zoomed(signal: Signal, strength: float, place: int) -> Signal:
    """A part of the window, shorter by `strength` and anywhere in it, stretched to the length."""
    start = generator(place, "zoom").uniform() * strength * (signal.length - 1)
    return _on_line(signal, start, 1 - strength)


def squeezed(signal: Signal, strength: float, _place: int) -> Signal:
    """The whole window in the middle 1 - strength of its time, its ends held."""
    return _on_line(signal, -strength / 2 * (signal.length - 1) / (1 - strength), 1 / (1 - strength))


def shifted(signal: Signal, strength: float, place: int) -> Signal:
    """Earlier or later by `strength` of the window, what lacks held."""
    sign = -1 if generator(place, "shift").uniform() < 0.5 else 1
    return _on_line(signal, sign * strength * signal.length, 1.0)


def _on_line(signal: Signal, start: float, speed: float) -> Signal:
    """Read at start + speed t. All marks move, those beyond the window too: such a clock has no end."""
    marks = None if signal.anchors is None else (signal.anchors - start) / speed
    times: Floats = start + speed * np.arange(signal.length, dtype=np.float64)
    return _read(signal, times, marks)


def _read(signal: Signal, times: Floats, marks: Floats | None) -> Signal:
    values = read_at(signal.values, times)
    return signal if np.isnan(values).all() else replace(signal, values=values, anchors=marks)


def gained(signal: Signal, strength: float, place: int) -> Signal:
    """All values times one number, at strength 1 between 0.6 and 1.6."""
    drawn = LEAST_GAIN + (MOST_GAIN - LEAST_GAIN) * generator(place, "gain").uniform()
    return replace(signal, values=signal.values * np.float32(1 + strength * (drawn - 1)))


def dropped(signal: Signal, strength: float, place: int) -> Signal:
    """A span of int(strength T) samples, one at least, bridged by a line between the samples beside it.

    At an end of the window, and where the sample beside it was not measured, the other is held.
    """
    width = max(int(strength * signal.length), 1)
    start = int(generator(place, "drop").uniform() * (signal.length - width))
    span = slice(start, start + width)
    left, right = signal.values[max(start - 1, 0)], signal.values[min(start + width, signal.length - 1)]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    share = (np.arange(1, width + 1, dtype=np.float32) / (width + 1))[:, None]
    values = signal.values.copy()
    values[span] = np.where(signal.observed[span], left + (right - left) * share, np.nan)
    return signal if np.isnan(values).all() else replace(signal, values=values)


# What is added to a query, in units of the spread of each channel: (T, C) for a length, channels and a place.
Added = Callable[[int, int, int], Floats]


def white(length: int, channels: int, place: int) -> Floats:
    """White noise."""
    return generator(place, "noise").normal(size=(length, channels))


def slow_sine(length: int, channels: int, place: int) -> Floats:
    """A sine of half a turn to two turns, each channel with its own turns and phase."""
    drawn = generator(place, "wander").uniform(size=(2, channels))
    turns = TURNS[0] + (TURNS[1] - TURNS[0]) * drawn[0]
    sine: Floats = np.sin(2 * np.pi * (turns * np.arange(length)[:, None] / length + drawn[1]))
    return sine


def spread_of(signals: Sequence[Signal]) -> Floats:
    """The standard deviation of each channel over all measured samples of these windows; 0 where there is none."""
    values = np.concatenate([signal.values for signal in signals]).astype(np.float64)
    measured: Any = np.ma.masked_invalid(values)  # type: ignore[no-untyped-call]
    spread: Floats = measured.std(0).filled(0.0)
    return spread


def raised(signal: Signal, added: Floats) -> Signal:
    """The signal with something added to it."""
    return replace(signal, values=(signal.values + added).astype(np.float32))
