"""What is known before any window is seen: how features of many kinds of signals drift and differ, from archive data.

A covariance of few windows is not enough to whiten by. It is shrunk towards this one by the number of windows; and this
one alone, with biases of its own, is the model called "general".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files

import torch
from safetensors.torch import load
from torch import Tensor

FILE = "general.safetensors"  # made by runs/prior.py
RANK = 128  # leading directions of a covariance that are kept; the rest as variances


@dataclass(frozen=True, eq=False)
class LowRank:
    """A covariance (F, F): leading directions, and what they leave of each variance."""

    factor: Tensor  # (F, q)
    rest: Tensor  # (F,)

    @classmethod
    def of(cls, covariance: Tensor, rank: int = RANK) -> LowRank:
        """The nearest of this rank."""
        value, vector = torch.linalg.eigh(covariance.double())
        value, vector = value[-rank:].clamp(min=0), vector[:, -rank:]
        factor = (vector * value.sqrt()).half()
        rest = (covariance.diagonal() - factor.double().square().sum(1)).clamp(min=0)
        return cls(factor, rest.float())

    def within(self, basis: Tensor | None, ratio: Tensor) -> Tensor:
        """The covariance of features measured in other units, in the space of a basis (F, r)."""
        factor, rest = self.factor.to(ratio) * ratio[:, None], self.rest.to(ratio) * ratio.square()
        if basis is None:
            return (factor @ factor.mT + torch.diag(rest)).double()
        leading = basis.mT @ factor
        return (leading @ leading.mT + basis.mT @ (basis * rest[:, None])).double()


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """Mean, scale, drift and differences of features; drift and differences in units of `scale`."""

    mean: Tensor  # (F,)
    scale: Tensor  # (F,)
    drift: LowRank
    between: LowRank
    map: Tensor  # (F, D) to the leading directions of what differs where drift is white; from the whole covariances

    def blended(self, mean: Tensor, scale: Tensor, known: float) -> tuple[Tensor, Tensor]:
        """Mean and scale of windows, shrunk towards those known before, which count for the share `known`."""
        variance = (1 - known) * scale.square() + known * self.scale.to(scale).square()
        return (1 - known) * mean + known * self.mean.to(mean), variance.sqrt()

    def tensors(self) -> dict[str, Tensor]:
        """By name, as a file holds them."""
        low = {"drift": self.drift, "between": self.between}
        parts = {f"{name}.{item.name}": getattr(one, item.name) for name, one in low.items() for item in fields(one)}
        return {"mean": self.mean, "scale": self.scale, "map": self.map, **parts}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str) -> FeaturePrior:
        """Read what `tensors` returns."""
        own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        low = [LowRank(own[f"{name}.factor"], own[f"{name}.rest"]) for name in ("drift", "between")]
        return cls(own["mean"], own["scale"], *low, own["map"])


@dataclass(frozen=True, eq=False)
class Prior:
    """Of whole windows and of tokens, and the biases of the model that nothing was fitted for."""

    features: FeaturePrior
    tokens: FeaturePrior
    bias: Tensor  # (GROUPS, 84)

    def tensors(self) -> dict[str, Tensor]:
        """By name, as the file holds them."""
        parts = {"features.": self.features, "tokens.": self.tokens}
        named = {prefix + name: value for prefix, part in parts.items() for name, value in part.tensors().items()}
        return {**named, "bias": self.bias}


def known_share(windows: int, prior_windows: float) -> float:
    """What the prior counts for beside so many windows, where it is worth `prior_windows` of them."""
    return prior_windows / (windows + prior_windows) if prior_windows else 0.0


@lru_cache(maxsize=1)
def general_prior() -> Prior:
    """The prior that comes with the package."""
    tensors = load(files("geopatch.kernels").joinpath(FILE).read_bytes())
    features, tokens = (FeaturePrior.from_tensors(tensors, prefix) for prefix in ("features.", "tokens."))
    return Prior(features, tokens, tensors["bias"])
