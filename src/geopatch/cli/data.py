"""geopatch data list | info | prepare"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from geopatch.data.catalog import DataSet
    from geopatch.data.collection import Inventory
    from geopatch.data.recording import WindowConfig

MOST_CLASSES_SHOWN = 8


@click.group("data", short_help="List, describe and prepare the data sets that have a name.")
def command() -> None:
    """Data sets that have a name: what they are, what is there, and their windows made ready."""


@command.command("list")
@options.data_root
@options.as_json
def list_sets(data_root: Path, as_json: bool) -> None:
    """List every data set of the catalog, and the archive's sets under the data root."""
    from rich.console import Console

    from geopatch.data import catalog
    from geopatch.data.catalog import CATALOG

    names = catalog.names(data_root)
    sets = [catalog.data_set(name) for name in names]
    if as_json:
        click.echo(json.dumps([{**_described(entry), "there": entry.is_there(data_root)} for entry in sets]))
        return
    table = _table(f"data sets under {data_root}", "name", "there", "what", "windows", "targets")
    for entry in CATALOG.values():
        there = "yes" if entry.is_there(data_root) else "no"
        table.add_row(entry.name, there, entry.what, entry.windows, ", ".join(entry.targets))
    Console().print(table)
    archive = names[len(CATALOG) :]
    if archive:
        click.echo(f"of the UEA/UCR archive, whole series, target class ({len(archive)}): {', '.join(archive)}")


@command.command("info")
@click.argument("name")
@options.data_root
@options.as_json
def info(name: str, data_root: Path, as_json: bool) -> None:
    """Describe the data set NAME, and count its windows by target and class. Nothing is downloaded."""
    from rich.console import Console

    from geopatch.data import catalog
    from geopatch.data.collection import take_inventory
    from geopatch.progress import counting_bars

    entry = catalog.data_set(name)
    with counting_bars(quiet=as_json) as report:
        split = catalog.windows(name, data_root, download=None, report=report)
    parts = {part: take_inventory(windows) for part, windows in split.parts().items()}
    if as_json:
        counted = {part: dataclasses.asdict(inventory) for part, inventory in parts.items()}
        click.echo(json.dumps({**_described(entry), "parts": counted}))
        return
    for line in (entry.what, f"home: {entry.home}", f"licence: {entry.licence}", f"split: {entry.split}"):
        click.echo(line)
    Console().print(_parts_table(parts))
    Console().print(_classes_table(parts))


@command.command("prepare")
@click.argument("names", nargs=-1, required=True)
@click.option("--rate-hz", type=float, help="Resample recordings to this rate.  [default: 128]")
@click.option("--length-s", type=float, help="Seconds of a window of a recording.  [default: 2]")
@click.option("--overlap", type=float, help="Share of a window that the next one repeats, 0 to 0.99.  [default: 0.5]")
@click.option("--band", help="Band-pass recordings between two frequencies, like 0.5,40.  [default: no filter]")
@click.option(
    "--anchors",
    metavar="annotated|detected|none",
    help="Which beats mark the clock of a recording: those of its annotations, those of a detector, or none.  "
    "[default: annotated]",
)
@options.cache
@options.data_root
@options.as_json
def prepare(names: Sequence[str], cache: Path, data_root: Path, as_json: bool, band: str | None, **window: Any) -> None:
    """Make the windows of the data sets NAMES ready to train and evaluate; what is absent is downloaded first.

    What is there already is made anew only when its source or these settings have changed.
    """
    from geopatch.data import catalog
    from geopatch.data.prepare import prepare as make
    from geopatch.progress import counting_bars

    settings = {name: value for name, value in window.items() if value is not None}
    if band is not None:
        settings["band_hz"] = _band(band)
    configs = {name: _config(name, settings) for name in names}
    for name in names:
        catalog.locate(name, data_root)
    rows = []
    for name in names:
        with counting_bars(quiet=as_json) as report:
            prepared = make(name, data_root, cache, config=configs[name], report=report)
        folder, built = prepared.cache.folder, prepared.built
        windows = {split: len(prepared.cache.signals(split)) for split in prepared.cache.splits}
        rows.append({"name": name, "folder": str(folder), "built": built, "windows": windows})
        if not as_json:
            counts = ", ".join(f"{count} {split} windows" for split, count in windows.items())
            click.echo(f"{name}: {counts} in {folder}{'' if built else ' (nothing had changed)'}")
    if as_json:
        click.echo(json.dumps(rows))


def _config(name: str, settings: Mapping[str, Any]) -> WindowConfig | None:
    """The changed settings on top of the defaults; None leaves a cache that is there as it is."""
    from geopatch.data import catalog
    from geopatch.data.recording import WindowConfig

    if not settings:
        return None
    default = catalog.data_set(name).config
    if not isinstance(default, WindowConfig):
        raise ConfigError(f"{name} has whole series, not recordings; leave {', '.join(settings)} out")
    return dataclasses.replace(default, **settings)


def _band(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"band must be two frequencies like 0.5,40, got {text!r}") from error
    return low, high


def _described(entry: DataSet) -> dict[str, Any]:
    kept = ("name", "what", "home", "licence", "windows", "split", "targets")
    return {field: getattr(entry, field) for field in kept}


def _parts_table(parts: Mapping[str, Inventory]) -> Table:
    table = _table("windows", "side", "windows", "records", "recorded", "rate", "channels", "samples a window")
    for part, counts in parts.items():
        span = f"{counts.shortest}" if counts.shortest == counts.longest else f"{counts.shortest} to {counts.longest}"
        timed = counts.rate_hz is not None  # archive files do not say how fast they were sampled
        recorded, rate = (_duration(counts.recorded_s), f"{counts.rate_hz:g} Hz") if timed else ("-", "-")
        table.add_row(part, str(counts.windows), str(len(counts.records)), recorded, rate, str(counts.channels), span)
    return table


def _classes_table(parts: Mapping[str, Inventory]) -> Table:
    table = _table("windows of each class", "target", "side", "classes", "windows")
    for target in next(iter(parts.values())).targets:
        for part, inventory in parts.items():
            counts = inventory.targets[target]
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
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
