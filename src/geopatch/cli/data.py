"""geopatch data list | info | prepare"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from geopatch.cli import options
from geopatch.data import catalog
from geopatch.data.catalog import CATALOG, DataSet
from geopatch.data.inventory import Inventory, take_inventory
from geopatch.data.source import Report
from geopatch.signal import Signal

MOST_CLASSES_SHOWN = 8

cache = click.option(
    "--cache",
    envvar="GEOPATCH_CACHE",
    default="cache",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for what is prepared (or the variable GEOPATCH_CACHE).",
)


@click.group("data", short_help="List, describe and prepare the data sets that have a name.")
def command() -> None:
    """Data sets that have a name: what they are, what is there, and their windows made ready."""


@command.command("list")
@options.data_root
@options.as_json
def list_sets(data_root: Path, as_json: bool) -> None:
    """Every data set of the catalog, and the archive's sets under the data root."""
    names = catalog.names(data_root)
    sets = [catalog.data_set(name) for name in names]
    if as_json:
        click.echo(json.dumps([{**_described(found), "there": found.is_there(data_root)} for found in sets]))
        return
    table = _table(f"data sets under {data_root}", "name", "there", "what", "windows", "targets")
    for found in CATALOG.values():
        there = "yes" if found.is_there(data_root) else "no"
        table.add_row(found.name, there, found.what, found.windows, ", ".join(found.targets))
    Console().print(table)
    archive = names[len(CATALOG) :]
    if archive:
        click.echo(f"of the UEA/UCR archive, whole series, target class ({len(archive)}): {', '.join(archive)}")


@command.command("info")
@click.argument("name")
@options.data_root
@options.as_json
def info(name: str, data_root: Path, as_json: bool) -> None:
    """What the data set NAME is, and its windows counted by target and class. Nothing is downloaded."""
    found = catalog.data_set(name)
    with _bar(quiet=as_json) as report:
        split = catalog.windows(name, data_root, download=None, report=report)
    parts = {part: take_inventory(windows) for part, windows in split.parts().items()}
    if as_json:
        counted = {part: dataclasses.asdict(inventory) for part, inventory in parts.items()}
        click.echo(json.dumps({**_described(found), "parts": counted}))
        return
    for line in (found.what, f"home: {found.home}", f"licence: {found.licence}", f"split: {found.split}"):
        click.echo(line)
    Console().print(_parts_table(parts))
    Console().print(_classes_table(parts))


@command.command("prepare")
@click.argument("names", nargs=-1, required=True)
@cache
@options.data_root
@options.as_json
def prepare(names: Sequence[str], cache: Path, data_root: Path, as_json: bool) -> None:
    """Make the windows of the data sets NAMES ready to train and evaluate; what is absent is downloaded first."""
    for name in names:
        catalog.locate(name, data_root)
    from geopatch.data.prepare import prepare as make

    with _bar(quiet=as_json) as report:
        for name in names:
            make(name, data_root, cache, report=report)
    told = {"prepared": list(names), "cache": str(cache)}
    click.echo(json.dumps(told) if as_json else f"prepared {', '.join(names)} in {cache}")


def _described(found: DataSet) -> dict[str, Any]:
    kept = ("name", "what", "home", "licence", "windows", "split", "targets")
    return {field: getattr(found, field) for field in kept}


def _parts_table(parts: Mapping[str, Inventory]) -> Table:
    table = _table("windows", "side", "windows", "records", "recorded", "rate", "channels", "samples a window")
    for part, found in parts.items():
        span = f"{found.shortest}" if found.shortest == found.longest else f"{found.shortest} to {found.longest}"
        timed = found.rate_hz != Signal.rate_hz  # archive files do not say how fast they were sampled
        recorded, rate = (_duration(found.recorded_s), f"{found.rate_hz:g} Hz") if timed else ("-", "-")
        table.add_row(part, str(found.windows), str(len(found.records)), recorded, rate, str(found.channels), span)
    return table


def _classes_table(parts: Mapping[str, Inventory]) -> Table:
    table = _table("windows of each class", "target", "side", "classes", "windows")
    for target in next(iter(parts.values())).targets:
        for part, found in parts.items():
            counts = found.targets[target]
            table.add_row(target, part, str(len(counts)), _counts(counts))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    if len(counts) <= MOST_CLASSES_SHOWN:
        return ", ".join(f"{name} {count}" for name, count in counts.items())
    low, high = min(counts.values()), max(counts.values())
    return f"{low} each" if low == high else f"{low} to {high} each"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Report | None]:
    """A bar on stderr for each thing that is read; on a stream that is no terminal, one line at its end."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        yield lambda what, done, total: console.print(f"{what}: {done} of {total}") if done == total else None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bars:
            tasks: dict[str, Any] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], total=total, completed=done)

            yield report
