"""The features of the fixed kernels compiled for the CPU: the same numbers as `torch_transform`, bit for bit.

Sixteen places of a window are taken at a time. Their nine taps are held in registers while all kernels of a group are
compared with their biases; kernels share what the sums of their first taps have in common. A comparison leaves one bit
a place, and shares of the window and of its spans are counted from the same bits. Sums are in the order of the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from geopatch.jit import jit
from geopatch.kernels.bank import (
    FEATURES,
    GROUPS,
    MIXES,
    TAPS,
    TOKEN_FEATURES,
    TOKEN_GROUPS,
    TRIPLES,
    Floats,
    Ints,
    Layout,
)

KERNELS = len(TRIPLES)
LANES = 16  # places compared at a time, as many as the widest registers hold
WORD = 64  # places to a word of bits
BYTES = 8  # to a word
BLOCKS = WORD // LANES  # of places, to a word
EVERY = np.uint64(2**64 - 1)
LEAST_WORK = 2**14  # samples of a batch from which on a second thread pays
ALL_GROUPS = tuple(range(GROUPS))

Words = npt.NDArray[np.uint64]


class Plan(NamedTuple):
    """Which channels a sum adds up, and which places count."""

    places: Ints  # (GROUPS, mixes, 2) where the channels of a sum begin and end in the next two
    channels: Ints
    weights: Floats
    copy: Ints  # (GROUPS,)
    dilation: Ints  # (GROUPS,)
    outer: Words  # (GROUPS, 84) every bit where all places of a kernel count, none where only the inner ones do
    counted: Words  # (GROUPS, words, 2) bits of all places, and of the inner ones
    sizes: Floats  # (GROUPS, 84) how many places count


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias."""
    nowhere = torch.zeros(len(copies), 0)
    return _counted(copies, mixes, bias, layout, nowhere, nowhere, ALL_GROUPS)[0]


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) inside spans from starts to stops (B, K), in samples."""
    return _counted(copies, mixes, bias, layout, starts, stops, TOKEN_GROUPS)[1]


def window_features(
    copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor
) -> tuple[Tensor, Tensor]:
    """Both `features` and `span_features`."""
    return _counted(copies, mixes, bias, layout, starts, stops, ALL_GROUPS)


def _counted(
    copies: Tensor,
    mixes: Tensor,
    bias: Tensor,
    layout: Layout,
    starts: Tensor,
    stops: Tensor,
    groups: tuple[int, ...],
) -> tuple[Tensor, Tensor]:
    """Shares in windows and in spans; those of windows are 0 in groups that are left out."""
    values, plan, levels = _array(copies), _plan(mixes, layout), _array(bias)
    ends = torch.stack([starts, stops], 2).long().numpy()  # (B, K, 2)
    whole = len(groups) == GROUPS
    shares = np.empty((len(values), FEATURES if whole else 0), dtype=np.float32)
    spans = np.empty((*starts.shape, TOKEN_FEATURES), dtype=np.float32)
    chosen = np.asarray(groups, dtype=np.int64)
    tokens = np.asarray([TOKEN_GROUPS.index(group) if group in TOKEN_GROUPS else -1 for group in groups])

    def run(part: slice) -> None:
        _count_all(values[part], plan, levels, chosen, tokens, ends[part], shares[part], spans[part])

    _in_parts(run, values)
    return torch.from_numpy(shares), torch.from_numpy(spans)


def _plan(mixes: Tensor, layout: Layout) -> Plan:
    weights = _array(mixes)
    return _planned(weights.tobytes(), weights.shape, layout)


@lru_cache(maxsize=8)
def _planned(data: bytes, shape: tuple[int, ...], layout: Layout) -> Plan:
    """Channels of weight 0 are left out. Kept, as a batch of few windows takes no longer than this."""
    weights = np.frombuffer(data, dtype=np.float32).reshape(shape)
    group, mix, channel = np.nonzero(weights)
    ends = np.cumsum(np.count_nonzero(weights, axis=2)).reshape(weights.shape[:2])
    places = np.stack([np.append(0, ends.ravel()[:-1]).reshape(ends.shape), ends], axis=2)
    reach = TAPS // 2 * layout.dilation[:, None] * np.asarray([0, 1])  # (GROUPS, 2)
    time = np.arange(-(-layout.length // WORD) * WORD)
    counted = (time >= reach[..., None]) & (time < layout.length - reach[..., None])
    packed = np.packbits(counted, axis=2, bitorder="little").view("<u8").astype(np.uint64)
    bits = np.ascontiguousarray(packed.transpose(0, 2, 1))
    outer = np.where(layout.inner, np.uint64(0), EVERY)
    sizes = (layout.length - 2 * reach[:, 1:] * layout.inner).astype(np.float32)
    used = weights[group, mix, channel]
    return Plan(places, np.ascontiguousarray(channel), used, layout.copy, layout.dilation, outer, bits, sizes)


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().float().contiguous().numpy()
    return array


def _in_parts(run: Callable[[slice], None], values: Floats) -> None:
    """Run over the windows in as many threads as torch uses; threads of its own, so that many callers may run it."""
    count = min(torch.get_num_threads(), len(values), max(values[:, 0, 0].size // LEAST_WORK, 1))
    if count <= 1:
        run(slice(None))
        return
    ends = np.linspace(0, len(values), count + 1).astype(int).tolist()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, map(slice, ends[:-1], ends[1:])))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _compare(typing: Any, place: Any, step: Any, bias: Any, bits: Any, first: Any, every: Any) -> Any:
    """Which places of a block of a row are above the bias, as bits for each of the kernels first, first + every ...

    Addresses: of the first tap of the first place, of the biases of a group and of the first kernel's bits; `step` is
    the bytes from one tap to the next.
    """
    kernels = range(first.literal_value, KERNELS, every.literal_value)
    vector, block, lane = ir.VectorType(ir.FloatType(), LANES), ir.IntType(LANES), ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, step, bias, bits = arguments[:4]

        def address(start: Any, width: Any, count: int, kind: Any) -> Any:
            offset = builder.mul(width, ir.Constant(width.type, count))
            return builder.inttoptr(builder.add(start, offset), kind.as_pointer())

        def spread(number: Any) -> Any:
            alone = builder.insert_element(ir.Constant(vector, ir.Undefined), number, lane(0))
            return builder.shuffle_vector(alone, alone, ir.Constant(ir.VectorType(lane, LANES), [0] * LANES))

        taps = [builder.load(address(place, step, tap, vector), align=4) for tap in range(TAPS)]
        total = taps[0]
        for tap in taps[1:]:
            total = builder.fadd(total, tap)
        sums = {(): builder.fneg(total)}
        word = ir.Constant(bits.type, BYTES)
        tripled = [builder.fmul(tap, ir.Constant(vector, [3.0] * LANES)) for tap in taps]
        for kernel in kernels:
            triple = tuple(TRIPLES[kernel].tolist())
            for used in (1, 2, 3):
                if triple[:used] not in sums:
                    sums[triple[:used]] = builder.fadd(sums[triple[: used - 1]], tripled[triple[used - 1]])
            level = builder.load(address(bias, ir.Constant(bias.type, 4), kernel, ir.FloatType()), align=4)
            above = builder.fcmp_ordered(">", sums[triple], spread(level))
            builder.store(builder.bitcast(above, block), address(bits, word, kernel, block), align=1)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4, first, every), generate


@intrinsic  # type: ignore[untyped-decorator]
def _ones(typing: Any, word: Any) -> Any:
    """Bits set in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@jit
