"""geopatch watch"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TextIO

import click

from geopatch.cli import options
from geopatch.errors import ConfigError, SignalError

if TYPE_CHECKING:
    from geopatch.gallery import Gallery
    from geopatch.search import Span
    from geopatch.signal import Signal
    from geopatch.watching.watcher import Alarm

MOST_LINES = 8_192  # that are looked at together


@click.command("watch", short_help="Say when something happens again in a running stream.")
@click.argument("gallery")
@click.option("--query", type=click.Path(path_type=Path), help="A file with what to watch for.")
@click.option("--id", help="Or a window of the gallery, by its id.")
@click.option("--record", help="Or a part of a record whose windows are in the gallery, with --start and --stop.")
@click.option("--start", help="Where the part starts: a time (12:03:10), a date and time, or seconds from the start.")
@click.option("--stop", help="Where it stops, in the same forms.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read samples from standard input, one a line.")
@click.option("--rate-hz", type=float, help="Samples a second of the stream; by default the gallery's.")
@click.option(
    "--false-alarms-per-hour",
    "per_hour",
    default=1.0,
    show_default=True,
    help="How many alarms an hour are tolerated on signal without what is watched for.",
)
@click.option("--where", help="Set the threshold on these windows only: metadata, such as: state == 'idle'")
@options.device
def command(
    gallery: str,
    query: Path | None,
    id: str | None,
    record: str | None,
    start: str | None,
    stop: str | None,
    from_stdin: bool,
    rate_hz: float | None,
    per_hour: float,
    where: str | None,
    device: str,
) -> None:
    """Watch a stream for something that GALLERY or a file shows; print one line of JSON for each time it happens.

    A line of the stream is a sample: a number for each channel, with blanks, commas or semicolons between them; nan or
    nothing where a value is missing. The threshold is set on signal of the gallery, without the query's own record, so
    that no more false alarms are to be expected than are tolerated.
    """
    from geopatch.gallery import Gallery
    from geopatch.watching import Watch, Watcher

    if not from_stdin:
        raise ConfigError("say where samples come from: --stdin reads them from standard input")
    with Gallery.open(gallery, read_only=True, device=device) as opened:
        pattern = _pattern(opened, query, id, record, start, stop)
        watch = Watch.create(opened, pattern, per_hour, where=where)
        assert opened.model is not None, "a watch needs it"
        name = "stdin"
        watcher = Watcher(opened.model, {name: watch})
        line = f"watching at {watch.threshold:.4f}, set on {watch.rate.hours:.2g} hours of the gallery"
        click.echo(line, err=True)
        for rows in _chunks(sys.stdin):
            arrived = time.perf_counter()
            for alarm in watcher.push(name, rows, rate_hz):
                _print(alarm, arrived)
        if name in watcher.streams:
            arrived = time.perf_counter()
            for alarm in watcher.end(name):
                _print(alarm, arrived)


def _pattern(
    gallery: Gallery, query: Path | None, id: str | None, record: str | None, start: str | None, stop: str | None
) -> Signal | Span | str:
    if sum(one is not None for one in (query, id, record)) != 1:
        raise ConfigError("watch for one of: a file --query, --id of a stored window, --record with --start and --stop")
    if id is not None:
        return id
    if record is not None:
        if start is None or stop is None:
            raise ConfigError("give both --start and --stop, to say which part of the record is watched for")
        return gallery.span(record, start, stop)
    assert query is not None
    return _from_file(gallery, query, start, stop)


def _from_file(gallery: Gallery, path: Path, start: str | None, stop: str | None) -> Signal:
    from geopatch.data.reading import list_files, read_file
    from geopatch.read_options import ReadOptions
    from geopatch.search.moments import seconds_between

    signal = read_file(list_files(path)[0], ReadOptions()).signals[0].at_rate(gallery.about.rate_hz)
    if start is None and stop is None:
        return signal
    last = signal.duration_s if stop is None else stop
    start_s, stop_s = seconds_between(start or 0.0, last, signal.start_time, str(path))
    first, end = round(start_s * signal.clock_hz), round(stop_s * signal.clock_hz)
    if not 0 <= first < end <= signal.length:
        raise ConfigError(f"{path} lasts {signal.duration_s:g} s, which does not hold {start_s:g} to {stop_s:g} s")
    return signal.window(first, end)


def _chunks(lines: TextIO) -> Iterator[list[list[float]]]:
    """Samples as they come: those that came while the ones before were looked at together."""
    queue: Queue[str | None] = Queue(MOST_LINES)
    threading.Thread(target=_read, args=(lines, queue), daemon=True).start()
    number, width, line = 0, 0, queue.get()
    while line is not None:
        rows = list[list[float]]()
        while line is not None:
            number += 1
            if line.strip():
                rows.append(_sample(line, number, width))
                width = width or len(rows[0])
            if len(rows) >= MOST_LINES or (rows and queue.empty()):
                break
            line = queue.get()
        if rows:
            yield rows
        line = None if line is None else queue.get()


def _read(lines: TextIO, queue: Queue[str | None]) -> None:
    for line in lines:
        queue.put(line)
    queue.put(None)


def _sample(line: str, number: int, width: int) -> list[float]:
    parts = line.replace(";", ",").split(",") if "," in line or ";" in line else line.split()
    try:
        row = [float(part) if part.strip() else math.nan for part in parts]
    except ValueError as error:
        raise SignalError(f"line {number} of the stream is no sample: {line.strip()[:60]!r}") from error
    if any(math.isinf(value) for value in row):
        raise SignalError(f"line {number} of the stream has an infinite value")
    if width and len(row) != width:
        raise SignalError(f"line {number} of the stream has {len(row)} values, those before it {width}")
    return row


def _print(alarm: Alarm, arrived: float) -> None:
    event: dict[str, Any] = alarm.as_dict()
    del event["watch"], event["stream"]
    click.echo(json.dumps({**event, "latency_ms": (time.perf_counter() - arrived) * 1e3}))
    sys.stdout.flush()
