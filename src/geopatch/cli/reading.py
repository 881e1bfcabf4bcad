"""Flags that say what files do not say themselves: which column is what, the rate, units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.read_options import ReadOptions

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS = (
    click.option("--time", "time_column", metavar="NAME", help="The column of times; none where there is none."),
    click.option("--channels", metavar="NAME,NAME,...", help="The channels to read, in this order; by default all."),
    click.option("--units", metavar="UNIT,UNIT,...", help="Units of the channels in their order, or NAME=UNIT."),
    click.option("--rate-hz", type=float, help="Samples a second, for files that do not say it."),
)


ID_FLAG = click.option(
    "--id", "id_column", metavar="NAME", help="The column that names the recording of each row, or none."
)


def read_flags(command: Command) -> Command:
    """Flags for `read_options`."""
    return file_flags(ID_FLAG(command))


def file_flags(command: Command) -> Command:
    """The same without --id, which says something else of a query."""
    for flag in reversed(FLAGS):
        command = flag(command)
    return command


def read_options(flags: Mapping[str, Any]) -> ReadOptions:
    """What the flags say."""
    from geopatch.read_options import ReadOptions

    channels = flags["channels"]
    names = None if channels is None else tuple(name.strip() for name in channels.split(",") if name.strip())
    return ReadOptions(flags["time_column"], flags.get("id_column"), names, _units(flags["units"]), flags["rate_hz"])


def _units(text: str | None) -> Mapping[str, str] | tuple[str, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return tuple(parts)
    if not all("=" in part for part in parts):
        raise ConfigError(f"--units takes a unit for each channel in order, or NAME=UNIT for each, got {text!r}")
    return {name.strip(): unit.strip() for name, _, unit in (part.partition("=") for part in parts)}
