"""geopatch stress"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from geopatch import plot
from geopatch.cli import options
from geopatch.cli.runs import DEFAULT_SEEDS, Asked, runs
from geopatch.cli.tables import print_drops
from geopatch.data import Collection
from geopatch.errors import one_of
from geopatch.evaluate import Protocol, Row, Stress, append_rows, curve, default_stresses, evaluate, summarise
from geopatch.evaluate.protocol import MEANING
from geopatch.evaluate.stress import CLEAN, KINDS, STRESSES
from geopatch.scoring import SCORERS


@click.command("stress", short_help="Measure what warps, noise, gaps and shuffling cost, and draw it.")
@click.argument("data", nargs=-1, required=True)
@click.option("--stress", "names", multiple=True, help=f"One of {', '.join(STRESSES[1:])}, or like span-mask@0.4; all.")
@click.option("--curve", "over_strengths", is_flag=True, help="Each stress over a range of strengths.")
@click.option("--scorers", default=",".join(SCORERS), show_default=True, help="Separated by commas.")
@click.option(
    "--protocol", type=click.Choice(tuple(MEANING)), default="standard", show_default=True, help="What counts."
)
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for the figures, each as PNG and SVG.")
@click.option("--model", type=click.Path(path_type=Path), help="A trained model: DATA are then files to measure it on.")
@click.option("--seeds", default=DEFAULT_SEEDS, show_default=True, help="Train once for each, like 0-2 or 0,1,2.")
@click.option("--rows", type=click.Path(path_type=Path), help="JSONL file to which each result is added as it comes.")
@options.data_root
@options.preset
@options.device
@options.as_json
@options.config_flags
def command(
    data: Sequence[str],
    names: Sequence[str],
    over_strengths: bool,
    scorers: str,
    protocol: str,
    figures: Path | None,
    model: Path | None,
    seeds: str,
    rows: Path | None,
    data_root: Path,
    preset: str,
    device: str,
    as_json: bool,
    **flags: Any,
) -> None:
    """What a stress on the queries costs: R@1 and mAP beside those of clean queries.

    DATA are names of data sets with a train and a test split, or folders that hold both; with --model, files.

    The stresses and what their strength counts: warps of the clock, of the queries only, of both sides alike or of both
    differently (share of the window, 0.1); noise on the geometry of the queries (its spread, 0.2); a span of them
    not measured (share of the window, 0.2); chunks of the queries in another order (how many, 8).
    """
    asked = Asked(model, seeds, data_root, preset, device, flags, quiet=as_json)
    stresses, chosen = _stresses(names, over_strengths), _scorers(scorers)
    if rows is not None:
        options.check_rows_place(rows)
    if figures is not None:
        plot.check_installed()
        options.check_rows_place(figures / "drop_curves.png")  # a file in a folder that may lack, too
    found: list[Row] = []
    example: Collection | None = None
    for trained, test in runs(data, asked):
        example = example or test
        fresh = evaluate(trained, test, protocol=Protocol(protocol), scorers=chosen, stresses=stresses)
        found += fresh
        if rows is not None:
            append_rows(rows, fresh)
    drawn = _draw(figures, example, found) if figures is not None and example is not None else []
    if as_json:
        told = {"rows": [row.as_dict() for row in found], "figures": [str(path) for path in drawn]}
        click.echo(json.dumps(told))
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


def _scorers(text: str) -> list[str]:
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        one_of("scorer", name, SCORERS)
    return list(dict.fromkeys(chosen))


def _draw(folder: Path, example: Collection, rows: Sequence[Row]) -> list[Path]:
    """The stresses on the first window, and the curves where there is more than clean."""
    drawn = {"stress_examples": plot.stress_examples(example.signals[0])}
    if any(row.stress != CLEAN for row in rows):
        drawn["drop_curves"] = plot.drop_curves(rows)
    return [path for name, figure in drawn.items() for path in plot.save_all(figure, folder / name)]
