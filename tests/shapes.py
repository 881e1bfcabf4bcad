"""Windows of two shapes that anybody can tell apart, for tests of the study."""

from __future__ import annotations

import numpy as np

from geopatch.data.collection import WindowSet
from geopatch.signal import Signal


def windows(name: str, count: int, first: int, *, records: bool = False) -> WindowSet:
    """Two shapes with noise; of recordings, four windows to a record, half overlapping."""
    draw, time = np.random.default_rng(first), np.linspace(0, 6, 40)
    signals = tuple(
        Signal(
            (np.sin(time * (1 + n % 2)) + 0.1 * draw.normal(size=40)).astype(np.float32)[:, None],
            id=f"{name} {first + n}",
            rate_hz=10.0,
            record=f"r{(first + n) // 4}" if records else "",
            start_s=2.0 * (n % 4) if records else 0.0,
        )
        for n in range(count)
    )
    return WindowSet(name, signals, {"class": np.asarray([f"c{n % 2}" for n in range(count)])})
