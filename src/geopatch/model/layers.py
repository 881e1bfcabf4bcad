"""The layers between the stem and the embedding, in the order in which a window passes them.

Geometry conditions content (`GeometryEncoder`, `Fuse`), a patch becomes a token (`PatchEncoder`), the gate weighs the
tokens (`Gate`), and an aggregate makes one vector of them. Reconstructions lead back from tokens to samples.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.model.stem import TimeConvolution, masked_mean_max

INITIAL_GATE = -2.0  # bias of the gate before training: sigmoid(-2) = 0.119


class GeometryEncoder(nn.Module):
    """gamma: descriptors of a patch -> its condition."""

    def __init__(self, descriptors: int, width: int) -> None:
        super().__init__()
        self.columns = max(descriptors, 1)  # with every descriptor switched off, one that is always 0
        self.layers = nn.Sequential(nn.Linear(self.columns, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, g: Tensor) -> Tensor:
        c: Tensor = self.layers(F.pad(g, (0, self.columns - g.shape[-1])))
        return c  # (B, K, d)


class Fuse(nn.Module):
    """Modulate features (B, K, L, d) by conditions (B, K, d): affine (film), gated, or concatenated and projected."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        if kind in ("film", "gated"):
            self.project = nn.Linear(width, 2 * width)
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)
        elif kind == "concat":
            self.project = nn.Linear(2 * width, width)

    def forward(self, h: Tensor, c: Tensor | None) -> Tensor:
        if self.kind == "none" or c is None:
            return h
        if self.kind == "concat":
            joined: Tensor = self.project(torch.cat([h, c[:, :, None].expand_as(h)], dim=-1))
            return joined
        scale, shift = self.project(c)[:, :, None].chunk(2, dim=-1)
        factor: Tensor = 1 + scale if self.kind == "film" else 2 * torch.sigmoid(scale)
        fused: Tensor = h * factor + shift
        return fused


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


class Gate(nn.Module):
    """How much each token counts: a_k = m_k sigmoid(W2 GELU(W1 xi_k + b1) + b2), nearly shut before training."""

    def __init__(self, evidence: int = 4, width: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(evidence, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, INITIAL_GATE)

    def forward(self, xi: Tensor, valid: Tensor) -> Tensor:
        opening: Tensor = torch.sigmoid(self.out(F.gelu(self.hidden(xi)))).squeeze(-1)
        return opening * valid  # (B, K)


class SetAggregate(nn.Module):
    """rho(mean of phi(token) over valid tokens)."""

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 2 * width))
        self.rho = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, embedding))

    def forward(self, tokens: Tensor, valid: Tensor) -> Tensor:
        total = (self.phi(tokens) * valid[..., None]).sum(1)
        z: Tensor = self.rho(total / valid.sum(1, keepdim=True).clamp(min=1))
        return z  # (B, D)


class OrderedAggregate(nn.Module):
    """Pre-norm Transformer over [cls] and tokens with learned positions; padded tokens are never attended to."""

    def __init__(self, width: int, embedding: int, max_patches: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.cls = nn.Parameter(torch.randn(width) * 0.02)
        self.position = nn.Parameter(torch.randn(max_patches, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, embedding))

    def forward(self, tokens: Tensor, valid: Tensor) -> Tensor:
        cls = self.cls.expand(len(tokens), 1, -1)
        x = torch.cat([cls, tokens + self.position], dim=1)  # (B, 1 + K, d)
        hidden = torch.cat([valid.new_zeros(len(valid), 1), ~valid], dim=1)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=hidden)
        z: Tensor = self.out(x[:, 0])
        return z  # (B, D)


class ReconstructionHead(nn.Module):
    """Token -> patch."""

    def __init__(self, width: int, patch_length: int, channels: int) -> None:
        super().__init__()
        self.shape = (patch_length, channels)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, patch_length * channels)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        patch: Tensor = self.layers(tokens).unflatten(-1, self.shape)
        return patch  # (B, K, L, C)


class ConditionalOperator(nn.Module):
    """Content and condition -> patch."""

    def __init__(self, width: int, patch_length: int, channels: int) -> None:
        super().__init__()
        self.condition = nn.Linear(width, width)
        self.head = ReconstructionHead(2 * width, patch_length, channels)

    def forward(self, content: Tensor, condition: Tensor) -> Tensor:
        patch: Tensor = self.head(torch.cat([content, self.condition(condition)], dim=-1))
        return patch
