"""Relative tempo beside the vector of a window: each number as a wave, so that cosines fall with their distance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import HARMONICS, RHYTHM, ModelConfig
from geopatch.errors import ConfigError

REACH = 4.0  # spreads from the centre at which a number counts as far as can be
DIRECTION_REACH = 5.0  # the same of a direction, in spreads within a class
LEAST_SPREAD = 1e-3  # of a logarithm
LEAST_MEMBERS = 15  # windows of a class that directions tell from others
SHRINKAGE = 0.1  # of the covariance within classes, towards a sphere


class RhythmColumns(nn.Module):
    """The columns of relative tempo that count, as unit vectors whose cosine falls evenly with the distance.

    A number becomes an angle within half a turn, and that the odd harmonics of a triangle wave: the cosine of two is 1
    where they are equal, 0 where they are `REACH` spreads apart and -1 at twice that. What is not known is 0.

    With `rhythm_directions`, the waves of all columns are turned to the directions that tell classes apart, each class
    counting the same (linear discriminants), and each of those becomes a wave in the same way.

    Parameters
    ----------
    config : ModelConfig
        The columns, and what they count for.
    """

    centre: Tensor
    spread: Tensor
    origin: Tensor
    directions: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.share = config.clock_share or 0.0
        self.columns = [RHYTHM.index(name) for name in config.rhythm]
        self.turned = config.rhythm_directions
        self.register_buffer("centre", torch.zeros(len(self.columns)))
        self.register_buffer("spread", torch.ones(len(self.columns)))
        if self.turned:
            waves = 2 * len(HARMONICS) * len(self.columns)
            self.register_buffer("origin", torch.zeros(waves))
            self.register_buffer("directions", torch.zeros(waves, self.turned))

    def learn(self, rhythm: Sequence[Tensor], labels: Tensor | None = None) -> None:
        """Take centre and spread of each column from training windows, parts of (B, len(RHYTHM)) each.

        Directions are taken from the classes of `labels` that have at least `LEAST_MEMBERS` windows.
        """
        if not rhythm:
            return
        every = torch.cat(list(rhythm))
        own = every[:, self.columns].double()
        known = ~own.isnan()
        count = known.sum(0).clamp(min=1)
        centre = own.nan_to_num().sum(0) / count
        spread = (((own - centre).nan_to_num().square() * known).sum(0) / count).sqrt()
        self.centre.copy_(centre)
        self.spread.copy_(spread.clamp(min=LEAST_SPREAD))
        if self.turned:
            if labels is None or direction_count(labels) < self.turned:
                raise ConfigError(
                    f"rhythm_directions={self.turned} needs labels with at least {self.turned + 1} classes of "
                    f"{LEAST_MEMBERS} windows or more; leave it out, and `fit` chooses"
                )
            origin, directions = discriminants(self._column_waves(every).double(), labels, self.turned)
            self.origin.copy_(origin)
            self.directions.copy_(directions)

    def forward(self, rhythm: Tensor) -> Tensor:
        """Vectors (B, W); their squared length is the share of the columns that is known."""
        waves = self._column_waves(rhythm)
        if self.turned:
            known = ~rhythm[:, self.columns].isnan().all(1)
            waves = _waves((waves - self.origin) @ self.directions / DIRECTION_REACH) * known[:, None]
        return waves

    def _column_waves(self, rhythm: Tensor) -> Tensor:
        return _waves((rhythm[:, self.columns] - self.centre) / self.spread / REACH)

    def beside(self, embedding: Tensor, rhythm: Tensor | None) -> Tensor:
        """Unit vectors (B, D) of windows with the columns at their end."""
        if rhythm is None:
            rhythm = embedding.new_full((len(embedding), len(RHYTHM)), torch.nan)
        both = [(1 - self.share) ** 0.5 * embedding, self.share**0.5 * self(rhythm).to(embedding.dtype)]
        return F.normalize(torch.cat(both, dim=1), dim=1)


def direction_count(labels: Tensor) -> int:
    """How many directions tell classes apart."""
    return max(int((labels.unique(return_counts=True)[1] >= LEAST_MEMBERS).sum()) - 1, 0)


def discriminants(vectors: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean of the class means (D,) and linear discriminants (D, count): spread 1 within a class, classes count alike.

    Parameters
    ----------
    vectors : Tensor of shape (N, D)
        What is to be told apart.
    labels : Tensor of shape (N,)
        Class numbers.
    count : int
        Directions, those first that tell most apart; fewer than there are classes of `LEAST_MEMBERS` windows.
    """
    classes = [own for label in labels.unique() if len(own := vectors[labels == label]) >= LEAST_MEMBERS]
    means = torch.stack([own.mean(0) for own in classes])
    within = torch.stack([own.mT.cov() for own in classes]).mean(0)
    sphere = within.trace() / len(within) * torch.eye(len(within), dtype=within.dtype)
    values, axes = torch.linalg.eigh((1 - SHRINKAGE) * within + SHRINKAGE * sphere)
    whiten = axes / values.clamp(min=LEAST_SPREAD**2).sqrt()
    origin = means.mean(0)
    _, _, turn = torch.linalg.svd((means - origin) @ whiten, full_matrices=False)
    return origin, whiten @ turn[:count].mT


def _waves(numbers: Tensor) -> Tensor:
    """Numbers (B, W) within -1 and 1 as unit vectors (B, 2 HARMONICS W), 0 where they are NaN."""
    angle = numbers.clamp(-1, 1)[..., None] * (math.pi / 2)  # (B, W, 1)
    order = torch.tensor(HARMONICS, device=numbers.device, dtype=numbers.dtype)
    height = 1 / order / order.square().reciprocal().sum().sqrt()
    waves = torch.cat([height * (order * angle).cos(), height * (order * angle).sin()], dim=-1)
    vectors: Tensor = (waves.nan_to_num() / max(numbers.shape[1], 1) ** 0.5).flatten(1)
    return vectors
