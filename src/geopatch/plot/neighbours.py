"""A query and its hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, draw, pyplot, title_of
from geopatch.signal import Signal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


@dataclass(frozen=True, eq=False)
class Shown:
    """A hit as it is drawn."""

    signal: Signal
    label: str
    score: float
    right: bool


def hits(query: Signal, label: str, shown: Sequence[Shown], title: str, recorded: Signal | None = None) -> Figure:
    """A query on top and its hits below, each drawn over the query: green where the label is the query's, else red.

    `recorded` is the query before its time was warped; it stands beside it, dashed.
    """
    rows = -(-len(shown) // COLUMNS)
    figure: Figure = pyplot().figure(figsize=(11, 2.4 + 1.9 * rows), layout="constrained")
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.25] + [1.0] * rows)
    top = figure.add_subplot(grid[0, :])
    draw(top, query, QUERY, 1.6, "as searched")
    if recorded is not None:
        draw(top, recorded, RECORDED, 1.0, "as recorded", "--")
        top.legend(loc="upper right", fontsize=8, frameon=False)
    if query.channels:
        figure.supylabel(f"{query.channels[0]}, centred", fontsize=9)
    top.set_title(f"query: {title_of(query)} · {label}", loc="left", fontsize=11, fontweight="bold", color=QUERY)
    for place, hit in enumerate(shown):
        axes = figure.add_subplot(grid[1 + place // COLUMNS, place % COLUMNS], sharey=top)
        draw(axes, query, FAINT, 1.0)
        draw(axes, hit.signal, RIGHT if hit.right else WRONG, 1.5)
        heading = f"{place + 1}. {title_of(hit.signal)} · {hit.label} · {hit.score:.2f}"
        axes.set_title(heading, loc="left", fontsize=9, color=RIGHT if hit.right else WRONG)
        axes.label_outer()
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure
