"""Another clock: a signal read faster here and slower there, its ends held."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError
from geopatch.signal import Signal, Values

WARP = 0.1  # of queries under stress
STRONGEST = 1 / (2 * math.pi)  # beyond it time would run backwards


def warped(signal: Signal, strength: float = WARP) -> Signal:
    """The signal read at t + strength T sin(2 pi t / T), by straight lines, its ends held. NaN stays NaN."""
    check_warp(strength)
    time = np.arange(signal.length)
    moved = time + strength * signal.length * np.sin(2 * np.pi * time / signal.length)
    return replace(signal, values=read_at(signal.values, moved), anchors=_warped_anchors(signal, strength))


def read_at(values: Values, times: npt.NDArray[np.float64]) -> Values:
    """Values (T, C) at fractional samples, by straight lines, the ends held. NaN stays NaN."""
    moved = np.clip(times, 0, len(values) - 1)
    left = np.floor(moved).astype(int)
    right = np.minimum(left + 1, len(values) - 1)
    share = (moved - left).astype(np.float32)[:, None]
    low, high = values[left], values[right]
    return np.where(share > 0, low + (high - low) * share, low)


def _warped_anchors(signal: Signal, strength: float) -> npt.NDArray[np.float64] | None:
    """Where the marks are seen now: at the time t whose sigma(t) is the mark. Beyond the window nothing moves."""
    if signal.anchors is None:
        return None
    time = np.linspace(0, signal.length, 8 * signal.length + 1)
    moved = time + strength * signal.length * np.sin(2 * np.pi * time / signal.length)
    outside = (signal.anchors < 0) | (signal.anchors > signal.length)
    return np.where(outside, signal.anchors, np.interp(signal.anchors, moved, time))


def check_warp(strength: float) -> None:
    if not abs(strength) < STRONGEST:
        raise ConfigError(f"warp strength must lie within +-{STRONGEST:.3f} so that time runs forward, got {strength}")
