"""Drop curves: what each stress costs, over its strength."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geopatch.errors import DataError
from geopatch.evaluate.rows import Row
from geopatch.evaluate.stress import CLEAN, KINDS, Stress
from geopatch.plot.canvas import QUERY, RECORDED, RIGHT, WRONG, pyplot, tidy
from geopatch.plot.examples import TITLES
from geopatch.scoring import SCORERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {"recall@1": "R@1", "map": "mAP"}
UNITS = {"geometry-noise": "spreads of a descriptor", "shuffle": "number of chunks"}
UNITS |= {"speed": "spread of log speeds", "gain": "share of 0.6 to 1.6"}
UNITS |= dict.fromkeys(("noise", "wander"), "spreads of a channel")
WINDOW_SHARE = "share of the window"
STYLES = (
    (QUERY, "o"),
    (WRONG, "s"),
    (RIGHT, "^"),
    ("#7a5fb0", "D"),
    ("#d9a441", "v"),
    ("#3d7fc8", "P"),
    ("#4f8a5b", "X"),
)


@dataclass(frozen=True)
class CurvePoint:
    """The mean of a score over collections and seeds at one strength, with the lowest and highest seed."""

    strength: float
    mean: float
    low: float
    high: float


def drop_curves(rows: Sequence[Row]) -> Figure:
    """Draw R@1 and mAP over the strength of each stress, a line for each scorer: means over collections.

    Bands reach from the lowest to the highest seed. A dotted line marks the default strength.

    Parameters
    ----------
    rows : sequence of Row
        Rows of one preset and one protocol, measured under stress.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    DataError
        When the rows are of several presets or protocols, or none is measured under a stress.
    """
    names = _stresses(rows)
    figure: Figure = pyplot().figure(figsize=(max(1.0 + 2.1 * len(names), 6.0), 5.0), layout="constrained")
    panels = figure.subplots(len(METRICS), len(names), sharex="col", sharey="row", squeeze=False)
    for line, metric in zip(panels, METRICS, strict=True):
        for axes, name in zip(line, names, strict=True):
            _panel(axes, rows, name, metric)
        line[0].set_ylabel(METRICS[metric], fontsize=9)
    for axes, name in zip(panels[0], names, strict=True):
        axes.set_title(TITLES[name], loc="left", fontsize=9, color=QUERY)
    for axes, name in zip(panels[-1], names, strict=True):
        axes.set_xlabel(UNITS.get(name, WINDOW_SHARE), fontsize=8)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), fontsize=8, frameon=False)
    figure.suptitle(_title(rows), x=0.01, ha="left", fontsize=11)
    return figure


def _panel(axes: Axes, rows: Sequence[Row], name: str, metric: str) -> None:
    axes.axvline(KINDS[name].default, color=RECORDED, linewidth=0.9, linestyle=":", label="default strength")
    for scorer in dict.fromkeys(row.scorer for row in rows):
        points = _points([row for row in rows if row.scorer == scorer], name, metric)
        colour, marker = style(scorer)
        strengths = [point.strength for point in points]
        axes.plot(
            strengths, [p.mean for p in points], color=colour, marker=marker, markersize=4, linewidth=1.3, label=scorer
        )
        lows, highs = [p.low for p in points], [p.high for p in points]
        axes.fill_between(strengths, lows, highs, color=colour, alpha=0.15, linewidth=0)
    tidy(axes)


def style(scorer: str) -> tuple[str, str]:
    """The same for a scorer in every figure."""
    return STYLES[list(SCORERS).index(scorer) % len(STYLES)] if scorer in SCORERS else STYLES[-1]


def _points(rows: Sequence[Row], name: str, metric: str) -> list[CurvePoint]:
    """In order of strength; the clean rows are strength 0 of every stress."""
    by_strength: dict[float, list[Row]] = {}
    for row in rows:
        stress = Stress.parse(row.stress)
        if stress.name in (name, CLEAN):
            by_strength.setdefault(stress.strength, []).append(row)
    return [point(strength, by_strength[strength], metric) for strength in sorted(by_strength)]


def point(strength: float, rows: Sequence[Row], metric: str) -> CurvePoint:
    seeds: dict[int, list[float]] = {}
    for row in rows:
        seeds.setdefault(row.seed, []).append(row.scores[metric])
    means = [sum(values) / len(values) for values in seeds.values()]
    return CurvePoint(strength, sum(means) / len(means), min(means), max(means))


def _stresses(rows: Sequence[Row]) -> list[str]:
    settings = {f"{row.preset} {row.protocol}" for row in rows}
    if len(settings) > 1:
        raise DataError(f"expected rows of one preset and protocol, got {', '.join(sorted(settings))}; draw each alone")
    names = {Stress.parse(row.stress).name for row in rows} - {CLEAN}
    if not names:
        raise DataError("expected rows measured under a stress, got none; `geopatch stress --rows` writes them")
    return [name for name in KINDS if name in names]


def _title(rows: Sequence[Row]) -> str:
    data = list(dict.fromkeys(row.data.removesuffix("_TEST") for row in rows))
    shown = data[0] if len(data) == 1 else f"mean of {len(data)} collections"
    seeds = len({row.seed for row in rows})
    spread = "1 seed" if seeds == 1 else f"mean of {seeds} seeds, bands from the lowest to the highest"
    return f"What stress costs: {shown}\n{spread}"
