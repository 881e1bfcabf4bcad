"""geopatch evaluate"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from geopatch.cli import options
from geopatch.cli.tables import print_summaries
from geopatch.data import Collection, load_split, read
from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, Trained, append_rows, evaluate, summarise, train
from geopatch.evaluate.retrieval import check_labels

DEFAULT_PRESET, DEFAULT_SEEDS = "default", "0"


@click.command("evaluate", short_help="Measure retrieval on a test split, clean and with warped queries.")
@click.argument("data", nargs=-1, required=True)
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
    model: Path | None,
    seeds: str,
    rows: Path | None,
    data_root: Path,
    preset: str,
    device: str,
    as_json: bool,
    **flags: Any,
) -> None:
    """Every window of a test split as a query against that split, itself left out.

    DATA are names of data sets with a train and a test split, or folders that hold both. An encoder is trained on each
    train split and measured on the test split.
    """
    if model is not None:
        _refuse_training_flags(preset, seeds, flags)
    if rows is not None:
        options.check_rows_place(rows)
    found: list[Row] = []
    for name in data:
        if model is not None:
            runs = iter([(_loaded(model, device), read(name))])
        else:
            runs = _training_runs(name, data_root, preset, device, options.seed_list(seeds), flags, quiet=as_json)
        for trained, test in runs:
            fresh = evaluate(trained, test)
            found += fresh
            if rows is not None:
                append_rows(rows, fresh)
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in found]))
    else:
        print_summaries(summarise(found))


def _refuse_training_flags(preset: str, seeds: str, flags: Mapping[str, Any]) -> None:
    given = [name for name, value in flags.items() if value is not None]
    if given or (preset, seeds) != (DEFAULT_PRESET, DEFAULT_SEEDS):
        raise ConfigError("--model measures a model that is trained; leave --preset, --seeds and training flags out")


def _training_runs(
    name: str, root: Path, preset: str, device: str, seeds: Sequence[int], flags: Mapping[str, Any], *, quiet: bool
) -> Iterator[tuple[Trained, Collection]]:
    """One trained encoder for each seed, with the split to measure it on."""
    train_split, test_split = load_split(name, root)
    check_labels(test_split)
    model, settings = options.model_config(preset, flags), options.train_config(flags)
    for seed in seeds:
        if not quiet:
            click.echo(f"{name}, {preset} preset, seed {seed}", err=True)
        estimator = GeoPatch(preset, model=model, train=settings, seed=seed, device=device, progress=not quiet)
        yield train(train_split, estimator, preset), test_split


def _loaded(folder: Path, device: str) -> Trained:
    estimator = GeoPatch.load(folder, device=device)
    return Trained(estimator, str(folder), estimator.seed, 0.0)
