"""geopatch evaluate"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from geopatch.cli.runs import measure, measuring, run_options
from geopatch.scoring import DEFAULT_SCORERS


@click.command("evaluate", short_help="Measure retrieval on a test split, clean and with warped queries.")
@click.argument("data", nargs=-1, required=True)
@click.option("--per-class", is_flag=True, help="A second table with the scores of every class.")
@measuring(DEFAULT_SCORERS)
def command(data: Sequence[str], per_class: bool, **flags: Any) -> None:
    """Every window of a test split as a query against that split, itself left out.

    DATA are names of data sets with a train and a test split (see `geopatch data list`), or folders that hold both. An
    encoder is trained on each train split and measured on the test split. With --model, DATA may also be files.
    """
    from geopatch.cli.tables import print_classes, print_summaries
    from geopatch.evaluate import summarise
    from geopatch.evaluate.retrieval import DEFAULT_STRESSES

    run = run_options(flags)
    rows = [row for measured, _ in measure(data, run, DEFAULT_STRESSES) for row in measured]
    if run.as_json:
        click.echo(json.dumps([row.as_dict() for row in rows]))
        return
    print_summaries(summarise(rows))
    if per_class:
        print_classes(summarise(rows))
