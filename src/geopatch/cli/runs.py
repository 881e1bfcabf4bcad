"""Trained encoders with the windows to measure each on, for the verbs that measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from geopatch.cli import options
from geopatch.errors import ConfigError, one_of
from geopatch.protocol import MEANING, Protocol
from geopatch.scoring import encoded_scorers

if TYPE_CHECKING:
    from geopatch.data import Collection
    from geopatch.evaluate import Row, Stress, Trained
    from geopatch.evaluate.task import Task

DEFAULT_SEEDS = "0"
TRAIN_PER_RECORD, TEST_PER_RECORD = 600, 200

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class RunOptions:
    """The flags of a verb that measures: a trained model or how to train one for each seed, and how to measure it."""

    model: Path | None
    seeds: str
    data_root: Path
    cache: Path
    preset: str | None
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
        if self.model is not None and (training or self.preset is not None or self.seeds != DEFAULT_SEEDS):
            raise ConfigError(
                "--model measures a model that is trained; leave --preset, --seeds and training flags out"
            )
        options.seed_list(self.seeds)
        for name in self.scorer_names:
            one_of("scorer", name, encoded_scorers())
        if self.rows is not None:
            options.check_rows_place(self.rows)

    @property
    def scorer_names(self) -> list[str]:
        return list(dict.fromkeys(name.strip() for name in self.scorers.split(",")))


def measuring(scorers: Sequence[str]) -> Callable[[Command], Command]:
    """The flags of a verb that measures; `run_options` takes them up again."""
    flags = (
        options.target,
        click.option(
            "--protocol",
            type=click.Choice(tuple(MEANING)),
            default="standard",
            show_default=True,
            help="Which candidates count, and which are right.",
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


def run_options(flags: Mapping[str, Any]) -> RunOptions:
    """The flags of `measuring`, those of the configs together."""
    own = {name: value for name, value in flags.items() if name in RunOptions.__dataclass_fields__}
    return RunOptions(**own, flags={name: value for name, value in flags.items() if name not in own})


def measure(
    data: Sequence[str], run: RunOptions, stresses: Sequence[Stress | str]
) -> Iterator[tuple[list[Row], Collection]]:
    """The rows of each run as it ends, and the windows that they were measured on."""
    from geopatch.evaluate import append_rows, evaluate
    from geopatch.evaluate.retrieval import check_labels
    from geopatch.evaluate.task import check_sense

    for name in data:
        tasks = _task(name, run)
        check_labels(tasks.test)
        protocol = Protocol(run.protocol, run.guard_s)
        check_sense(tasks.test, tasks.target, protocol)
        for trained in _trained(name, tasks, run):
            scorers = run.scorer_names
            rows = evaluate(
                trained, tasks.test, target=tasks.target, protocol=protocol, scorers=scorers, stresses=stresses
            )
            if run.rows is not None:
                append_rows(run.rows, rows)
            yield rows, tasks.test


def _task(name: str, run: RunOptions) -> Task:
    from geopatch.cli import sets
    from geopatch.data import load_split, read
    from geopatch.data.catalog import CATALOG
    from geopatch.evaluate.task import Task

    if name in CATALOG:
        return _catalog_task(name, run)
    target = sets.archive_target(run.target)
    if run.model is not None:
        return Task(None, read(name), target)
    return Task(*load_split(name, run.data_root), target)


def _catalog_task(name: str, run: RunOptions) -> Task:
    from geopatch.cli import sets
    from geopatch.evaluate.task import task, thinned

    target = sets.catalog_target(name, run.target)
    cache = sets.prepared(name, run.data_root, run.cache, quiet=run.as_json)
    learned = None
    if run.model is None:
        learned = thinned(sets.train_side(cache).windows("train"), run.train_per_record)
    return task(learned, thinned(cache.windows("test"), run.test_per_record), target)


def _trained(name: str, windows: Task, run: RunOptions) -> Iterator[Trained]:
    """The model of --model, or one trained for each seed."""
    from geopatch.estimator import GeoPatch
    from geopatch.evaluate import Trained, train

    if run.model is not None:
        estimator = GeoPatch.load(run.model, device=run.device)
        yield Trained(estimator, str(run.model), estimator.seed_, 0.0)
        return
    assert windows.train is not None
    preset = options.preset_for(run.preset, labelled=windows.train.labels is not None)
    model, settings = options.model_config(preset, run.flags), options.train_config(run.flags, preset)
    for seed in options.seed_list(run.seeds):
        quiet = run.as_json
        if not quiet:
            click.echo(f"{name}, {windows.target}, {preset} preset, seed {seed}", err=True)
        estimator = GeoPatch(model=model, train=settings, random_state=seed, device=run.device, progress=not quiet)
        yield train(windows.train, estimator, preset)
