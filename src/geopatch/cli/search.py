"""geopatch search"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from geopatch.cli import options
from geopatch.cli.reading import file_flags, read_options
from geopatch.errors import ConfigError, DataError, GeoPatchError, one_of
from geopatch.search.options import SearchOptions

if TYPE_CHECKING:
    from geopatch.gallery import Gallery
    from geopatch.read_options import ReadOptions
    from geopatch.search import Hit, Hits, Span
    from geopatch.signal import Signal

FIGURES = (".png", ".svg")
Command = TypeVar("Command", bound=Callable[..., Any])


def search_flags(command: Command) -> Command:
    """Every field of SearchOptions as a flag, but `windows`: values are read where they are drawn."""
    hints = typing.get_type_hints(SearchOptions)
    for item in reversed(dataclasses.fields(SearchOptions)):
        if item.name != "windows":
            command = _flag(item, hints[item.name])(command)
    return command


def _flag(item: dataclasses.Field[Any], hint: Any) -> Callable[[Command], Command]:
    """min_gap_s -> --min-gap: help texts say that times are in seconds."""
    name = "-k" if item.name == "k" else f"--{item.name.removesuffix('_s').replace('_', '-')}"
    help, choices = item.metadata["help"], item.metadata["choices"]
    if hint is bool:
        return click.option(name, item.name, is_flag=True, help=help)
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind in (int, float, str)]
    kind = click.Choice(choices()) if choices else kinds[0] if len(kinds) == 1 else str
    shown = item.default is not None
    return click.option(name, item.name, type=kind, default=item.default, show_default=shown, help=help)


@click.command("search", short_help="Find the windows of a gallery nearest to a query.")
@click.argument("gallery")
@click.argument("query", required=False, type=click.Path(path_type=Path))
@click.option("--id", help="The recording of the file QUERY with this id; without QUERY, a window of the gallery.")
@click.option("--row", type=int, help="The recording of the file QUERY at this place, from 0.")
@click.option("--record", help="Without QUERY: a record whose windows are in the gallery, with --start and --stop.")
@click.option("--start", help="Where the query starts: a time (12:03:10), a date and time, or seconds from the start.")
@click.option("--stop", help="Where it stops.")
@click.option("--model", type=click.Path(path_type=Path), help="Its model, where the gallery does not hold it.")
@search_flags
@click.option("--explain", is_flag=True, help="Say of each hit which patch of the query met which of its patches.")
@click.option("--plot", "figure", type=click.Path(path_type=Path), help="Draw the hits, and the best one aligned.")
@file_flags
@options.device
@options.as_json
def command(
    gallery: str,
    query: Path | None,
    id: str | None,
    row: int | None,
    record: str | None,
    start: str | None,
    stop: str | None,
    model: Path | None,
    device: str,
    explain: bool,
    figure: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Find the windows of GALLERY nearest to a query.

    The query is a part of a record whose windows are in the gallery (--record, --start, --stop), a recording of the
    file QUERY or a part of it (--start, --stop), or a window of the gallery (--id). Files are read as geopatch index
    reads them; another rate is resampled, channels are matched by name.
    """
    from geopatch.gallery import Gallery

    pictures = [] if figure is None else _pictures(figure)
    own = {name: flags.pop(name) for name in ("time", "channels", "units", "rate_hz")}
    search_options = SearchOptions(**flags, windows=bool(pictures))
    estimator = None if model is None else _load(model, device)
    with Gallery.open(gallery, model=estimator, read_only=True, device=device) as opened:
        wanted: Signal | Span | str
        if query is None:
            wanted = _stored(opened, id, row, record, start, stop)
        else:
            _refuse(record=record)
            recording = _from_file(query, id, row, read_options(own))
            wanted = _part(opened, query, recording, start, stop)
        hits = opened.search(wanted, options=search_options)
    for note in hits.notes:
        click.echo(f"note: {note}", err=True)
    if pictures and hits:
        _draw(hits, wanted, pictures)
    if as_json:
        click.echo(json.dumps(_as_json(hits, explain, pictures)))
    else:
        _print(hits, explain, pictures)


