"""A batch on its way into the encoder: windows of unequal length, then their patches, geometry and masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geopatch.arrays import anchors_around
from geopatch.clock import clock_from_anchors
from geopatch.config import PatchConfig
from geopatch.errors import SignalError
from geopatch.geometry import Geometry, geometry, motion
from geopatch.rhythm import rhythm, tempo_track
from geopatch.scaffold import Scaffold, adaptive_scaffold, fixed_scaffold, random_scaffold
from geopatch.signal import Signal

PART = 64  # windows stacked at a time where not all fit into memory


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """B windows padded to T samples. Gaps are bridged; `confidence` says what was measured, 0 past the end."""

    values: Tensor  # (B, T, C)
    confidence: Tensor  # (B, T) share of channels measured
    lengths: Tensor  # (B,) int64
    clock: Tensor | None = None  # (B, T) canonical time of each sample
    padded: bool = True  # False: every window has T samples, and what only serves padding is left out
    rhythm: Tensor | None = None  # (B, W) relative tempo, NaN where it is not known
    tempo: Tensor | None = None  # (B, T, TEMPO_COLUMNS) the same at every sample, 0 where it is not known

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def channels(self) -> int:
        return int(self.values.shape[2])

    def parts(self) -> Iterator[WindowBatch]:
        """The windows in pieces that fit into memory: all of them, as they are there already."""
        yield self

    @cached_property
    def inside(self) -> Tensor:
        samples = torch.arange(self.values.shape[1], device=self.values.device)
        return samples < self.lengths[:, None]  # (B, T) bool

    @property
    def mask(self) -> Tensor | None:
        """`inside`, or None where every window has T samples."""
        return self.inside if self.padded else None

    def to(self, device: torch.device | str) -> WindowBatch:
        return self._mapped(lambda part: part.to(device))

    def rows(self, index: Tensor | slice) -> WindowBatch:
        return self._mapped(lambda part: part[index])

    def trimmed(self) -> WindowBatch:
        """The same windows without the samples that lie past the end of every one of them."""
        longest = int(self.lengths.max())
        clock, tempo = (None if track is None else track[:, :longest] for track in (self.clock, self.tempo))
        values, confidence = self.values[:, :longest], self.confidence[:, :longest]
        return replace(self, values=values, confidence=confidence, clock=clock, tempo=tempo)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> WindowBatch:
        values, confidence, lengths = (change(part) for part in (self.values, self.confidence, self.lengths))
        known = (None if part is None else change(part) for part in (self.clock, self.rhythm, self.tempo))
        clock, rhythm, tempo = known
        return WindowBatch(values, confidence, lengths, clock, self.padded, rhythm, tempo)


class LazyWindows:
    """Windows that are stacked when they are used, because all of them would not fit into memory."""

    def __init__(
        self,
        signals: Sequence[Signal],
        lengths: Sequence[int],
        *,
        clock: bool = False,
        surroundings: int = 0,
        track: bool = True,
    ) -> None:
        self.signals, self.clock, self.surroundings, self.track = signals, clock, surroundings, track
        self.lengths = torch.as_tensor(lengths, dtype=torch.int64)
        self.channels = signals[0].values.shape[1]

    def __len__(self) -> int:
        return len(self.signals)

    def rows(self, index: Tensor) -> WindowBatch:
        """These windows, padded to the longest of all."""
        chosen = [self.signals[n] for n in index.tolist()]
        longest = int(self.lengths.max())
        return stack(chosen, clock=self.clock, surroundings=self.surroundings, track=self.track, length=longest)

    def parts(self) -> Iterator[WindowBatch]:
        for index in torch.arange(len(self)).split(PART):
            yield self.rows(index)


@dataclass(frozen=True, eq=False)
class PatchBatch:
    """What the encoder takes. With a label these are the six-tuple: patches, target, geometry, valid, label, inside."""

    windows: WindowBatch
    scaffold: Scaffold
    patches: Tensor  # (B, K, L, C) x_raw
    geometry: Geometry

    @property
    def valid(self) -> Tensor:
        return self.scaffold.valid  # (B, K) p

    @property
    def inside(self) -> Tensor:
        return self.scaffold.inside  # (B, K, L) q


def stack(
    signals: Sequence[Signal],
    *,
    clock: bool = False,
    surroundings: int = 0,
    track: bool = True,
    length: int | None = None,
) -> WindowBatch:
    """One batch from signals of one channel count and any lengths, padded to the longest or to `length`.

    With `clock`, canonical time is taken from the anchors of each signal; with `surroundings`, relative tempo against
    so many intervals on either side, and with `track` that of every sample, which the trained half takes.
    """
    channels = signals[0].values.shape[1]
    lengths = torch.tensor([signal.length for signal in signals])
    longest = length or int(lengths.max())
    values = np.full((len(signals), longest, channels), np.nan, dtype=np.float32)
    for row, signal in enumerate(signals):
        if signal.values.shape[1] != channels:
            raise SignalError(
                f"signal {signal.id!r} has {signal.values.shape[1]} channels, the first {channels}; give all as many"
            )
        values[row, : signal.length] = signal.values
    raw = torch.from_numpy(values)
    confidence = (~raw.isnan()).float().mean(2)
    padded = bool((lengths < raw.shape[1]).any())
    windows = WindowBatch(fill_gaps(raw, lengths), confidence, lengths, padded=padded)
    if surroundings:
        marks = [signal.anchors for signal in signals], lengths.tolist(), surroundings
        tempo = torch.from_numpy(tempo_track(*marks, longest)) if track else None
        windows = replace(windows, rhythm=torch.from_numpy(rhythm(*marks)).float(), tempo=tempo)
    return _clocked(windows, signals) if clock else windows


def _clocked(windows: WindowBatch, signals: Sequence[Signal]) -> WindowBatch:
    """The windows with the clocks of their anchors, and less confidence far from an anchor.

    A window with fewer than two anchors gets an even clock that nothing vouches for: confidence 0.
    """
    time, trust = np.zeros((2, *windows.confidence.shape), dtype=np.float32)
    for row, signal in enumerate(signals):
        if signal.anchors is None:
            raise SignalError(f"signal {signal.id!r} has no anchors; give them, or use geometry_source 'values'")
        inside = slice(0, signal.length)
        anchors = anchors_around(signal.anchors, 0, signal.length, surroundings=1)
        if len(anchors) < 2 or signal.length < 2:
            time[row, inside] = np.arange(signal.length)
            continue
        clock = clock_from_anchors(anchors, signal.length)
        time[row, inside], trust[row, inside] = clock.time, clock.confidence
    return replace(windows, clock=torch.from_numpy(time), confidence=windows.confidence * torch.from_numpy(trust))


def fill_gaps(values: Tensor, lengths: Tensor) -> Tensor:
    """Bridge NaN by straight lines; before the first and after the last measurement hold it; never measured: 0."""
    samples = torch.arange(values.shape[1], device=values.device)
    inside = (samples < lengths[:, None])[..., None]
    known = ~values.isnan() & inside
    if bool((known | ~inside).all()):
        return torch.where(inside, values, 0.0)
    steps = samples[None, :, None].expand_as(values)
    left = torch.where(known, steps, -1).cummax(1).values
    right = torch.where(known, steps, len(samples)).flip(1).cummin(1).values.flip(1)
    has_left, has_right = left >= 0, right < len(samples)
    left, right = torch.where(has_left, left, right), torch.where(has_right, right, left)
    any_known = known.any(1, keepdim=True)
    clean = torch.where(known, values, 0.0)
    low = clean.gather(1, torch.where(any_known, left, 0))
    high = clean.gather(1, torch.where(any_known, right, 0))
    share = (steps - left) / (right - left).clamp(min=1)
    return torch.where(inside & any_known, low + (high - low) * share, 0.0)


def patchify(windows: WindowBatch, config: PatchConfig) -> PatchBatch:
    """Cut windows on their scaffold and describe each patch."""
    clock = config.geometry_source == "clock"
    if clock and windows.clock is None:
        raise SignalError("geometry_source is 'clock' but these windows carry no clock; give anchors or use 'values'")
    source = windows.clock[..., None] if clock and windows.clock is not None else windows.values
    moves = motion(source, windows.lengths)
    size = (config.patch_length, config.patches)
    if config.boundaries == "adaptive":
        scaffold = adaptive_scaffold(moves.curvature, windows.lengths, *size)
    elif config.boundaries == "random":
        scaffold = random_scaffold(windows.lengths, *size)
    else:
        scaffold = fixed_scaffold(windows.lengths, *size, stride=config.stride)
    described = geometry(
        source, windows.confidence, scaffold, moves, config.descriptors, clock=clock, tempo=windows.tempo
    )
    if config.curvature_channel:
        extra = moves.curvature.log1p()[..., None]
        windows = replace(windows, values=torch.cat([windows.values, extra], dim=2))
    return PatchBatch(windows, scaffold, cut(windows.values, scaffold), described)


def bare_patches(windows: WindowBatch, config: PatchConfig) -> PatchBatch:
    """Windows with the scaffold alone, for an encoder that looks at no patch and at no geometry."""
    size = (config.patch_length, config.patches)
    scaffold = fixed_scaffold(windows.lengths, *size, stride=config.stride)
    nothing = windows.values.new_zeros(len(windows), config.patches, 0)
    return PatchBatch(windows, scaffold, nothing[..., None], Geometry(nothing, nothing))


def cut(values: Tensor, scaffold: Scaffold) -> Tensor:
    """The patches (B, K, L, C) of windows (B, T, C), 0 where a patch has no sample."""
    index = scaffold.positions.flatten(1)[..., None].expand(-1, -1, values.shape[2])
    views: Tensor = values.gather(1, index).unflatten(1, scaffold.positions.shape[1:])
    return views * scaffold.inside[..., None]
