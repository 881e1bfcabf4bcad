"""Pictures. Each function returns a figure; `save` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geopatch.errors import MissingExtraError
from geopatch.signal import Signal
from geopatch.storage import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUERY, RIGHT, WRONG = "#1b1b1e", "#0b7a75", "#c8553d"
COLUMNS = 3


@dataclass(frozen=True, eq=False)
class Shown:
    """A hit as it is drawn."""

    signal: Signal
    label: str
    score: float
    right: bool


def hits(query: Signal, label: str, found: Sequence[Shown], title: str, recorded: Signal | None = None) -> Figure:
    """A query on top and its hits below, each drawn over the query: green where the label is the query's, else red.

    `recorded` is the query before its time was warped; it stands beside it, dashed.
    """
    rows = -(-len(found) // COLUMNS)
    figure: Figure = _pyplot().figure(figsize=(11, 2.4 + 1.9 * rows), layout="constrained")
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.25] + [1.0] * rows)
    top = figure.add_subplot(grid[0, :])
    _draw(top, query, QUERY, 1.6, "as asked")
    if recorded is not None:
        _draw(top, recorded, "#8a8a96", 1.0, "as recorded", "--")
        top.legend(loc="upper right", fontsize=8, frameon=False)
    if query.channels:
        figure.supylabel(f"{query.channels[0]}, centred", fontsize=9)
    top.set_title(f"query: {_told(query)} · {label}", loc="left", fontsize=11, fontweight="bold", color=QUERY)
    for place, hit in enumerate(found):
        axes = figure.add_subplot(grid[1 + place // COLUMNS, place % COLUMNS], sharey=top)
        _draw(axes, query, "#b9b9c2", 1.0)
        _draw(axes, hit.signal, RIGHT if hit.right else WRONG, 1.5)
        heading = f"{place + 1}. {_told(hit.signal)} · {hit.label} · {hit.score:.2f}"
        axes.set_title(heading, loc="left", fontsize=9, color=RIGHT if hit.right else WRONG)
        axes.label_outer()
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.supxlabel("seconds from the start of the window", fontsize=9)
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by its ending, and let go of it."""
    with atomic_file(Path(path)) as partial:
        figure.savefig(partial, dpi=130, format=Path(path).suffix.lstrip("."))
    _pyplot().close(figure)


def _draw(axes: Axes, signal: Signal, colour: str, width: float, name: str = "", style: str = "-") -> None:
    """The first channel, centred, over seconds."""
    values = signal.values[:, 0] - np.nanmedian(signal.values[:, 0])
    time_s = np.arange(signal.length) / signal.rate_hz
    axes.plot(time_s, values, color=colour, linewidth=width, linestyle=style, label=name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _told(signal: Signal) -> str:
    return f"{signal.record}, {signal.start_s:g} s" if signal.record else signal.id


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing") from error
    mpl.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt
