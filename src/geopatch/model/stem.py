"""The stem: what a token may see. Context (default) reads the whole window, patch-only the patch alone.

Both give features (B, K, L, d) with a mask (B, K, L): L places in the support of token k, or L = 1 where they are
pooled already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import KERNELS
from geopatch.patches import PatchBatch
from geopatch.scaffold import Scaffold

STRIDES = (1, 2, 2)
STEP = 4  # samples between two places of the context stem


class MaskedBatchNorm(nn.BatchNorm2d):
    """Batch norm over (B, T, C) that counts only the samples inside their window, and leaves 0 outside."""

    def forward_masked(self, x: Tensor, inside: Tensor | None) -> Tensor:
        if inside is None:  # nothing is padded: torch's own does the same in fewer passes
            return super().forward(x.mT[:, :, None]).squeeze(2).mT
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        if not self.training:
            scale = self.weight * torch.rsqrt(self.running_var + self.eps)
            return (x * scale + (self.bias - self.running_mean * scale)) * inside[..., None]
        y, mean, variance = _MaskedNorm.apply(x, inside, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        total = inside.sum()
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (total / (total - 1).clamp(min=1)), self.momentum)
        return y  # type: ignore[no-any-return]


class _MaskedNorm(torch.autograd.Function):
    """x (B, T, C) at mean 0 and spread 1 over the samples inside, then weight and bias; 0 outside.

    torch has no masked batch norm. The gradient is written out because the step is memory-bound: 13 passes over x
    instead of autograd's 24.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inside: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mask, total = inside[..., None], inside.sum()
        x = x * mask
        mean = x.sum((0, 1), dtype=weight.dtype) / total
        square = torch.linalg.vector_norm(x, dim=(0, 1), dtype=weight.dtype).square() / total
        variance = (square - mean.square()).clamp(min=0)
        scale = torch.rsqrt(variance + eps)
        gain = weight * scale
        y = torch.addcmul(bias - mean * gain, x, gain, out=torch.empty_like(x)).mul_(mask)
        ctx.save_for_backward(x, inside, weight, mean, scale)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, inside, weight, mean, scale = ctx.saved_tensors
        mask, total, gain = inside[..., None], inside.sum(), weight * scale
        grad = grads[0] * mask
        summed = grad.sum((0, 1), dtype=weight.dtype)
        turned = ((grad * x).sum((0, 1), dtype=weight.dtype) - mean * summed) * scale  # of the weight
        slope = -gain * scale * turned / total
        level = -gain * summed / total - slope * mean
        moved = torch.addcmul(torch.addcmul(level, x, slope), grad, gain, out=torch.empty_like(x))
        return moved.mul_(mask), None, turned, summed, None


