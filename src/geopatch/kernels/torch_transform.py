"""The features of the fixed kernels by torch: on a GPU, and where numba is not installed. Twin of `compiled`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from geopatch.kernels.bank import GROUPS, TAPS, TOKEN_GROUPS, TRIPLES, Layout

CHUNK_BYTES = 2**28  # of responses held at a time
ON_GPU = 4  # times as many


def responses(copies: Tensor, mixes: Tensor, layout: Layout, group: int) -> Tensor:
    """Responses (B, 84, T) of the kernels of one group to the copies (B, copies, C, T) of windows."""
    copy, dilation = int(layout.copy[group]), int(layout.dilation[group])
    mixed = mix(copies[:, copy], mixes[group])  # (B, M, T)
    reach = (TAPS // 2) * dilation
    padded = F.pad(mixed, (reach, reach))
    shifted = [padded[..., tap * dilation : tap * dilation + layout.length] for tap in range(TAPS)]
    base = shifted[0]
    for other in shifted[1:]:
        base = base + other
    base, tripled = -base, torch.stack([3 * part for part in shifted])  # (9, B, M, T)
    which = torch.arange(len(TRIPLES), device=copies.device) % mixes.shape[1]
    taps = torch.from_numpy(TRIPLES).to(copies.device)
    response = base[:, which]
    for place in range(TRIPLES.shape[1]):
        response = response + tripled[taps[:, place], :, which].transpose(0, 1)
    return response


def mix(windows: Tensor, mixes: Tensor) -> Tensor:
    """Sums of channels (B, M, T); added one after the other, as the compiled routine does."""
    total = windows[:, None, 0] * mixes[:, 0, None]
    for channel in range(1, windows.shape[1]):
        total = total + windows[:, None, channel] * mixes[:, channel, None]
    return total


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias."""
    shares = []
    for part in copies.split(_chunk(copies, layout)):
        groups = (_above(part, mixes, bias, layout, group) for group in range(GROUPS))
        shares.append(torch.cat([_in_window(above, layout, group) for group, above in enumerate(groups)], 1))
    return torch.cat(shares)


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) inside spans from starts to stops (B, K), in samples."""
    chunk, shares = _chunk(copies, layout), []
    for part, *spans in zip(copies.split(chunk), starts.split(chunk), stops.split(chunk), strict=True):
        groups = (_above(part, mixes, bias, layout, group) for group in TOKEN_GROUPS)
        shares.append(torch.cat([_in_spans(above, *spans) for above in groups], 2))
    return torch.cat(shares)


def window_features(
    copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor
) -> tuple[Tensor, Tensor]:
    """Both `features` and `span_features`."""
    chunk, shares, tokens = _chunk(copies, layout), [], []
    for part, *spans in zip(copies.split(chunk), starts.split(chunk), stops.split(chunk), strict=True):
        whole, inside = [], []
        for group in range(GROUPS):
            above = _above(part, mixes, bias, layout, group)
            whole.append(_in_window(above, layout, group))
            if group in TOKEN_GROUPS:
                inside.append(_in_spans(above, *spans))
        shares.append(torch.cat(whole, 1))
        tokens.append(torch.cat(inside, 2))
    return torch.cat(shares), torch.cat(tokens)


def _above(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, group: int) -> Tensor:
    return responses(copies, mixes, layout, group) > bias[group, :, None]  # (B, 84, T)


def _in_window(above: Tensor, layout: Layout, group: int) -> Tensor:
    """Shares (B, 84) of all places, or of the inner ones."""
    share = _share(above)
    if not layout.inner[group].any():
        return share
    reach = (TAPS // 2) * int(layout.dilation[group])
    inner = torch.from_numpy(layout.inner[group]).to(above.device)
    return torch.where(inner, _share(above[..., reach : layout.length - reach]), share)


def _in_spans(above: Tensor, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, 84) of the places of spans."""
    count = F.pad(above.int().cumsum(2, dtype=torch.int32), (1, 0))  # (B, 84, T + 1)
    ends = (places[:, None].expand(-1, count.shape[1], -1) for places in (stops, starts))
    upper, lower = (count.gather(2, places) for places in ends)
    return ((upper - lower) / (stops - starts).float()[:, None]).transpose(1, 2)


def _share(above: Tensor) -> Tensor:
    return above.sum(2, dtype=torch.int32) / above.shape[2]


def _chunk(copies: Tensor, layout: Layout) -> int:
    return max(CHUNK_BYTES * (ON_GPU if copies.is_cuda else 1) // (4 * len(TRIPLES) * layout.length * 4), 1)
