"""geopatch stress"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from geopatch import plot
from geopatch.cli import options
from geopatch.cli.runs import asked, measure, measuring
from geopatch.cli.tables import print_drops
from geopatch.data import Collection
from geopatch.evaluate import Row, Stress, curve, default_stresses, summarise
from geopatch.evaluate.stress import CLEAN, KINDS, STRESSES
from geopatch.scoring import SCORERS


@click.command("stress", short_help="Measure what warps, noise, gaps and shuffling cost, and draw it.")
@click.argument("data", nargs=-1, required=True)
@click.option("--stress", "names", multiple=True, help=f"One of {', '.join(STRESSES[1:])}, or like span-mask@0.4; all.")
@click.option("--curve", "over_strengths", is_flag=True, help="Each stress over a range of strengths.")
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for the figures, each as PNG and SVG.")
@measuring(SCORERS)
def command(
    data: Sequence[str], names: Sequence[str], over_strengths: bool, figures: Path | None, **given: Any
) -> None:
    """What a stress on the queries costs: R@1 and mAP beside those of clean queries.

    DATA are names of data sets with a train and a test split, or folders that hold both; with --model, files.

    The stresses and what their strength counts: warps of the clock, of the queries only, of both sides alike or of both
    differently (share of the window, 0.1); noise on the geometry of the queries (its spread, 0.2); a span of them
    not measured (share of the window, 0.2); chunks of the queries in another order (how many, 8).
    """
    told, stresses = asked(given), _stresses(names, over_strengths)
    if figures is not None:
        plot.check_installed()
        options.check_rows_place(figures / "drop_curves.png")  # a file in a folder that may lack, too
    found: list[Row] = []
    example: Collection | None = None
    for rows, test in measure(data, told, stresses):
        found += rows
        example = example or test
    drawn = _draw(figures, example, found) if figures is not None and example is not None else []
    if told.as_json:
        click.echo(json.dumps({"rows": [row.as_dict() for row in found], "figures": [str(path) for path in drawn]}))
        return
    print_drops(summarise(found))
    for path in drawn:
        click.echo(f"figure: {path}")


def _stresses(names: Sequence[str], over_strengths: bool) -> list[Stress]:
    """Clean first, for the drop is counted from there; a strength that was given is a point of its curve."""
    asked = [Stress.parse(name) for name in names] or list(default_stresses())
    if over_strengths:
        asked = [
            point
            for stress in asked
            for point in curve(stress.name, sorted({*KINDS[stress.name].curve, stress.strength}))
        ]
    return [Stress(CLEAN, 0), *asked]


def _draw(folder: Path, example: Collection, rows: Sequence[Row]) -> list[Path]:
    """The stresses on the first window, and the curves where there is more than clean."""
    drawn = {"stress_examples": plot.stress_examples(example.signals[0])}
    if any(row.stress != CLEAN for row in rows):
        drawn["drop_curves"] = plot.drop_curves(rows)
    return [path for name, figure in drawn.items() for path in plot.save_all(figure, folder / name)]
