"""Boundary drift against feature drift: what of a change in the embedding comes from patches that moved.

With R(P, y) the embedding of the windows y cut on the patch family P, and P(y) the family that a rule makes of y,

    |R(P(A), A) - R(P(B), B)|  <=  |R(P(A), A) - R(P(B), A)|  +  |R(P(B), A) - R(P(B), B)|      (Eq. drift_decomp)
           total                         boundary drift                  feature drift

for two observations A and B of the same content: the cross term applies the family of B to the values of A. With the
fixed rule P(A) = P(B), so boundary drift is exactly 0. R is the whole encoder up to the unit embedding; geometry
descriptors are those of the patches as they are cut. B is A under one factor of the generative model
y(t) = A(t) x(sigma(t)) + eps(t): another clock, another gain, or noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geopatch.config import DESCRIPTORS, ModelConfig
from geopatch.errors import ConfigError, SignalError, one_of
from geopatch.evaluate.distortions import SEED
from geopatch.geometry import geometry, motion
from geopatch.model.encoder import Encoder
from geopatch.patches import PatchBatch, cut, stack
from geopatch.scaffold import Scaffold, adaptive_scaffold, fixed_scaffold, random_scaffold
from geopatch.signal import Signal
from geopatch.warp import STRONGEST, warped
from geopatch_lab.stability.finding import Finding, Numbers, Setting, spread_of

RULES = ("fixed", "adaptive")
BATCH = 128
ROUNDING = 1e-5  # what float32 may add to a sum of two distances of unit vectors
WARPS = (0.0, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)


def gained(signal: Signal, strength: float, _place: int = 0) -> Signal:
    """The signal times 1 + strength sin(2 pi t / T): a gain that changes slowly."""
    time = np.arange(signal.length)[:, None] / max(signal.length, 1)
    factor = 1 + strength * np.sin(2 * np.pi * time)
    return replace(signal, values=(signal.values * factor).astype(np.float32))


def noisy(signal: Signal, strength: float, place: int = 0) -> Signal:
    """The signal with Gaussian noise of strength times the spread of each channel; `place` seeds it."""
    spread = np.nan_to_num(np.nanstd(np.where(signal.observed, signal.values, np.nan), axis=0)) * strength
    noise = np.random.default_rng((SEED, place)).standard_normal(signal.values.shape) * spread
    return replace(signal, values=(signal.values + noise).astype(np.float32))


@dataclass(frozen=True)
class Deformation:
    """How a second observation comes from the first, and the strengths of its curve."""

    meaning: str
    strengths: tuple[float, ...]
    observe: Callable[[Signal, float, int], Signal]


KINDS: dict[str, Deformation] = {
    "warp": Deformation("read at t + s T sin(2 pi t / T)", WARPS, lambda signal, strength, _: warped(signal, strength)),
    "gain": Deformation("times 1 + s sin(2 pi t / T)", SHARES, gained),
    "noise": Deformation("with noise of s times its spread", SHARES, noisy),
}


@dataclass(frozen=True, eq=False)
class Drift:
    """Of each of N pairs of windows, and how far patches moved, in samples, and how many of them did."""

    total: Numbers
    boundary: Numbers
    feature: Numbers
    shift: Numbers  # mean over the valid patches of |start in A - start in B|
    moved: Numbers  # share of the valid patches whose start is another one

    @property
    def share(self) -> Numbers:
        """Boundary drift over the sum of both; 0 where there is none of either."""
        both = self.boundary + self.feature
        return np.asarray(np.divide(self.boundary, both, out=np.zeros_like(both), where=both > 0))


def drift(encoder: Encoder, first: Sequence[Signal], second: Sequence[Signal], rule: str) -> Drift:
    """Boundary and feature drift of pairs of windows of equal lengths, with patches that lie where `rule` puts them."""
    one_of("rule", rule, RULES)
    if [one.length for one in first] != [other.length for other in second]:
        raise SignalError(
            "boundary drift compares patches of windows of equal lengths; give pairs as long as each other"
        )
    if not first:
        raise SignalError("expected at least one pair of windows, got none")
    parts = [
        _drift(encoder, first[start : start + BATCH], second[start : start + BATCH], rule)
        for start in range(0, len(first), BATCH)
    ]
    columns = torch.cat(parts).double().cpu().numpy()  # (N, 5)
    return Drift(*np.ascontiguousarray(columns.T))


@torch.inference_mode()
def _drift(encoder: Encoder, first: Sequence[Signal], second: Sequence[Signal], rule: str) -> Tensor:
    a, b = _patched(encoder, first), _patched(encoder, second)
    family_a, family_b = family(a, encoder.config, rule), family(b, encoder.config, rule)
    own, cross, other = (
        encoder(recut(batch, scaffold, encoder.config)).embedding
        for batch, scaffold in ((a, family_a), (a, family_b), (b, family_b))
    )
    gap = (family_a.starts - family_b.starts).abs() * a.valid
    count = a.valid.sum(1)
    lengths = [(left - right).norm(dim=1) for left, right in ((own, other), (own, cross), (cross, other))]
    return torch.stack([*lengths, gap.sum(1) / count, (gap > 0).sum(1) / count], dim=1)  # (N, 5)


def _patched(encoder: Encoder, signals: Sequence[Signal]) -> PatchBatch:
    device = encoder.level.device
    encoder.eval()
    windows = stack(signals, clock=encoder.config.geometry_source == "clock")
    return encoder.patch(encoder.scale(windows.to(device)))


def family(batch: PatchBatch, config: ModelConfig, rule: str) -> Scaffold:
    """P(y): the patches that a rule makes of windows."""
    one_of("rule", rule, (*RULES, "random"))
    lengths, size = batch.windows.lengths, (config.patch_length, config.patches)
    if rule == "adaptive":
        return adaptive_scaffold(motion(_source(batch, config), lengths).curvature, lengths, *size)
    if rule == "random":
        return random_scaffold(lengths, *size)
    return fixed_scaffold(lengths, *size, stride=config.stride)


def recut(batch: PatchBatch, scaffold: Scaffold, config: ModelConfig) -> PatchBatch:
    """The same windows cut and described on another scaffold: the arguments of R(P, y)."""
    source = _source(batch, config)
    moves = motion(source, batch.windows.lengths)
    clock = config.geometry_source == "clock"
    described = geometry(source, batch.windows.confidence, scaffold, moves, config.descriptors, clock=clock)
    columns = sum(DESCRIPTORS[name] for name in config.descriptors)
    level_and_scale = batch.geometry.descriptors[..., columns:]  # of the window, the same wherever its patches lie
    described = replace(described, descriptors=torch.cat([described.descriptors, level_and_scale], dim=-1))
    return PatchBatch(batch.windows, scaffold, cut(batch.windows.values, scaffold), described)


def _source(batch: PatchBatch, config: ModelConfig) -> Tensor:
    if config.geometry_source == "clock":
        assert batch.windows.clock is not None
        return batch.windows.clock[..., None]
    return batch.windows.values[..., : config.channels]  # without curvature where that is a channel of its own


def drift_curves(
    encoder: Encoder,
    signals: Sequence[Signal],
    rule: str,
    strengths: Mapping[str, Sequence[float]] | None = None,
    weights: str = "own",
) -> list[Finding]:
    """A finding for each kind of second observation and each strength.

    Lengths are those of unit embeddings; `apart`, the median distance of two windows drawn by chance, gives them a
    scale: encoders whose embeddings lie close together drift less for that alone. `weights` says what the encoder
    was trained with: "own", the rule measured, or "shared", another one.
    """
    chosen = strengths or {name: kind.strengths for name, kind in KINDS.items()}
    apart = _apart(encoder, signals, rule)
    findings = []
    for name, values in chosen.items():
        one_of("kind", name, tuple(KINDS))
        for strength in values:
            _check_strength(name, strength)
            second = [KINDS[name].observe(signal, strength, place) for place, signal in enumerate(signals)]
            setting: Setting = {"rule": rule, "kind": name, "strength": float(strength), "weights": weights}
            measured = {**_values(drift(encoder, signals, second, rule)), "apart": apart}
            findings.append(Finding("drift", setting, measured, len(signals)))
    return findings


def _check_strength(kind: str, strength: float) -> None:
    most = STRONGEST if kind == "warp" else 1.0
    if not 0 <= strength < most:
        raise ConfigError(f"{kind} strength must be at least 0 and below {most:.3f}, got {strength}")


def _values(drifts: Drift) -> dict[str, float]:
    broken = drifts.total > drifts.boundary + drifts.feature + ROUNDING
    return {
        **spread_of(drifts.total, "total_"),
        **spread_of(drifts.boundary, "boundary_"),
        **spread_of(drifts.feature, "feature_"),
        "boundary_max": float(drifts.boundary.max()),
        "boundary_share": float(drifts.share.mean()),
        "shift_samples": float(drifts.shift.mean()),
        "moved_share": float(drifts.moved.mean()),
        "violations": float(broken.mean()),
    }


@torch.inference_mode()
def _apart(encoder: Encoder, signals: Sequence[Signal], rule: str) -> float:
    """The median distance of two of the windows, paired by chance."""
    parts = []
    for start in range(0, len(signals), BATCH):
        batch = _patched(encoder, signals[start : start + BATCH])
        parts.append(encoder(recut(batch, family(batch, encoder.config, rule), encoder.config)).embedding)
    embedding = torch.cat(parts)
    shift = np.random.default_rng(SEED).integers(1, max(len(signals), 2), size=len(signals))
    other = torch.from_numpy((np.arange(len(signals)) + shift) % len(signals)).to(embedding.device)
    return float((embedding - embedding[other]).norm(dim=1).median())
