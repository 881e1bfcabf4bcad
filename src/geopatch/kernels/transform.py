"""The features of windows by the fixed kernels: compiled on a CPU, by torch on a GPU; both give the same numbers."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from geopatch.kernels import torch_transform
from geopatch.kernels.bank import BIAS_WINDOWS, GROUPS, TRIPLES, Layout, quantile_levels


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias, for copies (B, copies, C, T) of windows."""
    return _routines(copies).features(copies, mixes, bias, layout)


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) of the places inside spans from starts to stops (B, K), in samples."""
    return _routines(copies).span_features(copies, mixes, bias, layout, starts, stops)


def learn_bias(copies: Tensor, mixes: Tensor, layout: Layout) -> Tensor:
    """Biases (GROUPS, 84): quantiles of the responses to some windows, pooled."""
    levels = quantile_levels().to(copies.device)
    bias = torch.empty(GROUPS, len(TRIPLES), device=copies.device)
    for group in range(GROUPS):
        pooled = torch_transform.responses(copies[:BIAS_WINDOWS], mixes, layout, group).transpose(0, 1).flatten(1)
        ranked = pooled.sort(1).values
        place = (levels[group] * (ranked.shape[1] - 1)).long()
        bias[group] = ranked.gather(1, place[:, None]).squeeze(1)
    return bias


def _routines(copies: Tensor) -> Any:
    """The compiled routines for windows on the CPU, torch's otherwise."""
    return _compiled() if copies.device.type == "cpu" else torch_transform


@lru_cache(maxsize=1)
def _compiled() -> Any:
    if find_spec("numba") is None:
        return torch_transform
    from geopatch.kernels import compiled

    return compiled
