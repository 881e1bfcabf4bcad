"""What the theorems say, measured on a trained encoder: drift, the descriptor bound, margins, what scorers prefer."""

from geopatch_lab.stability.affine import affine_findings
from geopatch_lab.stability.bound import ETAS, bound_sweep
from geopatch_lab.stability.drift import drift, drift_curves
from geopatch_lab.stability.finding import Finding, StabilityRow, append_stability, read_stability
from geopatch_lab.stability.margin import margin_findings
from geopatch_lab.stability.preference import best_scorers, preference_findings, protocol_findings
from geopatch_lab.stability.run import FULL, QUICK, Size, measure_stability

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
