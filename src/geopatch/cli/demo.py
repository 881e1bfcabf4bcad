"""geopatch demo"""

from __future__ import annotations

import json
from pathlib import Path

import click

from geopatch import demo
from geopatch.cli import options
from geopatch.cli.tables import print_summaries
from geopatch.evaluate import summarise


@click.command("demo", short_help="Train on the built-in sample, search it, and draw what was found.")
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder for the figure."
)
@click.option("--steps", type=int, help="Training steps, in place of the demo's own.")
@options.device
@options.as_json
def command(out: Path, steps: int | None, device: str, as_json: bool) -> None:
    """Train on the built-in sample, measure it clean and with warped queries, and draw a query with its hits."""
    result = demo.run(out, lambda line: click.echo(line, err=as_json), progress=not as_json, device=device, steps=steps)
    if as_json:
        rows = [row.as_dict() for row in result.rows]
        click.echo(json.dumps({"rows": rows, "figure": str(result.figure), "found": result.found}))
        return
    print_summaries(summarise(result.rows))
    click.echo(f"{result.found}\nfigure: {result.figure}")
