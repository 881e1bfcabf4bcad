"""Geometry noise: the stress that touches descriptors only. It steps in between patching and encoding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geopatch.evaluate.distortions import SEED
from geopatch.patches import PatchBatch

FLAT = 1e-9  # what rounding leaves of a descriptor that never changes


class DescriptorSpread:
    """Takes the spread of each descriptor over valid patches while windows are encoded, and changes nothing."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, torch.zeros(0), torch.zeros(0)

    def __call__(self, batch: PatchBatch, _first: int) -> PatchBatch:
        descriptors = batch.geometry.descriptors[batch.valid].double().cpu()  # (patches, G)
        count, mean = len(descriptors), descriptors.mean(0)
        squares = (descriptors - mean).square().sum(0)
        if self._count:  # two parts joined, after Chan, Golub and LeVeque
            total, apart = self._count + count, mean - self._mean
            squares = self._squares + squares + apart.square() * (self._count * count / total)
            mean = self._mean + apart * (count / total)
        self._count, self._mean, self._squares = self._count + count, mean, squares
        return batch

    @property
    def spread(self) -> Tensor:
        """Of each descriptor (G,); 0 where it never changes."""
        spread = (self._squares / max(self._count, 1)).sqrt()
        return torch.where(spread > FLAT * (1 + self._mean.abs()), spread, 0.0)


@dataclass(frozen=True, eq=False)
class GeometryNoise:
    """Adds noise to the descriptors of valid patches; patches and gate evidence stay as they are."""

    strength: float
    spread: Tensor  # (G,)

    def __call__(self, batch: PatchBatch, first: int) -> PatchBatch:
        clean = batch.geometry.descriptors
        size = tuple(clean.shape[1:])
        draws = [np.random.default_rng((SEED, first + row)).standard_normal(size) for row in range(len(clean))]
        noise = torch.from_numpy(np.stack(draws)) * self.spread * self.strength  # (B, K, G)
        noisy = clean + noise.to(clean) * batch.valid[..., None]
        return replace(batch, geometry=replace(batch.geometry, descriptors=noisy))
