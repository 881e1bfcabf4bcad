"""Views: the same window as another clock, sensor or day would have recorded it. Windows come in training units."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from geopatch.patches import WindowBatch


def warp(windows: WindowBatch, strength: float, shift: float) -> WindowBatch:
    """A smooth monotone warp of one harmonic with its ends held, then a shift; both drawn anew for each window."""
    size = (len(windows), 1)
    device = windows.values.device
    height = strength * _centred(size, device)  # (B, 1), share of the window
    phase = 2 * math.pi * torch.rand(size, device=device)
    turn = 2 * math.pi * _unit_time(windows)
    moved = height * (torch.sin(turn + phase) - torch.sin(phase)) + shift * _centred(size, device)
    samples = torch.arange(windows.values.shape[1], device=device)
    return resample(windows, samples + moved * windows.lengths[:, None])


def resample(windows: WindowBatch, times: Tensor) -> WindowBatch:
    """Read each window at fractional sample times (B, T), by straight lines, holding the ends."""
    last = windows.lengths[:, None] - 1
    times = torch.minimum(times.clamp(min=0), last)
    left = times.floor().long()
    right = torch.minimum(left + 1, last)
    share = times - left
    values = _mix(windows.values, left, right, share)
    confidence = _mix(windows.confidence[..., None], left, right, share).squeeze(-1)
    clock = None if windows.clock is None else _mix(windows.clock[..., None], left, right, share).squeeze(-1)
    inside = windows.inside
    return replace(windows, values=values * inside[..., None], confidence=confidence * inside, clock=clock)


def amplitude(windows: WindowBatch, strength: float) -> WindowBatch:
    """Another gain on each channel."""
    gain = 1 + strength * torch.randn(len(windows), 1, windows.values.shape[2], device=windows.values.device)
    return replace(windows, values=windows.values * gain)


def noise(windows: WindowBatch, strength: float) -> WindowBatch:
    """White noise on every sample."""
    drawn = strength * torch.randn_like(windows.values)
    return replace(windows, values=windows.values + drawn * windows.inside[..., None])


def mask_span(windows: WindowBatch, share: float) -> WindowBatch:
    """One contiguous span of each window is lost: values 0, confidence 0."""
    device = windows.values.device
    start = torch.rand(len(windows), 1, device=device) * (1 - share)
    time = _unit_time(windows)
    kept = (time < start) | (time >= start + share)
    return replace(windows, values=windows.values * kept[..., None], confidence=windows.confidence * kept)


def _unit_time(windows: WindowBatch) -> Tensor:
    samples = torch.arange(windows.values.shape[1], device=windows.values.device)
    return samples / windows.lengths[:, None]  # (B, T)


def _centred(size: tuple[int, int], device: torch.device) -> Tensor:
    return 2 * torch.rand(size, device=device) - 1


def _mix(track: Tensor, left: Tensor, right: Tensor, share: Tensor) -> Tensor:
    """Values (B, T, C) between two sample indices."""
    channels = track.shape[2]
    low = track.gather(1, left[..., None].expand(-1, -1, channels))
    high = track.gather(1, right[..., None].expand(-1, -1, channels))
    return low + (high - low) * share[..., None]
