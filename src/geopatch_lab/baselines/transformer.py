"""Vanilla Transformer (Vaswani et al. 2017): a token a sample, sinusoidal positions, mean over tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from geopatch_lab.baselines.layers import EMBEDDING, everywhere, mean_over_time

WIDTH, HEADS, LAYERS, HIDDEN, DROPOUT = 128, 8, 3, 256, 0.1
MOST_TOKENS = 256  # attention is quadratic: longer windows are averaged over neighbouring samples first


class Transformer(nn.Module):
    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        self.step = -(-longest // MOST_TOKENS)  # samples in a token
        self.lift = nn.Linear(channels, WIDTH)
        self.layers = nn.ModuleList(attention_layer(WIDTH, HEADS, HIDDEN, DROPOUT) for _ in range(LAYERS))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EMBEDDING))

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        tokens, valid = averaged(x, inside, self.step)
        z = self.lift(tokens) + sinusoids(tokens.shape[1], WIDTH, x.device)  # (B, N, d)
        for layer in self.layers:
            z = layer(z, src_key_padding_mask=None if valid is None else ~valid)
        pooled: Tensor = self.out(mean_over_time(z.mT, valid))
        return pooled


def attention_layer(width: int, heads: int, hidden: int, dropout: float) -> nn.Module:
    return nn.TransformerEncoderLayer(width, heads, hidden, dropout, "gelu", batch_first=True, norm_first=True)


def averaged(x: Tensor, inside: Tensor | None, step: int) -> tuple[Tensor, Tensor | None]:
    """Means of `step` neighbouring samples that lie inside, (B, N, C) and (B, N)."""
    if step == 1:
        return x, inside
    short = -x.shape[1] % step
    if inside is None:
        inside = everywhere(x)
    values = nn.functional.pad(x * inside[..., None], (0, 0, 0, short)).unflatten(1, (-1, step)).sum(2)
    count = nn.functional.pad(inside, (0, short)).unflatten(1, (-1, step)).sum(2)
    return values / count.clamp(min=1)[..., None], count > 0


def sinusoids(tokens: int, width: int, device: torch.device) -> Tensor:
    """(N, d)"""
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000) / width))
    angle = torch.arange(tokens, device=device)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)
