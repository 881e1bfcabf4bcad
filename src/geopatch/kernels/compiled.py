"""The features of the fixed kernels compiled for the CPU: the same numbers as `torch_transform`, bit for bit.

The nine taps of a kernel are nine offsets into one padded row of three times the values. The sum with the first tap is
shared between kernels; adding the other two, the comparison with the bias and the count are one pass that stores nothing.
All rows of a window of 1024 samples fit into the first-level cache. No fastmath: additions are in the order of the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.kernels.bank import FEATURES, GROUPS, TAPS, TOKEN_FEATURES, TOKEN_GROUPS, TRIPLES, Floats, Ints, Layout

KERNELS = len(TRIPLES)
LANES = 64  # rows are filled up to a multiple of this, so that loops have no scalar remainder
ROWS = 4  # a padded row, three times it, and sums of no tap and of one
CACHE_LINE = 16  # floats
LEAST_WORK = 2**14  # samples of a batch from which on a second thread pays

Words = npt.NDArray[np.uint64]
jit: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias."""
    values, plan, levels = _array(copies), Plan.of(mixes, layout), _array(bias)
    shares = np.empty((len(values), FEATURES), dtype=np.float32)

    def run(part: slice) -> None:
        _features(values[part], *plan.arrays, levels, _rows(layout.length), shares[part])

    _in_parts(run, values)
    return torch.from_numpy(shares)


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) inside spans from starts to stops (B, K), in samples."""
    values, plan, levels = _array(copies), Plan.of(mixes, layout), _array(bias)
    first, last = (places.numpy().astype(np.int64, order="C", copy=False) for places in (starts, stops))
    shares = np.empty((*first.shape, TOKEN_FEATURES), dtype=np.float32)
    groups = np.asarray(TOKEN_GROUPS, dtype=np.int64)

    def run(part: slice) -> None:
        rows = _rows(layout.length)
        _span_features(values[part], *plan.arrays, levels, groups, first[part], last[part], rows, shares[part])

    _in_parts(run, values)
    return torch.from_numpy(shares)


@dataclass(frozen=True, eq=False)
class Plan:
    """Which channels a sum adds up, and the order in which the kernels of a group are taken."""

    places: Ints  # (GROUPS, mixes, 2) where the channels of a sum begin and end in the next two
    channels: Ints
    weights: Floats
    copy: Ints  # (GROUPS,)
    dilation: Ints  # (GROUPS,)
    order: Ints  # (GROUPS, 84) kernels sorted by sum, by whether they are inner, and by their taps
    inner: Ints  # (GROUPS, 84) of each kernel, not sorted

    @classmethod
    def of(cls, mixes: Tensor, layout: Layout) -> Plan:
        """Channels of weight 0 are left out."""
        weights = _array(mixes)
        group, mix, channel = np.nonzero(weights)
        ends = np.cumsum(np.count_nonzero(weights, axis=2)).reshape(weights.shape[:2])
        places = np.stack([np.append(0, ends.ravel()[:-1]).reshape(ends.shape), ends], axis=2)
        inner = layout.inner.astype(np.int64)
        kernels = np.arange(KERNELS)
        order = np.stack([np.lexsort((kernels, row, kernels % weights.shape[1])) for row in inner])
        return cls(places, channel, weights[group, mix, channel], layout.copy, layout.dilation, order, inner)

    @property
    def arrays(self) -> tuple[Ints | Floats, ...]:
        """As the compiled routines take them."""
        return self.places, self.channels, self.weights, self.copy, self.dilation, self.order, self.inner


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().contiguous().numpy()
    return array


def _rows(length: int) -> Floats:
    """Scratch rows of twice a window, each beginning a cache line."""
    width = 2 * _filled(length) + CACHE_LINE  # not a power of two: rows shall not share cache sets
    memory = np.empty(ROWS * width + CACHE_LINE, dtype=np.float32)
    start = (-memory.ctypes.data // memory.itemsize) % CACHE_LINE
    rows: Floats = memory[start : start + ROWS * width].reshape(ROWS, width)
    return rows


def _filled(length: int) -> int:
    return -(-length // LANES) * LANES


def _in_parts(run: Callable[[slice], None], values: Floats) -> None:
    """Run over the windows in as many threads as torch uses."""
    count = min(torch.get_num_threads(), len(values), max(values[:, 0, 0].size // LEAST_WORK, 1))
    if count == 1:
        run(slice(None))
        return
    ends = np.linspace(0, len(values), count + 1).astype(int).tolist()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, map(slice, ends[:-1], ends[1:])))


@jit
def _mix(windows, channels, weights, first, last, row, reach):  # type: ignore[no-untyped-def]
    """A sum of channels of windows (C, T), into a row between zeros."""
    length = windows.shape[1]
    row[:reach] = 0
    row[reach + length :] = 0
    total = row[reach : reach + length]
    values, weight = windows[channels[first]], weights[first]
    for t in range(length):
        total[t] = values[t] * weight
    for entry in range(first + 1, last):
        values, weight = windows[channels[entry]], weights[entry]
        for t in range(length):
            total[t] += values[t] * weight


@jit
def _base(row, step, base):  # type: ignore[no-untyped-def]
    """Less the sum of all taps. In two loops: one of ten rows is not vectorised."""
    t0, t1, t2, t3, t4 = row, row[step:], row[2 * step :], row[3 * step :], row[4 * step :]
    for t in range(len(base)):
        base[t] = t0[t] + t1[t] + t2[t] + t3[t] + t4[t]
    t5, t6, t7, t8 = row[5 * step :], row[6 * step :], row[7 * step :], row[8 * step :]
    for t in range(len(base)):
        base[t] = -(base[t] + t5[t] + t6[t] + t7[t] + t8[t])


@jit
def _triple(row, tripled):  # type: ignore[no-untyped-def]
    for t in range(len(row)):
        tripled[t] = np.float32(3) * row[t]


@jit
def _add(base, tripled, place, total):  # type: ignore[no-untyped-def]
    tap = tripled[place:]
    for t in range(len(total)):
        total[t] = base[t] + tap[t]


@jit
def _count(one, tripled, second, third, bias):  # type: ignore[no-untyped-def]
    """At how many places a response exceeds its bias."""
    left, right = tripled[second:], tripled[third:]
    count = np.uint32(0)
    for t in range(len(one)):
        count = np.uint32(count + np.uint32(one[t] + left[t] + right[t] > bias))
    return count


@jit
def _features(windows, places, channels, weights, copy, dilation, order, inner, bias, rows, out):  # type: ignore[no-untyped-def]
    length, mixes = windows.shape[3], places.shape[1]
    width = (length + LANES - 1) // LANES * LANES
    row, tripled, base, one = rows[0], rows[1], rows[2, :width], rows[3, :width]
    for b in range(windows.shape[0]):
        for group in range(GROUPS):
            step = dilation[group]
            reach = TAPS // 2 * step
            previous, cut, tap = -1, 0, -1
            for kernel in order[group]:
                mix, size = kernel % mixes, length - 2 * reach if inner[group, kernel] else length
                if mix != previous:
                    first, last = places[group, mix]
                    _mix(windows[b, copy[group]], channels, weights, first, last, row, reach)
                    _triple(row, tripled)
                    _base(row, step, base)
                    base[length:] = -np.inf  # never above a bias
                    previous, cut, tap = mix, 0, -1
                if inner[group, kernel] != cut:
                    base[:reach] = -np.inf
                    base[length - reach :] = -np.inf
                    cut, tap = 1, -1
                if TRIPLES[kernel, 0] != tap:
                    tap = TRIPLES[kernel, 0]
                    _add(base, tripled, tap * step, one)
                count = _count(one, tripled, TRIPLES[kernel, 1] * step, TRIPLES[kernel, 2] * step, bias[group, kernel])
                out[b, group * KERNELS + kernel] = np.float32(count) / np.float32(size)


@jit
def _bits(one, tripled, second, third, bias, bits):  # type: ignore[no-untyped-def]
    """The places at which a response exceeds its bias: bit v of byte s is place v S + s, of S bytes."""
    size = len(bits)
    left, right = tripled[second:], tripled[third:]
    for s in range(size):
        byte = np.uint8(0)
        for v in range(8):
            t = v * size + s
            byte |= np.uint8(one[t] + left[t] + right[t] > bias) << np.uint8(v)
        bits[s] = byte


@jit
def _ones(word):  # type: ignore[no-untyped-def]
    """Bits set in 64; compilers know this form as one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@jit
