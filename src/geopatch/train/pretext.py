"""The six-tuple of a batch: what a pretext task shows, what it asks for, and the masks that say where both hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geopatch.errors import at_least
from geopatch.patches import PatchBatch

SEEDS_APART = 1_000_000_007  # so that no window of one seed draws what a window of another does


@dataclass(frozen=True)
class PretextConfig:
    """Which share of the samples of each patch is hidden, in spans of how many. Nothing: the identity task."""

    hidden: float = 0.0
    span: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("hidden", self.hidden, 0)
        at_least("1 - hidden", 1 - self.hidden, 0)
        at_least("span", self.span, 1)


@dataclass(frozen=True, eq=False)
class SixTuple:
    """(x_raw, y_raw, g, p, label, q): x_raw is y_raw with 0 at hidden samples; q is true where x_raw shows one."""

    x_raw: Tensor  # (B, K, L, C) what is shown
    y_raw: Tensor  # (B, K, L, C) what is asked for
    g: Tensor  # (B, K, G) geometry, 0 where p is false
    p: Tensor  # (B, K) bool, patches that count
    label: Tensor  # (B,) int64
    q: Tensor  # (B, K, L) bool, samples that are shown


def six_tuple(batch: PatchBatch, labels: Tensor, samples: Tensor, config: PretextConfig | None = None) -> SixTuple:
    """`samples` (B,) are the numbers of the windows in their collection: each hides the same spans every time."""
    config = config or PretextConfig()
    shown = batch.inside & batch.valid[..., None]
    if config.hidden:
        shown = shown & ~hidden_spans(batch.inside.shape, samples, config)
    asked = batch.patches * batch.valid[..., None, None]
    return SixTuple(asked * shown[..., None], asked, batch.geometry.descriptors, batch.valid, labels, shown)


def hidden_spans(shape: torch.Size, samples: Tensor, config: PretextConfig) -> Tensor:
    """Which positions (B, K, L) of each patch are hidden: whole spans, until the share is reached."""
    hidden = torch.zeros(shape, dtype=torch.bool)
    _, patches, length = shape
    spans = round(config.hidden * length / config.span)
    slots = -(-length // config.span)
    for row, sample in enumerate(samples.tolist()):
        generator = torch.Generator().manual_seed(config.seed * SEEDS_APART + sample)
        chosen = torch.rand(patches, slots, generator=generator).argsort(1)[:, :spans]  # (K, spans)
        slot = torch.zeros(patches, slots, dtype=torch.bool).scatter_(1, chosen, True)
        hidden[row] = slot.repeat_interleave(config.span, dim=1)[:, :length]
    return hidden.to(samples.device)
