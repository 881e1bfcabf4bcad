"""Relative tempo beside the vector of a window: each number as a wave, so that cosines fall with their distance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import HARMONICS, RHYTHM, ModelConfig

REACH = 4.0  # spreads from the centre at which a number counts as far as can be
LEAST_SPREAD = 1e-3  # of a logarithm


class RhythmColumns(nn.Module):
    """The columns of relative tempo that count, as unit vectors whose cosine falls evenly with the distance.

    A number becomes an angle within half a turn, and that the odd harmonics of a triangle wave: the cosine of two is 1
    where they are equal, 0 where they are `REACH` spreads apart and -1 at twice that. What is not known is 0.

    Parameters
    ----------
    config : ModelConfig
        The columns, and what they count for.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.share = config.clock_share or 0.0
        self.columns = [RHYTHM.index(name) for name in config.rhythm]
        self.register_buffer("centre", torch.zeros(len(self.columns)))
        self.register_buffer("spread", torch.ones(len(self.columns)))

    def learn(self, rhythm: Sequence[Tensor]) -> None:
        """Take centre and spread of each column from training windows, parts of (B, len(RHYTHM)) each."""
        if not rhythm:
            return
        own = torch.cat(list(rhythm))[:, self.columns].double()
        known = ~own.isnan()
        count = known.sum(0).clamp(min=1)
        centre = own.nan_to_num().sum(0) / count
        spread = (((own - centre).nan_to_num().square() * known).sum(0) / count).sqrt()
        self.centre.copy_(centre)
        self.spread.copy_(spread.clamp(min=LEAST_SPREAD))

    def forward(self, rhythm: Tensor) -> Tensor:
        """Vectors (B, 2 HARMONICS columns); their squared length is the share of the columns that is known."""
        own = (rhythm[:, self.columns] - self.centre) / self.spread
        angle = (own / REACH).clamp(-1, 1)[..., None] * (math.pi / 2)  # (B, W, 1)
        order = torch.tensor(HARMONICS, device=own.device, dtype=own.dtype)
        height = 1 / order / order.square().reciprocal().sum().sqrt()
        waves = torch.cat([height * (order * angle).cos(), height * (order * angle).sin()], dim=-1)
        vectors: Tensor = (waves.nan_to_num() / max(len(self.columns), 1) ** 0.5).flatten(1)
        return vectors

    def beside(self, embedding: Tensor, rhythm: Tensor | None) -> Tensor:
        """Unit vectors (B, D) of windows with the columns at their end."""
        if rhythm is None:
            rhythm = embedding.new_full((len(embedding), len(RHYTHM)), torch.nan)
        both = [(1 - self.share) ** 0.5 * embedding, self.share**0.5 * self(rhythm).to(embedding.dtype)]
        return F.normalize(torch.cat(both, dim=1), dim=1)
