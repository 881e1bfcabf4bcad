"""Tokens of many windows, and the windows of largest MaxSim with a query: the shortlist from tokens.

Tokens are held as bytes, each with a scale of its own, so that they take a quarter of their size; whoever calls takes
a few more than needed and scores them anew. Where each token has a centroid too, all windows are compared by centroids
first, as PLAID does: the centroids nearest to a query token vote for the windows that have a token there, and a window
without one gets the least of these votes, as XTR has it. Only the best windows by votes are compared by their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.index import FIRST_ROWS, Numbers, Vectors, top
from geopatch.errors import GalleryError

SPARE = 2  # tokens are rounded: so many times k windows are taken and scored anew
VOTES = 32  # centroids that vote for each query token
COMPARED = 2**15  # tokens of the windows with the best votes, which are compared themselves
LEAST_COMPARED = 5  # times as many windows as are wanted, at least
MOST_LEVEL = 127  # of a byte with a sign
SMALLEST = 1e-30  # the scale of a token that is 0 everywhere; 0 is padding
ANYWHERE = 1.0  # the reach within which any two tokens of two windows lie
SCAN_BATCH = 512  # windows whose products are in the processor's cache together

Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.int8]
Codes: TypeAlias = npt.NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class TokenBlock:
    """Tokens of windows with rising numbers."""

    numbers: Numbers  # (N,)
    tokens: Bytes  # (N, K, d)
    scale: Vectors  # (N, K); 0 at padding
    codes: Codes | None = None  # (N, K) the centroid of each token; at padding the number of centroids
    centroids: Vectors | None = None  # (C, d)

    def best(self, query: Vectors, k: int, usable: Mask, reach: float = ANYWHERE) -> tuple[Numbers, Vectors]:
        """Numbers and MaxSim with the query's tokens (I, d) of the k usable windows of largest MaxSim, best first.

        Only tokens within reach of each other count: at most so far apart, as shares of their windows.
        """
        rows, compared = np.flatnonzero(usable), max(COMPARED // self.tokens.shape[1], LEAST_COMPARED * k)
        if self.codes is not None and len(rows) > compared:
            rows = np.sort(rows[top(self._by_centroids(query, reach)[rows], compared)])
        scores = self._by_tokens(query, rows, reach)
        chosen = top(scores, min(k, len(rows)))
        return self.numbers[rows[chosen]], scores[chosen]

    def _by_centroids(self, query: Vectors, reach: float) -> Vectors:
        """Sums (N,) of the best vote for each query token; where there is none, that of its last centroid counts."""
        from geopatch.engines.token_loops import sum_of_votes

        assert self.centroids is not None
        nearness, count = self.centroids @ query.T, len(self.centroids)  # (C, I)
        least = np.partition(nearness, max(count - VOTES, 0), axis=0)[max(count - VOTES, 0)]
        voting, voted = np.nonzero(nearness >= least)  # by centroid
        ends = np.searchsorted(voting, np.arange(count + 2))
        sums = np.empty(len(self.numbers), dtype=np.float32)
        sum_of_votes(self.codes, nearness[voting, voted], voted, ends, least, reach, sums)
        return sums

    def _by_tokens(self, query: Vectors, rows: Numbers, reach: float) -> Vectors:
        from geopatch.engines.token_loops import sum_of_best

        patches, width = self.tokens.shape[1:]
        turned, sums = np.ascontiguousarray(query.T), np.empty(len(rows), dtype=np.float32)
        whole = len(rows) == len(self.numbers)
        for start in range(0, len(rows), SCAN_BATCH):
            part = slice(start, start + SCAN_BATCH)
            chosen = part if whole else rows[part]
            products = self.tokens[chosen].astype(np.float32).reshape(-1, width) @ turned
            sum_of_best(products.reshape(-1, patches, len(query)), self.scale[chosen], reach, sums[part])
        return sums / np.float32(max(len(query), 1))


class TokenRows:
    """Tokens in memory. Removed rows stay, marked, until they are all read anew."""

    def __init__(self, about: About) -> None:
        patches, width = about.widths.patches, about.widths.token
        self._numbers = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._tokens = np.zeros((FIRST_ROWS, patches, width), dtype=np.int8)
        self._scale = np.zeros((FIRST_ROWS, patches), dtype=np.float32)
        self._alive = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self._used = 0

    @property
    def last(self) -> int:
        return int(self._numbers[self._used - 1]) if self._used else 0

    @property
    def alive(self) -> int:
        """How many rows are there still."""
        return int(self._alive[: self._used].sum())

    def append(self, numbers: Numbers, tokens: Vectors, valid: Mask) -> None:
        """Windows with numbers above all that are here, in order."""
        stop = self._used + len(numbers)
        if stop > len(self._numbers):
            self._grow(max(stop, 2 * len(self._numbers)))
        part = slice(self._used, stop)
        self._numbers[part], self._alive[part] = numbers, True
        self._tokens[part], self._scale[part] = rounded(tokens, valid)
        self._used = stop

    def forget(self, numbers: Numbers) -> None:
        """Mark rows as gone; numbers that are not here do not matter."""
        mark_gone(self._numbers[: self._used], self._alive[: self._used], numbers)

    def keep(self, numbers: Numbers) -> None:
        """Mark all other rows as gone."""
        self._alive[: self._used] &= np.isin(self._numbers[: self._used], numbers)

    def best(self, query: Vectors, k: int, allowed: Numbers | None, reach: float = ANYWHERE) -> tuple[Numbers, Vectors]:
        """As `TokenBlock.best`, of the rows that are there still and allowed."""
        numbers, alive = self._numbers[: self._used], self._alive[: self._used]
        block = TokenBlock(numbers, self._tokens[: self._used], self._scale[: self._used])
        return block.best(query, k, passing(numbers, alive, allowed), reach)

    def _grow(self, rows: int) -> None:
        for name in ("_numbers", "_tokens", "_scale", "_alive"):
            old = getattr(self, name)
            new = np.zeros((rows, *old.shape[1:]), dtype=old.dtype)
            new[: self._used] = old[: self._used]
            setattr(self, name, new)


def mark_gone(held: Numbers, alive: Mask, numbers: Numbers) -> None:
    places = np.searchsorted(held, numbers)
    inside = places < len(held)
    places, numbers = places[inside], numbers[inside]
    alive[places[held[places] == numbers]] = False


def passing(numbers: Numbers, alive: Mask, allowed: Numbers | None) -> Mask:
    return alive if allowed is None else alive & np.isin(numbers, allowed)


def rounded(tokens: Vectors, valid: Mask) -> tuple[Bytes, Vectors]:
    """Tokens (N, K, d) as bytes, and what each is to be multiplied by (N, K); 0 at padding."""
    scale = np.maximum(np.abs(tokens).max(-1) / MOST_LEVEL, SMALLEST)
    levels = np.rint(tokens / scale[..., None]).astype(np.int8)
    return levels, np.where(valid, scale, 0).astype(np.float32)


def check_token_queries(tokens: Vectors, valid: Mask, about: About) -> None:
    """Refuse queries whose tokens have another width than those of the gallery."""
    if tokens.ndim != 3 or tokens.shape[2] != about.widths.token or valid.shape != tokens.shape[:2]:
        raise GalleryError(
            f"expected tokens (Q, K, {about.widths.token}) and which of them are valid (Q, K), "
            f"got shapes {tokens.shape} and {valid.shape}"
        )


def maxsims(query: Vectors, tokens: Vectors, valid: Mask, reach: float = ANYWHERE) -> Vectors:
    """MaxSim (N,) of a query's tokens (I, d) with windows' (N, K, d), in full, of tokens within reach of each other."""
    if reach < ANYWHERE:
        return _near_maxsims(query, tokens, valid, reach)
    from geopatch.scoring import maxsim, similarities

    scores: Vectors = maxsim(similarities(query, np.ones(len(query), dtype=np.bool_), tokens, valid))
    return scores.astype(np.float32)


def _near_maxsims(query: Vectors, tokens: Vectors, valid: Mask, reach: float) -> Vectors:
    from geopatch.engines.token_loops import sum_of_best

    products = (tokens.reshape(-1, tokens.shape[2]) @ query.T).reshape(*tokens.shape[:2], len(query))
    sums = np.empty(len(tokens), dtype=np.float32)
    sum_of_best(products, valid.astype(np.float32), reach, sums)
    return sums / np.float32(max(len(query), 1))
