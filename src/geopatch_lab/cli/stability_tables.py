"""Tables of what was measured of the theorems, one a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from geopatch_lab.stability import StabilityRow, best_scorers

Cells = Sequence[str]


def print_stability(rows: Sequence[StabilityRow]) -> None:
    """One table a topic; topics that were not measured are left out."""
    tables = (_drift, _affine, _constants, _bound, _margin, _preference, _protocol)
    for make in tables:
        table = make(rows)
        if table.row_count:
            Console().print(table)


def _drift(rows: Sequence[StabilityRow]) -> Table:
    """Means at the strongest of each kind."""
    drifts = [row for row in rows if row.topic == "drift"]
    strongest = [row for row in drifts if row.setting["strength"] == _most(drifts, str(row.setting["kind"]))]
    lines = (
        (
            str(row.setting["kind"]),
            str(row.setting["rule"]),
            str(row.setting["weights"]),
            f"{row.setting['strength']:g}",
            *(f"{row.values[f'{name}_mean']:.3f}" for name in ("total", "boundary", "feature")),
            f"{row.values['boundary_share']:.0%}",
            f"{row.values['shift_samples']:.1f}",
            f"{row.values['apart']:.2f}",
        )
        for row in strongest
    )
    numbers = ("at", "total", "boundary", "feature", "share", "samples moved", "apart")
    return _table("drift: how far embeddings go (means)", ("kind", "patches", "weights"), numbers, lines)


def _most(rows: Iterable[StabilityRow], kind: str) -> float:
    return max(float(row.setting["strength"]) for row in rows if row.setting["kind"] == kind)


def _affine(rows: Sequence[StabilityRow]) -> Table:
    lines = (
        (f"{row.setting['alpha']:g} tau {row.setting['beta']:+g}", f"{row.values['change_max']:.0e}", str(row.count))
        for row in rows
        if row.topic == "affine"
    )
    return _table("affine: how far the normalised residual goes", ("clock",), ("largest change", "count"), lines)


def _constants(rows: Sequence[StabilityRow]) -> Table:
    lines = [
        (name, *(f"{row.values[f'{name}_{factor}']:.3g}" for factor in ("gamma", "f", "A", "N", "product")))
        for row in rows
        if row.topic == "constants"
        for name in ("typical", "maximum")
    ]
    lines += [
        ("least that would do", "", "", "", "", f"{row.values['least']:.3g}")
        for row in rows
        if row.topic == "constants"
    ]
    return _table("constants of the factors", ("",), ("gamma", "f", "A", "N", "product"), lines)


def _bound(rows: Sequence[StabilityRow]) -> Table:
    """A line for each place and kind of constants: the median over all eta of the medians, else the largest."""
    groups: dict[tuple[str, str], list[StabilityRow]] = {}
    for row in rows:
        if row.topic == "bound":
            groups.setdefault((str(row.setting["level"]), str(row.setting["constants"])), []).append(row)
    lines = ((*names, *_bound_cells(group)) for names, group in groups.items())
    numbers = ("median", "mean", "p90", "max", "broken", "count")
    return _table("bound: observed over allowed, over all eta", ("level", "constants"), numbers, lines)


def _bound_cells(group: Sequence[StabilityRow]) -> Cells:
    middle = median(row.values["median"] for row in group)
    largest = (max(row.values[name] for row in group) for name in ("mean", "p90", "max"))
    broken = max(row.values["violations"] for row in group)
    return (*(f"{one:.2g}" for one in (middle, *largest)), f"{broken:.2%}", str(group[0].count))


def _margin(rows: Sequence[StabilityRow]) -> Table:
    lines = (
        (
            str(row.setting["protocol"]),
            f"{row.setting['R']:g}",
            f"{row.setting['drift']:g}",
            *(f"{row.values[name]:.3f}" for name in ("certified", "certified_product", "kept_against", "kept_random")),
            f"{row.values['certified_flips']:.0f}",
        )
        for row in rows
        if row.topic == "margin"
    )
    numbers = ("R", "drift", "certified", "by 4r+2r²", "stays, worst", "stays, chance", "certified flips")
    return _table("margin: shares of queries", ("protocol",), numbers, lines)


def _preference(rows: Sequence[StabilityRow]) -> Table:
    dominance = {_pair(row): row for row in rows if row.topic == "dominance"}
    lines = (
        (
            *_pair(row),
            f"{row.values['rate']:.3f}",
            *_dominance(dominance.get(_pair(row))),
            str(row.count),
        )
        for row in rows
        if row.topic == "preference"
    )
    numbers = ("own wins", "own mean", "other mean", "dominance broken by", "queries")
    return _table("preference: own record against right windows of others", ("scorer", "own record"), numbers, lines)


def _pair(row: StabilityRow) -> tuple[str, str]:
    return str(row.setting["scorer"]), str(row.setting["own"])


def _dominance(row: StabilityRow | None) -> Cells:
    if row is None:
        return "-", "-", "-"
    return f"{row.values['own_mean']:.3f}", f"{row.values['other_mean']:.3f}", f"{row.values['short']:.3f}"


def _protocol(rows: Sequence[StabilityRow]) -> Table:
    protocols = [row for row in rows if row.topic == "protocol"]
    best = best_scorers(protocols)
    lines = []
    for row in protocols:
        protocol, scorer = str(row.setting["protocol"]), str(row.setting["scorer"])
        is_best = "best" if scorer in best[protocol] else ""
        lines.append((protocol, scorer, _short(row.values["recall@1"]), _short(row.values["map"]), is_best))
    return _table("R@1 / mAP by protocol", ("protocol", "scorer"), ("R@1", "mAP", ""), lines)


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _table(title: str, names: Sequence[str], numbers: Sequence[str], lines: Iterable[Cells]) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    return table
