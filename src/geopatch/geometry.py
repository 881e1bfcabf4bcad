"""What the values do inside a patch: slope, acceleration, curvature, affine residual, confidence.

The source of geometry is any series on the window's samples: the values themselves, or a clock (see `clock`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geopatch.config import TEMPO_COLUMNS
from geopatch.scaffold import Scaffold

EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Motion:
    """Speed v, acceleration a and curvature kappa of a series at every sample."""

    speed: Tensor  # (B, T)
    acceleration: Tensor  # (B, T)
    curvature: Tensor  # (B, T)


@dataclass(frozen=True, eq=False)
class Geometry:
    """Per patch: the descriptors that condition the token, and the evidence xi that opens its gate."""

    descriptors: Tensor  # (B, K, G)
    evidence: Tensor  # (B, K, 4)


def motion(source: Tensor, lengths: Tensor) -> Motion:
    """v = |grad s|, a = |grad^2 s|, kappa = a / ((1 + v^2)^1.5 + eps). Past its ends a series stands still."""
    samples = torch.arange(source.shape[1], device=source.device)
    last = lengths[:, None] - 1
    before, after = (samples - 1).clamp(min=0).expand(len(source), -1), torch.minimum(samples + 1, last)
    previous, following = _at(source, before), _at(source, after)
    speed = ((following - previous) / 2).norm(dim=2)  # (B, T)
    acceleration = (following - 2 * source + previous).norm(dim=2)
    inside = samples <= last
    speed, acceleration = speed * inside, acceleration * inside
    return Motion(speed, acceleration, acceleration / ((1 + speed.square()).pow(1.5) + EPSILON))


def affine_residual(patches: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The part of each patch (..., L, C) that no line explains, and the slope of that line (..., C).

    Weighted least squares over the positions; the residual is 0 where the weight is 0.
    """
    time = torch.arange(patches.shape[-2], device=patches.device, dtype=patches.dtype)
    weight = weights[..., None]  # (..., L, 1)
    total = weight.sum(-2, keepdim=True).clamp(min=EPSILON)
    offset = time[:, None] - (weight * time[:, None]).sum(-2, keepdim=True) / total  # (..., L, 1)
    centred = patches - (weight * patches).sum(-2, keepdim=True) / total
    spread = (weight * offset.square()).sum(-2, keepdim=True).clamp(min=EPSILON)
    slope = (weight * offset * centred).sum(-2, keepdim=True) / spread
    return (centred - slope * offset) * (weight > 0), slope.squeeze(-2)


def local_residual(patches: Tensor, weights: Tensor) -> Tensor:
    """R = r / alpha_loc with alpha_loc the local rate |slope|: unchanged by tau -> alpha tau + beta, alpha > 0."""
    started = patches - patches[..., :1, :]  # a clock that stands still leaves exactly 0, whatever it shows
    residual, slope = affine_residual(started, weights)
    return residual / slope.abs().clamp(min=EPSILON)[..., None, :]


def residual_norms(residual: Tensor, weights: Tensor) -> Tensor:
    """|grad^j r|_1 / (number of differences) for j = 0, 1, 2, averaged over channels."""
    norms, known = [], weights > 0
    for _ in range(3):
        count = known.sum(-1).clamp(min=1)
        norms.append((residual.abs().mean(-1) * known).sum(-1) / count)
        residual, known = residual.diff(dim=-2), known[..., 1:] & known[..., :-1]
    return torch.stack(norms, dim=-1)  # (..., 3)


def geometry(
    source: Tensor,
    confidence: Tensor,
    scaffold: Scaffold,
    motion: Motion,
    names: tuple[str, ...],
    *,
    clock: bool,
    tempo: Tensor | None = None,
) -> Geometry:
    """Descriptors of every patch, multiplied by its validity so that padding is no signal.

    `tempo` (B, T, TEMPO_COLUMNS) is relative tempo at every sample, for the descriptor of that name.
    """
    weights = _patch_view(confidence, scaffold) * scaffold.inside  # (B, K, L)
    views = _at(source, scaffold.positions.flatten(1)).unflatten(1, scaffold.positions.shape[1:])  # (B, K, L, C)
    residual = local_residual(views, weights) if clock else affine_residual(views, weights)[0]
    norms = residual_norms(residual, weights).log1p()
    trust = weights.sum(-1) / scaffold.inside.sum(-1).clamp(min=1)  # c_bar (B, K)
    curvature = _patch_mean(motion.curvature, weights, scaffold).log1p()
    evidence = torch.stack([norms[..., 0], norms[..., 1], norms[..., 2] * trust, curvature * trust], dim=-1)
    columns = {
        "slope": lambda: _patch_mean(motion.speed, weights, scaffold).log1p(),
        "acceleration": lambda: _patch_mean(motion.acceleration, weights, scaffold).log1p(),
        "curvature": lambda: curvature,
        "residual": lambda: norms,
        "confidence": lambda: trust,
        "position": lambda: scaffold.centres / scaffold.lengths[:, None],
        "index": lambda: _index(scaffold),
        "length": lambda: scaffold.inside.sum(-1) / scaffold.lengths[:, None],
        "global": lambda: _window_means(motion, confidence, scaffold),
        "tempo": lambda: _patch_tempo(tempo, source, scaffold),
    }
    chosen = [columns[name]().reshape(*scaffold.valid.shape, -1) for name in names]
    empty = source.new_zeros((*scaffold.valid.shape, 0))
    descriptors = torch.cat([empty, *chosen], dim=-1)
    return Geometry(descriptors * scaffold.valid[..., None], evidence * scaffold.valid[..., None])


def _at(series: Tensor, index: Tensor) -> Tensor:
    """Samples (B, N, C) of a series (B, T, C) at index (B, N)."""
    return series.gather(1, index[..., None].expand(-1, -1, series.shape[2]))


def _patch_view(track: Tensor, scaffold: Scaffold) -> Tensor:
    view: Tensor = track.gather(1, scaffold.positions.flatten(1)).unflatten(1, scaffold.positions.shape[1:])
    return view  # (B, K, L)


def _patch_mean(track: Tensor, weights: Tensor, scaffold: Scaffold) -> Tensor:
    return (_patch_view(track, scaffold) * weights).sum(-1) / weights.sum(-1).clamp(min=EPSILON)  # (B, K)


def _patch_tempo(tempo: Tensor | None, source: Tensor, scaffold: Scaffold) -> Tensor:
    """Means of relative tempo over the patches (B, K, TEMPO_COLUMNS); 0 where no window has any."""
    if tempo is None:
        return source.new_zeros((*scaffold.valid.shape, TEMPO_COLUMNS))
    inside = scaffold.inside[..., None]  # (B, K, L, 1)
    views = _at(tempo, scaffold.positions.flatten(1)).unflatten(1, scaffold.positions.shape[1:])
    means: Tensor = (views * inside).sum(2) / inside.sum(2).clamp(min=1)
    return means


def _index(scaffold: Scaffold) -> Tensor:
    count = scaffold.valid.shape[1]
    return (torch.arange(count, device=scaffold.valid.device) / max(count - 1, 1)).expand(scaffold.valid.shape)


def _window_means(motion: Motion, confidence: Tensor, scaffold: Scaffold) -> Tensor:
    total = confidence.sum(1, keepdim=True).clamp(min=EPSILON)
    means = [(track * confidence).sum(1, keepdim=True) / total for track in (motion.speed, motion.curvature)]
    return torch.stack(means, dim=-1).log1p().expand(-1, scaffold.valid.shape[1], -1)  # (B, K, 2)