def _masks(starts, stops, size, masks):  # type: ignore[no-untyped-def]
    """The places of spans (K,), as `_bits` writes them, into masks (K, S)."""
    for span in range(len(starts)):
        for s in range(size):
            byte = 0
            for v in range(8):
                byte |= (starts[span] <= v * size + s < stops[span]) << v
            masks[span, s] = byte


@jit
def _span_features(windows, places, channels, weights, copy, dilation, order, inner, bias, groups, starts, stops, rows, out):  # type: ignore[no-untyped-def]
    length, mixes, spans = windows.shape[3], places.shape[1], starts.shape[1]
    width = (length + LANES - 1) // LANES * LANES
    row, tripled, base, one = rows[0], rows[1], rows[2, :width], rows[3, :width]
    bits, masks = np.zeros(width // 8, np.uint8), np.zeros((spans, width // 8), np.uint8)
    words, inside = bits.view(np.uint64), masks.view(np.uint64)
    for b in range(windows.shape[0]):
        _masks(starts[b], stops[b], width // 8, masks)
        for g in range(len(groups)):
            group = groups[g]
            step = dilation[group]
            previous, tap = -1, -1
            for kernel in range(KERNELS):
                kernel = order[group, kernel]
                mix = kernel % mixes
                if mix != previous:
                    first, last = places[group, mix]
                    _mix(windows[b, copy[group]], channels, weights, first, last, row, TAPS // 2 * step)
                    _triple(row, tripled)
                    _base(row, step, base)
                    previous, tap = mix, -1
                if TRIPLES[kernel, 0] != tap:
                    tap = TRIPLES[kernel, 0]
                    _add(base, tripled, tap * step, one)
                _bits(one, tripled, TRIPLES[kernel, 1] * step, TRIPLES[kernel, 2] * step, bias[group, kernel], bits)
                for span in range(spans):
                    count = np.uint64(0)
                    for word in range(len(words)):
                        count += _ones(words[word] & inside[span, word])
                    share = np.float32(count) / np.float32(stops[b, span] - starts[b, span])
                    out[b, span, g * KERNELS + kernel] = share
