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
def sum_of_best_centroids(codes: Any, nearness: Any, sums: Any) -> None:
    """The same where each token stands for its centroid: codes (N, K), nearness (C + 1, I), whose last row is -inf."""
    count, patches = codes.shape
    tokens = nearness.shape[1]
    best = np.empty(tokens, np.float32)
    for n in range(count):
        best[:] = -inf
        for k in range(patches):
            code = codes[n, k]
            for i in range(tokens):
                best[i] = max(best[i], nearness[code, i])
        total = np.float32(0)
        for i in range(tokens):
            total += best[i]
        sums[n] = total
