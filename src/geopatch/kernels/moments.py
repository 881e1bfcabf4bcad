"""What a change of clock does to features, and how windows differ: second moments, added up batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

ROUNDS = 3  # of subspace iteration
GRAM_SAMPLES = 2304  # up to so many samples their Gram matrix is the quicker way
RANK_TOLERANCE = 1e-6  # of the largest eigenvalue: what is below is rounding
SHRINKAGE = 0.001  # of the mean variance, added to every direction before whitening


@dataclass(eq=False)
class Moments:
    """Sums over windows and their views, in a space of r numbers. More windows can be added at any time.

    The covariance of views round the mean of their own window is what is harmless; that of the means is what tells
    windows apart.
    """

    within: Tensor  # (r, r) sum over views of the outer product of their distance from the window's mean
    spare: float  # views less windows: the degrees of freedom of `within`
    windows: int
    total: Tensor  # (r,) sum of window means
    outer: Tensor  # (r, r) sum of the outer products of window means
    class_total: Tensor  # (classes, r) sum of window means by class; no rows without labels
    class_windows: Tensor  # (classes,)

    @classmethod
    def empty(cls, width: int, classes: int = 0, device: torch.device | str = "cpu") -> Moments:
        """Of no windows."""
        square = [torch.zeros(width, width, dtype=torch.float64, device=device) for _ in range(2)]
        rows = torch.zeros(classes, width, dtype=torch.float64, device=device)
        total = torch.zeros(width, dtype=torch.float64, device=device)
        return cls(square[0], 0.0, 0, total, square[1], rows, torch.zeros(classes, device=device))

    def add(self, views: Tensor, labels: Tensor | None = None) -> None:
        """Add windows by their views (B, V, r)."""
        mean = views.mean(1)
        apart = (views - mean[:, None]).flatten(0, 1)
        self.within += (apart.mT @ apart).double()
        self.spare += float(len(views) * (views.shape[1] - 1))
        self.add_means(mean, labels)

    def add_pairs(self, drift: Tensor, members: Tensor) -> None:
        """Add what a view changed (M, r), and members (N, r) that differ from each other."""
        self.within += (drift.mT @ drift).double()
        self.spare += float(len(drift))
        self.add_means(members)

    def add_means(self, mean: Tensor, labels: Tensor | None = None) -> None:
        """Add windows by their means (B, r) alone."""
        self.windows += len(mean)
        self.total += mean.double().sum(0)
        self.outer += (mean.mT @ mean).double()
        if labels is not None:
            self.class_total.index_add_(0, labels, mean.double())
            self.class_windows += labels.bincount(minlength=len(self.class_windows))

    def tensors(self) -> dict[str, Tensor]:
        """By name, as a file holds them."""
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value if isinstance(value, Tensor) else torch.tensor(value) for name, value in named.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Moments:
        """Read what `tensors` returns."""
        values: dict[str, Any] = {item.name: tensors[item.name] for item in fields(cls)}
        return cls(**{**values, "spare": float(values["spare"]), "windows": int(values["windows"])})

    @property
    def mean(self) -> Tensor:
        """Of all windows (r,)."""
        return self.total / max(self.windows, 1)

    def drift(self) -> Tensor:
        """Covariance (r, r) of views round the mean of their window."""
        return self.within / max(self.spare, 1.0)

    def between(self) -> Tensor:
        """Covariance (r, r) of the windows' means."""
        return self.outer / max(self.windows, 1) - torch.outer(self.mean, self.mean)

    def between_classes(self) -> Tensor:
        """Covariance (r, r) of the class means, each counted by its windows."""
        seen = self.class_windows > 0
        means = self.class_total[seen] / self.class_windows[seen, None] - self.mean
        return (means.mT * self.class_windows[seen]) @ means / max(self.windows, 1)


def leading_basis(samples: Tensor, width: int) -> Tensor:
    """The leading directions (F, r) of samples (M, F), at most `width`.

    By the Gram matrix where there are few samples, otherwise by subspace iteration on their covariance, which need not
    end exactly: what follows whitens whatever the directions are. Rounded to 16 bits, as they are saved: a model that
    was read back goes on from the same numbers.
    """
    if len(samples) <= GRAM_SAMPLES:
        value, vector = torch.linalg.eigh(samples @ samples.mT)
        value, vector = value.flip(0)[:width], vector.flip(1)[:, :width]
        kept = value > value[0] * RANK_TOLERANCE
        basis = samples.mT @ (vector[:, kept] / value[kept].sqrt())
    else:
        basis = _leading_of(samples.mT @ samples, width)
    return _rounded(basis)


def streamed_basis(parts: Iterable[Tensor], size: int, width: int) -> Tensor:
    """The leading directions (F, r) of so many samples that come in parts (M, F), as `leading_basis` has them."""
    if size <= GRAM_SAMPLES:
        return leading_basis(torch.cat(list(parts)), width)
    covariance: Tensor | None = None
    for part in parts:
        covariance = part.mT @ part if covariance is None else covariance.addmm_(part.mT, part)
    assert covariance is not None, "there are samples"
    return _rounded(_leading_of(covariance, width))


def _leading_of(covariance: Tensor, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(len(covariance), width, generator=generator).to(covariance)
    basis: Tensor = torch.linalg.qr(start).Q
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(covariance @ basis).Q
    return basis


def _rounded(basis: Tensor) -> Tensor:
    return basis.half().float().contiguous()


def directions(drift: Tensor, between: Tensor, count: int, shrinkage: float = SHRINKAGE) -> Tensor:
    """The map (r, count) to whitened drift and, there, to the leading directions of what differs between windows.

    Linear discriminant analysis with every window its own class: distances come out in units of what a change of
    clock causes. Directions in which nothing differs are 0.
    """
    size = len(drift)
    ridge = shrinkage * drift.diagonal().mean().clamp(min=1e-12)
    root = torch.linalg.cholesky(drift + ridge * torch.eye(size, dtype=drift.dtype, device=drift.device))
    half = torch.linalg.solve_triangular(root, between, upper=False)
    whitened = torch.linalg.solve_triangular(root, half.mT, upper=False)
    value, vector = torch.linalg.eigh((whitened + whitened.mT) / 2)
    value, vector = value.flip(0)[:count], vector.flip(1)[:, :count]
    vector = vector * (value > 1e-9 * value.max().clamp(min=1e-300))
    map = torch.linalg.solve_triangular(root.mT, vector, upper=True)
    return torch.nn.functional.pad(map, (0, max(count - size, 0)))
