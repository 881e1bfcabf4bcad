"""Pictures. Each function returns a figure; `save` writes it."""

from geopatch.plot.alignment import alignment, search_hits
from geopatch.plot.canvas import QUERY, RIGHT, WRONG, check_installed, save, save_all
from geopatch.plot.curves import drop_curves
from geopatch.plot.examples import stress_examples
from geopatch.plot.groups import WindowGroup, window_groups
from geopatch.plot.neighbours import Shown, hits

__all__ = [
    "QUERY",
    "RIGHT",
    "Shown",
    "WRONG",
    "WindowGroup",
    "alignment",
    "check_installed",
    "drop_curves",
    "hits",
    "save",
    "save_all",
    "search_hits",
    "stress_examples",
    "window_groups",
]
