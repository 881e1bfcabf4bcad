"""Loops over the tokens of many windows, compiled: for each query token the best token of a window, summed up."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from geopatch.jit import jit

SLACK = 1e-9  # of a token: what lies at the end of the reach counts


@jit
def _within(place: int, places: int, tokens: int, reach: float) -> tuple[int, int]:
    """The first query token, and the one after the last, that lie within reach of a token: shares of their windows."""
    middle, wide = (place + 0.5) / places * tokens - 0.5, reach * tokens
    return max(int(np.ceil(middle - wide - SLACK)), 0), min(int(np.floor(middle + wide + SLACK)) + 1, tokens)


@jit
def sum_of_best(products: Any, scale: Any, reach: float, sums: Any) -> None:
    """Sums (N,) over query tokens of the best of products (N, K, I) times scale (N, K), whose 0 is padding.

    Tokens that lie further apart than `reach`, a share of their windows, do not count; what has none in reach is -1.
    """
    count, patches, tokens = products.shape
    best = np.empty(tokens, np.float32)
    for n in range(count):
        best[:] = -1 if reach < 1 else -inf
        places, place = 0, 0
        for k in range(patches):
            places += scale[n, k] > 0
        for k in range(patches):
            size = scale[n, k]
            if size > 0:
                first, stop = _within(place, places, tokens, reach)
                place += 1
                for i in range(first, stop):
                    best[i] = max(best[i], size * products[n, k, i])
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total


@jit
def sum_of_votes(codes: Any, votes: Any, votes_of: Any, least: Any, reach: float, sums: Any) -> None:
    """The same where each token stands for its centroid, codes (N, K), and only some centroids have votes (V, I).

    `votes_of` (C + 1,) is the place of a centroid among these, -1 without. `least` (I,) is what a query token counts
    for which no token of a window has a vote.
    """
    count, patches = codes.shape
    tokens, padding = len(least), len(votes_of) - 1
    best = np.empty(tokens, np.float32)
    for n in range(count):
        best[:] = least
        places = 0
        for k in range(patches):
            places += codes[n, k] != padding
        place = 0
        for k in range(patches):
            if codes[n, k] != padding:
                voter = votes_of[codes[n, k]]
                if voter >= 0:
                    first, stop = _within(place, places, tokens, reach)
                    for i in range(first, stop):
                        best[i] = max(best[i], votes[voter, i])
                place += 1
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total
