"""Loops over the tokens of many windows, compiled: for each query token the best token of a window, summed up."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from geopatch.jit import jit

SLACK = 1e-9  # of a token: what lies at the end of the reach counts
VOTERS = 32  # query tokens that vote, as many as bytes in a vector of the processor
MOST_VOTE = 255


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
def masks_within(patches: int, tokens: int, reach: float) -> Any:
    """MOST_VOTE where a query token lies within reach of a token of a window, else 0.

    By the number of tokens of a window and the place of one among them: (patches + 1, patches, VOTERS).
    """
    masks = np.zeros((patches + 1, patches, VOTERS), np.uint8)
    for places in range(1, patches + 1):
        for place in range(places):
            middle, wide = (place + 0.5) / places * tokens - 0.5, reach * tokens
            first, stop = int(np.ceil(middle - wide - SLACK)), int(np.floor(middle + wide + SLACK)) + 1
            masks[places, place, max(first, 0) : min(stop, tokens)] = MOST_VOTE
    return masks


@jit
def sum_of_votes(codes: Any, votes: Any, masks: Any, sums: Any) -> None:
    """Sums (N,) over query tokens of the best vote for a window, by the centroids of its tokens, codes (N, K).

    `votes` (C, VOTERS) are those of each centroid for each query token, 0 is the least; a code of C is padding. Those
    that `masks_within` leaves out are 0.
    """
    count, patches = codes.shape
    best = np.empty(VOTERS, np.uint8)
    for n in range(count):
        best[:] = 0
        places, place = 0, 0
        for k in range(patches):
            places += codes[n, k] < len(votes)
        for k in range(patches):
            code = codes[n, k]
            if code < len(votes):
                for i in range(VOTERS):
                    best[i] = max(best[i], min(votes[code, i], masks[places, place, i]))
                place += 1
        total = 0
        for i in range(VOTERS):
            total += best[i]
        sums[n] = total
