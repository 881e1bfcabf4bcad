"""Tables for people, legible on 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from geopatch.evaluate import Summary

METRICS = {"recall@1": "R@1", "recall@5": "R@5", "mrr": "MRR", "map": "mAP"}


def print_summaries(summaries: Sequence[Summary], title: str = "retrieval on the test split") -> None:
    """A table for each preset or model, with a line for each collection, scorer and stress."""
    console = Console()
    for preset in dict.fromkeys(line.preset for line in summaries):
        lines = [line for line in summaries if line.preset == preset]
        console.print(_table(lines, f"{title} ({preset})"))


def _table(lines: Sequence[Summary], title: str) -> Table:
    """Mean over seeds, and below it their spread where there are several."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    table.add_column("data", overflow="fold")
    for name in ("queries", "scorer"):
        table.add_column(name, no_wrap=True)
    for name in (*METRICS.values(), "seeds"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        stress = "clean" if line.stress == "clean" else "warped"
        scores = [_score(line, metric) for metric in METRICS]
        table.add_row(line.data.removesuffix("_TEST"), stress, line.scorer, *scores, str(line.seeds))
    return table


def _score(line: Summary, metric: str) -> str:
    value = f"{line.scores[metric]:.3f}"
    return value if line.seeds == 1 else f"{value}\n±{_spread(line.spread[metric])}"


def _spread(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
