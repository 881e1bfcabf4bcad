"""Loops over the tokens of many windows, compiled: for each query token the best token of a window, summed up."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from geopatch.jit import jit

SLACK = 1e-9  # of a token: what lies at the end of the reach counts


@jit
def _within(patches: int, tokens: int, reach: float) -> Any:
    """The first query token, and the one after the last, within reach of each token of windows with so many of them.

    By the number of tokens of a window and the place of one among them: (patches + 1, patches, 2).
    """
    ends = np.zeros((patches + 1, patches, 2), np.int64)
    for places in range(1, patches + 1):
        for place in range(places):
            middle, wide = (place + 0.5) / places * tokens - 0.5, reach * tokens
            ends[places, place, 0] = max(int(np.ceil(middle - wide - SLACK)), 0)
            ends[places, place, 1] = min(int(np.floor(middle + wide + SLACK)) + 1, tokens)
    return ends


@jit
def sum_of_best(products: Any, scale: Any, reach: float, sums: Any) -> None:
    """Sums (N,) over query tokens of the best of products (N, K, I) times scale (N, K), whose 0 is padding.

    Tokens that lie further apart than `reach`, a share of their windows, do not count; what has none in reach is -1.
    """
    count, patches, tokens = products.shape
    best, near = np.empty(tokens, np.float32), _within(patches, tokens, reach)
    for n in range(count):
        best[:] = -1 if reach < 1 else -inf
        places, place = 0, 0
        for k in range(patches):
            places += scale[n, k] > 0
        for k in range(patches):
            size = scale[n, k]
            if size > 0:
                first, stop = near[places, place, 0], near[places, place, 1]
                place += 1
                for i in range(first, stop):
                    best[i] = max(best[i], size * products[n, k, i])
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total


@jit
def sum_of_votes(codes: Any, votes: Any, voted: Any, ends: Any, least: Any, reach: float, sums: Any) -> None:
    """The same where each token stands for its centroid, codes (N, K), and a centroid votes for some query tokens.

    `votes` (V,) and the query tokens `voted` (V,) that they are for are those of centroid c from `ends`[c] to
    `ends`[c + 1]; padding has none. `least` (I,) is what a query token counts that no token of a window votes for.
    """
    count, patches = codes.shape
    tokens, padding = len(least), len(ends) - 2
    best, near = np.empty(tokens, np.float32), _within(patches, tokens, reach)
    for n in range(count):
        best[:] = least
        places = 0
        for k in range(patches):
            places += codes[n, k] != padding
        place = 0
        for k in range(patches):
            code = codes[n, k]
            if code != padding:
                if ends[code] < ends[code + 1]:
                    first, stop = near[places, place, 0], near[places, place, 1]
                    for vote in range(ends[code], ends[code + 1]):
                        if first <= voted[vote] < stop:
                            best[voted[vote]] = max(best[voted[vote]], votes[vote])
                place += 1
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total
