"""Markdown tables from result rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geopatch.evaluate.rows import CLASS_MEAN, Row, Summary, summarise
from geopatch.scoring import SCORERS
from geopatch_lab.rival import SCORER as OWN

HEADINGS = {("clean", "cosine"): "clean, cosine", ("clean", "fused"): "clean, fused"}
HEADINGS |= {("warped queries", "cosine"): "warped, cosine", ("warped queries", "fused"): "warped, fused"}


def results_page(rows: Sequence[Row]) -> str:
    """A table of R@1 / mAP for each preset and protocol, and what the rows say about how they came to be.

    Where a collection is imbalanced (`Summary.imbalanced`), the means over classes stand below those over queries.
    """
    summaries = summarise(rows)
    settings = list(dict.fromkeys((line.preset, line.protocol) for line in summaries))
    parts = [_table([line for line in summaries if (line.preset, line.protocol) == setting]) for setting in settings]
    return "\n\n".join([*parts, provenance(rows)]) + "\n"


def scorer_table(rows: Sequence[Row], first: str, name: Callable[[Summary], str]) -> str:
    """R@1 / mAP of every scorer, a line for each name that `name` gives; by class below where it is imbalanced."""
    summaries = summarise(rows)
    scorers = [scorer for scorer in SCORERS if any(line.scorer == scorer for line in summaries)]
    return _grid(first, scorers, [(name(line), line.scorer, line) for line in summaries])


def method_table(rows: Sequence[Row]) -> str:
    """R@1 / mAP of every method and scorer, a column for each stress: ours beside baselines."""
    summaries = summarise(rows)
    stresses = list(dict.fromkeys(line.stress for line in summaries))
    return _grid("method: R@1 / mAP", stresses, [(_method(line), line.stress, line) for line in summaries])


def _method(line: Summary) -> str:
    return line.preset if line.scorer == OWN else f"GeoPatch {line.preset}, {line.scorer}"


def _grid(first: str, columns: Sequence[str], cells: Sequence[tuple[str, str, Summary]]) -> str:
    """Summaries by the name of their line and of their column."""
    lines: dict[str, dict[str, Summary]] = {}
    for name, column, summary in cells:
        lines.setdefault(name, {})[column] = summary
    body = []
    for name, by_column in lines.items():
        row_cells = " | ".join(_cell(by_column.get(column)) for column in columns)
        body.append(f"| {name} | {next(iter(by_column.values())).seeds} | {row_cells} |")
    return "\n".join([f"| {first} | seeds | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns), *body])


def class_table(rows: Sequence[Row]) -> str:
    """R@1 / mAP by the class of the query, a line for each class and a column for each protocol."""
    summaries = summarise(rows)
    classes = list(dict.fromkeys(label for line in summaries for label in line.per_class))
    head = f"| class | queries | {' | '.join(f'{line.protocol}, {line.scorer}' for line in summaries)} |"
    rule = "|---|---|" + "---|" * len(summaries)
    body = []
    for label in classes:
        values = [line.per_class.get(label) for line in summaries]
        cells = " | ".join("-" if one is None else f"{one['recall@1']:.3f} / {one['map']:.3f}" for one in values)
        body.append(f"| {label} | {next(one['queries'] for one in values if one):.0f} | {cells} |")
    return "\n".join([head, rule, *body])


def _table(lines: Sequence[Summary]) -> str:
    names = list(dict.fromkeys(line.data for line in lines))
    protocol = "" if lines[0].protocol == "standard" else f", {lines[0].protocol}"
    head = f"| `{lines[0].preset}` preset{protocol}, R@1 / mAP | seeds | {' | '.join(HEADINGS.values())} | fit |"
    rule = "|---|---|" + "---|" * len(HEADINGS) + "---|"
    return "\n".join([head, rule, *(_line(name, [line for line in lines if line.data == name]) for name in names)])


def _line(name: str, lines: Sequence[Summary]) -> str:
    by_setting = {(line.stress, line.scorer): line for line in lines}
    cells = " | ".join(_cell(by_setting.get(key)) for key in HEADINGS)
    shown = name.removesuffix("_TEST")
    return f"| {shown} | {lines[0].seeds} | {cells} | {lines[0].fit_s / 60:.1f} min |"


def _cell(line: Summary | None) -> str:
    if line is None:
        return "-"
    text = f"{line.scores['recall@1']:.3f} / {line.scores['map']:.3f}"
    if not line.imbalanced:
        return text
    means = [line.scores[f"{CLASS_MEAN}{name}"] for name in ("recall@1", "map")]
    return f"{text}<br>by class {means[0]:.3f} / {means[1]:.3f}"


def provenance(rows: Sequence[Row]) -> str:
    versions = sorted({", ".join(f"{name} {number}" for name, number in row.versions.items()) for row in rows})
    protocols = sorted({f"{row.protocol} ({row.protocol_digest})" for row in rows})
    configs = sorted({f"{row.preset} {row.config_digest}" for row in rows if row.config_digest})
    without = sum(row.without_positive for row in rows if (row.scorer, row.stress) == ("cosine", "clean"))
    return (
        f"Protocol {', '.join(protocols)}; config digests {', '.join(configs)}; devices "
        f"{', '.join(sorted({row.device for row in rows}))}; {'; '.join(versions)}. Queries without a right candidate, "
        f"left out of the means: {without}. Failed runs: {sum(row.failures for row in rows)}."
    )
