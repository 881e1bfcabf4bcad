"""Anchors -> monotone clock: where each sample stands in canonical time, and how that clock runs.

Anchors are alignment marks at observed times: R peaks, phone or word times, any monotone marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError, at_least, one_of

Track = npt.NDArray[np.float64]

EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Clock:
    """A clock on a uniform grid: canonical time, its differences, its curvature, and how far it can be trusted."""

    time: Track  # (G,) canonical time, never decreasing
    speed: Track  # (G,)
    acceleration: Track  # (G,)
    curvature: Track  # (G,)
    confidence: Track  # (G,) 1 at an anchor, falling with the distance to the nearest one


def clock_from_anchors(
    anchors: npt.ArrayLike,
    grid: int,
    marks: npt.ArrayLike | None = None,
    *,
    solver: str = "pchip",
    smooth: int = 1,
) -> Clock:
    """Sort anchors (in samples), project their marks to be monotone, interpolate at samples 0 .. grid - 1.

    `marks` are the canonical times of the anchors; without them anchor i stands at time i. `smooth` is the width of a
    moving average over the clock. Beyond the outer anchors the clock runs on at the rate of the nearest interval.
    """
    one_of("solver", solver, ("pchip", "trend"))
    at_least("grid", grid, 2)
    at_least("smooth", smooth, 1)
    times, values = monotone_marks(anchors, marks)
    time = _interpolate(times, values, np.arange(grid, dtype=np.float64))
    if solver == "trend":
        time = trend_filter(time)
    if smooth > 1:
        time = _moving_average(time, smooth)
    return _clock(time, times)


def monotone_marks(anchors: npt.ArrayLike, marks: npt.ArrayLike | None = None) -> tuple[Track, Track]:
    """Anchors in order, each once, with the nearest never-decreasing marks (least squares)."""
    times = np.asarray(anchors, dtype=np.float64).ravel()
    values = np.zeros(len(times)) if marks is None else np.asarray(marks, dtype=np.float64).ravel()
    if len(values) != len(times):
        raise SignalError(f"expected one mark for each of {len(times)} anchors, got {len(values)}")
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        raise SignalError("anchors and marks must be finite; leave out those that are missing")
    times, place = np.unique(times, return_inverse=True)
    if len(times) < 2:
        raise SignalError(f"a clock needs two anchors at different times, got {len(times)}")
    if marks is None:
        return times, np.arange(len(times), dtype=np.float64)
    count = np.bincount(place)
    projected = _scipy("optimize").isotonic_regression(np.bincount(place, values) / count, weights=count).x
    return times, np.asarray(projected, dtype=np.float64)


def trend_filter(time: Track, strength: float = 1.0, iterations: int = 200) -> Track:
    """min 1/2 |x - time|^2 + strength |D^2 x|_1 with x never decreasing, by ADMM on both parts.

    Should the iterations not suffice, the result is still no worse than the running maximum of `time`.
    """
    banded = _scipy("linalg").solveh_banded
    size, x = len(time), time.copy()
    if size < 3:
        return x
    largest = max(float(np.abs(np.diff(time, 2)).max()), EPSILON)
    penalty = strength / largest  # shrinks bends by the largest there is: a fixed one suits one scale of clock only
    system = penalty * _normal_bands(size)  # I + penalty (D1'D1 + D2'D2)
    system[2] += 1 - penalty
    bend, rise = np.diff(time, 2), np.diff(time)
    bend_dual, rise_dual = np.zeros(size - 2), np.zeros(size - 1)
    for _ in range(iterations):
        pull = _second_transposed(bend - bend_dual, size) + _first_transposed(rise - rise_dual, size)
        x = banded(system, time + penalty * pull)
        second, first = np.diff(x, 2) + bend_dual, np.diff(x) + rise_dual
        bend = np.sign(second) * np.maximum(np.abs(second) - largest, 0)
        rise = np.maximum(first, 0)
        bend_dual, rise_dual = second - bend, first - rise
    allowed = np.maximum.accumulate(x), np.maximum.accumulate(time)
    return min(allowed, key=lambda found: _trend_cost(found, time, strength))


def _trend_cost(x: Track, time: Track, strength: float) -> float:
    return float(np.square(x - time).sum() / 2 + strength * np.abs(np.diff(x, 2)).sum())


def _interpolate(times: Track, values: Track, grid: Track) -> Track:
    inner: Track = _scipy("interpolate").PchipInterpolator(times, values)(np.clip(grid, times[0], times[-1]))
    before = (values[1] - values[0]) / (times[1] - times[0]) * np.minimum(grid - times[0], 0)
    after = (values[-1] - values[-2]) / (times[-1] - times[-2]) * np.maximum(grid - times[-1], 0)
    return np.maximum.accumulate(inner + before + after)


def _clock(time: Track, anchors: Track) -> Clock:
    speed = np.gradient(time)
    acceleration = np.gradient(speed)
    curvature = np.abs(acceleration) / ((1 + speed**2) ** 1.5 + EPSILON)
    return Clock(time, speed, acceleration, curvature, anchor_confidence(anchors, len(time)))


def anchor_confidence(anchors: Track, grid: int) -> Track:
    """exp(-distance / typical interval): 1 at an anchor, 0.6 half way between two, near 0 in a long gap."""
    samples = np.arange(grid)
    right = np.searchsorted(anchors, samples)
    left_gap = np.abs(samples - anchors[np.maximum(right - 1, 0)])
    right_gap = np.abs(samples - anchors[np.minimum(right, len(anchors) - 1)])
    typical = max(float(np.median(np.diff(anchors))), EPSILON)
    return np.asarray(np.exp(-np.minimum(left_gap, right_gap) / typical), dtype=np.float64)


def _moving_average(time: Track, width: int) -> Track:
    padded = np.pad(time, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


def _normal_bands(size: int) -> Track:
    """I + D1'D1 + D2'D2 as the upper bands that solveh_banded takes."""
    first, second = np.diff(np.eye(min(size, 7)), axis=0), np.diff(np.eye(min(size, 7)), 2, axis=0)
    small = np.eye(min(size, 7)) + first.T @ first + second.T @ second
    bands = np.zeros((3, size))
    for offset in range(3):
        diagonal = np.diagonal(small, offset)
        if size <= 7:
            bands[2 - offset, offset:] = diagonal
            continue
        middle = np.full(size - offset, diagonal[3 - offset // 2 - offset % 2])
        middle[:3], middle[-3:] = diagonal[:3], diagonal[-3:]
        bands[2 - offset, offset:] = middle
    return bands


def _first_transposed(d: Track, size: int) -> Track:
    out = np.zeros(size)
    out[1:] += d
    out[:-1] -= d
    return out


def _second_transposed(d: Track, size: int) -> Track:
    out = np.zeros(size)
    out[2:] += d
    out[1:-1] -= 2 * d
    out[:-2] += d
    return out


def _scipy(module: str) -> Any:
    """SciPy is imported only where a clock is made: training needs none."""
    import importlib

    return importlib.import_module(f"scipy.{module}")
