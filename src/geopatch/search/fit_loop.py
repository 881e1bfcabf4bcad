"""Where a query fits best, by a compiled loop over all places: for signals so short that transforms would cost more."""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Any

import numpy as np

from geopatch.jit import jit

EPSILON = 1e-12


@jit
def best_place(query: Any, around: Any, lengths: Any, middle: float, room: float, better: float) -> Any:
    """Start, length and correlation of the best fit of a query (T, C) within others (N, C); length 0: there is none.

    A later length counts where it fits by `better` more than those before it.
    """
    count, channels = around.shape
    totals, squares = np.zeros((count + 1, channels)), np.zeros(count + 1)
    for t in range(count):
        squares[t + 1] = squares[t]
        for c in range(channels):
            totals[t + 1, c] = totals[t, c] + around[t, c]
            squares[t + 1] += around[t, c] * around[t, c]
    columns = np.ascontiguousarray(around.T)
    start, best_length, best = 0, 0, -2.0
    for length in lengths:
        low = max(ceil(middle - room - length / 2), 0)
        high = min(floor(middle + room - length / 2), count - length)
        if high < low:
            continue
        product, power = np.zeros(high - low + 1), 0.0
        for c in range(channels):
            read = _read(query, c, length)
            for t in range(length):
                power += read[t] * read[t]
                value, there = read[t], columns[c, low + t : high + t + 1]
                for n in range(len(product)):
                    product[n] += value * there[n]
        for at in range(low, high + 1):
            level = 0.0
            for c in range(channels):
                total = totals[at + length, c] - totals[at, c]
                level += total * total
            own = max(squares[at + length] - squares[at] - level / length, 0.0)
            correlation = product[at - low] / sqrt(max(own * power, EPSILON))
            if correlation > best + (better if best_length != length else 0.0):
                start, best_length, best = at, length, correlation
    return start, best_length, best


@jit
def _read(query: Any, channel: int, length: int) -> Any:
    """A channel at so many places, evenly over the time that the samples stand for, and centred."""
    values, last, mean = np.empty(length), len(query) - 1, 0.0
    for t in range(length):
        at = min(max((t + 0.5) * (len(query) / length) - 0.5, 0.0), float(last))
        left = min(int(at), last - 1)
        values[t] = query[left, channel] + (query[left + 1, channel] - query[left, channel]) * (at - left)
        mean += values[t]
    return values - mean / length
