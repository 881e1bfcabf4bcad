"""geopatch evaluate"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from geopatch.cli.runs import asked, measure, measuring
from geopatch.cli.tables import print_classes, print_summaries
from geopatch.evaluate import Row, summarise
from geopatch.evaluate.retrieval import DEFAULT_SCORERS, DEFAULT_STRESSES


@click.command("evaluate", short_help="Measure retrieval on a test split, clean and with warped queries.")
@click.argument("data", nargs=-1, required=True)
@click.option("--per-class", is_flag=True, help="A second table with the scores of every class.")
@measuring(DEFAULT_SCORERS)
def command(data: Sequence[str], per_class: bool, **given: Any) -> None:
    """Every window of a test split as a query against that split, itself left out.

    DATA are names of data sets with a train and a test split (see `geopatch data list`), or folders that hold both. An
    encoder is trained on each train split and measured on the test split. With --model, DATA may also be files.
    """
    told = asked(given)
    found: list[Row] = []
    for rows, _ in measure(data, told, DEFAULT_STRESSES):
        found += rows
    if told.as_json:
        click.echo(json.dumps([row.as_dict() for row in found]))
        return
    print_summaries(summarise(found))
    if per_class:
        print_classes(summarise(found))
