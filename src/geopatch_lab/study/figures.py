"""The figures of the study, from rows: heatmaps, trade-offs, ranks, wins and losses, stresses and theorems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from geopatch.data.sample import ecg_windows
from geopatch.evaluate.stress import STRESSES
from geopatch.plot import save_all, stress_examples
from geopatch.plot.examples import TITLES as STRESS_TITLES
from geopatch_lab import plot
from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.plot.stability import FIGURES as THEORY_FIGURES
from geopatch_lab.stability.finding import StabilityRow
from geopatch_lab.study.ablations import ALL_ABLATIONS, FULL
from geopatch_lab.study.compare import average_ranks, critical_difference, difference
from geopatch_lab.study.cost import Cost
from geopatch_lab.study.jobs import POOL_METHODS, ablation_target
from geopatch_lab.study.scores import R1, WARPED, StudyScores
from geopatch_lab.study.sets import UEA, UNSEEN
from geopatch_lab.study.tables import (
    POOL_CONTESTANTS,
    PRESETS,
    STRICT,
    ablation_columns,
    contestants,
    drops,
    plain,
    shown,
    wide,
)
from geopatch_lab.study.theory import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAN = float("nan")
EXAMPLE = 0  # which window of the built-in ECG shows what stresses do
SHORT = {"standard": "", "strict-nonoverlap": "no overlap", "strict-cross-record": "other record"}


def ablation_heatmap(scores: StudyScores) -> Figure | None:
    """What each ablation changes in R@1, in points, on each set clean, strict and warped."""
    columns = ablation_columns(scores)
    methods = [name for name in ALL_ABLATIONS if any(row.preset == name and row.scores for row in scores.rows)]
    if not columns or not methods:
        return None
    full = [_ablation(scores, FULL, column) for column in columns]
    values = [
        [100 * (_ablation(scores, name, one) - base) for one, base in zip(columns, full, strict=True)]
        for name in methods
    ]
    heads = [f"full {value:.3f}" for value in full]
    names = ["warped" if stress != "clean" else SHORT[protocol] or "clean" for _, protocol, stress in columns]
    groups = [f"{shown(data)}, {ablation_target(data)}" for data, _, _ in columns]
    grid = plot.Grid(np.asarray(values), methods, names, groups, heads)
    return plot.heatmap(
        grid, "What each ablation changes: R@1 by cosine", "points of R@1 against the full encoder", 10.0
    )


def _ablation(scores: StudyScores, method: str, column: tuple[str, str, str]) -> float:
    data, protocol, stress = column
    value = scores.ablation(data, method, protocol=protocol, stress=stress)
    return NAN if value is None else value


def robustness_heatmap(scores: StudyScores) -> Figure | None:
    """What each stress costs of R@1 in percent, on each set, for both presets."""
    stresses = STRESSES[1:]
    by_stress = {
        (preset, stress): drops(scores, preset, stress, R1) for preset in (FULL, "paper") for stress in stresses
    }
    by_stress = {key: values for key, values in by_stress.items() if values}
    if not by_stress:
        return None
    names = list(dict.fromkeys(name for values in by_stress.values() for name in values))
    lines = [[-values.get(name, NAN) for values in by_stress.values()] for name in names]
    lines.append([-mean(values.values()) for values in by_stress.values()])
    columns = ["\n".join(STRESS_TITLES[stress].replace(", ", " ").split(" ", 1)) for _, stress in by_stress]
    groups = ["learned half" if preset == FULL else f"{preset} preset" for preset, _ in by_stress]
    grid = plot.Grid(np.asarray(lines), [*(shown(name) for name in names), "mean"], columns, groups)
    return plot.heatmap(grid, "What each stress costs: R@1 by cosine", "% of the clean R@1", 40.0)


def strict_pareto(scores: StudyScores, data: str) -> Figure | None:
    """Standard against strict R@1 of the full encoder and its ablations, by cosine and by MaxSim."""
    groups: dict[str, list[plot.ParetoPoint]] = {}
    for scorer, name in (("cosine", "cosine"), ("maxsim", "MaxSim on the shortlist")):
        for method in (FULL, *ALL_ABLATIONS):
            x, y = (scores.ablation(data, method, scorer=scorer, protocol=rule) for rule in ("standard", STRICT[data]))
            if x is not None and y is not None:
                label = f"full, {scorer}" if method == FULL else method
                groups.setdefault(name, []).append(plot.ParetoPoint(label, x, y, marked=method == FULL))
    marked = [point for points in groups.values() for point in points if point.marked]
    if len(groups) < 2 or len(marked) < 2:
        return None
    target = ablation_target(data)
    x_axis = plot.Axis(f"standard R@1 ({shown(data)}, {target})")
    y_axis = plot.Axis(f"{STRICT[data]} R@1")
    title = "Standard against strict: the full encoder and its ablations"
    return plot.pareto(groups, x_axis, y_axis, title, arrow=(marked[0], marked[1]))


def cost_pareto(scores: StudyScores, cost: Cost) -> Figure | None:
    """R@1 over the archive sets of table (a) with warped queries, against MFLOP of encoding one window."""
    groups: dict[str, list[plot.ParetoPoint]] = {}
    for method, scorer in contestants(scores):
        y = scores.archive(method, scorer=scorer, stress=WARPED)
        if y is not None and method in cost.mflop and scorer in ("own", "cosine"):
            ours = method not in METHODS
            point = plot.ParetoPoint(PRESETS[method] if ours else method, cost.mflop[method], y, marked=ours)
            groups.setdefault("ours" if ours else "baselines", []).append(point)
    if len(groups) < 2:
        return None
    named = {name: [plot.ParetoPoint(p.name, p.x, p.y, p.marked) for p in points] for name, points in groups.items()}
    x_axis = plot.Axis("MFLOP for a window of 256 samples", less_is_better=True, logarithmic=True)
    y_axis = plot.Axis("mean R@1 over the archive sets, warped queries")
    return plot.pareto(named, x_axis, y_axis, "What a score costs", name_all=True)


def rank_figure(scores: StudyScores) -> Figure | None:
    """Average ranks of all methods on the archive sets of table (a), and of some on the pool."""
    panels = []
    for title, names, methods in (("archive sets", UEA, contestants(scores)), ("pool sets", UNSEEN, POOL_CONTESTANTS)):
        for stress, label in (("clean", "clean"), (WARPED, "warped queries")):
            ranks, count = average_ranks(wide(scores, names, methods, stress))
            if len(ranks) > 1:
                own = tuple(name for name in ranks if name.startswith("GeoPatch"))
                apart = critical_difference(len(ranks), count)
                panels.append(plot.Ranks(f"{count} {title}, {label}", ranks, apart, own))
    return plot.rank_plot(panels, "Average ranks by R@1, best on top") if panels else None


def duel_figure(scores: StudyScores) -> Figure | None:
    """GeoPatch by cosine against each rival over the pool, clean and with warped queries."""
    duels = []
    ours = plain("default" if any(scores.over_sets(UNSEEN, "default")) else FULL, "cosine")
    for stress, label in (("clean", "clean"), (WARPED, "warped queries")):
        table = wide(scores, UNSEEN, POOL_CONTESTANTS, stress)
        for rival in POOL_METHODS:
            gap = difference(table, ours, rival)
            if gap is not None:
                duels.append(plot.Duel(f"{label}: against {rival}", gap.by_set, gap.mean, gap.low, gap.high))
    title = f"Wins and losses of {ours} on sets that no choice has seen"
    return plot.wins_and_losses(duels, title, len(POOL_METHODS)) if duels else None


def stress_figure() -> Figure:
    """One window of the built-in ECG under each stress."""
    return stress_examples(ecg_windows().signals[EXAMPLE])


def theory_figures(rows: Sequence[StabilityRow]) -> Iterator[tuple[str, Figure]]:
    """What the theorems say of each set, means over seeds, by the name of the figure."""
    for data in dict.fromkeys(row.data for row in rows):
        means = over_seeds(row for row in rows if row.data == data)
        topics = {row.topic for row in means}
        for name, draw in THEORY_FIGURES.items():
            if (name if name != "preference" else "protocol") in topics:
                yield f"{name}-{data}", draw(means)


def draw_all(scores: StudyScores, cost: Cost | None, folder: Path, stability: Sequence[StabilityRow] = ()) -> list[str]:
    """Draw every figure for which there are rows, as PNG and SVG; gives their names."""
    makers: Mapping[str, Callable[[], Figure | None]] = {
        "ablations": lambda: ablation_heatmap(scores),
        "stress-examples": lambda: stress_figure() if scores.rows else None,
        "robustness": lambda: robustness_heatmap(scores),
        "pareto-nsrdb": lambda: strict_pareto(scores, "nsrdb"),
        "pareto-mitdb": lambda: strict_pareto(scores, "mitdb"),
        "pareto-cost": lambda: None if cost is None else cost_pareto(scores, cost),
        "ranks": lambda: rank_figure(scores),
        "wins-and-losses": lambda: duel_figure(scores),
    }
    made = ((name, make()) for name, make in makers.items())
    drawn = []
    for name, figure in (*made, *theory_figures(stability)):
        if figure is not None:
            save_all(figure, folder / name)
            drawn.append(name)
    return drawn
