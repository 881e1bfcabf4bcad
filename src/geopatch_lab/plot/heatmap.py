"""Heatmaps: what each ablation changes, and what each stress costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError
from geopatch.plot.canvas import FAINT, QUERY, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

LOSS_TO_GAIN = ("#b2432f", "#f7f5f2", "#0b7a75")  # worse, the same, better
DARK = 0.62  # of the range: from here on the writing in a cell is white


@dataclass(frozen=True, eq=False)
class Grid:
    """Values with names on both sides; NaN where nothing was measured. `groups` name neighbouring columns."""

    values: npt.NDArray[np.float64]  # (rows, columns)
    rows: Sequence[str]
    columns: Sequence[str]
    groups: Sequence[str] = ()  # one for each column
    heads: Sequence[str] = ()  # written over each column: what 0 stands for

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.rows), len(self.columns)) or not self.values.size:
            raise DataError(
                f"expected values for {len(self.rows)} rows and {len(self.columns)} columns, got {self.values.shape}"
            )


def heatmap(grid: Grid, title: str, unit: str, limit: float | None = None) -> Figure:
    """Differences in points: green is better, red is worse, and each cell says how much."""
    rows, columns = grid.values.shape
    height = 1.9 + 0.27 * rows
    figure: Figure = pyplot().figure(figsize=(2.9 + 0.92 * columns, height), layout="constrained")
    axes = figure.subplots()
    most = limit or max(float(np.nanmax(np.abs(grid.values), initial=0.0)), 1.0)
    image = axes.imshow(grid.values, cmap=_colours(), vmin=-most, vmax=most, aspect="auto")
    _write(axes, grid.values, most)
    _name(axes, grid)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.015)
    bar.set_label(unit, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=QUERY)
    return figure


def _colours() -> Colormap:
    pyplot()
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("loss to gain", LOSS_TO_GAIN).with_extremes(bad="#ececef")


def _write(axes: Axes, values: npt.NDArray[np.float64], most: float) -> None:
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            colour = "white" if abs(value) > DARK * most else QUERY
            text = "" if np.isnan(value) else f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: -0 is 0
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)


def _name(axes: Axes, grid: Grid) -> None:
    axes.set_yticks(range(len(grid.rows)), grid.rows, fontsize=8)
    heads = [f"{name}\n{head}" for name, head in zip(grid.columns, grid.heads or [""] * len(grid.columns), strict=True)]
    axes.set_xticks(range(len(grid.columns)), [head.strip() for head in heads], fontsize=7.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    changes = [n for n in range(1, len(grid.groups)) if grid.groups[n] != grid.groups[n - 1]]
    for place in changes:
        axes.axvline(place - 0.5, color="white", linewidth=4)
    for first, last in zip([0, *changes], [*changes, len(grid.groups)], strict=True):
        if grid.groups:
            axes.text(
                (first + last - 1) / 2, len(grid.rows) - 0.35, grid.groups[first], ha="center", va="top", fontsize=8
            )
    if grid.groups:
        axes.set_ylim(len(grid.rows) - 0.5, -0.5)
    for place in range(1, len(grid.rows)):
        axes.axhline(place - 0.5, color=FAINT, linewidth=0.3)
