"""geopatch fit"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from geopatch.cli import options
from geopatch.errors import GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.model import digest


@click.command("fit", short_help="Train an encoder on a collection.")
@click.argument("data")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the trained model.")
@click.option("--force", is_flag=True, help="Replace the folder if it is there.")
@click.option("--unlabelled", is_flag=True, help="Leave the labels aside: the views of a window are its positives.")
@click.option("--seed", default=0, show_default=True, help="What chance starts from.")
@options.data_root
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
    data_root: Path,
    preset: str,
    device: str,
    devices: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train an encoder on DATA: a file (.ts .arff .tsv .csv .parquet .npz) or the name of a data set.

    A training that was interrupted goes on where it stood when the same command is given again.
    """
    if out.exists() and not force:
        raise GeoPatchError(f"{out} is there already; choose another --out, or --force to replace it")
    collection = options.training_data(data, data_root)
    model, train = options.model_config(preset, flags), options.train_config(flags)
    estimator = GeoPatch(
        preset, model=model, train=train, seed=seed, device=device, devices=devices, progress=not as_json
    )
    labels = None if unlabelled else collection.labels
    estimator.fit(collection.signals, labels, resume=out.with_name(f".{out.name}.training"))
    if not estimator.leads_:
        return
    estimator.save(out, overwrite=force)
    result = {"model": str(out), "digest": digest(estimator.encoder_), **estimator.card_.data, **estimator.card_.scores}
    click.echo(json.dumps(result) if as_json else f"trained on {len(collection)} windows of {data}; saved to {out}")
