"""What the theorems say, measured on a trained encoder: drift, the descriptor bound, margins, what scorers prefer."""

from geopatch.stability.affine import affine_findings
from geopatch.stability.bound import ETAS, bound_sweep
from geopatch.stability.drift import drift, drift_curves
from geopatch.stability.finding import Finding, StabilityRow, append_stability, read_stability
from geopatch.stability.margin import margin_findings
from geopatch.stability.preference import best_scorers, preference_findings, protocol_findings
from geopatch.stability.run import FULL, QUICK, Size, measure_stability

__all__ = [
    "ETAS",
    "FULL",
    "Finding",
    "QUICK",
    "Size",
    "StabilityRow",
    "affine_findings",
    "append_stability",
    "best_scorers",
    "bound_sweep",
    "drift",
    "drift_curves",
    "margin_findings",
    "measure_stability",
    "preference_findings",
    "protocol_findings",
    "read_stability",
]
