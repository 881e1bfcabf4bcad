"""Ridge regression on class indicators, its strength chosen by leaving one out: RidgeClassifierCV in torch.

Why not scikit-learn's: MiniRocket's features lie on the GPU already, and the decomposition runs there. Measured,
medians of three fits with 9,996 features and five classes: on one core 0.03 s against scikit-learn's 0.11 s for 150
series and 0.69 s against 1.05 s for 800; with 320 features scikit-learn is faster (0.19 s against 0.28 s for 800). On
an H200 the first two take 4 and 11 ms, and 4,000 series 114 ms: 4, 8 and 19 times less than on the 16 cores of that
machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

STRENGTHS = tuple(float(10**exponent) for exponent in torch.linspace(-3, 3, 10, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class Ridge:
    """One score a class: near 1 for its members, near -1 for the others."""

    level: Tensor  # (F,)
    weight: Tensor  # (F, classes)
    offset: Tensor  # (classes,)
    strength: float

    @classmethod
    def fit(cls, features: Tensor, classes: Tensor) -> Ridge:
        """From features (N, F) and class numbers (N,)."""
        features = features.double()
        wanted = 2 * torch.nn.functional.one_hot(classes).double() - 1  # (N, classes)
        level, offset = features.mean(0), wanted.mean(0)
        centred = features - level
        strength, dual = _best_dual(centred, wanted - offset)
        return cls(level, centred.mT @ dual, offset, strength)

    def scores(self, features: Tensor) -> Tensor:
        return (features.double() - self.level) @ self.weight + self.offset


def _best_dual(centred: Tensor, wanted: Tensor) -> tuple[float, Tensor]:
    """The strength with the least squared error on series left out, and its dual weights (N, classes)."""
    values, vectors = torch.linalg.eigh(centred @ centred.mT + 1)  # 1: the intercept, which is not penalised
    intercept = vectors.sum(0).abs().argmax()
    rotated = vectors.mT @ wanted
    best = (torch.inf, 0.0, wanted)
    for strength in STRENGTHS:
        shrink = 1 / (values + strength)
        shrink[intercept] = 0
        dual = vectors @ (shrink[:, None] * rotated)
        error = float((dual / (vectors.square() @ shrink)[:, None]).square().mean())
        if error < best[0]:
            best = (error, strength, dual)
    return best[1], best[2]
