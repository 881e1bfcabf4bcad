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


@click.command("demo", short_help="Train on the built-in sample, search it, and draw the hits.")
@click.option(
    "--out",
    default="demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the model, the gallery and the figures.",
)
@click.option("--steps", type=int, help="Number of training steps.  [default: 120 and 100]")
@click.option("--serve", "served", is_flag=True, help="Serve the built-in ECG instead, with a page to search it on.")
@click.option("--port", default=8000, show_default=True, help="With --serve: the port to listen on.")
@options.device
@options.as_json
def command(out: Path, steps: int | None, served: bool, port: int, device: str, as_json: bool) -> None:
    """Train on the built-in sample, measure it clean and with warped queries, make a gallery of heart beats, search it
    and draw the hits."""
    from geopatch import demo

    if served:
        _serve(out, steps, port, device)
        return
    result = demo.run(out, lambda line: click.echo(line, err=as_json), progress=not as_json, device=device, steps=steps)
    if as_json:
        click.echo(json.dumps(_as_json(result)))
    else:
        _print(result)


def _as_json(result: Demo) -> dict[str, object]:
    return {
        "rows": [row.as_dict() for row in result.rows],
        "hits": [hit.as_dict() for hit in result.hits],
        "summary": result.summary,
        "model": str(result.model),
        "gallery": str(result.gallery),
        "figures": [str(figure) for figure in result.figures],
        "again": list(result.again),
    }


def _print(result: Demo) -> None:
    from geopatch.cli.tables import print_hits, print_summaries
    from geopatch.evaluate import summarise

    print_summaries(summarise(result.rows))
    click.echo()
    print_hits(result.hits)
    click.echo(result.summary)
    click.echo(f"gallery: {result.gallery}, made with the model {result.model}")
    click.echo(f"figures: {result.figures[0]}, its hits; {result.figures[1]}, the best of them patch by patch")
    click.echo(f"search it again, by the beat as it was recorded:\n  {_program()} {shlex.join(result.again)}")


def _program() -> str:
    """How this program can be called from here: by its name, by its path, or as a module."""
    called = sys.argv[0]
    if Path(called).stem != "geopatch":
        return f"{shlex.quote(sys.executable)} -m geopatch"
    installed = shutil.which("geopatch")
    return "geopatch" if installed and Path(installed).samefile(called) else shlex.quote(called)


def _serve(out: Path, steps: int | None, port: int, device: str) -> None:
    from geopatch.demo import OPENS_ON, sample_gallery
    from geopatch.estimator import GeoPatch
    from geopatch.server import Settings, serve
    from geopatch.server.start import check_installed

    settings = Settings(port=port)
    check_installed()
    gallery = sample_gallery(out, click.echo, progress=True, device=device, steps=steps)
    model = GeoPatch.load(out / "ecg-model", device=device)
    serve(gallery, model, settings, started=lambda url: click.echo(f"open {url}/{OPENS_ON}"))
