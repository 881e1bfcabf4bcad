"""geopatch stress"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.cli.runs import measure, measuring, run_options
from geopatch.scoring import encoded_scorers

if TYPE_CHECKING:
    from geopatch.data import Collection
    from geopatch.evaluate import Row, Stress


@click.command("stress", short_help="Measure what warps, noise, gaps and shuffling cost, and draw it.")
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--stress",
    "names",
    multiple=True,
    help="A stress, or with its strength: span-mask@0.4; by default the first six below.",
)
@click.option("--curve", "over_strengths", is_flag=True, help="Each stress over a range of strengths.")
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for the figures, each as PNG and SVG.")
@measuring(encoded_scorers())
def command(
    data: Sequence[str], names: Sequence[str], over_strengths: bool, figures: Path | None, **flags: Any
) -> None:
    """What a stress on the queries costs: R@1 and mAP beside those of clean queries.

    DATA are names of data sets with a train and a test split, or folders that hold both; with --model, files.

    The stresses and what their strength counts: warps of the clock, of the queries only (warp-queries), of both sides
    alike (warp-both-alike) or of both differently (warp-both-differently), as a share of the window, 0.1; noise on the
    geometry of the queries (geometry-noise), in spreads of a descriptor, 0.2; a span of them not measured (span-mask),
    as a share of the window, 0.2; chunks of the queries in another order (shuffle), by their number, 8.

    Distortions of queries alone, by name: six random speeds (speed), the spread of their logarithms, 0.4; a part of the
    window stretched to its length (zoom), the window in less time (squeeze), earlier or later (shift), a span bridged
    by a line (drop), as a share of the window, 0.2, 0.2, 0.1 and 0.15; white noise (noise) and a slow sine (wander), in
    spreads of a channel, 0.2 and 0.5; another gain (gain), 1 for 0.6 to 1.6.
    """
    from geopatch import plot
    from geopatch.cli.tables import print_drops
    from geopatch.evaluate import summarise

    run, stresses = run_options(flags), _stresses(names, over_strengths)
    if figures is not None:
        plot.check_installed()
        options.check_rows_place(figures / "drop_curves.png")  # a file in a folder that may lack, too
    rows: list[Row] = []
    example: Collection | None = None
    for measured, test in measure(data, run, stresses):
        rows += measured
        example = example or test
    drawn = _draw(figures, example, rows) if figures is not None and example is not None else []
    if run.as_json:
        click.echo(json.dumps({"rows": [row.as_dict() for row in rows], "figures": [str(path) for path in drawn]}))
        return
    print_drops(summarise(rows))
    for path in drawn:
        click.echo(f"figure: {path}")


def _stresses(names: Sequence[str], over_strengths: bool) -> list[Stress]:
    """Clean first, for the drop is counted from there; a strength that was given is a point of its curve."""
    from geopatch.evaluate import Stress, curve, default_stresses
    from geopatch.evaluate.stress import CLEAN, KINDS

    chosen = [Stress.parse(name) for name in names] or list(default_stresses())
    if over_strengths:
        chosen = [
            point
            for stress in chosen
            for point in curve(stress.name, sorted({*KINDS[stress.name].curve, stress.strength}))
        ]
    return [Stress(CLEAN, 0), *chosen]


def _draw(folder: Path, example: Collection, rows: Sequence[Row]) -> list[Path]:
    """The stresses on the first window, and the curves where there is more than clean."""
    from geopatch import plot
    from geopatch.evaluate.stress import CLEAN

    drawn = {"stress_examples": plot.stress_examples(example.signals[0])}
    if any(row.stress != CLEAN for row in rows):
        drawn["drop_curves"] = plot.drop_curves(rows)
    return [path for name, figure in drawn.items() for path in plot.save_all(figure, folder / name)]
