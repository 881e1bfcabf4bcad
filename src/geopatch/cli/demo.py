"""geopatch demo"""

from __future__ import annotations

import json
from pathlib import Path

import click

from geopatch import demo
from geopatch.cli import options
from geopatch.cli.tables import print_summaries
from geopatch.estimator import GeoPatch
from geopatch.evaluate import summarise
from geopatch.server import Settings, serve
from geopatch.server.sample import OPENS_ON, sample_gallery
from geopatch.server.start import check_installed


@click.command("demo", short_help="Train on the built-in sample, search it, and draw what was found.")
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder for the figure."
)
@click.option("--steps", type=int, help="Training steps, in place of the demo's own.")
@click.option("--serve", "served", is_flag=True, help="Serve the built-in ECG instead, with a page to search it on.")
@click.option("--port", default=8000, show_default=True, help="With --serve: the port to listen on.")
@options.device
@options.as_json
def command(out: Path, steps: int | None, served: bool, port: int, device: str, as_json: bool) -> None:
    """Train on the built-in sample, measure it clean and with warped queries, and draw a query with its hits."""
    if served:
        _serve(out, steps, port, device)
        return
    result = demo.run(out, lambda line: click.echo(line, err=as_json), progress=not as_json, device=device, steps=steps)
    if as_json:
        rows = [row.as_dict() for row in result.rows]
        click.echo(json.dumps({"rows": rows, "figure": str(result.figure), "found": result.found}))
        return
    print_summaries(summarise(result.rows))
    click.echo(f"{result.found}\nfigure: {result.figure}")


def _serve(out: Path, steps: int | None, port: int, device: str) -> None:
    settings = Settings(port=port)
    check_installed()
    gallery = sample_gallery(out, click.echo, progress=True, device=device, steps=steps)
    model = GeoPatch.load(out / "ecg-model", device=device)
    serve(gallery, model, settings, started=lambda url: click.echo(f"open {url}/{OPENS_ON}"))
