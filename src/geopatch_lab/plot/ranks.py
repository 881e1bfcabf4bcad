"""Many sets at once: average ranks with what they can tell apart, and wins and losses set by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from geopatch.errors import DataError
from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Ranks:
    """The mean rank of each method (1 is best), and how far two must lie apart to differ."""

    title: str
    ranks: Mapping[str, float]
    apart: float
    own: tuple[str, ...] = ()  # which are ours


def rank_plot(panels: Sequence[Ranks], title: str) -> Figure:
    """A line of methods for each panel, best on top; grey bands join the best with all that it cannot be told from."""
    if not panels or not all(panel.ranks for panel in panels):
        raise DataError("expected ranks of at least one method in every panel, got none")
    most = max(len(panel.ranks) for panel in panels)
    figure: Figure = pyplot().figure(figsize=(4.6 * len(panels), 1.4 + 0.27 * most), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _rank_panel(axes, panel, most)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=QUERY)
    return figure


def _rank_panel(axes: Axes, panel: Ranks, lines: int) -> None:
    order = sorted(panel.ranks, key=lambda name: panel.ranks[name])
    best = panel.ranks[order[0]]
    axes.axvspan(best, best + panel.apart, color=FAINT, alpha=0.28, linewidth=0)
    for place, name in enumerate(order):
        own = name in panel.own
        colour = RIGHT if own else QUERY
        axes.plot([1, panel.ranks[name]], [place, place], color=colour, alpha=0.35, linewidth=1)
        axes.scatter(panel.ranks[name], place, s=46 if own else 26, color=colour, zorder=3)
        axes.annotate(
            f"{panel.ranks[name]:.2f}", (panel.ranks[name], place), (6, -3), textcoords="offset points", fontsize=7.5
        )
    axes.set_yticks(range(len(order)), order, fontsize=8)
    for label, name in zip(axes.get_yticklabels(), order, strict=True):
        label.set_color(RIGHT if name in panel.own else QUERY)
        label.set_fontweight("bold" if name in panel.own else "normal")
    axes.set_ylim(lines - 0.4, -0.6)  # as many lines in every panel
    axes.set_xlim(0.9, len(order) + 0.6)
    axes.set_xlabel(f"average rank (grey: within {panel.apart:.2f} of the best)", fontsize=8)
    axes.set_title(panel.title, loc="left", fontsize=9, color=QUERY)
    tidy(axes)
    axes.tick_params(axis="y", labelsize=8, length=0)


@dataclass(frozen=True)
class Duel:
    """Score differences on each set, best first when drawn, with the mean and its interval."""

    title: str
    by_set: Mapping[str, float]
    mean: float
    low: float
    high: float


def wins_and_losses(duels: Sequence[Duel], title: str, columns: int) -> Figure:
    """A bar for each set: green where we win, red where we lose; the line is the mean, its band the interval."""
    if not duels or not all(duel.by_set for duel in duels):
        raise DataError("expected a difference on at least one set in every panel, got none")
    lines = -(-len(duels) // columns)
    figure: Figure = pyplot().figure(figsize=(3.7 * columns, 0.7 + 2.5 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey="row")
    for axes, duel in zip(panels.flat, duels, strict=False):
        _duel_panel(axes, duel)
    for axes in panels[:, 0]:
        axes.set_ylabel("difference in R@1, points", fontsize=8)
    for axes in panels.flat[len(duels) :]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=QUERY)
    return figure


def _duel_panel(axes: Axes, duel: Duel) -> None:
    values = 100 * np.sort(np.asarray(list(duel.by_set.values())))[::-1]
    colours = [RIGHT if value > 0 else WRONG if value < 0 else RECORDED for value in values]
    axes.bar(range(len(values)), values, color=colours, width=0.85)
    axes.axhspan(100 * duel.low, 100 * duel.high, color=QUERY, alpha=0.13, linewidth=0)
    axes.axhline(100 * duel.mean, color=QUERY, linewidth=1)
    axes.axhline(0, color=RECORDED, linewidth=0.6)
    wins, losses = int((values > 0).sum()), int((values < 0).sum())
    title = f"{duel.title}\n{wins} won, {len(values) - wins - losses} equal, {losses} lost; mean {100 * duel.mean:+.1f}"
    axes.set_title(f"{title} [{100 * duel.low:+.1f}, {100 * duel.high:+.1f}]", loc="left", fontsize=8, color=QUERY)
    axes.set_xticks([])
    axes.set_xlabel(f"{len(values)} sets, in order", fontsize=8)
    tidy(axes)
