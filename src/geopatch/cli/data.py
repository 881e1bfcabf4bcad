"""geopatch data list | info | prepare"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from geopatch.cli import options
from geopatch.data import catalog
from geopatch.data.catalog import CATALOG, DataSet
from geopatch.data.collection import Inventory, take_inventory
from geopatch.data.prepare import prepare as make
from geopatch.data.recording import ANCHORS, WindowConfig
from geopatch.errors import ConfigError
from geopatch.progress import counting_bars

MOST_CLASSES_SHOWN = 8


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
    with counting_bars(quiet=as_json) as report:
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
@click.option("--rate-hz", type=float, help="Of recordings: resample to it.  [default: 128]")
@click.option("--length-s", type=float, help="Of recordings: how long a window is.  [default: 2]")
@click.option("--overlap", type=float, help="Of recordings: share of a window that the next repeats.  [default: 0.5]")
@click.option("--band", help="Of recordings: keep what lies between two frequencies, like 0.5,40.  [default: all]")
@click.option("--anchors", type=click.Choice(ANCHORS), help="Of recordings: beats for the clock.  [default: annotated]")
@options.cache
@options.data_root
@options.as_json
def prepare(names: Sequence[str], cache: Path, data_root: Path, as_json: bool, band: str | None, **given: Any) -> None:
    """Make the windows of the data sets NAMES ready to train and evaluate; what is absent is downloaded first.

    What is there already is made anew only when its source or these settings have changed.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    if band is not None:
        settings["band_hz"] = _band(band)
    configs = {name: _config(name, settings) for name in names}
    for name in names:
        catalog.locate(name, data_root)
    told = []
    for name in names:
        with counting_bars(quiet=as_json) as report:
            found = make(name, data_root, cache, config=configs[name], report=report)
        windows = {split: len(found.cache.signals(split)) for split in found.cache.splits}
        told.append({"name": name, "folder": str(found.cache.folder), "built": found.built, "windows": windows})
        if not as_json:
            counts = ", ".join(f"{count} {split} windows" for split, count in windows.items())
            click.echo(f"{name}: {counts} in {found.cache.folder}{'' if found.built else ' (nothing had changed)'}")
    if as_json:
        click.echo(json.dumps(told))


def _config(name: str, settings: Mapping[str, Any]) -> WindowConfig | None:
    """The settings that were given on top of the defaults; None leaves a cache that is there as it is."""
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


def _described(found: DataSet) -> dict[str, Any]:
    kept = ("name", "what", "home", "licence", "windows", "split", "targets")
    return {field: getattr(found, field) for field in kept}


def _parts_table(parts: Mapping[str, Inventory]) -> Table:
    table = _table("windows", "side", "windows", "records", "recorded", "rate", "channels", "samples a window")
    for part, found in parts.items():
        span = f"{found.shortest}" if found.shortest == found.longest else f"{found.shortest} to {found.longest}"
        timed = found.rate_hz is not None  # archive files do not say how fast they were sampled
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
