"""The best monotone path through the similarities of two sequences of tokens: late interaction that keeps their order.

A path goes from both first tokens to both last ones. A step forward on both sides counts the pair that it reaches once,
a step on one side counts it half, and so does the first pair once: whatever the path, the weights add up to the mean
number of tokens, by which the sum is divided. The score is a weighted mean of cosines; that of a window with itself is
1. A path keeps within a quarter of the tokens of the diagonal, which runs from corner to corner whatever the two
numbers of tokens are: the middles of two tokens that meet lie at most a quarter of the window apart, or half a token of
the side that has fewer, where that is more.

On a CPU the loop over cells is compiled; on a GPU, and without numba, all pairs go along the anti-diagonals together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, nan, prod
from typing import Any, TypeAlias

from geopatch.namespace import Array, is_numpy, largest, like, namespace

Place: TypeAlias = tuple[int, int]  # a token of either side

BAND = 4  # a path leaves the diagonal by at most 1 / BAND of the window


def aligned(similarity: Array) -> Array:
    """The score of the best path (..., N) through similarities (..., I, N, J); -inf where there is none.

    Padding is -inf; tokens on either side of it follow each other.
    """
    best_paths = _compiled() if is_numpy(similarity) or similarity.device.type == "cpu" else None
    return along_diagonals(similarity) if best_paths is None else _by_pair(similarity, best_paths)


def along_diagonals(similarity: Array) -> Array:
    """The same for all pairs at once: the cells of an anti-diagonal depend on the two before it only."""
    xp, cells = namespace(similarity), _packed(similarity.swapaxes(-3, -2))  # (..., N, I, J)
    rows, columns = cells.shape[-2:]
    first, second = (count[..., None] for count in _counts(cells))  # tokens of the two sides, (..., N, 1)
    i, nowhere = _range(rows, cells), xp.full_like(cells[..., 0], -inf)  # (..., N, I)
    before, last, score = nowhere, nowhere, nowhere[..., 0]
    for diagonal in range(rows + columns - 1):
        j = diagonal - i
        cell = cells[..., i, j.clip(0, columns - 1)]
        both, one = _next(before, nowhere) + cell, xp.maximum(last, _next(last, nowhere)) + cell / 2
        inside = (j >= 0) & (j < second) & (i < first) & in_band(i, j, first, second)
        before, last = last, xp.where(inside, xp.maximum(both, one) if diagonal else cell, -inf)
        ends = (i == first - 1) & (j == second - 1)
        score = xp.maximum(score, largest(xp.where(ends, last, -inf), -1))
    return like(2 * score / (first + second).clip(1)[..., 0], similarity)


def in_band(i: Array, j: Array, rows: Array, columns: Array) -> Array:
    """Whether a path may bring token i of `rows` and token j of `columns` together: all four are whole numbers."""
    apart = abs((2 * i + 1) * columns - (2 * j + 1) * rows)  # of their middles, in 1 / (2 rows columns) of the window
    quarter, half_token = 2 * rows * columns, BAND * (rows + columns + abs(rows - columns)) // 2
    return (BAND * apart <= quarter) | (BAND * apart <= half_token)


def aligned_parts(pair: Array) -> Array:
    """What each pair of tokens (I, J) adds to the score of the best path; NaN for pairs that it does not meet."""
    rows, columns = pair.shape
    best: dict[Place, float] = {(-1, -1): 0.0}
    came: dict[Place, tuple[Place, float]] = {}
    for i in range(rows):
        for j in range(columns):
            if in_band(i, j, rows, columns):
                steps = [((i - 1, j - 1), 1.0), ((i - 1, j), 0.5), ((i, j - 1), 0.5)]
                reached = [(best[at] + weight * float(pair[i, j]), at, weight) for at, weight in steps if at in best]
                best[i, j], at, weight = max(reached, key=lambda step: step[0])
                came[i, j] = at, weight
    parts, place = namespace(pair).full_like(pair, nan), (rows - 1, columns - 1)
    while place in came:
        before, weight = came[place]
        parts[place] = pair[place] * (2 * weight / (rows + columns))
        place = before
    return parts


def _by_pair(similarity: Array, best_paths: Callable[[Any, int], Any]) -> Array:
    plain = similarity if is_numpy(similarity) else similarity.detach().numpy()
    *queries, rows, count, columns = plain.shape
    scores = best_paths(plain.reshape(prod(queries), rows, count, columns), BAND).reshape(*queries, count)
    return scores if is_numpy(similarity) else namespace(similarity).from_numpy(scores)


@cache
def _compiled() -> Callable[[Any, int], Any] | None:
    """The compiled loop, imported when first needed; None where numba is not installed."""
    try:
        from geopatch.aligned_loop import best_paths
    except ImportError:
        return None
    return best_paths


def _packed(cells: Array) -> Array:
    """Cells (..., I, J) with the tokens that are padding after all others."""
    known = cells > -inf
    for axis, valid in ((-2, known.any(-1)), (-1, known.any(-2))):
        if (valid[..., 1:] & ~valid[..., :-1]).any():  # a token after padding
            cells = _ordered(cells, valid, axis)
    return cells


def _ordered(cells: Array, valid: Array, axis: int) -> Array:
    order = (_range(valid.shape[-1], valid) + valid.shape[-1] * ~valid).argsort(-1)
    wide = order[..., :, None] if axis == -2 else order[..., None, :]
    if is_numpy(cells):
        return namespace(cells).take_along_axis(cells, wide, axis)
    return cells.gather(axis, wide.expand(cells.shape))


def _counts(cells: Array) -> tuple[Array, Array]:
    """How many tokens of either side are no padding (..., N)."""
    known = cells > -inf
    return known.any(-1).sum(-1), known.any(-2).sum(-1)


def _range(stop: int, other: Array) -> Array:
    if is_numpy(other):
        return namespace(other).arange(stop)
    return namespace(other).arange(stop, device=other.device)


def _next(diagonal: Array, nowhere: Array) -> Array:
    """Each cell's neighbour with one token less of the first side (..., I)."""
    return namespace(diagonal).concatenate([nowhere[..., :1], diagonal[..., :-1]], -1)
