"""geopatch stability"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from geopatch import plot
from geopatch.cli import options, sets
from geopatch.config import ModelConfig, TrainConfig
from geopatch.data import load_split, read
from geopatch.data.catalog import CATALOG
from geopatch.data.sample import ecg_windows
from geopatch.errors import ConfigError, one_of
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Trained, train
from geopatch.evaluate.task import Task, task, thinned
from geopatch_lab.cli.stability_tables import print_stability
from geopatch_lab.plot.stability import FIGURES
from geopatch_lab.stability import FULL, QUICK, StabilityRow, append_stability, measure_stability

SAMPLE_STEPS, QUICK_STEPS = 150, 60  # on the built-in sample; a data set is trained as `geopatch fit` trains it
PRESET, SAMPLE_TARGET = "default", "beat"
TRAIN_S = 120.0  # of each built-in recording's three minutes, those before this are trained on


@click.command("stability", short_help="Measure what the theorems say: drift, bounds, margins.")
@click.argument("data", required=False)
@click.option("--model", type=click.Path(path_type=Path), help="A trained model; without, two are trained.")
@click.option(
    "--out", default="stability", show_default=True, type=click.Path(path_type=Path), help="For all it writes."
)
@click.option("--quick", is_flag=True, help="A small version: fewer windows, patches, strengths and steps.")
@click.option("--seed", default=0, show_default=True, help="What chance starts from in training.")
@click.option("--per-record", default=100, show_default=True, help="Windows of a recording to measure on; 0: all.")
@options.target
@options.data_root
@options.cache
@options.preset
@options.device
@options.as_json
@options.config_flags
def command(data: str | None, out: Path, as_json: bool, quick: bool, **flags: Any) -> None:
    """Boundary and feature drift, the descriptor bound, margins, and what scorers prefer, each as table and figure.

    DATA is the name of a data set, or with --model a file; without, the built-in minutes of ECG. Without --model two
    encoders are trained, one with fixed and one with adaptive patches; with it both rules are measured on its weights.
    """
    plot.check_installed()
    path = out / "stability.jsonl"
    options.check_rows_place(path)

    def say(line: str) -> None:
        if not as_json:
            click.echo(line, err=True)

    data_task = _task(data, flags, quiet=as_json)
    trained, twin = _trained(data, data_task, flags, quick=quick, quiet=as_json)
    rows = measure_stability(trained, data_task.test, twin=twin, size=QUICK if quick else FULL, say=say)
    path.unlink(missing_ok=True)
    append_stability(path, rows)
    drawn = _draw(out, rows)
    if as_json:
        payload = {"rows": [row.as_dict() for row in rows], "figures": [str(one) for one in drawn], "file": str(path)}
        click.echo(json.dumps(payload))
        return
    print_stability(rows)
    for one in (path, *drawn):
        click.echo(f"written: {one}")


def _draw(out: Path, rows: list[StabilityRow]) -> list[Path]:
    topics = {row.topic for row in rows}
    drawn = {name: draw(rows) for name, draw in FIGURES.items() if name in topics}
    return [path for name, figure in drawn.items() for path in plot.save_all(figure, out / name)]


def _task(data: str | None, flags: Mapping[str, Any], *, quiet: bool) -> Task:
    if data is None:
        one_of("target of the built-in sample", flags["target"] or SAMPLE_TARGET, (SAMPLE_TARGET,))
        return _sample()
    if data in CATALOG:
        target = sets.catalog_target(data, flags["target"])
        cache = sets.prepared(data, flags["data_root"], flags["cache"], quiet=quiet)
        learned = sets.train_side(cache).windows("train") if flags["model"] is None else None
        return task(learned, thinned(cache.windows("test"), flags["per_record"]), target)
    target = sets.archive_target(flags["target"])
    if flags["model"] is not None:
        return Task(None, read(data), target)
    return Task(*load_split(data, flags["data_root"]), target)


def _sample() -> Task:
    """Two minutes of each built-in recording to train on, and the third to measure: no sample is on both sides."""
    windows = ecg_windows()
    start_s = np.asarray([signal.start_s for signal in windows.signals])
    stop_s = start_s + np.asarray([signal.duration_s for signal in windows.signals])
    return Task(windows.subset(stop_s <= TRAIN_S), windows.subset(start_s >= TRAIN_S), SAMPLE_TARGET)


def _trained(
    data: str | None, data_task: Task, flags: Mapping[str, Any], *, quick: bool, quiet: bool
) -> tuple[Trained, Trained | None]:
    """The model that was given, or one for each rule, trained alike but for where their patches lie."""
    config = {name: value for name, value in flags.items() if name.startswith(("model_", "train_"))}
    if flags["model"] is not None:
        if any(value is not None for value in config.values()):
            raise ConfigError("--model measures a model that is trained; leave training flags out")
        estimator = GeoPatch.load(flags["model"], device=flags["device"])
        return Trained(estimator, str(flags["model"]), estimator.seed_, 0.0), None
    model, settings = _model(flags["preset"], config), _settings(data, config, quick=quick)
    fixed, adaptive = (
        _fit(data_task, replace(model, boundaries=rule), settings, flags, quiet=quiet) for rule in ("fixed", "adaptive")
    )
    return fixed, adaptive


def _model(preset: str | None, config: Mapping[str, Any]) -> ModelConfig:
    """What the theorems are about: the half that takes geometry, alone."""
    model = options.model_config(preset or PRESET, config)
    if not model.is_trained:
        raise ConfigError("fixed kernels take no geometry; leave --preset instant out, or --halves")
    return replace(model, halves=("learned",))


def _settings(data: str | None, config: Mapping[str, Any], *, quick: bool) -> TrainConfig:
    """Steps of the built-in sample, and of a quick run, unless they are given."""
    settings = options.train_config(config, "paper")  # views with a clock alone
    steps_set = config["train_min_steps"] is not None or config["train_max_steps"] is not None
    if steps_set or (data is not None and not quick):
        return settings
    steps = QUICK_STEPS if quick else SAMPLE_STEPS
    return replace(settings, min_steps=steps, max_steps=steps)


def _fit(
    data_task: Task, model: ModelConfig, settings: TrainConfig, flags: Mapping[str, Any], *, quiet: bool
) -> Trained:
    assert data_task.train is not None
    if not quiet:
        click.echo(f"training on {len(data_task.train)} windows, {model.boundaries} patches", err=True)
    estimator = GeoPatch(
        model=model, train=settings, random_state=flags["seed"], device=flags["device"], progress=not quiet
    )
    return train(data_task.train, estimator, flags["preset"] or PRESET)
