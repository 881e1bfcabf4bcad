"""The patch encoder f: conditioned features (B, K, L, d) -> one token a patch (B, K, d)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.model.stem import TimeConvolution, masked_mean_max

PATCH_ENCODERS = ("mlp", "cnn", "attention")


class PatchEncoder(nn.Module):
    """Mix the places of a patch and pool them (cnn, attention), or take a pooled patch as it is (mlp): one token."""

    def __init__(self, kind: str, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.mix = _mix(kind, width, heads, dropout)
        self.join = nn.Linear(2 * width, width) if self.mix is not None else None
        self.out = nn.Sequential(nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width))

    def forward(self, u: Tensor, mask: Tensor) -> Tensor:
        if self.mix is None or self.join is None:
            pooled = u.squeeze(2)
        else:
            mixed = self.mix(u.flatten(0, 1), mask.flatten(0, 1)).unflatten(0, u.shape[:2])
            pooled = self.join(masked_mean_max(mixed, mask[..., None], dim=2))
        token: Tensor = self.out(pooled)
        return token  # (B, K, d)


def _mix(kind: str, width: int, heads: int, dropout: float) -> nn.Module | None:
    if kind == "mlp":
        return None
    return MultiscaleMix(width) if kind == "cnn" else AttentionMix(width, heads, dropout)


class AttentionMix(nn.Module):
    """One pre-norm Transformer layer over the places of a patch."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout, "gelu", batch_first=True, norm_first=True
        )

    def forward(self, u: Tensor, mask: Tensor) -> Tensor:
        hidden = ~mask & mask.any(1, keepdim=True)  # a patch of nothing attends to itself: pooling drops it
        mixed: Tensor = self.layer(u, src_key_padding_mask=hidden)
        return mixed


class MultiscaleMix(nn.Module):
    """Parallel convolutions of three widths along the places of a patch, with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        shares = (width - 2 * (width // 3), width // 3, width // 3)
        self.branches = nn.ModuleList(
            TimeConvolution(width, share, kernel, stride=1) for share, kernel in zip(shares, (3, 5, 7), strict=True)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, u: Tensor, mask: Tensor) -> Tensor:
        x = u * mask[..., None]  # (N, L, d)
        return u + F.gelu(self.norm(torch.cat([branch(x) for branch in self.branches], dim=-1)))
