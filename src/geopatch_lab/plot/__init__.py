"""Pictures of the study. Each function returns a figure; `geopatch.plot.save` writes it."""

from geopatch_lab.plot.chance import calibration
from geopatch_lab.plot.heatmap import Grid, heatmap
from geopatch_lab.plot.noise import noise_curve
from geopatch_lab.plot.pareto import Axis, ParetoPoint, pareto
from geopatch_lab.plot.ranks import Duel, Ranks, rank_plot, wins_and_losses

__all__ = [
    "Axis",
    "Duel",
    "Grid",
    "ParetoPoint",
    "Ranks",
    "calibration",
    "heatmap",
    "noise_curve",
    "pareto",
    "rank_plot",
    "wins_and_losses",
]
