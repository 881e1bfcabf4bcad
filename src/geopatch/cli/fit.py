"""geopatch fit"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from geopatch.cli import options, sets
from geopatch.data import Collection
from geopatch.errors import CheckpointError, GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.model import digest
from geopatch.model.checkpoint import check_replaceable


@click.command("fit", short_help="Train an encoder on a collection.")
@click.argument("data")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the trained model.")
@click.option("--force", is_flag=True, help="Replace a model that is there, and any other training begun for it.")
@click.option("--unlabelled", is_flag=True, help="Leave the labels aside: the views of a window are its positives.")
@click.option("--seed", default=0, show_default=True, help="What chance starts from.")
@options.target
@options.data_root
@options.cache
@options.preset
@options.device
@options.devices
@options.as_json
@options.config_flags
def command(
    data: str,
    out: Path,
    force: bool,
    unlabelled: bool,
    seed: int,
    target: str | None,
    data_root: Path,
    cache: Path,
    preset: str,
    device: str,
    devices: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train an encoder on DATA: a file (.ts .arff .tsv .csv .parquet .npz) or the name of a data set.

    A training that was interrupted goes on where it stood when the same command is given again.
    """
    _check_out(out, force)
    collection = sets.training_data(data, data_root, cache, target, quiet=as_json)
    model, train = options.model_config(preset, flags), options.train_config(flags)
    estimator = GeoPatch(
        preset, model=model, train=train, seed=seed, device=device, devices=devices, progress=not as_json
    )
    _train(estimator, collection if not unlabelled else replace(collection, labels=None), out.resolve(), force)
    if not estimator.leads_:
        return
    estimator.save(out, overwrite=force)
    told = _told(estimator, out)
    click.echo(json.dumps(told) if as_json else f"trained on {len(collection)} windows of {data}; saved to {out}")


def _told(estimator: GeoPatch, out: Path) -> dict[str, Any]:
    card = estimator.card_
    data = {"data_digest" if name == "digest" else name: value for name, value in card.data.items()}
    return {"model": str(out), "digest": digest(estimator.encoder_), **data, **card.scores}


def _check_out(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise GeoPatchError(f"{out} is there already; choose another --out, or --force to replace it")
    if out.exists() and not out.is_dir():
        raise GeoPatchError(f"cannot write {out}: expected a folder, but a file is there; give another path")
    options.check_place(out)
    check_replaceable(out)


def _train(estimator: GeoPatch, collection: Collection, out: Path, force: bool) -> None:
    """Train, or go on with the training that was interrupted; with `force` another training's state is dropped."""
    state = out.with_name(f".{out.name}.training")
    try:
        estimator.fit(collection.signals, collection.labels, resume=state)
    except CheckpointError:
        if not force or estimator.devices > 1:  # the other processes are started already
            raise
        state.unlink(missing_ok=True)
        estimator.fit(collection.signals, collection.labels, resume=state)
