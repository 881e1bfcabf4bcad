"""The features of windows by the fixed kernels: compiled on a CPU, by torch on a GPU; both give the same numbers."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geopatch.kernels import torch_transform
from geopatch.kernels.bank import BIAS_WINDOWS, GROUPS, TRIPLES, Layout, quantile_levels


def features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """Shares (B, FEATURES) of places at which a response exceeds its bias, for copies (B, copies, C, T) of windows."""
    shares: Tensor = _path(copies).features(copies, mixes, bias, layout)
    return shares


def span_features(copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor) -> Tensor:
    """Shares (B, K, TOKEN_FEATURES) of the places inside spans from starts to stops (B, K), in samples."""
    shares: Tensor = _path(copies).span_features(copies, mixes, bias, layout, starts, stops)
    return shares


def window_features(
    copies: Tensor, mixes: Tensor, bias: Tensor, layout: Layout, starts: Tensor, stops: Tensor
) -> tuple[Tensor, Tensor]:
    """Both `features` and `span_features`, for little more than the former."""
    both: tuple[Tensor, Tensor] = _path(copies).window_features(copies, mixes, bias, layout, starts, stops)
    return both


def learn_bias(copies: Tensor, mixes: Tensor, layout: Layout, windows: int = BIAS_WINDOWS) -> Tensor:
    """Biases (GROUPS, 84): quantiles of the responses to some windows, pooled."""
    levels = quantile_levels().to(copies.device)
    bias = torch.empty(GROUPS, len(TRIPLES), device=copies.device)
    for group in range(GROUPS):
        pooled = torch_transform.responses(copies[:windows], mixes, layout, group).transpose(0, 1).flatten(1)
        ranked = torch.from_numpy(np.sort(pooled.numpy())) if pooled.device.type == "cpu" else pooled.sort(1).values
        place = (levels[group] * (ranked.shape[1] - 1)).long()
        bias[group] = ranked.gather(1, place[:, None]).squeeze(1)
    return bias


def _path(values: Tensor) -> Any:
    return _compiled() if values.device.type == "cpu" else torch_transform


@cache
def _compiled() -> ModuleType:
    """The compiled routines, or torch's where numba is not installed; imported when first needed."""
    try:
        from geopatch.kernels import compiled
    except ImportError:
        return torch_transform
    return compiled
