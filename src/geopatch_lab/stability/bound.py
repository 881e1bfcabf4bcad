"""The descriptor bound: how far noise on descriptors moves an embedding, over how far the theorem lets it.

    |T((g_k + dg_k)) - T((g_k))|  <=  L_N L_A L_f L_gamma  1/|M|  sum over valid k of a_k |dg_k|       (Thm. modulation)

dg_k is Gaussian, eta times the spread of each descriptor over the operating set. What was observed over what is allowed
is taken at three places:

- window: every valid patch is moved at once, the embedding is looked at;
- patch: one patch is moved, the embedding is looked at;
- token: one patch is moved, its gated token is looked at; the bound is L_f L_gamma a_k |dg_k|.

and with three kinds of constants:

- maximum: each factor's largest over all windows of the operating set, as they are and with the largest noise. This is
  what the theorem asks for, as near as points can tell of a region: violations should be 0.
- typical: each factor's median over the windows as they are, as the paper estimates it. No bound, a scale.
- local: the window's own factors at its own descriptors. It holds for noise that goes to 0, not beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from geopatch.errors import SignalError, at_least
from geopatch.evaluate.distortions import SEED
from geopatch.model.encoder import Encoder
from geopatch.signal import Signal
from geopatch_lab.stability.finding import Finding, spread_of
from geopatch_lab.stability.lipschitz import FACTORS, Pathway, Steepness, pathway, steepness

ETAS = (0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.40)
PATCHES = 10_000
LEVELS = ("window", "patch", "token")
CONSTANTS = ("maximum", "typical", "local")
BATCH = 32
ROUNDING = 1e-12  # what float64 leaves of the distance of two unit vectors that are the same
SMALL = 1e-15


@dataclass(frozen=True)
class Constants:
    """One steepness for each factor."""

    gamma: float
    f: float
    A: float
    N: float

    @property
    def token(self) -> float:
        return self.f * self.gamma

    @property
    def product(self) -> float:
        return self.N * self.A * self.f * self.gamma


@dataclass(frozen=True, eq=False)
class OperatingSet:
    """The windows a bound is measured on, each with the steepness of its factors, and the spread of descriptors."""

    paths: tuple[Pathway, ...]
    here: tuple[Steepness, ...]  # at the windows' own descriptors
    spread: Tensor  # (G,)
    maximum: Constants
    typical: Constants
    least: float  # the steepness of T itself: the least that any constant in the place of the product can be

    @property
    def patches(self) -> int:
        return sum(int(path.valid.sum()) for path in self.paths)


def operating_set(encoder: Encoder, signals: Sequence[Signal], largest: float = max(ETAS)) -> OperatingSet:
    """Windows with the constants of their factors, taken as they are and under noise of the largest eta."""
    if not signals:
        raise SignalError("a bound needs windows to hold on, got none")
    parts = [signals[start : start + BATCH] for start in range(0, len(signals), BATCH)]
    return measured_set([pathway(encoder, part) for part in parts], largest)


def measured_set(paths: Sequence[Pathway], largest: float) -> OperatingSet:
    """The same of any pathways."""
    at_least("largest", largest, 0)
    valid = torch.cat([path.descriptors[path.valid] for path in paths])
    spread = valid.double().std(0, correction=0).to(valid.dtype)
    here = [steepness(path) for path in paths]
    moved = [path.descriptors + noise(path, largest * spread, (0, 0, place)) for place, path in enumerate(paths)]
    there = [steepness(path, g) for path, g in zip(paths, moved, strict=True)]
    maximum = _over([*here, *there], [*paths, *paths], torch.Tensor.max)
    typical = _over(here, paths, torch.Tensor.median)
    least = max(float(one.whole.max()) for one in (*here, *there))
    return OperatingSet(tuple(paths), tuple(here), spread, maximum, typical, least)


def _over(slopes: Sequence[Steepness], paths: Sequence[Pathway], reduce: Callable[[Tensor], Tensor]) -> Constants:
    """One number for each factor of all valid patches and windows."""
    valid = [path.valid for path in paths]
    gamma = torch.cat([one.gamma[mask] for one, mask in zip(slopes, valid, strict=True)])
    f = torch.cat([one.f[mask] for one, mask in zip(slopes, valid, strict=True)])
    columns = (gamma, f, torch.cat([one.A for one in slopes]), torch.cat([one.N for one in slopes]))
    return Constants(*(float(reduce(column)) for column in columns))


def noise(path: Pathway, spread: Tensor, seed: tuple[int, ...]) -> Tensor:
    """dg_k (B, K, G): Gaussian of this spread on valid patches, 0 elsewhere."""
    draw = np.random.default_rng((SEED, *seed)).standard_normal(tuple(path.descriptors.shape))
    return torch.from_numpy(draw).to(path.descriptors) * spread * path.valid[..., None]


@dataclass(frozen=True, eq=False)
class Displacement:
    """How far noise moved each window or patch, and what the bound is without its constants: a_k |dg_k|, averaged."""

    observed: Tensor  # (N,)
    weighted: Tensor  # (N,)
    local: Tensor  # (N,) product of the constants of the window itself


def displacements(path: Pathway, own: Steepness, delta: Tensor) -> dict[str, Displacement]:
    """Of all three levels under one draw of noise."""
    with torch.no_grad():
        g = path.descriptors
        tokens, moved = path.tokens(g), path.tokens(g + delta)
        before = path.embedding(g)
        length = path.opening * delta.norm(dim=-1)  # (B, K) a_k |dg_k|
        count, valid = path.valid.sum(1), path.valid
        slope = own.gamma.amax(1) * own.f.amax(1)  # (B,)
        whole = own.N * own.A * slope
        window = Displacement((path.embedding(g + delta) - before).norm(dim=1), length.sum(1) / count, whole)
        token = Displacement((moved - tokens).norm(dim=-1)[valid], length[valid], (own.gamma * own.f)[valid])
        observed = torch.stack(list(_one_at_a_time(path, tokens, moved, before)), dim=1)  # (B, K)
        alone = Displacement(
            observed[valid], (length / count[:, None])[valid], whole[:, None].expand(valid.shape)[valid]
        )
    return {"window": window, "patch": alone, "token": token}


def _one_at_a_time(path: Pathway, tokens: Tensor, moved: Tensor, before: Tensor) -> Iterator[Tensor]:
    """How far the embedding goes when patch k alone is moved, for every k (B,)."""
    for k in range(tokens.shape[1]):
        mixed = tokens.clone()
        mixed[:, k] = moved[:, k]
        yield (F.normalize(path.head(mixed), dim=-1) - before).norm(dim=1)


def tightness(operating: OperatingSet, eta: float, patches: int = PATCHES) -> list[Finding]:
    """Observed over bound at one eta, over at least so many patches: windows come again with other noise if need be."""
    at_least("patches", patches, 1)
    at_least("eta", eta, SMALL)
    rounds = math.ceil(patches / operating.patches)
    parts = [
        displacements(path, own, noise(path, eta * operating.spread, (round(eta * 1e6), turn, place)))
        for turn in range(rounds)
        for place, (path, own) in enumerate(zip(operating.paths, operating.here, strict=True))
    ]
    return [
        _finding(operating, eta, level, kind, [part[level] for part in parts]) for level in LEVELS for kind in CONSTANTS
    ]


def _finding(operating: OperatingSet, eta: float, level: str, kind: str, parts: Sequence[Displacement]) -> Finding:
    observed, weighted, local = (
        torch.cat([getattr(part, name) for part in parts]).double() for name in ("observed", "weighted", "local")
    )
    constants = {"maximum": operating.maximum, "typical": operating.typical}.get(kind)
    if constants is not None:
        local = torch.full_like(local, constants.token if level == "token" else constants.product)
    bound = weighted * local
    ratio = (observed / bound.clamp(min=SMALL))[bound > SMALL]
    values = {
        **spread_of(ratio.cpu().numpy()),
        "max": float(ratio.max()) if len(ratio) else float("nan"),
        "violations": float((observed > bound + ROUNDING).double().mean()),
        "observed_median": float(observed.median()),
        "bound_median": float(bound.median()),
    }
    return Finding("bound", {"eta": float(eta), "level": level, "constants": kind}, values, len(observed))


def constant_findings(operating: OperatingSet) -> list[Finding]:
    """The constants of each factor, typical and maximum, their products, and the least that would do."""
    values = {}
    for name in FACTORS:
        values[f"typical_{name}"] = float(getattr(operating.typical, name))
        values[f"maximum_{name}"] = float(getattr(operating.maximum, name))
    values |= {"typical_product": operating.typical.product, "maximum_product": operating.maximum.product}
    values["least"] = operating.least
    return [Finding("constants", {"at": "operating set"}, values, operating.patches)]


def bound_sweep(
    encoder: Encoder, signals: Sequence[Signal], etas: Sequence[float] = ETAS, patches: int = PATCHES
) -> list[Finding]:
    """The constants of the encoder on these windows, and the tightness of the bound at each eta."""
    operating = operating_set(encoder, signals, max(etas))
    return constant_findings(operating) + [one for eta in etas for one in tightness(operating, eta, patches)]
