"""What the convolutional networks share: layers over (B, C, T) that give padded samples no say.

Where a window ends, a masked layer sees the zeros that the published networks pad with. `inside` (B, T) tells where;
it is None where no window is padded, and what only serves padding is left out. In memory the channels come last, as
GPUs and CPUs convolve fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.model.stem import MaskedBatchNorm

EMBEDDING = 128  # D, as in the default GeoPatch encoder


@contextmanager
def exact_convolutions() -> Iterator[None]:
    """All 32 bits: GPUs round the factors of a convolution to 10 bits by default."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class SameConv(nn.Conv1d):
    """A convolution that keeps the length, for odd and even kernels. Its input must be 0 past the end of a window."""

    def __init__(self, channels: int, width: int, kernel: int, *, dilation: int = 1, bias: bool = False) -> None:
        super().__init__(channels, width, kernel, dilation=dilation, bias=bias)
        self.reach = dilation * (kernel - 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel_size[0] == 3 and self.dilation[0] >= x.shape[2]:  # the outer taps see nothing but padding
            return F.conv1d(x, self.weight[:, :, 1:2], self.bias)
        weight, dilation = self.weight[:, :, None], (1, self.dilation[0])
        y = F.conv2d(x[:, :, None], weight, self.bias, 1, (0, (self.reach + 1) // 2), dilation).squeeze(2)
        return y[..., 1:] if self.reach % 2 else y  # an even kernel reaches one sample further ahead than back


class Norm(nn.Module):
    """Batch norm that counts only samples inside their window, and leaves 0 outside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = MaskedBatchNorm(width)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        return self.norm.forward_masked(x.mT, inside).mT


def held(x: Tensor, inside: Tensor | None) -> Tensor:
    """(B, C, T) with 0 past the end of each window."""
    return x if inside is None else x * inside[:, None]


def everywhere(x: Tensor) -> Tensor:
    """That no sample of (B, T, C) is padding, for layers that must be told."""
    return x.new_ones(x.shape[:2], dtype=torch.bool)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The channels of all parts, still last in memory."""
    return torch.cat([part.mT for part in parts], dim=2).mT


def mean_over_time(x: Tensor, inside: Tensor | None) -> Tensor:
    """(B, C, T) -> (B, C)"""
    if inside is None:
        return x.mean(2)
    return (x * inside[:, None]).sum(2) / inside.sum(1, keepdim=True)


def max_over_time(x: Tensor, inside: Tensor) -> Tensor:
    return x.masked_fill(~inside[:, None], -torch.inf).amax(2)


def halved(x: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of each two neighbours in time, and which of the places that are left lie inside."""
    odd = x.shape[2] % 2
    low = F.pad(x.masked_fill(~inside[:, None], -torch.inf), (0, odd), value=-torch.inf)
    kept = F.pad(inside, (0, odd)).unflatten(1, (-1, 2)).any(2)
    return low.unflatten(2, (-1, 2)).amax(3).masked_fill(~kept[:, None], 0.0), kept
