"""Tokens of many windows, and the windows whose tokens are most like a query's: the shortlist from tokens.

What counts is MaxSim or, where their order counts, the score of `aligned`. Tokens are held as bytes, each with a scale
of its own, so that they take a quarter of their size; whoever calls takes a few more than needed and scores them anew.
Where each token has a centroid too, all windows are compared by centroids first, as PLAID does: the centroids of a
window's tokens vote for each query token. Only the best windows by votes are compared further: by their tokens or,
where their order counts, by the best path over the centroids of their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.aligned import BAND, aligned
from geopatch.engines.about import About
from geopatch.engines.index import FIRST_ROWS, Numbers, Vectors, top
from geopatch.errors import GalleryError

SPARE = 2  # tokens are rounded: so many times k windows are taken and scored anew
REACH = 1 / 8  # of their windows, that tokens may lie apart to vote where their order counts
COMPARED = 2**15  # tokens of the windows with the best votes, which are compared further
PATHS = 2  # times as many where their order counts: centroids are compared faster than tokens
LEAST_COMPARED = 5  # times as many windows as are wanted, at least
MOST_LEVEL = 127  # of a byte with a sign
SMALLEST = 1e-30  # the scale of a token that is 0 everywhere; 0 is padding
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

    def best(self, query: Vectors, k: int, usable: Mask, ordered: bool = False) -> tuple[Numbers, Vectors]:
        """Numbers and rough scores of the k usable windows that are most like a query's tokens (I, d), best first."""
        rows, compared = np.flatnonzero(usable), max(COMPARED // self.tokens.shape[1], LEAST_COMPARED * k)
        compared *= PATHS if ordered else 1
        by_centroids = self.codes is not None and len(rows) > compared
        if by_centroids:
            rows = np.sort(rows[top(self._votes(query, ordered)[rows], compared)])
        if ordered and by_centroids:
            scores = self._paths_over_centroids(query, rows)
        else:
            scores = self._by_tokens(query, rows, ordered)
        chosen = top(scores, min(k, len(rows)))
        return self.numbers[rows[chosen]], scores[chosen]

    def _votes(self, query: Vectors, ordered: bool) -> Vectors:
        """Sums (N,) of the best vote for each query token, or for some of them, evenly apart, where there are many."""
        from geopatch.engines.token_loops import MOST_VOTE, VOTERS, masks_within, sum_of_votes

        assert self.centroids is not None
        assert self.codes is not None
        voted = query[np.linspace(0, len(query) - 1, min(len(query), VOTERS)).round().astype(np.int64)]
        nearness = self.centroids @ voted.T  # (C, I)
        least, most = float(nearness.min(initial=0)), float(nearness.max(initial=0))
        votes = np.zeros((len(nearness), VOTERS), dtype=np.uint8)
        votes[:, : len(voted)] = (nearness - least) * (MOST_VOTE / max(most - least, SMALLEST))
        masks = masks_within(self.codes.shape[1], len(voted), REACH if ordered else 1.0)
        sums = np.empty(len(self.numbers), dtype=np.float32)
        sum_of_votes(self.codes, votes, masks, sums)
        return sums

    def _paths_over_centroids(self, query: Vectors, rows: Numbers) -> Vectors:
        """The score of `aligned` (n,) where each token stands for its centroid."""
        from geopatch.aligned_loop import paths_by_column

        assert self.centroids is not None
        assert self.codes is not None
        return paths_by_column(query @ self.centroids.T, self.codes[rows], BAND)

    def _by_tokens(self, query: Vectors, rows: Numbers, ordered: bool) -> Vectors:
        scores = np.empty(len(rows), dtype=np.float32)
        whole = len(rows) == len(self.numbers)
        for start in range(0, len(rows), SCAN_BATCH):
            part = slice(start, start + SCAN_BATCH)
            chosen = part if whole else rows[part]
            scores[part] = _compared(query, self.tokens[chosen].astype(np.float32), self.scale[chosen], ordered)
        return scores


def _compared(query: Vectors, tokens: Vectors, scale: Vectors, ordered: bool) -> Vectors:
    """The score of `aligned`, or MaxSim, (n,) of a query's tokens (I, d) with tokens (n, K, d) times scale (n, K)."""
    flat = tokens.reshape(-1, tokens.shape[2])
    if ordered:
        from geopatch.aligned_loop import paths_by_column

        columns = np.where(scale > 0, np.arange(scale.size).reshape(scale.shape), scale.size)
        return paths_by_column((query @ flat.T) * scale.reshape(-1), columns, BAND)
    from geopatch.engines.token_loops import sum_of_best

    sums = np.empty(len(tokens), dtype=np.float32)
    sum_of_best((flat @ query.T).reshape(*scale.shape, len(query)), scale, sums)
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

    def best(self, query: Vectors, k: int, allowed: Numbers | None, ordered: bool) -> tuple[Numbers, Vectors]:
        """As `TokenBlock.best`, of the rows that are there still and allowed."""
        numbers, alive = self._numbers[: self._used], self._alive[: self._used]
        block = TokenBlock(numbers, self._tokens[: self._used], self._scale[: self._used])
        return block.best(query, k, passing(numbers, alive, allowed), ordered)

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


def token_scores(query: Vectors, tokens: Vectors, valid: Mask, ordered: bool = False) -> Vectors:
    """MaxSim, or the score of `aligned`, (N,) of a query's tokens (I, d) with windows' (N, K, d), in full."""
    from geopatch.scoring import maxsim, similarities

    score = aligned if ordered else maxsim
    scores: Vectors = score(similarities(query, np.ones(len(query), dtype=np.bool_), tokens, valid))
    return scores.astype(np.float32)
