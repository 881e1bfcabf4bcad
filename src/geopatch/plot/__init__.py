"""Pictures. Each function returns a figure; `save` writes it."""

from geopatch.plot.alignment import alignment, found
from geopatch.plot.canvas import QUERY, RIGHT, WRONG, check_installed, save, save_all
from geopatch.plot.curves import drop_curves
from geopatch.plot.examples import stress_examples
from geopatch.plot.neighbours import Shown, hits

__all__ = [
    "QUERY",
    "RIGHT",
    "Shown",
    "WRONG",
    "alignment",
    "check_installed",
    "drop_curves",
    "found",
    "hits",
    "save",
    "save_all",
    "stress_examples",
]
