"""Relative tempo: the clock of a window against the clock round it.

An interval between anchors is short only beside those before and after it. The numbers here say how the intervals that
touch a window stand to those of its surroundings: the anchors that a window keeps from before its start and after its
end. Ratios and steps are logarithms of quotients, so that the unit of time cancels; the two that do not are named.
NaN says that a number is not known: no anchor, one anchor, or none near the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geopatch.arrays import Anchors
from geopatch.config import RHYTHM, TEMPO_COLUMNS

Columns = npt.NDArray[np.float64]  # (B, len(RHYTHM))
Mask = npt.NDArray[np.bool_]

LEVEL = ("tempo", "surroundings")  # in units of time: a constant is added where that changes
LEAST_INTERVALS = 3  # in the surroundings, the window's own among them, for one to be short or long beside the others
GAP = 4.0  # times the median interval: what is longer is no interval, but a place where anchors are missing
FLAT = 1e-6  # a mean square of steps below this is none


def rhythm(anchors: Sequence[Anchors | None], lengths: Sequence[int], surroundings: int) -> Columns:
    """Relative tempo of windows by their anchors, in samples from the start of each.

    Parameters
    ----------
    anchors : sequence of arrays or None
        The anchors of each window and of its surroundings.
    lengths : sequence of int
        Samples of each window.
    surroundings : int
        Intervals on either side of those that touch a window that count as its surroundings.

    Returns
    -------
    array of shape (B, len(RHYTHM))
        shortest, longest : log of that interval, of those that end in the window, over the median of the surroundings.
        fall : largest step down to one of them from the interval before it, in logs: an anchor that comes early.
        rise : largest step up from one of them to the interval after it: a pause.
        spread : standard deviation of the logs in the surroundings.
        change : mean size of the steps in the surroundings.
        alternation : correlation of successive steps there: -1 where short and long take turns.
        tempo, surroundings : log of the mean interval that touches the window, and of the median of its surroundings,
        in samples.
    """
    intervals, touching, own, around = _intervals(anchors, np.asarray(lengths), surroundings)
    logs = _known_logs(intervals, around)
    with np.errstate(invalid="ignore", divide="ignore"):
        median, steps = _median(logs), np.diff(logs, axis=1)
        ends = np.where(own, logs, np.nan)
        columns = {
            "shortest": _least(ends) - median,
            "longest": -_least(-ends) - median,
            "fall": _least(np.where(own[:, 1:], steps, np.nan)),
            "rise": -_least(-np.where(own[:, :-1], steps, np.nan)),
            "spread": np.sqrt(_mean((logs - _mean(logs)[:, None]) ** 2)),
            "change": _mean(np.abs(steps)),
            "alternation": _mean(steps[:, 1:] * steps[:, :-1]) / np.maximum(_mean(steps**2), FLAT),
            "tempo": np.log(_mean(np.exp(np.where(touching, logs, np.nan)))),
            "surroundings": median,
        }
    near, enough = ~np.isnan(ends).all(1), (~np.isnan(logs)).sum(1) >= LEAST_INTERVALS
    known = [near if name in LEVEL else near & enough for name in RHYTHM]
    return np.where(np.stack(known, axis=1), np.stack([columns[name] for name in RHYTHM], axis=1), np.nan)


def tempo_track(
    anchors: Sequence[Anchors | None], lengths: Sequence[int], surroundings: int, samples: int
) -> npt.NDArray[np.float32]:
    """Relative tempo at every sample (B, samples, TEMPO_COLUMNS): of the interval that it lies in.

    Its log over the median of the surroundings, the step from the interval before it, and 1 where both are known; 0
    where nothing is.
    """
    intervals, _, _, around = _intervals(anchors, np.asarray(lengths), surroundings)
    logs = _known_logs(intervals, around)
    relative, steps = logs - _median(logs)[:, None], np.diff(logs, axis=1, prepend=np.nan)
    known = ~np.isnan(relative) & ~np.isnan(steps)
    columns = np.stack([np.where(known, relative, 0.0), np.where(known, steps, 0.0), known], axis=-1)
    columns = np.concatenate([columns, np.zeros_like(columns[:, :1])], axis=1)  # the last: no interval
    track = np.zeros((len(columns), samples, TEMPO_COLUMNS), dtype=np.float32)
    for row, (own, length) in enumerate(zip(anchors, lengths, strict=True)):
        if own is not None and len(own) > 1:
            place = np.searchsorted(own, np.arange(length), side="right") - 1
            track[row, :length] = columns[row, np.where((place >= 0) & (place < len(own) - 1), place, -1)]
    return track


def _known_logs(intervals: Columns, around: Mask) -> Columns:
    """Logs of the intervals of the surroundings, NaN where anchors are missing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(around, intervals, np.nan))
        known: Columns = np.where(logs - _median(logs)[:, None] > np.log(GAP), np.nan, logs)
    return known


def _intervals(
    anchors: Sequence[Anchors | None], lengths: npt.NDArray[np.int64], surroundings: int
) -> tuple[Columns, Mask, Mask, Mask]:
    """Intervals (B, I), NaN at padding; which touch the window, which are its own, which are its surroundings.

    Its own are those that end in it; where none does, those that touch it.
    """
    marks = [np.zeros(0) if own is None else own for own in anchors]
    width = max((len(own) for own in marks), default=0)
    padded = np.full((len(marks), max(width, 2)), np.nan)
    for row, own in enumerate(marks):
        padded[row, : len(own)] = own
    start, stop = padded[:, :-1], padded[:, 1:]
    touching = (stop > 0) & (start < lengths[:, None])
    ending = (stop >= 0) & (stop < lengths[:, None])
    place = np.arange(touching.shape[1])
    first = np.where(touching, place, touching.shape[1]).min(1, keepdims=True)
    last = np.where(touching, place, -1).max(1, keepdims=True)
    around = (place >= first - surroundings) & (place <= last + surroundings)
    return stop - start, touching, np.where(ending.any(1, keepdims=True), ending, touching), around


def _count(values: Columns) -> npt.NDArray[np.int64]:
    count: npt.NDArray[np.int64] = np.maximum((~np.isnan(values)).sum(1), 1)
    return count


def _mean(values: Columns) -> Columns:
    """Over what is known; NaN where nothing is."""
    mean: Columns = np.where(np.isnan(values), 0.0, values).sum(1) / _count(values)
    return np.where(np.isnan(values).all(1), np.nan, mean)


def _least(values: Columns) -> Columns:
    least = np.where(np.isnan(values), np.inf, values).min(1, initial=np.inf)
    return np.where(np.isinf(least), np.nan, least)


def _median(values: Columns) -> Columns:
    ordered = np.sort(values, axis=1)  # NaN comes last
    count, rows = _count(values), np.arange(len(values))
    median: Columns = (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2
    return median
