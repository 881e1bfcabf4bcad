"""Trade-offs: points in two scores, or in a score and its cost, and the frontier that none of them passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geopatch.errors import DataError
from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTER, LINE = 5.4, 11.0  # pixels that a letter and a line of a name take
STYLES = ((QUERY, "o"), (WRONG, "s"), (RIGHT, "^"), ("#7a5fb0", "D"))


@dataclass(frozen=True)
class ParetoPoint:
    """A named place; a marked one stands out."""

    name: str
    x: float
    y: float
    marked: bool = False


@dataclass(frozen=True)
class Axis:
    """What an axis shows. `less_is_better` holds for a cost."""

    label: str
    less_is_better: bool = False
    logarithmic: bool = False


def frontier(points: Sequence[ParetoPoint], x: Axis) -> list[ParetoPoint]:
    """The points that no other beats in both, from left to right; bigger y is better."""
    sign = 1 if x.less_is_better else -1
    best: list[ParetoPoint] = []
    for point in sorted(points, key=lambda point: (sign * point.x, -point.y)):
        if not best or point.y > best[-1].y:
            best.append(point)
    return sorted(best, key=lambda point: point.x)


def pareto(
    groups: Mapping[str, Sequence[ParetoPoint]],
    x: Axis,
    y: Axis,
    title: str,
    *,
    arrow: tuple[ParetoPoint, ParetoPoint] | None = None,
    name_all: bool = False,
) -> Figure:
    """Each group in its own colour, the frontier of all of them dashed; names on the frontier and on marked points."""
    everything = [point for points in groups.values() for point in points]
    if not everything:
        raise DataError("expected points to draw, got none")
    figure: Figure = pyplot().figure(figsize=(7.4, 5.2), layout="constrained")
    axes = figure.subplots()
    best = frontier(everything, x)
    axes.plot([p.x for p in best], [p.y for p in best], color=RECORDED, linestyle="--", linewidth=1, zorder=1)
    for (name, points), (colour, marker) in zip(groups.items(), STYLES, strict=False):
        _scatter(axes, points, name, colour, marker)
    if arrow is not None:
        start, end = arrow
        style = {"arrowstyle": "->", "color": RECORDED, "shrinkA": 9, "shrinkB": 9, "linewidth": 1.2}
        axes.annotate("", (end.x, end.y), (start.x, start.y), arrowprops=style)
    if x.logarithmic:
        axes.set_xscale("log")
    _label(axes, [point for point in everything if name_all or point.marked or point in best])
    axes.set_xlabel(x.label, fontsize=9)
    axes.set_ylabel(y.label, fontsize=9)
    axes.grid(color=FAINT, alpha=0.3, linewidth=0.5)
    axes.margins(0.1)
    tidy(axes)
    axes.legend(fontsize=8, frameon=False, loc="best")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=QUERY)
    return figure


def _scatter(axes: Axes, points: Sequence[ParetoPoint], name: str, colour: str, marker: str) -> None:
    for marked in (False, True):
        shown = [point for point in points if point.marked == marked]
        size = 150 if marked else 34
        shape = "*" if marked else marker
        axes.scatter(
            [p.x for p in shown],
            [p.y for p in shown],
            s=size,
            marker=shape,
            facecolor=colour,
            edgecolor="white",
            linewidth=0.7,
            alpha=1.0 if marked else 0.75,
            label=None if marked else name,
            zorder=3 if marked else 2,
        )


def _label(axes: Axes, points: Sequence[ParetoPoint]) -> None:
    """Names beside their points, of marked ones below, each a little lower where two would lie on each other."""
    from matplotlib.patheffects import withStroke

    axes.figure.canvas.draw()  # the limits are known after it
    taken: list[tuple[float, float, float]] = []  # left, right and height of each name
    for point in sorted(points, key=lambda point: (-point.y, point.x)):
        x, y = axes.transData.transform((point.x, point.y))
        width = LETTER * len(point.name) + 10
        left, place = (x - width / 2, y - LINE) if point.marked else (x, y)
        while any(left < end and start < left + width and abs(place - height) < LINE for start, end, height in taken):
            place -= LINE
        taken.append((left, left + width, place))
        axes.annotate(
            point.name,
            (point.x, point.y),
            xytext=(0 if point.marked else 8, (place - y) * 0.72 - 2),
            textcoords="offset points",
            ha="center" if point.marked else "left",
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.6} if place < y - LINE else None,
            fontsize=7.5,
            fontweight="bold" if point.marked else "normal",
            color=QUERY,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=4,
        )
