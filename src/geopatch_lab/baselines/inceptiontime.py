"""InceptionTime (Ismail Fawaz et al. 2020), one network of its ensemble of five."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch_lab.baselines.layers import EMBEDDING, Norm, SameConv, held, joined, mean_over_time

FILTERS, KERNELS, DEPTH, RESIDUAL_EVERY = 32, (40, 20, 10), 6, 3
WIDTH = FILTERS * (len(KERNELS) + 1)


class InceptionTime(nn.Module):
    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        self.modules_in_order = nn.ModuleList(Inception(channels if n == 0 else WIDTH) for n in range(DEPTH))
        starts = (channels, *(WIDTH,) * (DEPTH // RESIDUAL_EVERY - 1))
        self.skips = nn.ModuleList(SameConv(size, WIDTH, 1) for size in starts)
        self.skip_norms = nn.ModuleList(Norm(WIDTH) for _ in starts)
        self.out = nn.Linear(WIDTH, EMBEDDING)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        z = start = held(x.mT, inside)  # (B, C, T)
        for n, module in enumerate(self.modules_in_order):
            z = module(z, inside)
            block, place = divmod(n, RESIDUAL_EVERY)
            if place == RESIDUAL_EVERY - 1:
                z = start = F.relu(z + self.skip_norms[block](self.skips[block](start), inside))
        out: Tensor = self.out(mean_over_time(z, inside))
        return out


class Inception(nn.Module):
    """Three widths of convolution behind a bottleneck, beside a max pool, batch norm, ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bottleneck = SameConv(channels, FILTERS, 1) if channels > 1 else nn.Identity()
        size = FILTERS if channels > 1 else channels
        self.branches = nn.ModuleList(SameConv(size, FILTERS, kernel) for kernel in KERNELS)
        self.pooled = SameConv(channels, FILTERS, 1)
        self.norm = Norm(WIDTH)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        narrow = self.bottleneck(x)
        z = joined([*(branch(narrow) for branch in self.branches), self.pooled(peaks(x, inside))])
        return F.relu(self.norm(z, inside))


def peaks(x: Tensor, inside: Tensor | None) -> Tensor:
    """The largest of three neighbours inside the window; 0 outside."""
    seen = x if inside is None else x.masked_fill(~inside[:, None], -torch.inf)
    peak = F.max_pool2d(seen[:, :, None], (1, 3), stride=1, padding=(0, 1)).squeeze(2)
    return peak if inside is None else peak.masked_fill(~inside[:, None], 0.0)
