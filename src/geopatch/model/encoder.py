"""The encoder: scaled windows -> patches -> tokens -> one unit vector a window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import ModelConfig
from geopatch.errors import SignalError
from geopatch.model.layers import (
    ConditionalOperator,
    Fuse,
    Gate,
    GeometryEncoder,
    OrderedAggregate,
    PatchEncoder,
    ReconstructionHead,
    SetAggregate,
)
from geopatch.model.stem import ContextStem, PatchStem, masked_mean_max
from geopatch.patches import LazyWindows, PatchBatch, WindowBatch, patchify

FLAT = 1e-6  # a spread below this is none: the channel is constant


@dataclass(frozen=True, eq=False)
class EncoderOutput:
    """What the encoder makes of a batch."""

    embedding: Tensor  # (B, D) unit
    tokens: Tensor  # (B, K, d) unit, 0 where not valid
    valid: Tensor  # (B, K)
    gated: Tensor  # (B, K, d) a_k z_k
    reconstruction: Tensor | None  # (B, K, L, C)


class Encoder(nn.Module):
    """scale -> patch -> forward, each a stage of its own so that views and stress can step in between."""

    level: Tensor
    spread: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.register_buffer("level", torch.zeros(config.channels))
        self.register_buffer("spread", torch.ones(config.channels))
        self.stem = _stem(config)
        self.geometry = GeometryEncoder(config.descriptor_columns, width) if _uses_geometry(config) else None
        self.fuse = Fuse(config.fuse, width)
        self.token = PatchEncoder(config.patch_encoder, width, config.heads, config.dropout)
        self.gate = Gate() if config.gate else None
        self.aggregate = _aggregate(config)
        self.overview = Overview(width, config.embedding) if _has_overview(config) else None
        self.rebuild = _rebuild(config)

    def learn_scale(self, windows: WindowBatch | LazyWindows) -> None:
        """Take level and spread of each channel from training windows."""
        level, spread = level_and_spread(windows)
        self.level.copy_(level)
        self.spread.copy_(spread)

    def scale(self, windows: WindowBatch) -> WindowBatch:
        """Windows in units of the training data."""
        if windows.values.shape[2] != self.config.channels:
            raise SignalError(
                f"this model was trained on {self.config.channels} channel(s), these signals have "
                f"{windows.values.shape[2]}; give the same channels in the same order"
            )
        values = (windows.values - self.level) / self.spread
        return replace(windows, values=values * windows.inside[..., None])

    def patch(self, scaled: WindowBatch) -> PatchBatch:
        """Patches and geometry of scaled windows, under the chosen treatment of amplitude."""
        if self.config.amplitude == "keep":
            return patchify(scaled, self.config)
        shaped, level, spread = zscore(scaled)
        batch = patchify(shaped, self.config)
        if self.config.amplitude == "zscore":
            return batch
        extra = torch.cat([level, spread.log()], dim=1)[:, None] * batch.valid[..., None]  # (B, K, 2C)
        geometry = replace(batch.geometry, descriptors=torch.cat([batch.geometry.descriptors, extra], dim=-1))
        return replace(batch, geometry=geometry)

    def forward(self, batch: PatchBatch) -> EncoderOutput:
        h, mask, *window = self.stem(batch)  # (B, K, L, d), (B, K, L)
        c = self.geometry(batch.geometry.descriptors) if self.geometry is not None else None  # (B, K, d)
        z = self.token(self.fuse(h, c), mask)  # (B, K, d)
        valid = batch.valid
        opening = self.gate(batch.geometry.evidence, valid) if self.gate is not None else valid.to(z.dtype)
        gated = z * opening[..., None]
        head = self.aggregate(gated, valid).float()
        if self.overview is not None:
            head = head + self.overview(*window).float()
        tokens = F.normalize(z.float(), dim=-1) * valid[..., None]
        return EncoderOutput(F.normalize(head, dim=-1), tokens, valid, gated, self._reconstruct(h, mask, c, z))

    def encode(self, windows: WindowBatch) -> EncoderOutput:
        encoded: EncoderOutput = self(self.patch(self.scale(windows)))
        return encoded

    def _reconstruct(self, h: Tensor, mask: Tensor, c: Tensor | None, z: Tensor) -> Tensor | None:
        if isinstance(self.rebuild, ConditionalOperator):
            content = (h * mask[..., None]).sum(2) / mask.sum(2).clamp(min=1)[..., None]
            rebuilt: Tensor = self.rebuild(content, c)
            return rebuilt
        return None if self.rebuild is None else self.rebuild(z)


def level_and_spread(windows: WindowBatch | LazyWindows) -> tuple[Tensor, Tensor]:
    """Of each channel (C,), over all that was measured; a constant channel has spread 1."""
    total = _summed(_weights(part) for part in windows.parts())
    level = _summed(part.values * _weights(part) for part in windows.parts()) / total
    square = _summed((part.values - level).square() * _weights(part) for part in windows.parts())
    spread = (square / total).sqrt()
    return level, torch.where(spread > FLAT * (1 + level.abs()), spread, 1.0)


def _weights(windows: WindowBatch) -> Tensor:
    return windows.confidence[..., None].double()


def _summed(parts: Iterable[Tensor]) -> Tensor:
    """Over windows and samples of all parts."""
    total = torch.zeros((), dtype=torch.float64)
    for part in parts:
        total = total + part.sum((0, 1))
    return total


class Overview(nn.Module):
    """The global branch: mean and max of the stem over the whole window, straight to the embedding."""

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2 * width)
        self.out = nn.Linear(2 * width, embedding)

    def forward(self, features: Tensor, inside: Tensor) -> Tensor:
        z: Tensor = self.out(self.norm(masked_mean_max(features, inside[..., None], dim=1)))
        return z  # (B, D)


def zscore(windows: WindowBatch) -> tuple[WindowBatch, Tensor, Tensor]:
    """Each channel of each window to mean 0 and spread 1, and its level and spread (B, C). What is flat stays flat."""
    inside = windows.inside[..., None]
    count = windows.lengths[:, None, None]
    level = (windows.values * inside).sum(1, keepdim=True) / count
    centred = (windows.values - level) * inside
    spread = (centred.square().sum(1, keepdim=True) / count).sqrt()
    flat = spread <= FLAT * (1 + level.abs())  # what rounding leaves of a constant is no spread
    scaled = centred / torch.where(flat, 1.0, spread)
    return replace(windows, values=scaled), level.squeeze(1), torch.where(flat, FLAT, spread).squeeze(1)


def _stem(config: ModelConfig) -> nn.Module:
    pooled = config.patch_encoder == "mlp"
    if config.stem == "patch":
        return PatchStem(config.stem_channels, config.width, pooled=pooled)
    return ContextStem(config.stem_channels, config.width, config.patch_length, pooled=pooled)


def _uses_geometry(config: ModelConfig) -> bool:
    return config.fuse != "none" or config.reconstruction == "operator"


def _has_overview(config: ModelConfig) -> bool:
    return config.global_branch and config.stem == "context"


def _aggregate(config: ModelConfig) -> nn.Module:
    if config.aggregate == "set":
        return SetAggregate(config.width, config.embedding)
    return OrderedAggregate(
        config.width, config.embedding, config.max_patches, config.layers, config.heads, config.dropout
    )


def _rebuild(config: ModelConfig) -> nn.Module | None:
    size: dict[str, Any] = {"patch_length": config.patch_length, "channels": config.stem_channels}
    if config.reconstruction == "operator":
        return ConditionalOperator(config.width, **size)
    return ReconstructionHead(config.width, **size) if config.reconstruction == "head" else None
