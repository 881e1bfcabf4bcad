"""Views: the same window as another clock, sensor or day would have recorded it. Windows come in training units.

What the views do is what a search should not mind. Each has a mild clock (warp, shift, gain, noise) and on top of it at
most one distortion, drawn for each window anew. No shape and no branch depends on values, so that a training step with
its views can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geopatch.config import DISTORTIONS, SOUND_DISTORTIONS
from geopatch.errors import one_of
from geopatch.patches import WindowBatch

# How far each distortion goes; lengths are shares of the window, heights are in units of the training spread.
SPEEDS = 6  # pieces of a window that have a speed of their own
SPEED = 0.5  # largest spread of the logarithms of these speeds
CROP = 0.75  # least share of a window that is stretched to the whole
SQUEEZED = 1 / 3  # how often a crop is the other way round: the whole window in less time, its ends held
SHIFT = 0.12
GAIN = 0.5  # largest logarithm
NOISE = 0.3
WANDER = 0.6
TURNS = (0.3, 2.3)  # of a wander within a window
DROP = 0.15
TRACT = 0.2  # largest logarithm of the factor by which bands are read higher or lower
KNOWN_DROPS = 0.5  # how often a dropped span has confidence 0; otherwise the sensor itself bridged it


@dataclass(frozen=True)
class MildClock:
    """What every view has: the strengths of `warp`, `amplitude` and `noise`."""

    warp: float = 0.12
    shift: float = 0.05
    amplitude: float = 0.1
    noise: float = 0.03


@dataclass(frozen=True, eq=False)
class View:
    """Distorted windows, and where each of their samples came from."""

    windows: WindowBatch
    clean: WindowBatch  # before noise, wander and a dropped span: what a reconstruction aims at
    times: Tensor  # (B, T) the fractional sample of the window that was read, before any wander


class Drawn:
    """Which window has which distortion, and the random numbers of one batch of views."""

    def __init__(self, windows: WindowBatch, robust_to: Sequence[str], generator: torch.Generator | None) -> None:
        for name in robust_to:
            one_of("robust_to", name, (*DISTORTIONS, *SOUND_DISTORTIONS))
        self.names, self.generator, self.device = tuple(robust_to), generator, windows.values.device
        if self.names:  # without a distortion to choose, no number is drawn
            count = (len(self.names) + 1) * self.uniform(len(windows), 1)
            self.chosen = count.long()  # (B, 1); len(names): none of them

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def has(self, name: str) -> Tensor:
        """Which windows (B, 1) have this distortion."""
        return self.chosen == self.names.index(name)

    def uniform(self, *size: int) -> Tensor:
        return torch.rand(size, device=self.device, generator=self.generator)

    def centred(self, *size: int) -> Tensor:
        return 2 * self.uniform(*size) - 1

    def normal(self, *size: int) -> Tensor:
        return torch.randn(size, device=self.device, generator=self.generator)


def view(
    windows: WindowBatch,
    robust_to: Sequence[str] = DISTORTIONS,
    mild: MildClock | None = None,
    *,
    generator: torch.Generator | None = None,
) -> View:
    """Each window on a mild clock and with one distortion of `robust_to`, or with none.

    Parameters
    ----------
    windows : WindowBatch
        Windows in units of the training data.
    robust_to : sequence of str, default=all of them
        The distortions to draw from; each, and none of them, is as likely.
    mild : MildClock, optional
        What every view has.
    generator : torch.Generator, optional
        Source of the random numbers, on the device of the windows; by default torch's own.

    Returns
    -------
    View
        The distorted windows.

    Raises
    ------
    ConfigError
        When there is no such distortion.
    """
    mild, drawn = mild or MildClock(), Drawn(windows, robust_to, generator)
    times = _times(windows, mild, drawn)
    moved = _in_other_tract(resample(windows, times), drawn)
    clean = _gained(moved, mild, drawn)
    spoiled = _noisy(_wandering(_dropped(clean, drawn), drawn), mild, drawn)
    return View(spoiled, clean, _held(windows, times))


def warp(windows: WindowBatch, strength: float, shift: float) -> WindowBatch:
    """A smooth monotone warp of one harmonic with its ends held, then a shift; both drawn anew for each window."""
    return resample(windows, _times(windows, MildClock(strength, shift), Drawn(windows, (), None)))


def amplitude(windows: WindowBatch, strength: float) -> WindowBatch:
    """Another gain on each channel."""
    return _gained(windows, MildClock(amplitude=strength), Drawn(windows, (), None))


def noise(windows: WindowBatch, strength: float) -> WindowBatch:
    """White noise on every sample."""
    return _noisy(windows, MildClock(noise=strength), Drawn(windows, (), None))


def mask_span(windows: WindowBatch, share: float) -> WindowBatch:
    """One contiguous span of each window is lost: values 0, confidence 0."""
    device = windows.values.device
    start = torch.rand(len(windows), 1, device=device) * (1 - share)
    time = _unit_time(windows)
    kept = (time < start) | (time >= start + share)
    return replace(windows, values=windows.values * kept[..., None], confidence=windows.confidence * kept)


def resample(windows: WindowBatch, times: Tensor) -> WindowBatch:
    """Read each window at fractional sample times (B, T), by straight lines, holding the ends."""
    times = _held(windows, times)
    left = times.floor().long()
    right = torch.minimum(left + 1, windows.lengths[:, None] - 1)
    share = times - left
    values = _mix(windows.values, left, right, share)
    confidence = _mix(windows.confidence[..., None], left, right, share).squeeze(-1)
    clock = None if windows.clock is None else _mix(windows.clock[..., None], left, right, share).squeeze(-1)
    tempo = None if windows.tempo is None else _mix(windows.tempo, left, right, share)
    inside = windows.inside
    return replace(windows, values=values * inside[..., None], confidence=confidence * inside, clock=clock, tempo=tempo)


def _times(windows: WindowBatch, mild: MildClock, drawn: Drawn) -> Tensor:
    """When each sample of a view was read (B, T): the mild clock, then speeds or a crop, then a shift."""
    count, lengths = len(windows), windows.lengths[:, None]
    samples = torch.arange(windows.values.shape[1], device=windows.values.device, dtype=torch.float32)
    if not (mild.warp or mild.shift or "shift" in drawn or "speed" in drawn or "crop" in drawn):
        return samples.expand(count, -1)
    height = mild.warp * drawn.centred(count, 1)  # (B, 1), share of the window
    phase = 2 * math.pi * drawn.uniform(count, 1)
    turn = 2 * math.pi * _unit_time(windows)
    moved = height * (torch.sin(turn + phase) - torch.sin(phase))
    shift: Tensor | float = mild.shift
    if "shift" in drawn:
        shift = torch.where(drawn.has("shift"), SHIFT, mild.shift)
    moved = moved + shift * drawn.centred(count, 1)
    times = samples + moved * lengths
    if "speed" in drawn:
        times = torch.where(drawn.has("speed"), _at_speeds(windows, times, drawn), times)
    return torch.where(drawn.has("crop"), _cropped(windows, times, drawn), times) if "crop" in drawn else times


def _at_speeds(windows: WindowBatch, times: Tensor, drawn: Drawn) -> Tensor:
    """Times through a broken line: the window in pieces of equal length, each read at a speed of its own."""
    count, last = len(windows), windows.lengths[:, None] - 1
    speed = torch.exp(SPEED * drawn.uniform(count, 1) * drawn.normal(count, SPEEDS))
    ends = (speed / speed.sum(1, keepdim=True)).cumsum(1)
    ends = torch.cat([torch.zeros_like(ends[:, :1]), ends], dim=1)  # (B, SPEEDS + 1), from 0 to 1
    place = _held(windows, times) / last.clamp(min=1) * SPEEDS
    piece = place.long().clamp(max=SPEEDS - 1)
    start, stop = ends.gather(1, piece), ends.gather(1, piece + 1)
    return (start + (stop - start) * (place - piece)) * last


def _cropped(windows: WindowBatch, times: Tensor, drawn: Drawn) -> Tensor:
    """Times within a part of the window, so that it is stretched; or beyond its ends, so that it is squeezed."""
    count = len(windows)
    share = 1 - (1 - CROP) * drawn.uniform(count, 1)
    share = torch.where(drawn.uniform(count, 1) < SQUEEZED, 1 / share, share)
    start = (1 - share) * (windows.lengths[:, None] - 1) * drawn.uniform(count, 1)
    return start + share * times


def _in_other_tract(windows: WindowBatch, drawn: Drawn) -> WindowBatch:
    """The bands as a longer or shorter vocal tract has them: each channel read at a factor times its place."""
    if "tract" not in drawn:
        return windows
    factor = torch.exp(TRACT * drawn.centred(len(windows), 1) * drawn.has("tract"))
    last = windows.channels - 1
    place = (factor * torch.arange(windows.channels, device=windows.values.device)).clamp(max=last)  # (B, C)
    left = place.long()
    right, size = (left + 1).clamp(max=last), windows.values.shape
    low, high = (windows.values.gather(2, index[:, None].expand(size)) for index in (left, right))
    return replace(windows, values=low + (high - low) * (place - left)[:, None])


def _gained(windows: WindowBatch, mild: MildClock, drawn: Drawn) -> WindowBatch:
    """Another gain on each channel, and with "gain" another one on all channels of a window."""
    if not mild.amplitude and "gain" not in drawn:
        return windows
    gain = 1 + mild.amplitude * drawn.normal(len(windows), 1, windows.channels)
    if "gain" in drawn:
        gain = gain * torch.exp(GAIN * drawn.centred(len(windows), 1) * drawn.has("gain"))[..., None]
    return replace(windows, values=windows.values * gain)


def _dropped(windows: WindowBatch, drawn: Drawn) -> WindowBatch:
    """A span that was not recorded, bridged by a straight line."""
    if "drop" not in drawn:
        return windows
    count, lengths = len(windows), windows.lengths[:, None]
    width = (DROP * lengths).long()  # (B, 1) samples
    start = (drawn.uniform(count, 1) * (lengths - width)).long()
    samples = torch.arange(windows.values.shape[1], device=windows.values.device)
    lost = (samples >= start) & (samples < start + width) & drawn.has("drop")  # (B, T)
    left, right = (start - 1).clamp(min=0), torch.minimum(start + width, lengths - 1)
    size = lost.shape
    share = ((samples - start + 1) / (width + 1)).clamp(0, 1)
    bridge = _mix(windows.values, left.expand(size), right.expand(size), share)
    known = lost & (drawn.uniform(count, 1) < KNOWN_DROPS)
    values = torch.where(lost[..., None], bridge, windows.values)
    return replace(windows, values=values, confidence=windows.confidence * ~known)


def _wandering(windows: WindowBatch, drawn: Drawn) -> WindowBatch:
    """A slow sine on each channel, as a baseline that wanders."""
    if "wander" not in drawn:
        return windows
    size = (len(windows), 1, windows.channels)
    height = WANDER * drawn.uniform(*size) * drawn.has("wander")[..., None]
    turns = TURNS[0] + (TURNS[1] - TURNS[0]) * drawn.uniform(*size)
    phase = drawn.uniform(*size)
    wave = height * torch.sin(2 * math.pi * (turns * _unit_time(windows)[..., None] + phase))
    return replace(windows, values=windows.values + wave * windows.inside[..., None])


def _noisy(windows: WindowBatch, mild: MildClock, drawn: Drawn) -> WindowBatch:
    """White noise, and with "noise" more of it."""
    if not mild.noise and "noise" not in drawn:
        return windows
    strength: Tensor | float = mild.noise
    if "noise" in drawn:
        strength = torch.where(drawn.has("noise"), NOISE * drawn.uniform(len(windows), 1), mild.noise)[..., None]
    white = strength * drawn.normal(*windows.values.shape)
    return replace(windows, values=windows.values + white * windows.inside[..., None])


def _held(windows: WindowBatch, times: Tensor) -> Tensor:
    """Times within the window."""
    return torch.minimum(times.clamp(min=0), windows.lengths[:, None] - 1)


def _unit_time(windows: WindowBatch) -> Tensor:
    samples = torch.arange(windows.values.shape[1], device=windows.values.device)
    return samples / windows.lengths[:, None]  # (B, T)


def _mix(track: Tensor, left: Tensor, right: Tensor, share: Tensor) -> Tensor:
    """Values (B, T, C) between two sample indices."""
    channels = track.shape[2]
    low = track.gather(1, left[..., None].expand(-1, -1, channels))
    high = track.gather(1, right[..., None].expand(-1, -1, channels))
    return low + (high - low) * share[..., None]
