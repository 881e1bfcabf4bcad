"""geopatch fit"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.errors import CheckpointError, GeoPatchError

if TYPE_CHECKING:
    from geopatch.data import Collection
    from geopatch.estimator import GeoPatch


@click.command("fit", short_help="Fit an encoder to a collection.")
@click.argument("data", shell_complete=options.complete_files)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the model.")
@click.option("--force", is_flag=True, help="Replace a model that is there, and any other training begun for it.")
@click.option("--unlabelled", is_flag=True, help="Leave the labels aside: only views of a window are alike.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    metavar="INTEGER",
    help="Seed of weights, order of windows and views: one number gives one model.",
)
@click.option(
    "--groups",
    metavar="FIELD",
    help="Which windows belong together (subject, speaker, device): level and scale are then chosen for windows of "
    "groups that did not train, unless --amplitude says otherwise.",
)
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
    groups: str | None,
    target: str | None,
    data_root: Path,
    cache: Path,
    preset: str | None,
    device: str,
    devices: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """Fit an encoder to DATA: a file (.ts .arff .tsv .csv .parquet .npz) or the name of a data set.

    Without labels, or with --unlabelled, fixed kernels are fitted in seconds; with labels, a half that is trained comes
    beside them. A training that was interrupted goes on where it stood when the same command is given again.
    """
    start = options.preset_for(preset, labelled=not unlabelled)
    model, train = options.model_config(start, flags), options.train_config(flags, start)
    from dataclasses import replace

    from geopatch.cli import sets
    from geopatch.config import check_reconstruction
    from geopatch.estimator import GeoPatch

    check_reconstruction(model, train)
    _check_out(out, force)
    collection = sets.training_data(data, data_root, cache, target, quiet=as_json)
    members = None if groups is None else sets.training_groups(data, cache, target, collection, groups)
    if unlabelled:
        collection = replace(collection, labels=None)
    if collection.labels is None:
        model = options.model_config(options.preset_for(preset, labelled=False), flags)
    estimator = GeoPatch(
        model=model, train=train, random_state=seed, device=device, devices=devices, progress=not as_json
    )
    _train(estimator, collection, members, out.resolve(), force)
    if not estimator.leads_:
        return
    estimator.save(out, overwrite=force)
    report = _report(estimator, out)
    click.echo(json.dumps(report) if as_json else f"fitted to {len(collection)} windows of {data}; saved to {out}")


def _report(estimator: GeoPatch, out: Path) -> dict[str, Any]:
    """What --json prints."""
    from geopatch.model import digest

    card = estimator.card_
    data = {"data_digest" if name == "digest" else name: value for name, value in card.data.items()}
    return {"model": str(out), "digest": digest(estimator.encoder_), **data, **card.scores, **card.choices}


def _check_out(out: Path, force: bool) -> None:
    from geopatch.model.checkpoint import check_replaceable

    if out.exists() and not force:
        raise GeoPatchError(f"{out} is there already; choose another --out, or --force to replace it")
    if out.exists() and not out.is_dir():
        raise GeoPatchError(f"cannot write {out}: expected a folder, but a file is there; give another path")
    options.check_place(out)
    check_replaceable(out)


def _train(estimator: GeoPatch, collection: Collection, groups: list[str] | None, out: Path, force: bool) -> None:
    """Train, or go on with the training that was interrupted; with `force` another training's state is dropped."""
    state = out.with_name(f".{out.name}.training")
    try:
        estimator.fit(collection.signals, collection.labels, groups, resume=state)
    except CheckpointError:
        if not force or estimator.devices > 1:  # the other processes are started already
            raise
        state.unlink(missing_ok=True)
        estimator.fit(collection.signals, collection.labels, groups, resume=state)
