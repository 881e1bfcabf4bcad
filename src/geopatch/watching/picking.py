"""One event for one happening: of windows that overlap and score enough, the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

HOLD = 0.25  # of a window's length: so long nothing better may come before a match is reported


@dataclass(frozen=True)
class StreamMatch:
    """A part of a stream that is like a query.

    Parameters
    ----------
    start, stop : int
        Its samples, at the gallery's rate, from the start of the stream.
    score : float
        The cosine with the query.
    decided : int
        The sample after which it was clear that nothing better comes.
    excess : float, default=0.0
        How far its nearness lies above the stream's own level.
    """

    start: int
    stop: int
    score: float
    decided: int
    excess: float = 0.0


@dataclass
class Picker:
    """Takes the scores of windows in the order of their ends, and gives the best of each happening.

    A window that overlaps the last match is the same happening.
    """

    threshold: float  # of the excess
    hold: int  # samples
    free_from: int = 0  # where the last match stopped
    pending: list[StreamMatch] = field(default_factory=list)  # windows of one happening that score enough, so far

    def take(self, start: int, stop: int, excess: float, score: float) -> StreamMatch | None:
        """The next window; a match where one is decided now."""
        if excess >= self.threshold and start >= self.free_from:
            self.pending.append(StreamMatch(start, stop, score, stop, excess))
        best = self.best
        return self.release(stop) if best is not None and stop - best.stop >= self.hold else None

    @property
    def best(self) -> StreamMatch | None:
        return max(self.pending, key=lambda match: match.excess, default=None)

    @property
    def first_needed(self) -> int | None:
        """The first sample without which the match that is pending could not be decided again."""
        return min((match.start for match in self.pending), default=None)

    def release(self, decided: int) -> StreamMatch | None:
        """The pending match, decided; None where there is none."""
        best, self.pending = self.best, []
        if best is None:
            return None
        self.free_from = best.stop
        return replace(best, decided=decided)


def peaks(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> list[float]:
    """Scores of windows that overlap no better one, largest first. The windows come in the order of their ends."""
    taken: list[tuple[int, int]] = []
    kept: list[float] = []
    longest = int((stops - starts).max()) if len(starts) else 0
    free = np.isfinite(scores)
    for row in np.argsort(-scores, kind="stable"):
        if free[row]:
            kept.append(float(scores[row]))
            taken.append((int(starts[row]), int(stops[row])))
            first, last = np.searchsorted(stops, [starts[row], stops[row] + longest], side="right")
            near = slice(int(first), int(last))
            free[near] &= (starts[near] >= stops[row]) | (stops[near] <= starts[row])
    return kept


def best_of_ends(
    windows: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]], lengths: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Starts, stops and scores of the best window at each end; `windows` are ends and scores for each length."""
    ends = np.unique(np.concatenate([ends for ends, _ in windows]))
    score, length = np.full(len(ends), -np.inf), np.zeros(len(ends), dtype=np.int64)
    for (own, scores), samples in zip(windows, lengths, strict=True):
        rows = np.searchsorted(ends, own)
        better = scores > score[rows]
        score[rows[better]], length[rows[better]] = scores[better], samples
    return ends - length, ends, score
