"""The theorems in pictures: drift, the tightness of the bound, margins, and what scorers prefer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geopatch.errors import DataError
from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, pyplot, tidy
from geopatch.plot.curves import style
from geopatch_lab.stability.drift import KINDS, RULES
from geopatch_lab.stability.finding import StabilityRow, of_topic
from geopatch_lab.stability.preference import PREFERRING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDARY, FEATURE = WRONG, "#3d7fc8"
ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
KIND_TITLES = {"warp": "another clock", "gain": "another gain", "noise": "noise"}
KIND_UNITS = {
    "warp": "warp, share of the window",
    "gain": "swing of the gain",
    "noise": "noise, spreads of the channel",
}
PARTS, FIXED = ("boundary", "feature"), "drift with the fixed scaffold"
RULE_TITLES = {"fixed": "fixed scaffold", "adaptive": "adaptive scaffold"}
LEVEL_TITLES = {
    "token": "one token",
    "patch": "the embedding,\none patch moved",
    "window": "the embedding,\nall patches moved",
}
FACTOR_TITLES = {"gamma": "geometry encoder", "f": "patch encoder", "A": "aggregate", "N": "normalising"}
CONSTANT_COLOURS = {"maximum": QUERY, "local": RIGHT, "typical": WRONG}
PROTOCOL_TITLES = {
    "standard": "standard",
    "strict-nonoverlap": "strict,\nno overlap",
    "strict-cross-record": "strict,\nother records",
    "penalised-nonoverlap": "penalised,\noverlap",
    "penalised-cross-record": "penalised,\nown record",
}


def drift_figure(rows: Sequence[StabilityRow]) -> Figure:
    """Boundary drift stacked on feature drift over the strength, by rule; a line for the drift that they bound."""
    kinds = [kind for kind in KINDS if any(row.setting.get("kind") == kind for row in of_topic(rows, "drift"))]
    figure: Figure = pyplot().figure(figsize=(1 + 3.1 * len(kinds), 5.6), layout="constrained")
    panels = figure.subplots(len(RULES), len(kinds), sharex="col", sharey="col", squeeze=False)
    for column, kind in zip(panels.T, kinds, strict=True):
        by_rule = {rule: _drift_rows(rows, rule, kind) for rule in RULES}
        for axes, rule in zip(column, RULES, strict=True):
            _drift_panel(axes, by_rule[rule])
        column[-1].plot(*_drift_line(by_rule["fixed"], "total"), color=QUERY, linewidth=1, linestyle=":", label=FIXED)
        highest = max(sum(_drift_line(drifts, name)[1][-1] for name in PARTS) for drifts in by_rule.values())
        column[0].set_ylim(0, 1.3 * max(highest, 1e-6))  # room for what is written
        column[0].set_title(KIND_TITLES[kind], loc="left", fontsize=10, color=QUERY)
        column[-1].set_xlabel(KIND_UNITS[kind], fontsize=8)
    for line, rule in zip(panels, RULES, strict=True):
        line[0].set_ylabel(f"{RULE_TITLES[rule]}\nshare of the distance\nbetween two windows", fontsize=9)
    _legend(figure, panels[-1][0])
    _title(figure, "How far an embedding goes when its window is observed otherwise", rows)
    return figure


def _drift_rows(rows: Sequence[StabilityRow], rule: str, kind: str) -> list[StabilityRow]:
    """Of the encoder that was trained with the rule, where there is one."""
    drifts = of_topic(rows, "drift", rule=rule, kind=kind)
    own = [row for row in drifts if row.setting["weights"] == "own"]
    return sorted(own or drifts, key=lambda row: float(row.setting["strength"]))


def _drift_line(rows: Sequence[StabilityRow], name: str) -> tuple[list[float], list[float]]:
    """Strengths and means, as a share of the distance between two windows drawn by chance."""
    strength = [float(row.setting["strength"]) for row in rows]
    return strength, [row.values[f"{name}_mean"] / max(row.values["apart"], 1e-12) for row in rows]


def _drift_panel(axes: Axes, rows: Sequence[StabilityRow]) -> None:
    strength, feature = _drift_line(rows, "feature")
    top = [low + more for low, more in zip(feature, _drift_line(rows, "boundary")[1], strict=True)]
    axes.fill_between(strength, 0, feature, color=FEATURE, alpha=0.45, linewidth=0, label="feature drift")
    axes.fill_between(strength, feature, top, color=BOUNDARY, alpha=0.6, linewidth=0, label="boundary drift")
    total = _drift_line(rows, "total")[1]
    axes.plot(strength, total, color=QUERY, linewidth=1.5, marker="o", markersize=3.5, label="drift of the embedding")
    shares = [row.values["boundary_share"] for row in rows if row.setting["strength"]]
    moved = rows[-1].values["shift_samples"]
    note = f"patches move by {moved:.0f} samples at the end\nboundary share {min(shares):.0%} to {max(shares):.0%}"
    note = note if moved else "no patch moves: boundary drift is 0"
    axes.text(0.03, 0.97, note, transform=axes.transAxes, va="top", fontsize=8, color=QUERY)
    axes.set_xlim(min(strength), max(strength))
    tidy(axes)


def bound_figure(rows: Sequence[StabilityRow]) -> Figure:
    """Observed over bound at each eta, for each place and kind of constants, and how steep each factor is."""
    figure: Figure = pyplot().figure(figsize=(12.5, 4.4), layout="constrained")
    *panels, last = figure.subplots(1, len(LEVEL_TITLES) + 1, width_ratios=[1, 1, 1, 0.8])
    for axes, (level, title) in zip(panels, LEVEL_TITLES.items(), strict=True):
        for kind in CONSTANT_COLOURS:
            _bound_lines(axes, of_topic(rows, "bound", level=level, constants=kind), kind)
        axes.axhline(1, color=QUERY, linewidth=1, linestyle="--")
        axes.sharey(panels[0])
        axes.set_yscale("log")
        axes.set_title(title, loc="left", fontsize=10, color=QUERY)
        axes.set_xlabel("eta: noise on descriptors, in their spreads", fontsize=8)
        axes.grid(axis="y", color=FAINT, alpha=0.35, linewidth=0.6)
        tidy(axes)
    panels[0].text(0.02, 1.15, "the bound", transform=panels[0].get_yaxis_transform(), fontsize=8, color=QUERY)
    panels[0].set_ylabel("displacement observed / bound", fontsize=9)
    _factor_panel(last, of_topic(rows, "constants")[0])
    _bound_legend(figure)
    _title(figure, "How much of the descriptor bound is used", rows)
    return figure


def _bound_lines(axes: Axes, rows: Sequence[StabilityRow], kind: str) -> None:
    ordered = sorted(rows, key=lambda row: float(row.setting["eta"]))
    eta = [float(row.setting["eta"]) for row in ordered]
    median, mean, p90, most = ([row.values[name] for row in ordered] for name in ("median", "mean", "p90", "max"))
    colour = CONSTANT_COLOURS[kind]
    axes.fill_between(eta, median, p90, color=colour, alpha=0.15, linewidth=0)
    axes.plot(eta, median, color=colour, linewidth=1.6, marker="o", markersize=4)
    axes.plot(eta, mean, color=colour, linewidth=1, linestyle="--")
    axes.plot(eta, most, color=colour, linewidth=0, marker="x", markersize=4)


def _factor_panel(axes: Axes, row: StabilityRow) -> None:
    """Typical and maximum of each factor, of their product, and the steepness of the whole."""
    names = {**FACTOR_TITLES, "product": "product"}
    for place, name in enumerate(names):
        typical, most = (row.values[f"{kind}_{name}"] for kind in ("typical", "maximum"))
        axes.plot([typical, most], [place, place], color=RECORDED, linewidth=2, alpha=0.5)
        axes.plot(typical, place, "o", color=CONSTANT_COLOURS["typical"], markersize=6)
        axes.plot(most, place, "o", color=CONSTANT_COLOURS["maximum"], markersize=6)
    axes.plot(row.values["least"], len(names), "D", color=FEATURE, markersize=6)
    axes.set_yticks(range(len(names) + 1), [*names.values(), "all at once"], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_title("steepness of the factors", loc="left", fontsize=10, color=QUERY)
    axes.set_xlabel("typical to maximum", fontsize=8)
    axes.grid(axis="x", color=FAINT, alpha=0.35, linewidth=0.6)
    tidy(axes)


def _bound_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=colour, label=f"{kind} constants") for kind, colour in CONSTANT_COLOURS.items()]
    handles += [Line2D([], [], color=RECORDED, marker="o", markersize=4, label="median")]
    handles += [Line2D([], [], color=RECORDED, linestyle="--", label="mean")]
    handles += [Patch(color=RECORDED, alpha=0.25, label="median to 90th percentile")]
    handles += [Line2D([], [], color=RECORDED, linewidth=0, marker="x", label="largest")]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), fontsize=8, frameon=False)


def margin_figure(rows: Sequence[StabilityRow]) -> Figure:
    """Shares of queries over drift: certified, and those whose right candidate stays when it comes to it."""
    margins = of_topic(rows, "margin")
    settings = list(dict.fromkeys((str(row.setting["protocol"]), float(row.setting["R"])) for row in margins))
    figure: Figure = pyplot().figure(figsize=(1 + 3.0 * len(settings), 4.0), layout="constrained")
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axes, (protocol, R) in zip(panels, settings, strict=True):
        _margin_panel(axes, of_topic(rows, "margin", protocol=protocol, R=R))
        axes.set_title(f"{protocol}, R = {R:g}", loc="left", fontsize=10, color=QUERY)
        _real_drift(axes, rows)
    panels[0].set_ylabel("share of queries whose right\ncandidate is among the R best", fontsize=9)
    _legend(figure, panels[0], 2 if len(settings) < 3 else 4)
    _title(figure, "What the margin theorem promises, and what drift does", rows)
    return figure


MARGIN_LINES = {
    "kept_random": ("stays, drift by chance", FEATURE, "-", "o"),
    "kept_against": ("stays, worst drift known", WRONG, "-", "s"),
    "certified": ("certified, by angles", RIGHT, "-", "^"),
    "certified_product": ("certified, margin > 4 r + 2 r²", RIGHT, ":", "v"),
}


def _margin_panel(axes: Axes, rows: Sequence[StabilityRow]) -> None:
    ordered = [row for row in sorted(rows, key=lambda row: float(row.setting["drift"])) if row.setting["drift"]]
    drift = [float(row.setting["drift"]) for row in ordered]
    columns = {name: [row.values[name] for row in ordered] for name in MARGIN_LINES}
    for name, (label, colour, line, marker) in MARGIN_LINES.items():
        axes.plot(drift, columns[name], color=colour, linestyle=line, marker=marker, markersize=3.5, label=label)
    axes.fill_between(drift, columns["certified"], color=RIGHT, alpha=0.12, linewidth=0)
    flips = sum(row.values["certified_flips"] for row in ordered)
    note = f"{flips:.0f} flips of certified queries"
    axes.text(0.97, 0.99, note, transform=axes.transAxes, ha="right", va="top", fontsize=8, color=QUERY, bbox=ON_WHITE)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("drift of every embedding", fontsize=8)
    tidy(axes)


def _real_drift(axes: Axes, rows: Sequence[StabilityRow]) -> None:
    """How far embeddings go in fact, in the median: by noise on descriptors, and by a warp."""
    from matplotlib.patheffects import withStroke

    noise = [row for row in rows if row.topic == "bound" and row.setting["level"] == "window"]
    drifts = [row for row in rows if row.topic == "drift"]
    halo = [withStroke(linewidth=2.5, foreground="white")]
    warps = [row for row in drifts if (row.setting["kind"], row.setting["rule"]) == ("warp", "fixed")]
    for name, group, key, value in (
        ("descriptor noise", noise, "eta", "observed_median"),
        ("warp", warps, "strength", "total_median"),
    ):
        if group:
            last = max(group, key=lambda row: float(row.setting[key]))
            axes.axvline(last.values[value], color=RECORDED, linewidth=1, linestyle="-.", zorder=0)
            note = f" {name} {float(last.setting[key]):g} "
            written = axes.text(last.values[value], 0.04, note, rotation=90, ha="right", va="bottom", fontsize=7)
            written.set(color=QUERY, zorder=4, path_effects=halo)


def preference_figure(rows: Sequence[StabilityRow]) -> Figure:
    """Left, how often the own record wins under each scorer; right, R@1 of each scorer under each protocol."""
    recalls, rates = of_topic(rows, "protocol"), [row for row in rows if row.topic == "preference" and row.count]
    figure: Figure = pyplot().figure(figsize=(11 if rates else 7.5, 4.0), layout="constrained")
    if rates:  # where no other record has a right window there is nothing to prefer
        left, right = figure.subplots(1, 2, width_ratios=[1, 2.1])
        _preference_panel(left, rates)
    else:
        right = figure.subplots()
    _protocol_panel(right, recalls)
    prefers = "What scorers prefer, and under which protocol that pays"
    _title(figure, prefers if rates else "Which scorer is best under which protocol", rows)
    return figure


def _preference_panel(axes: Axes, rows: Sequence[StabilityRow]) -> None:
    measured = {str(row.setting["scorer"]) for row in rows}
    scorers = [scorer for scorer in PREFERRING if scorer in measured]
    for place, scorer in enumerate(scorers):
        rates = {str(row.setting["own"]): row.values["rate"] for row in rows if row.setting["scorer"] == scorer}
        colour, marker = style(scorer)
        axes.plot([rates["apart"], rates["any"]], [place, place], color=colour, linewidth=2.2, alpha=0.5)
        axes.plot(rates["any"], place, color=colour, marker=marker, markersize=8, markerfacecolor="white")
        axes.plot(rates["apart"], place, color=colour, marker=marker, markersize=8)
        note = f"{rates['apart']:.3f}"
        axes.text(rates["apart"], place - 0.18, note, ha="center", va="bottom", fontsize=7.5, color=QUERY)
    axes.margins(x=0.12, y=0.15)
    axes.set_yticks(range(len(scorers)), scorers, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel(
        "queries whose own record beats every right\nwindow of other records (open: overlaps count)", fontsize=8
    )
    axes.set_title("the query's own record comes first", loc="left", fontsize=10, color=QUERY)
    tidy(axes)


def _protocol_panel(axes: Axes, rows: Sequence[StabilityRow]) -> None:
    protocols = list(dict.fromkeys(str(row.setting["protocol"]) for row in rows))
    scorers = list(dict.fromkeys(str(row.setting["scorer"]) for row in rows))
    width = 0.8 / len(scorers)
    best = {name: max(_recall(rows, name, scorer) for scorer in scorers) for name in protocols}
    for n, scorer in enumerate(scorers):
        values = [_recall(rows, name, scorer) for name in protocols]
        where = np.arange(len(protocols)) + (n - (len(scorers) - 1) / 2) * width
        axes.bar(where, values, width * 0.92, color=style(scorer)[0], label=scorer)
        for x, value, name in zip(where, values, protocols, strict=True):
            weight = "bold" if value == best[name] else "normal"
            axes.text(x, value + 0.01, f"{value:.2f}", ha="center", fontsize=6.5, fontweight=weight, color=QUERY)
    axes.set_xticks(range(len(protocols)), [PROTOCOL_TITLES[name] for name in protocols], fontsize=8)
    axes.set_ylabel("R@1 (the best in bold)", fontsize=9)
    axes.set_title("R@1 by protocol", loc="left", fontsize=10, color=QUERY)
    axes.legend(fontsize=8, frameon=False, ncols=len(scorers), loc="upper right")
    axes.set_ylim(0, 1.15)
    tidy(axes)


def _recall(rows: Sequence[StabilityRow], protocol: str, scorer: str) -> float:
    matching = [row for row in rows if (row.setting["protocol"], row.setting["scorer"]) == (protocol, scorer)]
    return matching[0].values["recall@1"]


def _legend(figure: Figure, axes: Axes, columns: int = 6) -> None:
    handles: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower right",
        ncols=min(len(handles), columns),
        fontsize=8,
        frameon=False,
    )


def _title(figure: Figure, title: str, rows: Sequence[StabilityRow]) -> None:
    data = list(dict.fromkeys(row.data.removesuffix("_TEST") for row in rows))
    if len(data) > 1:
        raise DataError(f"expected rows of one collection, got {', '.join(data)}; draw each alone")
    figure.suptitle(f"{title}: {data[0]}", x=0.01, ha="left", fontsize=11, color=QUERY)


FIGURES = {"drift": drift_figure, "bound": bound_figure, "margin": margin_figure, "preference": preference_figure}
