"""How near a stream is to a pattern as a rule: what is reported stands out from the stream's own level.

Windows of one patient, voice or machine are alike: one that is near to a pattern means hundreds that are. So a match is
judged by how much nearer it is than most windows of its own stream. The level is learnt block by block, and is that of
a gallery's signal to begin with; a block is judged by the blocks before it, so that it comes out the same again when a
stream is taken up from the start of a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

QUANTILE = 0.95  # of the windows of a stream: what fills fewer than a twentieth of them does not raise it
BIN, BINS = 0.02, 400  # of nearness
PRIOR = 60  # windows of the gallery that a stream begins with
MOST = 8_192  # windows that are remembered; then the older ones begin to count less
BLOCK_STRIDES = 32


def score_at(near: float) -> float:
    """The score of a nearness."""
    return float(np.sqrt(max(1 - np.exp(-near), 0.0)))


def prior_of(near: Floats) -> tuple[float, ...]:
    """So many windows as a stream begins with, spread like these."""
    return tuple(np.quantile(near, (np.arange(PRIOR) + 0.5) / PRIOR).tolist())


class StreamLevel:
    """The level of one stream for one watch. Windows come in the order of their ends."""

    def __init__(self, prior: Sequence[float], block_samples: int) -> None:
        self._size, self._counts = block_samples, _counts(np.asarray(prior))
        self._fresh = np.zeros(BINS)  # of the present block
        self.block = -1
        self._levels = (_quantile(self._counts),) * 2  # of the block before and of the present one

    @property
    def start(self) -> int:
        """The sample from which on windows of the present block end."""
        return max(self.block, 0) * self._size

    def excess(self, ends: npt.NDArray[np.int64], near: Floats) -> Floats:
        """How far above the level windows are that end at these samples; -inf where nothing is known any more."""
        return np.asarray([self._one(*pair) for pair in zip(ends.tolist(), near.tolist(), strict=True)])

    def _one(self, end: int, near: float) -> float:
        """Without arrays: a chunk of a stream brings two or three windows."""
        block = end // self._size
        if block > self.block:
            self._advance(block)
        if block < self.block - 1:
            return -math.inf
        if block == self.block and near > -math.inf:
            self._fresh[min(int(near / BIN), BINS - 1)] += 1
        return near - self._levels[block - self.block + 1]

    def _advance(self, block: int) -> None:
        self._counts += self._fresh
        if self._counts.sum() > MOST:
            self._counts /= 2
        self._fresh, self.block = np.zeros(BINS), block
        self._levels = (self._levels[1], _quantile(self._counts))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, of all but the present block."""
        filled = np.flatnonzero(self._counts)
        counts = {str(n): float(self._counts[n]) for n in filled}
        return {"block": self.block, "levels": list(self._levels), "counts": counts}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], block_samples: int) -> StreamLevel:
        """What `as_dict` gave."""
        level = cls((), block_samples)
        for n, count in fields["counts"].items():
            level._counts[int(n)] = count
        level.block, level._levels = fields["block"], (fields["levels"][0], fields["levels"][1])
        return level


def _counts(near: Floats) -> Floats:
    return np.bincount(np.minimum(near / BIN, BINS - 1).astype(np.intp), minlength=BINS).astype(np.float64)


def _quantile(counts: Floats) -> float:
    total = counts.cumsum()
    return float((np.searchsorted(total, QUANTILE * total[-1]) + 0.5) * BIN) if total[-1] else 0.0
