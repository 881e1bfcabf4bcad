"""Tokens -> one vector a window: as a set (DeepSets) or in order (Transformer with [cls])."""

from __future__ import annotations

import torch
from torch import Tensor, nn

AGGREGATES = ("ordered", "set")


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