def _load(model: Path, device: str) -> Any:
    from geopatch.estimator import GeoPatch

    return GeoPatch.load(model, device=device)


def _stored(
    gallery: Gallery, id: str | None, row: int | None, record: str | None, start: str | None, stop: str | None
) -> Span | str:
    """The query without a file; flags that do not belong together are refused."""
    _refuse(row=row)
    if (id is None) == (record is None):
        raise ConfigError("search by one of: a file QUERY, --id of a stored window, --record with --start and --stop")
    if id is not None:
        _refuse(start=start, stop=stop)
        return id
    if start is None or stop is None:
        raise ConfigError("give both --start and --stop, to say which part of the record is the query")
    return gallery.span(str(record), start, stop)


def _refuse(**flags: object) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ConfigError(f"--{name} has no meaning for this kind of query; leave it out (see --help)")


def _from_file(path: Path, id: str | None, row: int | None, reading: ReadOptions) -> Signal:
    from geopatch.data.reading import list_files, read_file

    if id is not None and row is not None:
        raise ConfigError("give --id or --row, not both")
    file = list_files(path)[0]
    signals = read_file(file, reading).signals
    if id is None:
        place = row or 0
        if not 0 <= place < len(signals):
            raise ConfigError(
                f"{path} has {len(signals)} signals, so --row lies within 0 and {len(signals) - 1}, got {row}"
            )
        return signals[place]
    named = [signal for signal in signals if id in (signal.id, signal.id.removeprefix(f"{file.id}/"))]
    if not named:
        raise DataError(f"{path} has no signal {id!r}; the first is {signals[0].id!r}")
    return named[0]


def _part(gallery: Gallery, path: Path, signal: Signal, start: str | None, stop: str | None) -> Signal:
    """A recording, or a part of it, as the gallery's windows are made of recordings."""
    from geopatch.data.front_end import FrontEnd
    from geopatch.search.moments import seconds_between

    front = FrontEnd.of(gallery.model) or FrontEnd()
    signal = front.anchored(front.framed(signal)).at_rate(gallery.about.rate_hz)
    if start is None and stop is None:
        return signal
    last = signal.duration_s if stop is None else stop
    start_s, stop_s = seconds_between(start or 0.0, last, signal.start_time, str(path))
    first, end = round(start_s * signal.clock_hz), round(stop_s * signal.clock_hz)
    if not 0 <= first < end <= signal.length:
        raise ConfigError(f"{path} lasts {signal.duration_s:g} s, which does not hold {start_s:g} to {stop_s:g} s")
    return signal.window(first, end)


def _pictures(path: Path) -> list[Path]:
    """Where the figure of all hits goes, and that of the best one beside it."""
    one_of("the ending of --plot", path.suffix.lower(), FIGURES)
    both = [path, path.with_name(f"{path.stem}-alignment{path.suffix}")]
    for file in both:
        options.check_file_place(file)
    return both


def _draw(hits: Sequence[Hit], wanted: Signal | Span | str, pictures: Sequence[Path]) -> None:
    from geopatch import plot

    query = hits[0].query_window
    if query is None:
        raise GeoPatchError(f"the gallery keeps no values of {wanted!r} to draw; add windows with their values")
    plot.save(plot.search_hits(query, hits, f"nearest by {hits[0].scorer}"), pictures[0])
    plot.save(plot.alignment(query, hits[0]), pictures[1])


def _as_json(hits: Hits, explain: bool, pictures: Sequence[Path]) -> dict[str, Any]:
    rows = [{**hit.as_dict(), **({"explanation": hit.explain().as_dict()} if explain else {})} for hit in hits]
    return {"hits": rows, "notes": list(hits.notes), "figures": [str(file) for file in pictures] if hits else []}


def _print(hits: Sequence[Hit], explain: bool, pictures: Sequence[Path]) -> None:
    if not hits:
        click.echo("no hits")
        return
    from geopatch.cli.tables import print_hits

    print_hits(hits)
    if explain:
        for hit in hits:
            click.echo(f"\n{hit.rank}. {hit.id}\n{hit.explain()}")
    for file in pictures:
        click.echo(f"figure: {file}")
