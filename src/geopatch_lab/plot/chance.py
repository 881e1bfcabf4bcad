"""Whether `chance` is what it says: how many hits a search for something that is not there has below each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geopatch.errors import DataError
from geopatch.plot.canvas import FAINT, QUERY, pyplot, tidy
from geopatch.plot.curves import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THRESHOLDS = tuple(10.0 ** (n / 4) for n in range(-16, 5))  # 0.0001 to 10, four a decade; 0.01 is among them
FACTOR = 2.0


def calibration(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how many hits below each chance an unrelated search has, how many searches have one, and how many are right.

    Parameters
    ----------
    rows : sequence of mapping
        As `runs/chance.py` writes them.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: on the left and in the middle what should lie on the diagonal, on the right what should be near 1.

    Raises
    ------
    DataError
        When there are no rows.
    """
    if not rows:
        raise DataError("expected rows to draw, got none")
    figure: Figure = pyplot().figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    limits = np.asarray(THRESHOLDS)
    for axes in (left, middle):
        axes.fill_between(limits, limits / FACTOR, limits * FACTOR, color=FAINT, alpha=0.4, linewidth=0)
        axes.plot(limits, limits, color=QUERY, linewidth=0.8, linestyle="--", label="as it says")
    for scorer in dict.fromkeys(row["scorer"] for row in rows):
        mine, (colour, marker) = [row for row in rows if row["scorer"] == scorer], style(scorer)
        look = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": 1.3, "label": scorer}
        for axes, name in ((left, "hits"), (middle, "first")):
            share = _total(mine, name) / sum(row["queries"] for row in mine)
            axes.plot(limits[share > 0], share[share > 0], **look)
        right.plot(limits, _total(mine, "right") / sum(row["right_queries"] for row in mine), **look)
    left.set(xscale="log", yscale="log", xlabel="chance", ylabel="hits of a search with at most that", ylim=(5e-5, 20))
    left.set_title("queries that have nothing to do with the gallery", loc="left", fontsize=10)
    middle.set(xscale="log", yscale="log", xlabel="chance", ylabel="share of searches with such a hit")
    middle.set(ylim=(5e-5, 20))
    right.set(xscale="log", xlabel="chance", ylabel="share of right first hits with at most that", ylim=(0, 1.02))
    right.set_title("queries of a class that the gallery holds", loc="left", fontsize=10)
    left.legend(fontsize=8, frameon=False)
    for axes in (left, middle, right):
        tidy(axes)
    return figure


def _total(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    total: np.ndarray[Any, np.dtype[np.float64]] = np.asarray([row[name] for row in rows], dtype=np.float64).sum(0)
    return total
