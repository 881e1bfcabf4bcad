"""InvConvNet (Germain et al. 2025): kernels that cannot see an offset, a scale or a trend, beside plain ones.

A response to a stretch of the signal is the inner product with the stretch after its mean (or its least-squares line)
is taken off and its norm is set to 1, channel by channel. Taking the mean or line off the kernel comes to the same.
The embedding layer has kernels of several lengths; then batch norm, ReLU, dropout, mean over time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch_lab.baselines.layers import EMBEDDING, Norm, exact_convolutions, held, mean_over_time

KINDS = (24, 20, 20)  # plain, blind to offset, blind to trend: the paper's split of 64
LENGTHS = (17, 33, 65, 129)
DROPOUT = 0.2
FLAT = 1e-3  # a stretch with less norm a sample, in training units, has no shape: its response is 0


class InvConvNet(nn.Module):
    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        lengths = [length for length in LENGTHS if 2 * length <= longest] or [2 * (longest // 4) + 1]
        self.layers = nn.ModuleList(InvariantConvolution(channels, length) for length in lengths)
        width = sum(KINDS) * len(lengths)
        self.norm, self.drop = Norm(width), nn.Dropout(DROPOUT)
        self.out = nn.Linear(width, EMBEDDING)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        z = held(x.mT, inside)  # (B, C, T)
        z = F.relu(self.norm(torch.cat([layer(z) for layer in self.layers], dim=1), inside))
        out: Tensor = self.out(mean_over_time(self.drop(z), inside))
        return out


class InvariantConvolution(nn.Module):
    """Plain and invariant kernels of one odd length over (B, C, T), zeros beyond the ends."""

    line: Tensor

    def __init__(self, channels: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.weight = nn.Parameter(torch.randn(sum(KINDS), channels, length) / (channels * length) ** 0.5)
        line = torch.arange(length) - (length - 1) / 2
        self.register_buffer("line", (line / line.norm().clamp(min=1e-6))[None, None])  # unit, mean 0

    def forward(self, x: Tensor) -> Tensor:
        with exact_convolutions(), torch.autocast(x.device.type, enabled=False):  # a variance is a difference
            x = x.float()
            plain, level, trend = self.weight.split(KINDS)
            level = level - level.mean(2, keepdim=True)
            trend = trend - trend.mean(2, keepdim=True)
            trend = trend - (trend * self.line).sum(2, keepdim=True) * self.line
            offset_free, trend_free = self.norms(x)
            parts = [F.conv1d(x, plain, padding=self.length // 2)]
            parts += [self._invariant(x, level, offset_free), self._invariant(x, trend, trend_free)]
            return torch.cat(parts, dim=1)

    def norms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of every stretch (B, C, T) without its mean, and without its line."""
        half, channels = self.length // 2, x.shape[1]
        mean = F.avg_pool1d(x, self.length, 1, half)
        square = F.avg_pool1d(x.square(), self.length, 1, half)
        slope = F.conv1d(x, self.line.expand(channels, -1, -1), padding=half, groups=channels)
        level_free = self.length * (square - mean.square())
        return level_free.clamp(min=0).sqrt(), (level_free - slope.square()).clamp(min=0).sqrt()

    def _invariant(self, x: Tensor, kernels: Tensor, norm: Tensor) -> Tensor:
        """Every stretch at norm 1 against every kernel, as one product of matrices for all channels."""
        half = self.length // 2
        shaped = norm > FLAT * self.length**0.5
        scale = torch.where(shaped, 1 / norm.clamp(min=FLAT), 0.0)
        stretches = F.pad(x, (half, half)).unfold(2, self.length, 1).transpose(1, 2)  # (B, T, C, L)
        return F.linear((stretches * scale.mT[..., None]).flatten(2), kernels.flatten(1)).mT  # (B, count, T)
