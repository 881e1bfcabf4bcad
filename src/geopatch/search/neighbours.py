"""The nearest other window of every window of a gallery, in about N log N; what overlaps in time is no neighbour.

Windows are split by planes drawn at random until few are together, several times over; who is near another is with it
in one of these groups. What comes of it bounds the true cosine from below. Where it matters, it is computed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Embeddings

EXACT_BELOW = 8_192  # windows, which are all compared with each other
GROUP, ROUNDS = 512, 6  # windows of a group, and how many times all are split into groups
COMPARED = 2**25  # cosines in memory together

Rows = npt.NDArray[np.intp]
Cosines = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Nearest:
    """Of each window the largest cosine with one that does not overlap it, and which that is; -1 where there is none.

    Unless `exact`, there may be a nearer one.
    """

    cosine: Cosines  # (N,), -inf where there is none
    row: Rows  # (N,)


class Neighbours:
    """Windows with their vectors, compared by cosine."""

    def __init__(self, windows: Embeddings) -> None:
        self.vectors, self.start_s, self.stop_s = windows.vectors, windows.start_s, windows.stop_s
        self.record = np.unique(np.asarray(windows.records, dtype=object), return_inverse=True)[1]

    def __len__(self) -> int:
        return len(self.vectors)

    def overlapping(self, rows: Rows, others: Rows | slice) -> npt.NDArray[np.bool_]:
        """Whether windows (R,) overlap others (M,) in time, in one record: (R, M)."""
        same: npt.NDArray[np.bool_] = self.record[rows, None] == self.record[others]
        same &= self.start_s[rows, None] < self.stop_s[others]
        same &= self.stop_s[rows, None] > self.start_s[others]
        return same

    def nearest(self) -> Nearest:
        """Of every window; exact in small galleries."""
        count = len(self)
        if count <= EXACT_BELOW:
            return self.exact(np.arange(count))
        cosine, row = np.full(count, -np.inf, dtype=np.float32), np.full(count, -1, dtype=np.intp)
        for group in self.groups(ROUNDS):
            near = self._within(group)
            best = near.argmax(1)
            value = near[np.arange(len(group)), best]
            better = value > cosine[group]
            cosine[group[better]], row[group[better]] = value[better], group[best[better]]
        return Nearest(cosine, row)

    def exact(self, rows: Rows) -> Nearest:
        """Of some windows, by comparing them with all."""
        cosine, row = np.full(len(rows), -np.inf, dtype=np.float32), np.full(len(rows), -1, dtype=np.intp)
        step = max(COMPARED // max(len(self), 1), 1)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            near = self.vectors[part] @ self.vectors.T
            near[self.overlapping(part, slice(None))] = -np.inf
            best = near.argmax(1)
            value = near[np.arange(len(part)), best]
            cosine[start : start + step] = value
            row[start : start + step] = np.where(value > -np.inf, best, -1)
        return Nearest(cosine, row)

    def crowd(self, least: float, others: Rows) -> npt.NDArray[np.int64]:
        """With how many of some windows each window has at least this cosine (N,)."""
        counts, step = np.zeros(len(self), dtype=np.int64), max(COMPARED // max(len(others), 1), 1)
        for start in range(0, len(self), step):
            counts[start : start + step] = (self.vectors[start : start + step] @ self.vectors[others].T >= least).sum(1)
        return counts

    def group_crowd(self, least: float) -> npt.NDArray[np.int64]:
        """How many windows of its group are this near to each window and do not overlap it (N,)."""
        counts = np.zeros(len(self), dtype=np.int64)
        for group in self.groups(1):
            counts[group] = (self._within(group) >= least).sum(1)
        return counts

    def groups(self, rounds: int) -> Iterator[Rows]:
        """All windows in groups of those on the same side of planes, so many times over."""
        draw = np.random.default_rng(0)
        for _ in range(rounds):
            waiting = [np.arange(len(self))]
            while waiting:
                rows = waiting.pop()
                if len(rows) <= GROUP:
                    yield rows
                    continue
                first, second = draw.choice(rows, 2, replace=False)
                side = self.vectors[rows] @ (self.vectors[first] - self.vectors[second])
                order, half = np.argpartition(side, len(rows) // 2), len(rows) // 2
                waiting += [rows[order[:half]], rows[order[half:]]]

    def _within(self, group: Rows) -> Cosines:
        near: Cosines = self.vectors[group] @ self.vectors[group].T
        near[self.overlapping(group, group)] = -np.inf
        return near
