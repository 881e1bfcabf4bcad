"""Flags of the verbs that read files of a user: columns, units and rate, and where metadata come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.data.reading import RecordingFile
    from geopatch.read_options import ReadOptions

Command = TypeVar("Command", bound=Callable[..., Any])

NAMES = ("time", "id", "channels", "units", "rate_hz")


def read_flags(command: Command) -> Command:
    """--time, --id, --channels, --units and --rate-hz, as `read_options` takes them."""
    id = click.option("--id", help="The column that names the recording of each row; none: there is no such.")
    return file_flags(id(command))


def file_flags(command: Command) -> Command:
    """The same without --id, which says another thing of a query."""
    flags = (
        click.option("--time", help="The column of times, where its name does not say so; none: there is no such."),
        click.option(
            "--channels", metavar="NAME,NAME,...", help="The channels to read, in this order.  [default: all]"
        ),
        click.option(
            "--units", metavar="NAME=UNIT,...", help="The unit of channels (and of the time column: s, ms, us or ns)."
        ),
        click.option("--rate-hz", type=float, help="Samples a second, for files that do not say it."),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


def metadata_flags(command: Command) -> Command:
    """--metadata and --metadata-from-path, as `metadata_reader` takes them."""
    table = click.option(
        "--metadata",
        type=click.Path(path_type=Path),
        help="A table with a row for each recording, found by its id or file name.",
    )
    pattern = click.option(
        "--metadata-from-path", "pattern", help="Fields in the path of each file, as in: {site}/{subject}/*"
    )
    return table(pattern(command))


def read_options(flags: Mapping[str, Any]) -> ReadOptions:
    """What the flags say of the files; `flags` may hold others besides."""
    from geopatch.read_options import ReadOptions

    channels, units = flags["channels"], flags["units"]
    return ReadOptions(
        flags["time"],
        flags.get("id"),
        None if channels is None else tuple(name.strip() for name in channels.split(",") if name.strip()),
        None if units is None else _units(units),
        flags["rate_hz"],
    )


def _units(text: str) -> dict[str, str] | tuple[str, ...]:
    """x=mV,y=g by name, or mV,g in the order of the channels."""
    parts = [part.strip() for part in text.split(",")]
    named = ["=" in part for part in parts]
    if any(named) and not all(named):
        raise ConfigError(f"--units takes NAME=UNIT,... or UNIT,UNIT,..., got {text!r}")
    return dict(tuple(map(str.strip, part.split("=", 1))) for part in parts) if all(named) else tuple(parts)  # type: ignore[misc]


def metadata_reader(table: Path | None, pattern: str | None) -> Callable[[RecordingFile], RecordingFile]:
    """A function that gives the recordings of a file what a table and its path say of them besides."""
    from geopatch.data.metadata import MetadataTable, PathPattern, with_metadata

    rows = None if table is None else MetadataTable.read(table)
    fields = None if pattern is None else PathPattern(pattern)
    return lambda read: with_metadata(read, rows, fields)
