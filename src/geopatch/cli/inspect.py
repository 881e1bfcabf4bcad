"""geopatch inspect"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options, reading

if TYPE_CHECKING:
    from geopatch.data.reading import InputFile, RecordingFile
    from geopatch.errors import DataError

MOST_SHOWN = 5  # recordings of one file


@click.command("inspect", short_help="Show what would be read of files or folders.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@reading.read_flags
@reading.metadata_flags
@options.as_json
def command(paths: Sequence[Path], metadata: Path | None, pattern: str | None, as_json: bool, **flags: Any) -> None:
    """Show what would be read of PATHS: recordings, channels, units, rate, duration, start, gaps, and what is skipped.

    PATHS are files, folders with everything below them, or WFDB records. Nothing is written.
    """
    from geopatch.data.reading import read_recordings

    complete = reading.metadata_reader(metadata, pattern)
    skipped: list[tuple[InputFile, DataError]] = []
    described = []
    for read in read_recordings(paths, reading.read_options(flags), skip=lambda *pair: skipped.append(pair)):
        one = describe(complete(read))
        described.append(one)
        if not as_json:
            _print(one)
    left_out = [{"file": str(file.path), "why": str(error)} for file, error in skipped]
    if as_json:
        click.echo(json.dumps({"files": described, "skipped": left_out}))
        return
    for row in left_out:
        click.echo(f"skipped {row['why']}")
    recordings = [recording for one in described for recording in one["recordings"]]
    click.echo(_summary(len(described), recordings, len(left_out)))


def describe(read: RecordingFile) -> dict[str, Any]:
    """What one file holds, as plain values."""
    import numpy as np

    recordings = []
    for n, (signal, metadata) in enumerate(zip(read.signals, read.metadata, strict=True)):
        missing = int(np.isnan(signal.values).all(axis=1).sum())
        recordings.append(
            {
                "id": signal.id,
                "samples": signal.length,
                "rate_hz": signal.rate_hz,
                "duration_s": None if signal.rate_hz is None else signal.duration_s,
                "channels": list(signal.channels) or signal.values.shape[1],
                "units": None if signal.units is None else list(signal.units),
                "start": None if signal.start_time is None else signal.start_time.isoformat(),
                "gap_samples": missing,
                "label": None if read.labels is None else str(read.labels[n]),
                "metadata": dict(metadata),
            }
        )
    return {
        "file": str(read.file.path),
        "digest": read.file.digest,
        "recordings": recordings,
        "notes": list(read.notes),
    }


def _print(one: dict[str, Any]) -> None:
    click.echo(one["file"])
    for recording in one["recordings"][:MOST_SHOWN]:
        click.echo(f"  {line_of(recording)}")
    if len(one["recordings"]) > MOST_SHOWN:
        click.echo(f"  and {len(one['recordings']) - MOST_SHOWN} more recordings")
    for note in one["notes"]:
        click.echo(f"    {note}")


def line_of(recording: dict[str, Any]) -> str:
    """One recording in a line."""
    rate_hz, samples = recording["rate_hz"], recording["samples"]
    parts = [f"{samples} samples"]
    if rate_hz is not None:
        parts = [f"{duration_text(recording['duration_s'])} at {rate_hz:g} Hz"]
    parts.append(_channel_text(recording["channels"], recording["units"]))
    if recording["start"]:
        parts.append(f"from {recording['start'].replace('T', ' ').removeprefix('1900-01-01 ')}")
    if recording["gap_samples"]:
        gap = recording["gap_samples"]
        parts.append(f"gaps of {gap} samples" if rate_hz is None else f"gaps of {duration_text(gap / rate_hz)}")
    if recording["label"] is not None:
        parts.append(f"label {recording['label']}")
    parts += [f"{name}={value}" for name, value in recording["metadata"].items()]
    return f"{recording['id']}: {', '.join(parts)}"


def _channel_text(channels: list[str] | int, units: list[str] | None) -> str:
    if isinstance(channels, int):
        return f"{channels} channel{'s' * (channels > 1)} without names"
    own = units or [""] * len(channels)
    named = [f"{name} [{unit}]" if unit else name for name, unit in zip(channels, own, strict=True)]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    return f"{len(named)} channel{'s' * (len(named) > 1)} ({', '.join(named[:8])}{more})"


def duration_text(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.4g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _summary(files: int, recordings: list[dict[str, Any]], skipped: int) -> str:
    timed = [recording["duration_s"] for recording in recordings if recording["duration_s"] is not None]
    text = f"{len(recordings)} recording{'s' * (len(recordings) != 1)} in {files} file{'s' * (files != 1)}"
    if timed:
        text += f", {duration_text(sum(timed))} in all"
    rates = sorted({f"{recording['rate_hz']:g} Hz" for recording in recordings if recording["rate_hz"] is not None})
    if len(rates) > 1:
        text += f", at different rates ({', '.join(rates[:5])})"
    sets = {json.dumps(recording["channels"]) for recording in recordings}
    if len(sets) > 1:
        text += f", with {len(sets)} different sets of channels"
    return f"{text}; {skipped} skipped" if skipped else text
