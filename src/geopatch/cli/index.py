"""geopatch index"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.cli.reading import metadata_flags, read_flags, read_options

if TYPE_CHECKING:
    from geopatch.indexing.settings import IndexReport

NAMES_SHOWN = 3


@click.command("index", short_help="Make a searchable gallery of a folder of recordings.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="GALLERY", help="The gallery: a folder, or postgresql://...")
@click.option("--window-s", type=float, help="Seconds of a window; by default a length that the data suggest.")
@click.option("--shortest-s", type=float, help="Seconds of the shortest windows, for queries below --window-s.")
@click.option("--longest-s", type=float, help="Seconds of the longest windows, for queries above --window-s.")
@click.option("--whole", is_flag=True, help="Make each recording one window.")
@click.option("--overlap", type=float, help="Share of a window that the next one repeats.  [default: 0.5]")
@click.option("--band-hz", type=(float, float), metavar="LOW HIGH", help="Filter recordings and queries to this band.")
@click.option(
    "--anchors",
    type=click.Choice(("annotated", "detected", "auto", "none")),
    help="Marks of a clock: as files bring them (annotated), detected, or detected where there are none (auto).",
)
@metadata_flags
@click.option("--labels", metavar="COLUMN", help="Metadata that says what is alike: trains a half beside the kernels.")
@click.option("--prune", is_flag=True, help="Remove what came from files that are gone.")
@click.option("--cluster", metavar="ADDRESS", help="Encode with the workers of a Dask scheduler, as tcp://HOST:8786.")
@read_flags
@options.device
@options.as_json
def command(
    paths: Sequence[Path],
    out: str,
    window_s: float | None,
    shortest_s: float | None,
    longest_s: float | None,
    whole: bool,
    overlap: float | None,
    band_hz: tuple[float, float] | None,
    anchors: str | None,
    metadata: Path | None,
    pattern: str | None,
    labels: str | None,
    prune: bool,
    cluster: str | None,
    device: str,
    as_json: bool,
    **flags: Any,
) -> None:
    """Make a gallery of the recordings in PATHS: files, or folders with everything below them.

    It reads the recordings, fits a model on a sample of their windows, without labels, and encodes all of them. Given
    again, it takes only what is new or changed; a run that was interrupted goes on where it stopped. A file that
    cannot be used is named with the reason, and the others are taken. Then: geopatch search GALLERY --record NAME
    --start 12:03:10 --stop 12:03:14.
    """
    from geopatch.data.metadata import MetadataTable, PathPattern
    from geopatch.indexing.folder import index_files
    from geopatch.indexing.settings import IndexSettings, Listener
    from geopatch.progress import indexing_bar

    settings = IndexSettings(
        reading=read_options(flags),
        window_s=window_s,
        shortest_s=shortest_s,
        longest_s=longest_s,
        whole=whole,
        overlap=overlap,
        band_hz=band_hz,
        anchors=anchors,
        table=None if metadata is None else MetadataTable.read(metadata),
        pattern=None if pattern is None else PathPattern(pattern),
        labels=labels,
        prune=prune,
        device=device,
        cluster=cluster,
    )
    with indexing_bar(quiet=as_json) as bar:
        listener = Listener(bar.say, lambda line: bar.say(f"skipped {line}"), bar.update)
        report = index_files(list(paths), out, settings, listener, progress=not as_json)
    click.echo(json.dumps(report.as_dict()) if as_json else "\n".join(_lines(report)))


def _lines(report: IndexReport) -> Iterator[str]:
    """What became of the files."""
    if report.recordings:
        yield f"took {_count(report.recordings, 'recording')} of {report.duration_s / 3600:.3g} h{_details(report)}"
    taken = [
        f"{len(names)} {what}"
        for what, names in (
            ("new", report.added),
            ("changed", report.changed),
            ("unchanged", report.unchanged),
            ("with other metadata", report.relabelled),
            ("gone", report.gone),
            ("skipped", report.refused),
        )
        if names
    ]
    removed = f", removed {report.removed}" if report.removed else ""
    yield f"files: {', '.join(taken)}; wrote {report.written} windows{removed}; {report.place} has {report.windows}"


def _details(report: IndexReport) -> str:
    parts = []
    if report.gaps_s:
        parts.append(f"gaps of {sum(report.gaps_s.values()):.3g} s in {_some(list(report.gaps_s))}")
    for rate_hz in dict.fromkeys(report.resampled.values()):
        parts.append(
            f"{rate_hz:g} Hz resampled in {_some([name for name, own in report.resampled.items() if own == rate_hz])}"
        )
    if report.untimed:
        parts.append(f"no rate of its own, taken as the others have it, in {_some(report.untimed)}")
    return f"; {'; '.join(parts)}" if parts else ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
