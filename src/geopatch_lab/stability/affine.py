"""The affine gauge: what is left of a track when its line is taken out and its rate divided away does not change with
the unit and the zero of its clock.

    R(alpha tau + beta) = R(tau),  alpha > 0                                                       (Prop. affine)

It is said of any tau: here they are the channels of real windows, patch by patch, in float64. The rate by which R
divides has a floor, so that patches that hardly rise or fall, before or after, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from geopatch.config import PatchConfig
from geopatch.errors import SignalError
from geopatch.geometry import EPSILON, affine_residual, local_residual
from geopatch.patches import cut, stack
from geopatch.scaffold import fixed_scaffold
from geopatch.signal import Signal
from geopatch_lab.stability.finding import Finding

GAUGES = ((0.1, 0.0), (0.5, -3.0), (2.0, 10.0), (10.0, 100.0))  # alpha, beta


def affine_findings(signals: Sequence[Signal], config: PatchConfig) -> list[Finding]:
    """How far R goes under each gauge, by what it is itself, over all patches of the windows."""
    if not signals:
        raise SignalError("expected windows whose patches are tracks, got none")
    windows = stack(signals)
    scaffold = fixed_scaffold(windows.lengths, config.patch_length, config.patches, config.stride)
    tracks = cut(windows.values.double(), scaffold)  # (B, K, L, C)
    weights = cut(windows.confidence.double()[..., None], scaffold)[..., 0]  # (B, K, L)
    return [_finding(tracks, weights, scaffold.valid, *gauge) for gauge in GAUGES]


def _finding(tracks: Tensor, weights: Tensor, valid: Tensor, alpha: float, beta: float) -> Finding:
    plain, moved = local_residual(tracks, weights), local_residual(alpha * tracks + beta, weights)
    rate = affine_residual(tracks, weights)[1].abs() * min(alpha, 1.0)  # (B, K, C)
    runs = (rate > EPSILON) & valid[..., None]
    change = ((moved - plain).abs() / (1 + plain.abs())).amax(-2)[runs]  # of each track
    count = int(valid.sum()) * tracks.shape[-1]
    values = {
        "change_max": float(change.max()) if len(change) else 0.0,
        "size_median": float(plain.abs().amax(-2)[runs].median()) if len(change) else 0.0,
        "too_slow": 1 - len(change) / max(count, 1),
    }
    return Finding("affine", {"alpha": alpha, "beta": beta}, values, count)
