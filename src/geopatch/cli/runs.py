"""Trained encoders with the split to measure each on, for the verbs that measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from geopatch.cli import options
from geopatch.data import Collection, load_split, read
from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Trained, train
from geopatch.evaluate.retrieval import check_labels

DEFAULT_PRESET, DEFAULT_SEEDS = "default", "0"


@dataclass(frozen=True)
class Asked:
    """What a verb was told about models: a trained one, or how to train one for each seed."""

    model: Path | None
    seeds: str
    root: Path
    preset: str
    device: str
    flags: Mapping[str, Any]
    quiet: bool

    def __post_init__(self) -> None:
        training = any(value is not None for value in self.flags.values())
        if self.model is not None and (training or (self.preset, self.seeds) != (DEFAULT_PRESET, DEFAULT_SEEDS)):
            raise ConfigError(
                "--model measures a model that is trained; leave --preset, --seeds and training flags out"
            )


def runs(data: Sequence[str], asked: Asked) -> Iterator[tuple[Trained, Collection]]:
    """Each file with the trained model, or each data set with an encoder trained for each seed."""
    for name in data:
        if asked.model is None:
            yield from _training_runs(name, asked)
        else:
            estimator = GeoPatch.load(asked.model, device=asked.device)
            yield Trained(estimator, str(asked.model), estimator.seed, 0.0), read(name)


def _training_runs(name: str, asked: Asked) -> Iterator[tuple[Trained, Collection]]:
    seeds = options.seed_list(asked.seeds)
    train_split, test_split = load_split(name, asked.root)
    check_labels(test_split)
    model, settings = options.model_config(asked.preset, asked.flags), options.train_config(asked.flags)
    for seed in seeds:
        if not asked.quiet:
            click.echo(f"{name}, {asked.preset} preset, seed {seed}", err=True)
        estimator = GeoPatch(
            asked.preset, model=model, train=settings, seed=seed, device=asked.device, progress=not asked.quiet
        )
        yield train(train_split, estimator, asked.preset), test_split
