"""The closed form with labels: what differs within a class is noise too, and class means come before all else."""

from __future__ import annotations

import torch
from torch import Tensor

CLASS_SHARE = 0.3  # how much of the spread within classes counts as drift
CLASS_SHRINKAGE = 0.01  # of the mean variance, added to every direction before whitening
RANK_TOLERANCE = 1e-6  # of all variance: what is below is rounding, as products of windows are added up in 32 bits
REST_WEIGHT = 0.1  # of a direction in which class means do not differ, beside those in which they do


def labelled_directions(
    drift: Tensor,
    between: Tensor,
    between_classes: Tensor,
    count: int,
    *,
    class_share: float = CLASS_SHARE,
    shrinkage: float = CLASS_SHRINKAGE,
    rest_weight: float = REST_WEIGHT,
) -> Tensor:
    """The map (r, count) to whitened drift and, there, to the directions in which the class means differ.

    Classes are few, so that their means span few directions; what is left of `count` are the leading directions of
    what differs between windows of one class, with a small weight: they order windows that classes do not tell apart.

    Parameters
    ----------
    drift : Tensor of shape (r, r)
        Covariance of views round the mean of their window.
    between : Tensor of shape (r, r)
        Covariance of the windows' means.
    between_classes : Tensor of shape (r, r)
        Covariance of the class means, each counted by its windows.
    count : int
        Directions to take.
    class_share : float, default=0.3
        How much of the covariance of windows round their class mean is added to the drift.
    shrinkage : float, default=0.01
        Share of the mean variance that is added to every direction.
    rest_weight : float, default=0.1
        What a direction within classes counts in a cosine, where one between classes counts 1.

    Returns
    -------
    Tensor of shape (r, count)
        Columns without anything that differs are 0.
    """
    within = between - between_classes
    noise = drift + class_share * within
    ridge = shrinkage * noise.diagonal().mean().clamp(min=1e-12)
    root = torch.linalg.cholesky(noise + ridge * torch.eye(len(noise), dtype=noise.dtype, device=noise.device))
    classes, apart = _whitened(root, between_classes), _whitened(root, within)
    least = RANK_TOLERANCE * (classes + apart).diagonal().sum().clamp(min=1e-12)
    classes = _leading(classes, count, least)
    apart = apart - classes @ (classes.mT @ apart)
    apart = apart - (apart @ classes) @ classes.mT
    rest = _leading(apart, count - classes.shape[1], least)
    kept = torch.cat([classes, rest_weight**0.5 * rest], dim=1)
    map = torch.linalg.solve_triangular(root.mT, kept, upper=True)
    return torch.nn.functional.pad(map, (0, count - map.shape[1]))


def _whitened(root: Tensor, covariance: Tensor) -> Tensor:
    half = torch.linalg.solve_triangular(root, covariance, upper=False)
    whitened: Tensor = torch.linalg.solve_triangular(root, half.mT, upper=False)
    return whitened


def _leading(covariance: Tensor, count: int, least: Tensor) -> Tensor:
    """The leading directions, at most `count`, of those with at least this variance."""
    value, vector = torch.linalg.eigh((covariance + covariance.mT) / 2)
    kept: Tensor = vector.flip(1)[:, :count][:, value.flip(0)[:count] > least]
    return kept
