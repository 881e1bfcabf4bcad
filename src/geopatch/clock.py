"""Anchors -> monotone clock: where each sample stands in canonical time, and how far that can be trusted.

Anchors are alignment marks at observed times: R peaks, phone or word times, any monotone marks. How the clock runs
(speed, acceleration, curvature) is computed from it as from any other series, in `geometry`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError, at_least

Track = npt.NDArray[np.float64]

EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Clock:
    """A clock on a uniform grid."""

    time: Track  # (G,) canonical time, never decreasing
    confidence: Track  # (G,) 1 at an anchor, falling with the distance to the nearest one


def clock_from_anchors(anchors: npt.ArrayLike, grid: int, marks: npt.ArrayLike | None = None) -> Clock:
    """Sort anchors (in samples), project their marks to be monotone, interpolate at samples 0 .. grid - 1.

    `marks` are the canonical times of the anchors; without them anchor i stands at time i. Beyond the outer anchors the
    clock runs on at the rate of the nearest interval.
    """
    at_least("grid", grid, 2)
    times, values = monotone_marks(anchors, marks)
    return Clock(_interpolate(times, values, np.arange(grid, dtype=np.float64)), anchor_confidence(times, grid))


def monotone_marks(anchors: npt.ArrayLike, marks: npt.ArrayLike | None = None) -> tuple[Track, Track]:
    """Anchors in order, each once, with the nearest never-decreasing marks (least squares)."""
    from scipy.optimize import isotonic_regression  # imported where a clock is made: training needs no SciPy

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
    projected = isotonic_regression(np.bincount(place, values) / count, weights=count).x
    return times, np.asarray(projected, dtype=np.float64)


def anchor_confidence(anchors: Track, grid: int) -> Track:
    """exp(-distance / typical interval): 1 at an anchor, 0.6 half way between two, near 0 in a long gap."""
    samples = np.arange(grid)
    right = np.searchsorted(anchors, samples)
    left_gap = np.abs(samples - anchors[np.maximum(right - 1, 0)])
    right_gap = np.abs(samples - anchors[np.minimum(right, len(anchors) - 1)])
    typical = max(float(np.median(np.diff(anchors))), EPSILON)
    return np.asarray(np.exp(-np.minimum(left_gap, right_gap) / typical), dtype=np.float64)


def _interpolate(times: Track, values: Track, grid: Track) -> Track:
    from scipy.interpolate import PchipInterpolator

    inner: Track = PchipInterpolator(times, values)(np.clip(grid, times[0], times[-1]))
    before = (values[1] - values[0]) / (times[1] - times[0]) * np.minimum(grid - times[0], 0)
    after = (values[-1] - values[-2]) / (times[-1] - times[-2]) * np.maximum(grid - times[-1], 0)
    return np.maximum.accumulate(inner + before + after)
