"""Geometry meets content: c_k = gamma(g_k), u_k = Fuse(h_k, c_k)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FUSES = ("film", "gated", "concat", "none")


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
