"""Pictures. Each function returns a figure; `save` writes it."""

from geopatch.plot.alignment import alignment, found
from geopatch.plot.canvas import QUERY, RIGHT, WRONG, check_installed, save, save_all
from geopatch.plot.curves import drop_curves
from geopatch.plot.examples import stress_examples
from geopatch.plot.heatmap import Grid, heatmap
from geopatch.plot.neighbours import Shown, hits
from geopatch.plot.noise import noise_curve
from geopatch.plot.pareto import Axis, Point, pareto
from geopatch.plot.ranks import Duel, Ranks, rank_plot, wins_and_losses

__all__ = [
    "Axis",
    "Duel",
    "Grid",
    "Point",
    "QUERY",
    "RIGHT",
    "Ranks",
    "Shown",
    "WRONG",
    "alignment",
    "check_installed",
    "drop_curves",
    "found",
    "heatmap",
    "hits",
    "noise_curve",
    "pareto",
    "rank_plot",
    "save",
    "save_all",
    "stress_examples",
    "wins_and_losses",
]
