"""An inventory: what a set of windows holds, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from geopatch.data.recording import WindowSet


@dataclass(frozen=True)
class Inventory:
    """Counts of one side of a split; a window without a record of its own is its own record."""

    windows: int
    records: tuple[str, ...]
    recorded_s: float  # from the first window of each record to the end of its last
    rate_hz: float | None
    channels: int
    shortest: int  # samples of a window
    longest: int
    targets: Mapping[str, Mapping[str, int]]  # windows of each class, the largest first


def take_inventory(windows: WindowSet) -> Inventory:
    spans: dict[str, tuple[float, float]] = {}
    for signal in windows.signals:
        record, stop_s = signal.record or signal.id, signal.start_s + signal.duration_s
        first_s, last_s = spans.get(record, (signal.start_s, stop_s))
        spans[record] = min(first_s, signal.start_s), max(last_s, stop_s)
    lengths = [signal.length for signal in windows.signals]
    return Inventory(
        windows=len(windows),
        records=tuple(spans),
        recorded_s=float(np.sum([last_s - first_s for first_s, last_s in spans.values()])),
        rate_hz=windows.signals[0].rate_hz,
        channels=windows.signals[0].values.shape[1],
        shortest=min(lengths),
        longest=max(lengths),
        targets={target: dict(Counter(labels.tolist()).most_common()) for target, labels in windows.targets.items()},
    )
