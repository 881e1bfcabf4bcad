"""The features of the fixed kernels compiled for the CPU: the same numbers as `torch_transform`, bit for bit.

The nine taps of a kernel are nine offsets into one padded row of three times the values. The sum with the first tap is
shared between kernels; adding the other two, comparing with the bias and counting are one pass that stores nothing. All
rows of a window of 1024 samples fit into the first-level cache. No fastmath: additions are in the order of the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.kernels.bank import FEATURES, GROUPS, TAPS, TOKEN_FEATURES, TOKEN_GROUPS, TRIPLES, Floats, Ints, Layout

KERNELS = len(TRIPLES)
LANES = 64  # rows are filled up to a multiple of this, so that loops have no scalar remainder
ROWS = 4  # a padded row, three times it, and sums with no tap and with one
CACHE_LINE = 16  # floats
LEAST_WORK = 2**14  # samples of a batch from which on a second thread pays

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled at the first call, and kept on disk where a place can be written to."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba has no place for its cache
        compiled = numba.njit(**options)(function)
    return compiled


class Plan(NamedTuple):
    """Which channels a sum adds up, and the order in which the kernels of a group are taken."""

    places: Ints  # (GROUPS, mixes, 2) where the channels of a sum begin and end in the next two
    channels: Ints
    weights: Floats
    copy: Ints  # (GROUPS,)
    dilation: Ints  # (GROUPS,)
    order: Ints  # (GROUPS, 84) kernels sorted by sum, by whether they are inner, and by their taps
    inner: Ints  # (GROUPS, 84) of each kernel, not sorted


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias."""
    values, plan, levels = _array(copies), _plan(mixes, layout), _array(bias)
    shares = np.empty((len(values), FEATURES), dtype=np.float32)

    def run(part: slice) -> None:
        _features(values[part], plan, levels, _rows(layout.length), shares[part])

    _in_parts(run, values)
    return torch.from_numpy(shares)


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) inside spans from starts to stops (B, K), in samples."""
    values, plan, levels = _array(copies), _plan(mixes, layout), _array(bias)
    spans = torch.stack([starts, stops], 2).long().numpy()  # (B, K, 2)
    shares = np.empty((*starts.shape, TOKEN_FEATURES), dtype=np.float32)
    groups = np.asarray(TOKEN_GROUPS, dtype=np.int64)

    def run(part: slice) -> None:
        _span_features(values[part], plan, levels, groups, spans[part], _rows(layout.length), shares[part])

    _in_parts(run, values)
    return torch.from_numpy(shares)


def _plan(mixes: Tensor, layout: Layout) -> Plan:
    """Channels of weight 0 are left out."""
    weights = _array(mixes)
    group, mix, channel = np.nonzero(weights)
    ends = np.cumsum(np.count_nonzero(weights, axis=2)).reshape(weights.shape[:2])
    places = np.stack([np.append(0, ends.ravel()[:-1]).reshape(ends.shape), ends], axis=2)
    inner = layout.inner.astype(np.int64)
    kernels = np.arange(KERNELS)
    order = np.stack([np.lexsort((kernels, row, kernels % weights.shape[1])) for row in inner])
    used = weights[group, mix, channel]
    return Plan(places, np.ascontiguousarray(channel), used, layout.copy, layout.dilation, order, inner)


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().float().contiguous().numpy()
    return array


def _rows(length: int) -> Floats:
    """Scratch rows of twice a window, each beginning a cache line."""
    width = 2 * -(-length // LANES) * LANES + CACHE_LINE  # not a power of two: rows shall not share cache sets
    memory = np.empty(ROWS * width + CACHE_LINE, dtype=np.float32)
    start = (-memory.ctypes.data // memory.itemsize) % CACHE_LINE
    rows: Floats = memory[start : start + ROWS * width].reshape(ROWS, width)
    return rows


def _in_parts(run: Callable[[slice], None], values: Floats) -> None:
    """Run over the windows in as many threads as torch uses; threads of its own, so that many callers may run it."""
    count = min(torch.get_num_threads(), len(values), max(values[:, 0, 0].size // LEAST_WORK, 1))
    if count <= 1:
        run(slice(None))
        return
    ends = np.linspace(0, len(values), count + 1).astype(int).tolist()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, map(slice, ends[:-1], ends[1:])))


@jit
def _fill(row: Floats, start: int, stop: int, value: float) -> None:
    for t in range(start, stop):
        row[t] = value


@jit
def _mix(windows: Floats, b: int, group: int, mix: int, plan: Plan, row: Floats) -> None:
    """A sum of channels of a window, into a row between zeros."""
    reach, length = TAPS // 2 * plan.dilation[group], windows.shape[3]
    _fill(row, 0, reach, np.float32(0))
    _fill(row, reach + length, len(row), np.float32(0))
    total, first = row[reach:], plan.places[group, mix, 0]
    for entry in range(first, plan.places[group, mix, 1]):
        values, weight = windows[b, plan.copy[group], plan.channels[entry]], plan.weights[entry]
        if entry == first:
            for t in range(length):
                total[t] = values[t] * weight
        else:
            for t in range(length):
                total[t] += values[t] * weight


@jit
def _taps(row: Floats, step: int, tripled: Floats, base: Floats) -> None:
    """Three times the row, and less the sum of the nine taps. In two loops: one with ten rows is not vectorised."""
    for t in range(len(row)):
        tripled[t] = np.float32(3) * row[t]
    t0, t1, t2, t3, t4 = row, row[step:], row[2 * step :], row[3 * step :], row[4 * step :]
    for t in range(len(base)):
        base[t] = t0[t] + t1[t] + t2[t] + t3[t] + t4[t]
    t5, t6, t7, t8 = row[5 * step :], row[6 * step :], row[7 * step :], row[8 * step :]
    for t in range(len(base)):
        base[t] = -(base[t] + t5[t] + t6[t] + t7[t] + t8[t])


@jit
def _add(base: Floats, tripled: Floats, place: int, total: Floats) -> None:
    tap = tripled[place:]
    for t in range(len(total)):
        total[t] = base[t] + tap[t]


@jit
def _count(one: Floats, tripled: Floats, second: int, third: int, bias: float) -> Any:
    """At how many places a response exceeds its bias."""
    left, right = tripled[second:], tripled[third:]
    count = np.uint32(0)
    for t in range(len(one)):
        count = np.uint32(count + np.uint32(one[t] + left[t] + right[t] > bias))
    return count


@jit
def _features(windows: Floats, plan: Plan, bias: Floats, rows: Floats, out: Floats) -> None:
    length, mixes = windows.shape[3], plan.places.shape[1]
    width = (length + LANES - 1) // LANES * LANES
    row, tripled, base, one = rows[0], rows[1], rows[2, :width], rows[3, :width]
    never = np.float32(-np.inf)  # above a bias
    for b in range(windows.shape[0]):
        for group in range(GROUPS):
            step = plan.dilation[group]
            reach = TAPS // 2 * step
            mix, cut, tap = -1, 0, -1
            for turn in range(KERNELS):
                kernel = plan.order[group, turn]
                if kernel % mixes != mix:
                    mix, cut, tap = kernel % mixes, 0, -1
                    _mix(windows, b, group, mix, plan, row)
                    _taps(row, step, tripled, base)
                    _fill(base, length, width, never)
                if plan.inner[group, kernel] != cut:
                    cut, tap = 1, -1
                    _fill(base, 0, reach, never)
                    _fill(base, length - reach, length, never)
                if TRIPLES[kernel, 0] != tap:
                    tap = TRIPLES[kernel, 0]
                    _add(base, tripled, tap * step, one)
                count = _count(one, tripled, TRIPLES[kernel, 1] * step, TRIPLES[kernel, 2] * step, bias[group, kernel])
                out[b, group * KERNELS + kernel] = np.float32(count) / np.float32(length - 2 * reach * cut)


@jit
def _above(one: Floats, tripled: Floats, second: int, third: int, bias: float, above: Bytes) -> None:
    left, right = tripled[second:], tripled[third:]
    for t in range(len(one)):
        above[t] = one[t] + left[t] + right[t] > bias


@jit
def _pack(above: Words, kernel: int, bits: Words) -> None:
    """Bytes of 0 or 1, eight to a word, as bits (words, 84): bit v of byte s is place v S + s, of S bytes in all."""
    words = len(bits)
    for word in range(words):
        packed = above[word]
        for v in range(1, 8):
            packed |= above[v * words + word] << np.uint64(v)
        bits[word, kernel] = packed


@jit
def _mark(start: int, stop: int, above: Bytes) -> None:
    for t in range(len(above)):
        above[t] = start <= t < stop


@jit
def _ones(word: Any) -> Any:
    """Bits set in 64; compilers know this form."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@jit
