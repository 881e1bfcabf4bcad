"""Trained encoders with the windows to measure each on, for the verbs that measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from geopatch.cli import options, sets
from geopatch.data import Collection, load_split, read
from geopatch.data.catalog import CATALOG
from geopatch.data.collection import WindowSet
from geopatch.errors import ConfigError, one_of
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, Trained, append_rows, evaluate, train
from geopatch.evaluate.retrieval import check_labels
from geopatch.evaluate.stress import Stress
from geopatch.evaluate.task import Task, check_sense, task, thinned
from geopatch.protocol import MEANING, Protocol
from geopatch.scoring import SCORERS

DEFAULT_PRESET, DEFAULT_SEEDS = "default", "0"
TRAIN_PER_RECORD, TEST_PER_RECORD = 600, 200

Command = TypeVar("Command", bound=Callable[..., Any])
Stresses = Sequence[Stress | str]


@dataclass(frozen=True)
class Asked:
    """What a verb was told: a trained model or how to train one for each seed, and how to measure it."""

    model: Path | None
    seeds: str
    data_root: Path
    cache: Path
    preset: str
    device: str
    target: str | None
    protocol: str
    guard_s: float
    scorers: str
    train_per_record: int
    test_per_record: int
    rows: Path | None
    as_json: bool
    flags: Mapping[str, Any]

    def __post_init__(self) -> None:
        training = any(value is not None for value in self.flags.values())
        if self.model is not None and (training or (self.preset, self.seeds) != (DEFAULT_PRESET, DEFAULT_SEEDS)):
            raise ConfigError(
                "--model measures a model that is trained; leave --preset, --seeds and training flags out"
            )
        options.seed_list(self.seeds)
        for name in self.scorer_names:
            one_of("scorer", name, SCORERS)
        if self.rows is not None:
            options.check_rows_place(self.rows)

    @property
    def scorer_names(self) -> list[str]:
        return list(dict.fromkeys(name.strip() for name in self.scorers.split(",")))


def measuring(scorers: Sequence[str]) -> Callable[[Command], Command]:
    """The flags of a verb that measures; `asked` takes them up again."""
    flags = (
        options.target,
        click.option(
            "--protocol", type=click.Choice(tuple(MEANING)), default="standard", show_default=True, help="What counts."
        ),
        click.option("--guard-s", default=0.0, show_default=True, help="How near still counts as overlapping, in s."),
        click.option("--scorers", default=",".join(scorers), show_default=True, help="Separated by commas."),
        click.option("--model", type=click.Path(path_type=Path), help="A trained model; without, one is trained."),
        click.option("--seeds", default=DEFAULT_SEEDS, show_default=True, help="Train once for each: 0-2 or 0,1,2."),
        click.option("--rows", type=click.Path(path_type=Path), help="JSONL file to which each result is added."),
        click.option(
            "--train-per-record", default=TRAIN_PER_RECORD, show_default=True, help="Windows of a recording; 0: all."
        ),
        click.option(
            "--test-per-record", default=TEST_PER_RECORD, show_default=True, help="Windows of a recording; 0: all."
        ),
        options.data_root,
        options.cache,
        options.preset,
        options.device,
        options.as_json,
        options.config_flags,
    )

    def decorate(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return decorate


def asked(given: Mapping[str, Any]) -> Asked:
    """The flags of `measuring`, those of the configs together."""
    own = {name: value for name, value in given.items() if name in Asked.__dataclass_fields__}
    return Asked(**own, flags={name: value for name, value in given.items() if name not in own})


def measure(data: Sequence[str], asked: Asked, stresses: Stresses) -> Iterator[tuple[list[Row], Collection]]:
    """The rows of each run as it ends, and the windows that they were measured on."""
    for name in data:
        tasks = _task(name, asked)
        check_labels(tasks.test)
        protocol = Protocol(asked.protocol, asked.guard_s)
        check_sense(tasks.test, tasks.target, protocol)
        for trained in _trained(name, tasks, asked):
            scorers = asked.scorer_names
            rows = evaluate(
                trained, tasks.test, target=tasks.target, protocol=protocol, scorers=scorers, stresses=stresses
            )
            if asked.rows is not None:
                append_rows(asked.rows, rows)
            yield rows, tasks.test


def _task(name: str, asked: Asked) -> Task:
    if name in CATALOG:
        return _catalog_task(name, asked)
    target = sets.archive_target(asked.target)
    if asked.model is not None:
        return Task(None, read(name), target)
    return Task(*load_split(name, asked.data_root), target)


def _catalog_task(name: str, asked: Asked) -> Task:
    target = sets.catalog_target(name, asked.target)
    cache = sets.prepared(name, asked.data_root, asked.cache, quiet=asked.as_json)
    learned: WindowSet | None = None
    if asked.model is None:
        learned = thinned(sets.train_side(cache).windows("train"), asked.train_per_record)
    return task(learned, thinned(cache.windows("test"), asked.test_per_record), target)


def _trained(name: str, found: Task, asked: Asked) -> Iterator[Trained]:
    """The model that was given, or one trained for each seed."""
    if asked.model is not None:
        estimator = GeoPatch.load(asked.model, device=asked.device)
        yield Trained(estimator, str(asked.model), estimator.seed_, 0.0)
        return
    assert found.train is not None
    model, settings = options.model_config(asked.preset, asked.flags), options.train_config(asked.flags)
    for seed in options.seed_list(asked.seeds):
        quiet = asked.as_json
        if not quiet:
            click.echo(f"{name}, {found.target}, {asked.preset} preset, seed {seed}", err=True)
        estimator = GeoPatch(model=model, train=settings, random_state=seed, device=asked.device, progress=not quiet)
        yield train(found.train, estimator, asked.preset)
