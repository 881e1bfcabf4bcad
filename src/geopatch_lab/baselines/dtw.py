"""Dynamic time warping of every query with every series of a gallery, many pairs at once, on a CPU or a GPU.

Cells of one anti-diagonal of the cost matrix do not depend on each other. So the recursion walks over anti-diagonals,
and each step is a handful of operations on all pairs of a block.

Why not aeon's: it has no GPU. On one core aeon is faster (24 series of 150 samples: 0.04 s against 0.21 s, with a band
of 10 % 0.007 s against 0.24 s; medians of three in one run), so this is kept for the study, which runs on a GPU: all
its 174 jobs by DTW took 139 s on one H200 (`results/study-cost.json`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from geopatch.errors import at_least
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch_lab.baselines.method import Floats, Scale, check_amplitude, fitted, median_length, resampled

CPU_CELLS, GPU_CELLS = 2**18, 2**22  # of one anti-diagonal over all pairs of a block: what a cache holds
TOGETHER = 8  # queries of a block


class DTW:
    """Minus the dependent (all channels on one path) DTW distance, with a Sakoe-Chiba band as a share of the length.

    Unequal lengths are compared as they are. The cost is quadratic in the length, so where the training median is
    longer than `longest` samples every series is resampled by the one factor that brings the median down to it.
    """

    def __init__(
        self, *, band: float | None = None, amplitude: str = "keep", longest: int = 512, device: str = "cpu"
    ) -> None:
        at_least("longest", longest, 2)
        self.name = "dtw" if band is None else f"dtw-{band * 100:g}"
        self.band, self.amplitude, self.longest = band, check_amplitude(amplitude), longest
        self.device = torch.device(device)
        self.scale: Scale | None = None
        self.factor = 1.0

    def fit(self, signals: Sequence[Signal], labels: Any = None, seed: int = 0) -> None:
        self.scale = Scale.learn(self.amplitude, stack(signals))
        self.factor = min(1.0, self.longest / median_length(signals))

    def scores(self, queries: Sequence[Signal], gallery: Sequence[Signal]) -> Floats:
        gallery_series = self._series(gallery)
        query_series = gallery_series if queries is gallery else self._series(queries)
        return -dtw_distances(query_series, gallery_series, band=self.band, device=self.device)

    def _series(self, signals: Sequence[Signal]) -> list[Floats]:
        series = fitted(self.name, self.scale).apply(signals)
        lengths = [max(round(len(values) * self.factor), 1) for values in series]
        return [resampled(values, length) for values, length in zip(series, lengths, strict=True)]


def dtw_distances(
    queries: Sequence[Floats], gallery: Sequence[Floats], *, band: float | None = None, device: torch.device
) -> Floats:
    """(Q, N) Euclidean lengths of the best paths between series (T, C).

    A band lets a path leave the straight line from start to end by that share of the shorter series.
    """
    at_least("band", 0 if band is None else band, 0)
    query_side, gallery_side = _Side.of(queries, device), _Side.of(gallery, device)
    longest = max(query_side.longest, gallery_side.longest)
    diagonal = longest if band is None else min(2 * band * longest + 1, longest)
    cells = CPU_CELLS if device.type == "cpu" else GPU_CELLS
    wide = max(int(cells / diagonal / TOGETHER), 1)
    distances = np.empty((len(queries), len(gallery)), dtype=np.float32)
    for start, rows, some in query_side.blocks(TOGETHER):
        for _, columns, others in gallery_side.blocks(
            wide, start if queries is gallery else 0
        ):  # the rest is its mirror
            block = _block(some, others, band).sqrt().cpu().numpy()
            distances[np.ix_(rows, columns)] = block
            if queries is gallery:
                distances[np.ix_(columns, rows)] = block.T
    return distances


@dataclass(frozen=True, eq=False)
class _Side:
    """Series of one side of a block, padded: values (T, C, N)."""

    values: Tensor
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, series: Sequence[Floats], device: torch.device) -> _Side:
        values = pad_sequence([torch.from_numpy(np.ascontiguousarray(one)) for one in series])  # (T, N, C)
        lengths = np.asarray([len(one) for one in series], dtype=np.int64)
        return cls(values.transpose(1, 2).contiguous().to(device), lengths)

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def blocks(self, size: int, first: int = 0) -> Iterator[tuple[int, npt.NDArray[np.int64], _Side]]:
        """Where each starts and which series it has: those of like length together, so that little is padded."""
        order = np.argsort(self.lengths, kind="stable")
        for start in range(first, len(order), size):
            part = order[start : start + size]
            lengths = self.lengths[part]
            values = self.values[: lengths.max(), :, torch.from_numpy(part).to(self.values.device)]
            yield start, part, _Side(values, lengths)


def _block(query: _Side, gallery: _Side, band: float | None) -> Tensor:
    """Squared distances (Q, N) of all pairs of a block."""
    rows, columns = query.longest, gallery.longest
    pairs = (len(query.lengths), len(gallery.lengths))
    device = query.values.device
    backwards = gallery.values.flip(0)  # so that one anti-diagonal is a slice of both sides
    before, last, new = (torch.full((rows + 2, *pairs), torch.inf, device=device) for _ in range(3))
    before[0] = 0.0  # the path starts here
    step, cost = (torch.empty((rows, *pairs), device=device) for _ in range(2))
    reach = _Reach(query.lengths, gallery.lengths, band)
    ends = _Ends(query.lengths, gallery.lengths, device)
    for diagonal in range(rows + columns - 1):
        low, high = reach.span(diagonal)
        low, high = max(low, diagonal - columns + 1), min(high, diagonal + 1, rows)
        if low < high:
            ours = query.values[low:high, :, :, None]
            start = columns - 1 - diagonal
            theirs = backwards[start + low : start + high, :, None]
            part, total = step[: high - low], cost[: high - low].zero_()
            for channel in range(ours.shape[1]):
                torch.sub(ours[:, channel], theirs[:, channel], out=part)
                total.addcmul_(part, part)
            torch.minimum(last[low:high], last[low + 1 : high + 1], out=part)
            torch.minimum(part, before[low:high], out=part)
            torch.add(part, total, out=new[low + 1 : high + 1])
            reach.close(new[low + 1 : high + 1], diagonal, low)
        new[low] = torch.inf
        new[max(high, low) + 1] = torch.inf
        ends.read(new, diagonal)
        before, last, new = last, new, before
    return ends.distances


class _Reach:
    """Which cells of an anti-diagonal a band lets a path through: rows low <= i <= high, for each pair its own."""

    def __init__(
        self, query_lengths: npt.NDArray[np.int64], gallery_lengths: npt.NDArray[np.int64], band: float | None
    ) -> None:
        self.is_open = band is None
        if band is None:
            return
        rows, columns = np.meshgrid(query_lengths, gallery_lengths, indexing="ij")
        shorter = np.minimum(rows, columns)
        down = (shorter - 1) / np.maximum(rows - 1, 1)  # what one row is on the shorter side
        right = (shorter - 1) / np.maximum(columns - 1, 1)
        width = np.maximum(np.floor(band * shorter), 0.5) + 1e-6  # half a sample: the line itself, in whole samples
        both = np.where(down + right > 0, down + right, 1.0)
        self.slope, self.width = right / both, np.where(down + right > 0, width / both, np.inf)

    def span(self, diagonal: int) -> tuple[int, int]:
        """The rows, first and after the last, that any pair reaches."""
        if self.is_open or not np.isfinite(self.width).all():
            return 0, diagonal + 1
        middle = diagonal * self.slope
        return max(int(np.ceil((middle - self.width).min())), 0), int(np.floor((middle + self.width).max())) + 1

    def close(self, cells: Tensor, diagonal: int, first: int) -> None:
        """Cells that others reach and a pair does not are not on its path."""
        if self.is_open:
            return
        middle = diagonal * self.slope
        lowest, highest = np.ceil(middle - self.width), np.floor(middle + self.width)
        if lowest.max() <= first and highest.min() >= first + len(cells) - 1:
            return
        at = torch.arange(first, first + len(cells), device=cells.device)[:, None, None]
        low, high = (torch.from_numpy(side).to(cells.device) for side in (lowest, highest))
        cells.masked_fill_((at < low) | (at > high), torch.inf)


class _Ends:
    """The last cell of each pair, read when its anti-diagonal comes by."""

    def __init__(
        self, query_lengths: npt.NDArray[np.int64], gallery_lengths: npt.NDArray[np.int64], device: torch.device
    ) -> None:
        diagonal = (query_lengths[:, None] + gallery_lengths - 2).ravel()
        order = np.argsort(diagonal, kind="stable")
        self.starts = np.searchsorted(diagonal[order], np.arange(diagonal.max() + 2))
        cell = np.repeat(query_lengths, len(gallery_lengths)) * len(diagonal) + np.arange(
            len(diagonal)
        )  # row i is at i + 1
        self.order, self.cells = (torch.from_numpy(part).to(device) for part in (order, cell[order]))
        self.distances = torch.empty((len(query_lengths), len(gallery_lengths)), device=device)

    def read(self, cells: Tensor, diagonal: int) -> None:
        part = slice(*self.starts[diagonal : diagonal + 2])
        if part.start < part.stop:
            self.distances.view(-1)[self.order[part]] = cells.view(-1)[self.cells[part]]
