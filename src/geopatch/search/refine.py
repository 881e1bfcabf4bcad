"""Refinement: where, and at which speed, a query fits best to what lies round a hit.

The query at several stretches is correlated with the signal there: each channel centred within the window, all channels
together scaled to unit length, so that level and gain do not count. First at stretches some percent apart, on means of
samples where the query is long; then, near the best, down to one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

STRETCH = 1.05  # between two stretches, at first
SIDE = 1.35  # by which what happens may be longer or shorter than the window it was seen in
SHIFT = 0.35  # of the window's length, by which the middle may move
COARSE = 96  # samples of the query that are enough to begin with
TRIES = 9  # lengths of each later pass
END = 0.34  # of the query, fitted by itself at either end
LEAST_END = 16  # samples of an end
LIVELY = 0.3  # of the variance of the query, that an end has at least: what is flat fits anywhere
BETTER, MUCH = 0.85, 0.01  # of what an end lacks to a correlation of 1, left where it is moved; what is gained at least
MORE = 1e-9  # by which another length must fit better
MOST_PRODUCTS = 4_000_000  # from which on transforms are faster
EPSILON = 1e-12


@dataclass(frozen=True)
class Fit:
    """Samples from where to where, and the correlation."""

    start: int
    stop: int
    correlation: float


def best_fit(query: npt.ArrayLike, around: npt.ArrayLike, window: tuple[int, int]) -> Fit | None:
    """Where values (T, C) fit best within others (N, C), near a window of these; None where nothing can be compared."""
    rough = rough_fit(query, around, window)
    return None if rough is None else rough.finer()


@dataclass(frozen=True, eq=False)
class RoughFit:
    """A fit to some percent of the length."""

    query: Values
    around: Values
    fit: Fit
    every: int  # samples that a place of it stands for

    def finer(self) -> Fit:
        """The same to the sample; where the speed changes within it, its ends are fitted by themselves."""
        fit = _finer(self.query, self.around, self.fit, self.every)
        return _with_ends(self.query, self.around, fit, self.every)


def rough_fit(query: npt.ArrayLike, around: npt.ArrayLike, window: tuple[int, int]) -> RoughFit | None:
    """The first of two steps of `best_fit`."""
    first, second = np.asarray(query, dtype=np.float64), np.asarray(around, dtype=np.float64)
    scale = second.std(0)
    scale = np.where(scale > EPSILON, scale, 1.0)
    first, second = first / scale, (second - second.mean(0)) / scale
    if len(first) < 4 or not (first.std(0) > EPSILON).any():
        return None
    every = max(len(first) // COARSE, 1)
    coarse = _coarse(_means(first, every), _means(second, every), (window[0] / every, window[1] / every))
    if coarse is None:
        return None
    return RoughFit(first, second, Fit(coarse.start * every, coarse.stop * every, coarse.correlation), every)


def _coarse(query: Values, around: Values, window: tuple[float, float]) -> Fit | None:
    length, middle = window[1] - window[0], (window[0] + window[1]) / 2
    low = math.floor(math.log(length / SIDE / len(query)) / math.log(STRETCH))
    high = math.ceil(math.log(length * SIDE / len(query)) / math.log(STRETCH))
    lengths = [max(round(len(query) * STRETCH**n), 4) for n in range(low, high + 1)]
    return _best(query, around, sorted({*lengths}), middle, SHIFT * length)


def _finer(query: Values, around: Values, fit: Fit, every: int) -> Fit:
    """The same with lengths ever nearer to each other, down to a sample."""
    length = fit.stop - fit.start
    side = max(math.ceil((STRETCH - 1) * length), every)
    while True:
        step = max(math.ceil(2 * side / (TRIES - 1)), 1)
        length, middle = fit.stop - fit.start, (fit.start + fit.stop) / 2
        lengths = [length + n * step for n in range(-(side // step) - 1, side // step + 2)]
        room = side + 2 * every + 2
        begin = max(fit.start - 2 * room, 0)
        part = around[begin : fit.stop + 2 * room]
        near = _best(query, part, [one for one in lengths if one >= 4], middle - begin, room)
        if near is not None:
            fit = Fit(near.start + begin, near.stop + begin, near.correlation)
        if step == 1:
            return fit
        side, every = step, 1


def _with_ends(query: Values, around: Values, fit: Fit, every: int) -> Fit:
    """The start where the beginning of the query fits, and the stop where its end does, if these fit much better."""
    size, length = round(END * len(query)), fit.stop - fit.start
    if size < LEAST_END:
        return fit
    part, least = round(END * length), LIVELY * float(query.var(0).sum())
    lively = [float(end.var(0).sum()) >= least for end in (query[:size], query[-size:])]
    early = _end(query[:size], around, (fit.start, fit.start + part), every) if lively[0] else None
    late = _end(query[-size:], around, (fit.stop - part, fit.stop), every) if lively[1] else None
    start, stop = fit.start if early is None else early.start, fit.stop if late is None else late.stop
    return Fit(start, stop, fit.correlation) if length / SIDE <= stop - start <= length * SIDE else fit


def _end(query: Values, around: Values, window: tuple[int, int], every: int) -> Fit | None:
    """Where a part fits better than in a window by enough; None where it does not."""
    rough = _coarse(_means(query, every), _means(around, every), (window[0] / every, window[1] / every))
    if rough is None:
        return None
    fit = _finer(query, around, Fit(rough.start * every, rough.stop * every, rough.correlation), every)
    length = window[1] - window[0]
    here = _best(query, around, [length], sum(window) / 2, 1.0)
    before = -1.0 if here is None else here.correlation
    gained = fit.correlation - before
    return fit if gained > MUCH and 1 - fit.correlation < BETTER * (1 - before) else None


def _best(query: Values, around: Values, lengths: list[int], middle: float, room: float) -> Fit | None:
    """The best of all places and of these lengths whose middle is at most so far from another."""
    lengths = [length for length in lengths if length <= len(around)]
    if not lengths:
        return None
    if sum(lengths) * (2 * room + 1) * around.shape[1] > MOST_PRODUCTS:
        return _best_by_transforms(query, around, lengths, middle, room)
    from geopatch.search.fit_loop import best_place  # numba: a search by a stored id does without

    start, length, correlation = best_place(query, around, np.asarray(lengths), middle, room, MORE)
    return Fit(start, start + length, correlation) if length else None


def _best_by_transforms(query: Values, around: Values, lengths: list[int], middle: float, room: float) -> Fit | None:
    """The same where there are many places."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(len(around) + max(lengths), real=True)
    stretched, power = _stretched(query, lengths, size)
    spectrum = rfft(around.T, size)
    product = irfft(np.einsum("cf,lcf->lf", spectrum, rfft(stretched).conj()), size)
    totals = np.concatenate([np.zeros((1, around.shape[1])), around.cumsum(0)])
    squares = np.concatenate([[0.0], (around**2).sum(1).cumsum()])
    best: Fit | None = None
    for row, length in enumerate(lengths):
        low = max(math.ceil(middle - room - length / 2), 0)
        high = min(math.floor(middle + room - length / 2), len(around) - length)
        if high < low:
            continue
        at = slice(low, high + 1)
        inside = squares[low + length : high + length + 1] - squares[at]
        level = totals[low + length : high + length + 1] - totals[at]
        own = np.maximum(inside - (level**2).sum(1) / length, 0.0)
        correlation = product[row, at] / np.sqrt(np.maximum(own * power[row], EPSILON))
        place = int(correlation.argmax())
        if best is None or correlation[place] > best.correlation + MORE:
            best = Fit(low + place, low + place + length, float(correlation[place]))
    return best


def _stretched(values: Values, lengths: list[int], size: int) -> tuple[Values, Values]:
    """Values at each length (L, C, size), centred and 0 beyond it, and their sums of squares (L,).

    Each is read at so many places, evenly over the time that the samples stand for.
    """
    count = np.asarray(lengths)[:, None]
    at = (np.arange(max(lengths)) + 0.5) * (len(values) / count) - 0.5
    at = np.clip(at, 0.0, len(values) - 1)
    left = np.minimum(at.astype(np.intp), len(values) - 2)
    share = (at - left)[:, None]
    columns = values.T
    read = columns[:, left].swapaxes(0, 1) * (1 - share) + columns[:, left + 1].swapaxes(0, 1) * share
    inside = (np.arange(max(lengths)) < count)[:, None]
    centred = (read - (read * inside).sum(2, keepdims=True) / count[..., None]) * inside
    stretched = np.zeros((len(lengths), values.shape[1], size))
    stretched[..., : max(lengths)] = centred
    return stretched, (centred**2).sum((1, 2))


def _means(values: Values, every: int) -> Values:
    if every == 1:
        return values
    count = len(values) // every
    means: Values = values[: count * every].reshape(count, every, -1).mean(1)
    return means