def _share(bits: Words, masks: Words, span: int, size: int, counts: Words, out: Floats) -> None:
    """The share of a span of `size` places at which each of the 84 kernels is above its bias."""
    for kernel in range(KERNELS):
        counts[kernel] = 0
    for word in range(len(bits)):
        mask, row = masks[word, span], bits[word]
        for kernel in range(KERNELS):
            counts[kernel] += _ones(row[kernel] & mask)
    for kernel in range(KERNELS):
        out[kernel] = np.float32(np.int32(counts[kernel])) / np.float32(size)


@jit
def _span_features(
    windows: Floats, plan: Plan, bias: Floats, groups: Ints, spans: Ints, rows: Floats, out: Floats
) -> None:
    mixes, width = plan.places.shape[1], (windows.shape[3] + LANES - 1) // LANES * LANES
    row, tripled, base, one = rows[0], rows[1], rows[2, :width], rows[3, :width]
    above = np.zeros(width, np.uint8)
    packed, counts = above.view(np.uint64), np.zeros(KERNELS, np.uint64)
    bits = np.zeros((width // LANES, KERNELS), np.uint64)
    masks = np.zeros((width // LANES, spans.shape[1]), np.uint64)
    for b in range(windows.shape[0]):
        for span in range(spans.shape[1]):
            _mark(spans[b, span, 0], spans[b, span, 1], above)
            _pack(packed, span, masks)
        for g in range(len(groups)):
            group = groups[g]
            step = plan.dilation[group]
            mix, tap = -1, -1
            for turn in range(KERNELS):
                kernel = plan.order[group, turn]
                if kernel % mixes != mix:
                    mix, tap = kernel % mixes, -1
                    _mix(windows, b, group, mix, plan, row)
                    _taps(row, step, tripled, base)
                if TRIPLES[kernel, 0] != tap:
                    tap = TRIPLES[kernel, 0]
                    _add(base, tripled, tap * step, one)
                _above(one, tripled, TRIPLES[kernel, 1] * step, TRIPLES[kernel, 2] * step, bias[group, kernel], above)
                _pack(packed, kernel, bits)
            for span in range(spans.shape[1]):
                size = spans[b, span, 1] - spans[b, span, 0]
                _share(bits, masks, span, size, counts, out[b, span, g * KERNELS : (g + 1) * KERNELS])
