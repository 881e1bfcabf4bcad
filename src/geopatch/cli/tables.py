"""Tables for people, legible on 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from geopatch.evaluate.rows import CLASS_MEAN

if TYPE_CHECKING:
    from rich.table import Table

    from geopatch.evaluate import Summary
    from geopatch.search import Hit, Occurrence

CLASS_RECALL, CLASS_MAP = f"{CLASS_MEAN}recall@1", f"{CLASS_MEAN}map"
HEADINGS = {"recall@1": "R@1", CLASS_RECALL: "class R@1", "recall@5": "R@5", "mrr": "MRR", "map": "mAP"}
HEADINGS |= {CLASS_MAP: "class mAP"}
METRICS, BY_CLASS = ("recall@1", "recall@5", "mrr", "map"), ("recall@1", CLASS_RECALL, "mrr", "map", CLASS_MAP)
DROPS, DROPS_BY_CLASS = ("recall@1", "map"), ("recall@1", CLASS_RECALL, "map")


def print_summaries(summaries: Sequence[Summary], title: str = "retrieval on the test split") -> None:
    """A table for each preset or model and protocol, with a line for each collection, scorer and stress.

    Where a collection is imbalanced (`Summary.imbalanced`), the means over classes stand beside those over queries.
    """
    for lines in _parts(summaries):
        _console().print(_table(lines, f"{title} ({_setting(lines[0])})"))


def print_classes(summaries: Sequence[Summary], title: str = "by the class of the query") -> None:
    """R@1 and mAP of every class, with a line for each collection, scorer, stress and class."""
    for lines in _parts(summaries):
        table = _empty(
            f"{title} ({_setting(lines[0])})", ("data", "queries", "scorer", "class"), ("count", "R@1", "mAP")
        )
        for line in lines:
            for label, values in line.per_class.items():
                scores = f"{values['recall@1']:.3f}", f"{values['map']:.3f}"
                table.add_row(_data(line), _stress(line), line.scorer, label, f"{values['queries']:g}", *scores)
        _console().print(table)


def print_drops(summaries: Sequence[Summary], title: str = "under stress") -> None:
    """R@1 and mAP of each collection under each stress, with what is lost against clean queries of the same scorer."""
    for part in _parts(summaries):
        for data in dict.fromkeys(line.data for line in part):
            lines = [line for line in part if line.data == data]
            _console().print(_drop_table(lines, f"{_data(lines[0])} {title} ({_setting(lines[0])})"))


def print_hits(hits: Sequence[Hit]) -> None:
    """A line for each hit; below, what their certificates cover, each text with the ranks that it holds for."""
    console = _console()
    console.print(_hit_table(hits))
    sure = [(hit.rank, hit.certificate.covers) for hit in hits if hit.certificate is not None]
    for covers in dict.fromkeys(text for _, text in sure):
        ranks = ", ".join(str(rank) for rank, text in sure if text == covers)
        console.print(f"{ranks}: {covers}", markup=False, highlight=False, soft_wrap=True)


def print_places(numbers: Sequence[str], rows: Sequence[tuple[Sequence[object], Occurrence]]) -> None:
    """A line for each window: these numbers, then its record, wall-clock time where one is known, start and stop."""
    from rich.markup import escape

    from geopatch.times import time_text

    table, timed = _plain_table(), any(one.start_time is not None for _, one in rows)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("record", overflow="fold")
    for name in (["time"] if timed else []) + ["start s", "stop s"]:
        table.add_column(name, justify="right", no_wrap=True)
    for values, one in rows:
        shown = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
        when = ["" if one.start_time is None else time_text(one.start_time)] if timed else []
        table.add_row(*shown, escape(one.record), *when, f"{one.start_s:g}", f"{one.stop_s:g}")
    _console().print(table)


def _hit_table(hits: Sequence[Hit]) -> Table:
    from rich.markup import escape

    from geopatch.times import time_text

    table = _plain_table()
    table.add_column("#", justify="right")
    own_ids = any(not hit.id.startswith(f"{hit.record}@{hit.window_start_s:.10g}s") for hit in hits)  # else a place
    if own_ids:
        table.add_column("id", overflow="fold")
    table.add_column("record", overflow="fold")
    timed = any(hit.start_time is not None for hit in hits)
    if timed:
        table.add_column("time", no_wrap=True)
    moved = any(hit.speed is not None for hit in hits)
    for name in ("start s", "stop s", *["speed"] * moved, hits[0].scorer):
        table.add_column(name, justify="right", no_wrap=True)
    known = hits[0].chance is not None
    if known:
        table.add_column("chance", justify="right", no_wrap=True)
    certified = hits[0].certificate is not None
    if certified:
        table.add_column("radius", justify="right", no_wrap=True)
    warped = any(hit.tempo for hit in hits)
    if warped:
        table.add_column("tempo", justify="right", no_wrap=True)
    described = any(hit.metadata for hit in hits)
    if described:
        table.add_column("metadata", overflow="fold")
    for hit in hits:
        tempo = [f"{hit.tempo:+g}" if hit.tempo else "0"] if warped else []
        chance = [] if hit.chance is None else [chance_text(hit.chance)]
        radius = [] if hit.certificate is None else [_radius(hit.certificate.radius)]
        about = ", ".join(f"{name}={value}" for name, value in hit.metadata.items())
        speed = ["" if hit.speed is None else f"{hit.speed:.2f}"] if moved else []
        numbers = [f"{hit.start_s:g}", f"{hit.stop_s:g}", *speed, f"{hit.score:.3f}", *chance, *radius, *tempo]
        when = ["" if hit.start_time is None else time_text(hit.start_time)] if timed else []
        names = [escape(hit.id)] * own_ids + [escape(hit.record)]
        table.add_row(str(hit.rank), *names, *when, *numbers, *[escape(about)] * described)
    return table


def chance_text(chance: float) -> str:
    """Two digits: 2.5e-07, 0.013, 4.2, 130."""
    return f"{chance:.2g}" if chance < 99.5 else f"{chance:.0f}"


def _radius(radius: float | None) -> str:
    return "-" if radius is None else f"{radius:.4f}"


def _drop_table(lines: Sequence[Summary], title: str) -> Table:
    from geopatch.evaluate.stress import ROW_NAMES

    metrics = DROPS_BY_CLASS if any(line.imbalanced for line in lines) else DROPS
    headings = [heading for metric in metrics for heading in (HEADINGS[metric], "drop")]
    table = _empty(title, ("stress", "scorer"), (*headings, "seeds"))
    for line in lines:
        stress = ROW_NAMES.get(line.stress, line.stress)
        table.add_row(stress, line.scorer, *_drops(line, lines, metrics), str(line.seeds))
    return table


def _drops(line: Summary, lines: Sequence[Summary], metrics: Sequence[str]) -> Iterator[str]:
    """Each score, and what it lost against clean."""
    clean = next((other for other in lines if (other.stress, other.scorer) == ("clean", line.scorer)), line)
    for metric in metrics:
        yield _score(line, metric)
        known = clean is not line and metric in clean.scores and metric in line.scores
        yield f"{round(clean.scores[metric] - line.scores[metric], 3) + 0.0:.3f}" if known else ""  # no -0.000


def _parts(summaries: Sequence[Summary]) -> Iterator[list[Summary]]:
    """The lines of each preset and protocol."""
    for setting in dict.fromkeys(map(_setting, summaries)):
        yield [line for line in summaries if _setting(line) == setting]


def _setting(line: Summary) -> str:
    return line.preset if line.protocol == "standard" else f"{line.preset}, {line.protocol}"


def _table(lines: Sequence[Summary], title: str) -> Table:
    """Mean over seeds, and below it their spread where there are several."""
    metrics = BY_CLASS if any(line.imbalanced for line in lines) else METRICS
    headings = [HEADINGS[metric] for metric in metrics]
    table = _empty(title, ("data", "queries", "scorer"), (*headings, "seeds"))
    for line in lines:
        scores = [_score(line, metric) for metric in metrics]
        table.add_row(_data(line), _stress(line), line.scorer, *scores, str(line.seeds))
    return table


def _empty(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table with columns of names, of which the first may be folded, and of numbers."""
    table = _plain_table(title=title, title_justify="left")
    for place, name in enumerate(names):
        table.add_column(name, overflow="fold", no_wrap=place > 0)
    for name in numbers:
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    return table


def _data(line: Summary) -> str:
    return line.data.removesuffix("_TEST")


def _stress(line: Summary) -> str:
    """The stress of the queries as it is shown: the plain warp is called warped."""
    return "warped" if line.stress == "warped queries" else line.stress


def _score(line: Summary, metric: str) -> str:
    if metric not in line.scores:  # rows from before it was measured
        return "-"
    value = f"{line.scores[metric]:.3f}"
    return value if line.seeds == 1 else f"{value}\n±{_spread(line.spread[metric])}"


def _spread(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _console() -> Any:
    from rich.console import Console

    return Console()


def _plain_table(**settings: Any) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, **settings)