class TimeConvolution(nn.Conv2d):
    """A convolution over time of (B, T, C): Conv2d, which with channels last halves the time of Conv1d on a CPU."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int) -> None:
        super().__init__(channels, width, (1, kernel), (1, stride), (0, kernel // 2), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # With one sample a stride changes nothing, but oneDNN leaves part of its bfloat16 gradient unwritten.
        stride = self.stride if x.shape[1] > 1 else 1
        y = F.conv2d(x.mT[:, :, None], self.weight, None, stride, self.padding)
        return y.squeeze(2).mT  # (B, T / stride, width)


class MultiscaleBlock(nn.Module):
    """Parallel convolutions of several widths beside a 1x1 skip, batch norm, GELU."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        share = width // len(KERNELS)
        self.branches = nn.ModuleList(TimeConvolution(channels, share, kernel, stride) for kernel in KERNELS)
        self.skip = TimeConvolution(channels, width, 1, stride)
        self.norm = MaskedBatchNorm(width)
        self.stride = stride

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        y = self.as_one_convolution(x) if x.is_cuda else self.as_branches(x)  # (B, T / stride, d)
        return F.gelu(self.norm.forward_masked(y, inside))

    def as_branches(self, x: Tensor) -> Tensor:
        """One convolution per kernel: the least arithmetic, fastest on a CPU."""
        y: Tensor = torch.cat([branch(x) for branch in self.branches], dim=-1) + self.skip(x)
        return y

    def as_one_convolution(self, x: Tensor) -> Tensor:
        """The same with all kernels padded to the widest: fewer kernel launches, which bound the time on a GPU."""
        weight = torch.cat([_widened(branch) for branch in self.branches]) + _widened(self.skip)
        y = F.conv2d(x.mT[:, :, None], weight, None, (1, self.stride), (0, KERNELS[-1] // 2))
        return y.squeeze(2).mT


def _widened(convolution: nn.Module) -> Tensor:
    assert isinstance(convolution, TimeConvolution)
    missing = KERNELS[-1] - convolution.kernel_size[1]
    return F.pad(convolution.weight, (missing // 2, missing // 2))


class ContextStem(nn.Module):
    """Multiscale convolutions over the window, read back on the fixed scaffold, beside an MLP of the raw patch."""

    def __init__(self, channels: int, width: int, patch_length: int, *, pooled: bool) -> None:
        super().__init__()
        sizes = (channels, width, width)
        self.blocks = nn.ModuleList(
            MultiscaleBlock(size, width, stride) for size, stride in zip(sizes, STRIDES, strict=True)
        )
        self.raw = nn.Sequential(nn.Linear(patch_length * channels, width), nn.GELU(), nn.Linear(width, width))
        self.join = nn.Linear(3 * width, width) if pooled else None

    def forward(self, batch: PatchBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        features, inside = batch.windows.values, batch.windows.inside  # (B, T, C), (B, T)
        for block in self.blocks:
            inside = inside[:, :: block.stride]
            features = block(features, inside if batch.windows.padded else None)  # (B, T / STEP, d)
        index, mask = spans(batch.scaffold, batch.windows.values.shape[1])
        places = features.gather(1, index.flatten(1)[..., None].expand(-1, -1, features.shape[2]))
        places = places.unflatten(1, index.shape[1:])  # (B, K, W, d)
        raw = self.raw(batch.patches.flatten(2))  # (B, K, d)
        if self.join is None:
            return places + raw[:, :, None], mask, features, inside
        pooled = self.join(torch.cat([masked_mean_max(places, mask[..., None], dim=2), raw], dim=-1))
        return pooled[:, :, None], batch.valid[..., None], features, inside


class PatchStem(nn.Module):
    """The paper's stem: a convolution inside each patch, blind to what lies around it."""

    def __init__(self, channels: int, width: int, *, pooled: bool) -> None:
        super().__init__()
        self.lift = TimeConvolution(channels, width, 3, stride=1)
        self.join = nn.Linear(2 * width, width) if pooled else None

    def forward(self, batch: PatchBatch) -> tuple[Tensor, Tensor]:
        lifted = F.gelu(self.lift(batch.patches.flatten(0, 1)))  # (B K, L, d)
        places = lifted.unflatten(0, batch.patches.shape[:2])
        if self.join is None:
            return places, batch.inside
        pooled = self.join(masked_mean_max(places, batch.inside[..., None], dim=2))
        return pooled[:, :, None], batch.valid[..., None]


def spans(scaffold: Scaffold, samples: int) -> tuple[Tensor, Tensor]:
    """Places of the context stem within max(l, 2T/K) samples round each patch centre, and which of them count."""
    count = scaffold.valid.shape[1]
    lengths = scaffold.lengths[:, None]
    width = (2 * lengths / count).clamp(min=scaffold.patch_length)  # (B, 1)
    most = int(max(scaffold.patch_length, 2 * samples / count)) // STEP + 1
    last = (lengths - 1) // STEP
    low = ((scaffold.centres - width / 2) / STEP).ceil().clamp(min=0).long()
    low = torch.minimum(low, last)
    index = low[..., None] + torch.arange(most, device=low.device)  # (B, K, W)
    high = scaffold.centres + width / 2
    near = (index * STEP < high[..., None]) | (index == low[..., None])
    mask = near & (index <= last[..., None]) & scaffold.valid[..., None]
    return torch.minimum(index, last[..., None]), mask


def masked_mean_max(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Mean and max over one dimension, side by side, counting only what the mask holds; 0 where it holds nothing."""
    count = mask.sum(dim, keepdim=True)
    mean = (x * mask).sum(dim, keepdim=True) / count.clamp(min=1)
    most = x.masked_fill(~mask, -torch.inf).amax(dim, keepdim=True).masked_fill(count == 0, 0.0)
    return torch.cat([mean, most], dim=-1).squeeze(dim)
