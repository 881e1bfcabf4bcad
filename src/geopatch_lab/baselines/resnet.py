"""ResNet for time series (Wang et al. 2017): three blocks of three convolutions, mean over time."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from geopatch_lab.baselines.layers import EMBEDDING, Norm, SameConv, held, mean_over_time

WIDTHS, KERNELS = (64, 128, 128), (8, 5, 3)


class ResNet(nn.Module):
    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        sizes = (channels, *WIDTHS)
        self.blocks = nn.ModuleList(Block(sizes[n], sizes[n + 1]) for n in range(len(WIDTHS)))
        self.out = nn.Linear(WIDTHS[-1], EMBEDDING)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        z = held(x.mT, inside)  # (B, C, T)
        for block in self.blocks:
            z = block(z, inside)
        out: Tensor = self.out(mean_over_time(z, inside))
        return out


class Block(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        sizes = (channels, width, width)
        self.convolutions = nn.ModuleList(
            SameConv(size, width, kernel) for size, kernel in zip(sizes, KERNELS, strict=True)
        )
        self.norms = nn.ModuleList(Norm(width) for _ in KERNELS)
        self.skip = SameConv(channels, width, 1) if channels != width else nn.Identity()
        self.skip_norm = Norm(width)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        z = x
        for n, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            z = norm(convolution(z), inside)
            z = F.relu(z) if n < len(KERNELS) - 1 else z
        return F.relu(z + self.skip_norm(self.skip(x), inside))
