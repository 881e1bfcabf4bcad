"""Loops over the tokens of many windows, compiled: for each query token the best token of a window, summed up."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from geopatch.jit import jit


@jit
def sum_of_best(products: Any, scale: Any, sums: Any) -> None:
    """Sums (N,) over query tokens of the best of products (N, K, I) times scale (N, K), whose 0 is padding."""
    count, patches, tokens = products.shape
    best = np.empty(tokens, np.float32)
    for n in range(count):
        best[:] = -inf
        for k in range(patches):
            size = scale[n, k]
            if size > 0:
                for i in range(tokens):
                    best[i] = max(best[i], size * products[n, k, i])
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total


@jit
def sum_of_votes(codes: Any, votes: Any, votes_of: Any, least: Any, sums: Any) -> None:
    """The same where each token stands for its centroid, codes (N, K), and only some centroids have votes (V, I).

    `votes_of` (C + 1,) is the place of a centroid among these, -1 without. `least` (I,) is what a query token counts
    for which no token of a window has a vote.
    """
    count, patches = codes.shape
    tokens = len(least)
    best = np.empty(tokens, np.float32)
    for n in range(count):
        best[:] = least
        for k in range(patches):
            place = votes_of[codes[n, k]]
            if place >= 0:
                for i in range(tokens):
                    best[i] = max(best[i], votes[place, i])
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total
