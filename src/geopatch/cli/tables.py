"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from geopatch.evaluate import Summary

METRICS = ("recall@1", "recall@5", "mrr", "map")


def print_summaries(summaries: Sequence[Summary], title: str = "retrieval on the test split") -> None:
    """One line for each collection, scorer and stress: mean over seeds, and their spread where there are several."""
    table = Table(title=title)
    for name in ("data", "preset", "queries", "scorer"):
        table.add_column(name)
    for name in (*METRICS, "seeds", "fit"):
        table.add_column(name, justify="right")
    for line in summaries:
        scores = [_score(line, metric) for metric in METRICS]
        stress = "clean" if line.stress == "clean" else "warped"
        table.add_row(line.data, line.preset, stress, line.scorer, *scores, str(line.seeds), f"{line.fit_s:.0f} s")
    Console().print(table)


def _score(line: Summary, metric: str) -> str:
    value = f"{line.scores[metric]:.3f}"
    return value if line.seeds == 1 else f"{value} ±{line.spread[metric]:.3f}"
