"""The warp that queries are put under: sigma(t) = t + strength T sin(2 pi t / T)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from geopatch.errors import ConfigError
from geopatch.signal import Signal

WARP = 0.1
STRONGEST = 1 / (2 * math.pi)  # beyond it time would run backwards


def warped(signal: Signal, strength: float = WARP) -> Signal:
    """The signal read at sigma(t), by straight lines, its ends held. What was not measured stays so."""
    if not abs(strength) < STRONGEST:
        raise ConfigError(f"warp strength must lie within +-{STRONGEST:.3f} so that time runs forward, got {strength}")
    time = np.arange(signal.length)
    moved = time + strength * signal.length * np.sin(2 * np.pi * time / signal.length)
    moved = np.clip(moved, 0, signal.length - 1)
    left = np.floor(moved).astype(int)
    right = np.minimum(left + 1, signal.length - 1)
    share = (moved - left).astype(np.float32)[:, None]
    low, high = signal.values[left], signal.values[right]
    mixed = np.where(share > 0, low + (high - low) * share, low)
    return replace(signal, values=mixed)
