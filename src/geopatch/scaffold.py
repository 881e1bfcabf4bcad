"""Where the patches lie. The default scaffold is a function of the window's length alone, never of its values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Scaffold:
    """Spans I_k = [start, start + patch_length) of B windows. K is the same for all rows; `valid` says which exist."""

    starts: Tensor  # (B, K) int64, first sample
    valid: Tensor  # (B, K) bool, m_k
    lengths: Tensor  # (B,) int64, samples in each window
    patch_length: int

    @cached_property
    def positions(self) -> Tensor:
        """Sample index of every patch position, held inside the window."""
        offsets = torch.arange(self.patch_length, device=self.starts.device)
        return torch.minimum(self.starts[..., None] + offsets, self.lengths[:, None, None] - 1)  # (B, K, L)

    @cached_property
    def inside(self) -> Tensor:
        """Which patch positions hold a sample: those of valid patches that end before the window does."""
        offsets = torch.arange(self.patch_length, device=self.starts.device)
        ends = self.starts[..., None] + offsets < self.lengths[:, None, None]
        return ends & self.valid[..., None]  # (B, K, L)

    @cached_property
    def centres(self) -> Tensor:
        """Centre of each patch in observed sample coordinates."""
        sizes = (self.lengths[:, None] - self.starts).clamp(max=self.patch_length)
        return self.starts + (sizes - 1) / 2  # (B, K)


def fixed_scaffold(lengths: Tensor, patch_length: int, max_patches: int, stride: int | None = None) -> Scaffold:
    """Evenly spaced patches from the first sample to the last; with a stride, patches every `stride` samples.

    A window shorter than a patch has one incomplete patch. With a stride the last patch may be incomplete.
    """
    room = (lengths - patch_length).clamp(min=0)[:, None]  # (B, 1), the last start of a whole patch
    index = torch.arange(max_patches, device=lengths.device)[None]  # (1, K)
    if stride is None:
        count = (room + 1).clamp(max=max_patches)
        gaps = (count - 1).clamp(min=1)
        starts = (index * room + gaps // 2) // gaps
    else:
        count = ((room + stride - 1) // stride + 1).clamp(max=max_patches)
        count = torch.minimum(count, (lengths[:, None] - 1) // stride + 1)  # a stride may step over the end
        starts = index * stride
    valid = index < count
    return Scaffold(torch.where(valid, starts, 0), valid, lengths, patch_length)


def adaptive_scaffold(curvature: Tensor, lengths: Tensor, patch_length: int, max_patches: int) -> Scaffold:
    """Patches centred on equal shares of the cumulated curvature. It moves with the values: for ablations only."""
    fixed = fixed_scaffold(lengths, patch_length, max_patches)
    samples = torch.arange(curvature.shape[1], device=curvature.device)
    weight = torch.where(samples < lengths[:, None], curvature + 1e-3, 0.0)  # (B, T); flat signals fall back to even
    share = weight.cumsum(1) / weight.sum(1, keepdim=True)
    count = fixed.valid.sum(1, keepdim=True)
    index = torch.arange(max_patches, device=curvature.device)
    quantile = ((index + 0.5) / count).clamp(max=1.0)  # (B, K)
    starts = torch.searchsorted(share.contiguous(), quantile.contiguous()) - patch_length // 2
    return _inside_window(starts, fixed)


def random_scaffold(lengths: Tensor, patch_length: int, max_patches: int, seed: int = 0) -> Scaffold:
    """Patches at random places, the same for all windows of one length: for ablations only."""
    fixed = fixed_scaffold(lengths, patch_length, max_patches)
    draw = torch.rand(max_patches, generator=torch.Generator().manual_seed(seed)).to(lengths.device)
    room = (lengths - patch_length).clamp(min=0)[:, None]
    starts = (torch.where(fixed.valid, draw, 2.0).sort(1).values * (room + 1)).long()
    return _inside_window(starts, fixed)


def _inside_window(starts: Tensor, fixed: Scaffold) -> Scaffold:
    room = (fixed.lengths - fixed.patch_length).clamp(min=0)[:, None]
    inside = torch.minimum(starts.clamp(min=0), room)
    return Scaffold(torch.where(fixed.valid, inside, 0), fixed.valid, fixed.lengths, fixed.patch_length)
