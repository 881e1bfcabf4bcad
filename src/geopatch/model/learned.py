"""The learned half of the encoder: patches with their geometry -> tokens -> one unit vector a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import ModelConfig
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
from geopatch.patches import PatchBatch


@dataclass(frozen=True, eq=False)
class LearnedOutput:
    """What the learned half makes of a batch."""

    embedding: Tensor  # (B, D) unit
    tokens: Tensor  # (B, K, d) unit, 0 where not valid
    valid: Tensor  # (B, K)
    gated: Tensor  # (B, K, d) a_k z_k
    reconstruction: Tensor | None  # (B, K, L, C)


class LearnedHalf(nn.Module):
    """The network that gradients train.

    Parameters
    ----------
    config : ModelConfig
        What the encoder is.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.stem = _stem(config)
        self.geometry = GeometryEncoder(config.descriptor_columns, width) if _uses_geometry(config) else None
        self.fuse = Fuse(config.fuse, width)
        self.token = PatchEncoder(config.patch_encoder, width, config.heads, config.dropout)
        self.gate = Gate() if config.gate else None
        self.aggregate = _aggregate(config)
        self.overview = Overview(width, config.embedding) if _has_overview(config) else None
        self.rebuild = _rebuild(config)

    def forward(self, batch: PatchBatch) -> LearnedOutput:
        """Encode patches.

        Parameters
        ----------
        batch : PatchBatch
            What `patch` returns.

        Returns
        -------
        LearnedOutput
            Embeddings and tokens.
        """
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
        return LearnedOutput(F.normalize(head, dim=-1), tokens, valid, gated, self._reconstruct(h, mask, c, z))

    def _reconstruct(self, h: Tensor, mask: Tensor, c: Tensor | None, z: Tensor) -> Tensor | None:
        if isinstance(self.rebuild, ConditionalOperator):
            content = (h * mask[..., None]).sum(2) / mask.sum(2).clamp(min=1)[..., None]
            rebuilt: Tensor = self.rebuild(content, c)
            return rebuilt
        return None if self.rebuild is None else self.rebuild(z)


class Overview(nn.Module):
    """The global branch: mean and max of the stem over the whole window, straight to the embedding."""

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2 * width)
        self.out = nn.Linear(2 * width, embedding)

    def forward(self, features: Tensor, inside: Tensor) -> Tensor:
        z: Tensor = self.out(self.norm(masked_mean_max(features, inside[..., None], dim=1)))
        return z  # (B, D)


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
    return OrderedAggregate(config.width, config.embedding, config.patches, config.layers, config.heads, config.dropout)


def _rebuild(config: ModelConfig) -> nn.Module | None:
    size: dict[str, Any] = {"patch_length": config.patch_length, "channels": config.stem_channels}
    if config.reconstruction == "operator":
        return ConditionalOperator(config.width, **size)
    return ReconstructionHead(config.width, **size) if config.reconstruction == "head" else None