def _mix(windows: Floats, b: int, group: int, mix: int, plan: Plan, row: Floats) -> None:
    """A sum of channels of a window, into a row between zeros."""
    reach, length = TAPS // 2 * plan.dilation[group], windows.shape[3]
    row[:reach] = 0
    row[reach + length :] = 0
    total, first = row[reach : reach + length], plan.places[group, mix, 0]
    for entry in range(first, plan.places[group, mix, 1]):
        values, weight = windows[b, plan.copy[group], plan.channels[entry]], plan.weights[entry]
        if entry == first:
            for t in range(length):
                total[t] = values[t] * weight
        else:
            for t in range(length):
                total[t] += values[t] * weight


@jit
def _above(row: Floats, length: int, step: int, bias: Floats, mixes: int, mix: int, bits: Words) -> None:
    """Bits (words, 84) of the places of a row at which those kernels that read this sum are above their bias."""
    place, levels, word = row.ctypes.data, bias.ctypes.data, bits.ctypes.data
    step *= 4
    for block in range((length + LANES - 1) // LANES):
        here = word + block // BLOCKS * (BYTES * KERNELS) + block % BLOCKS * (BYTES // BLOCKS)
        if mixes == 1:
            _compare(place, step, levels, here, 0, 1)
        elif mix == 0:
            _compare(place, step, levels, here, 0, MIXES)
        elif mix == 1:
            _compare(place, step, levels, here, 1, MIXES)
        elif mix == 2:
            _compare(place, step, levels, here, 2, MIXES)
        elif mix == 3:
            _compare(place, step, levels, here, 3, MIXES)
        elif mix == 4:
            _compare(place, step, levels, here, 4, MIXES)
        else:
            _compare(place, step, levels, here, 5, MIXES)
        place += 4 * LANES


@jit
def _share(bits: Words, counted: Words, outer: Words, sizes: Floats, counts: Words, out: Floats) -> None:
    """The share of the places that count at which each kernel is above its bias."""
    counts[:] = 0
    for word in range(len(counted)):
        whole, inner, row = counted[word, 0], counted[word, 1], bits[word]
        for kernel in range(KERNELS):
            counts[kernel] += _ones(row[kernel] & (inner | (whole & outer[kernel])))
    for kernel in range(KERNELS):
        out[kernel] = np.float32(np.int32(counts[kernel])) / sizes[kernel]


@jit
def _span_share(bits: Words, start: int, stop: int, counts: Words, out: Floats) -> None:
    """The share of the places of a span at which each kernel is above its bias."""
    counts[:] = 0
    for word in range(start // WORD, (stop - 1) // WORD + 1):
        first, last, row = max(start - word * WORD, 0), min(stop - word * WORD, WORD) - 1, bits[word]
        mask = (EVERY << np.uint64(first)) & (EVERY >> np.uint64(WORD - 1 - last))
        for kernel in range(KERNELS):
            counts[kernel] += _ones(row[kernel] & mask)
    size = np.float32(stop - start)
    for kernel in range(KERNELS):
        out[kernel] = np.float32(np.int32(counts[kernel])) / size


@jit
def _count_all(
    windows: Floats, plan: Plan, bias: Floats, groups: Ints, tokens: Ints, ends: Ints, shares: Floats, spans: Floats
) -> None:
    length, mixes, words = windows.shape[3], plan.places.shape[1], plan.counted.shape[1]
    row = np.zeros(2 * WORD * words, np.float32)
    bits, counts = np.zeros((words, KERNELS), np.uint64), np.zeros(KERNELS, np.uint64)
    for b in range(windows.shape[0]):
        for g in range(len(groups)):
            group, token = groups[g], tokens[g]
            for mix in range(mixes):
                _mix(windows, b, group, mix, plan, row)
                _above(row, length, plan.dilation[group], bias[group], mixes, mix, bits)
            if shares.shape[1]:
                out = shares[b, group * KERNELS : (group + 1) * KERNELS]
                _share(bits, plan.counted[group], plan.outer[group], plan.sizes[group], counts, out)
            if token >= 0:
                for span in range(ends.shape[1]):
                    part = spans[b, span, token * KERNELS : (token + 1) * KERNELS]
                    _span_share(bits, ends[b, span, 0], ends[b, span, 1], counts, part)
