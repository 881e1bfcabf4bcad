"""geopatch demo"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geopatch.cli import options

if TYPE_CHECKING:
    from geopatch.demo import Demo
    from geopatch.evaluate import Row


@click.command("demo", short_help="Search the built-in sample: no label, no training.")
@click.option(
    "--out",
    default="demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the gallery and the figures.",
)
@click.option("--train", "trained", is_flag=True, help="Train with labels as well, and measure what they add.")
@click.option("--steps", type=int, help="With --train: number of training steps.  [default: 100]")
@click.option("--serve", "served", is_flag=True, help="Serve the built-in ECG instead, with a page to search it on.")
@click.option("--port", default=8000, show_default=True, help="With --serve: the port to listen on.")
@click.option(
    "--recordings",
    type=click.Path(path_type=Path),
    help="Only write the built-in ECG into this new folder, as CSV files to try `geopatch index` on.",
)
@options.device
@options.as_json
def command(
    out: Path,
    trained: bool,
    steps: int | None,
    served: bool,
    port: int,
    recordings: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Search a gallery of heart beats that nothing was trained or fitted for and no label was used in, draw the hits,
    and measure it clean and with warped queries."""
    from geopatch import demo

    if steps is not None and not trained:
        raise click.UsageError("--steps is a number of training steps, and nothing is trained without --train")
    if recordings is not None:
        _write_recordings(recordings)
        return
    if served:
        _serve(out, port, device)
        return

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    result = demo.search(out, say, device=device)
    if not as_json:
        _print_search(result)
    rows = demo.measure(say, progress=not as_json, device=device)
    if trained:
        rows += demo.measure_trained(say, steps=steps, progress=not as_json, device=device)
    if as_json:
        click.echo(json.dumps(_as_json(result, rows)))
    else:
        _print_rows(result, rows, trained)


def _write_recordings(folder: Path) -> None:
    from geopatch.demo import write_recordings

    paths = write_recordings(folder)
    click.echo(f"{len(paths)} recordings of three minutes in {folder}: {', '.join(path.name for path in paths)}")
    click.echo(f"  {_program()} index {shlex.quote(str(folder))} --out ecg.gallery")


def _as_json(result: Demo, rows: list[Row]) -> dict[str, object]:
    return {
        "rows": [row.as_dict() for row in rows],
        "hits": [hit.as_dict() for hit in result.hits],
        "seconds": result.seconds,
        "summary": result.summary,
        "gallery": str(result.gallery),
        "figures": [str(figure) for figure in result.figures],
        "again": list(result.again),
    }


def _print_search(result: Demo) -> None:
    from geopatch.cli.tables import print_hits

    click.echo()
    print_hits(result.hits)
    click.echo(f"{result.summary}, after {result.seconds:.0f} s")
    click.echo(f"figures: {result.figures[0]}, its hits; {result.figures[1]}, the best of them patch by patch\n")


def _print_rows(result: Demo, rows: list[Row], trained: bool) -> None:
    from geopatch.cli.tables import print_summaries
    from geopatch.evaluate import summarise

    print_summaries(summarise(rows))
    click.echo()
    click.echo(f"gallery, with its model in it: {result.gallery}")
    click.echo(f"search it again, by the beat as it was recorded:\n  {_program()} {shlex.join(result.again)}")
    if not trained:
        click.echo(f"what labels and a short training add:\n  {_program()} demo --train")


def _program() -> str:
    """How this program can be called from here: by its name, by its path, or as a module."""
    called = sys.argv[0]
    if Path(called).stem != "geopatch":
        return f"{shlex.quote(sys.executable)} -m geopatch"
    installed = shutil.which("geopatch")
    return "geopatch" if installed and Path(installed).samefile(called) else shlex.quote(called)


def _serve(out: Path, port: int, device: str) -> None:
    from geopatch.demo import OPENS_ON, sample_gallery
    from geopatch.server import Settings, serve
    from geopatch.server.start import check_installed

    settings = Settings(port=port)
    check_installed()
    gallery = sample_gallery(out, click.echo, device=device)
    serve(gallery, None, settings, device=device, started=lambda url: click.echo(f"open {url}/{OPENS_ON}"))
