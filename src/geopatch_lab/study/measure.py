"""One job done: a method trained on the train side of a set and measured on its test side, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from geopatch.data.collection import Collection
from geopatch.errors import ConfigError, DataError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, evaluate, train
from geopatch.evaluate.retrieval import DEFAULT_STRESSES
from geopatch.evaluate.stress import STRESSES
from geopatch.evaluate.task import Task, check_sense
from geopatch.protocol import MEANING, Protocol
from geopatch.scoring import encoded_scorers
from geopatch.storage import atomic_file
from geopatch_lab.baselines import Choice, better_amplitude, make
from geopatch_lab.rival import evaluate_rival, train_rival
from geopatch_lab.study.ablations import ALL_ABLATIONS, WITHOUT_LABELS, setting
from geopatch_lab.study.classification import classified
from geopatch_lab.study.jobs import CLASSIFY, Job
from geopatch_lab.study.pack import read_pack
from geopatch_lab.study.sets import ROBUSTNESS

ABLATION_SCORERS = ("cosine", "maxsim")
KEEP = "keep"  # archives come scaled as their papers took them
MOST_CHOOSING = 300  # training windows that a choice looks at


def measured(job: Job, packs: Path, choices: Path, device: str) -> list[Row]:
    """The rows of a job that measures."""
    task = read_pack(packs, job.data, job.target)
    if job.aim == CLASSIFY:
        return list(_classified(job, task, device))
    rows = _baseline(job, task, choices, device) if job.is_baseline else _encoder(job, task, device)
    return [replace(row, preset=_named(job, row)) for row in rows]


def _named(job: Job, row: Row) -> str:
    return row.preset if job.is_baseline else job.title


def _encoder(job: Job, task: Task, device: str) -> Iterator[Row]:
    assert task.train is not None
    chosen = setting(job.method, job.budget)
    estimator = GeoPatch(model=chosen.model, train=chosen.train, random_state=job.seed, device=device)
    side = task.train
    seen = Collection(side.name, side.signals) if job.method in WITHOUT_LABELS else side
    trained = train(seen, estimator, job.method)
    scorers = ABLATION_SCORERS if job.method in ALL_ABLATIONS else encoded_scorers()
    for protocol in protocols(task):
        stresses = _stresses(job) if protocol.name == "standard" else ("clean",)
        yield from evaluate(
            trained, task.test, target=task.target, protocol=protocol, scorers=scorers, stresses=stresses
        )


def _stresses(job: Job) -> tuple[str, ...]:
    return STRESSES if job.data in ROBUSTNESS and job.method not in ALL_ABLATIONS else DEFAULT_STRESSES


def protocols(task: Task) -> Iterator[Protocol]:
    """Every protocol that makes sense of a task."""
    for name in MEANING:
        try:
            check_sense(task.test, task.target, Protocol(name))
        except ConfigError:
            continue
        yield Protocol(name)


def _baseline(job: Job, task: Task, choices: Path, device: str) -> Iterator[Row]:
    assert task.train is not None
    choice = read_choice(choices, job)
    method = make(job.method, amplitude=choice.amplitude, train=job.budget, device=device)
    yield from evaluate_rival(train_rival(method, task.train, job.seed, device), task.test, target=task.target)


def _classified(job: Job, task: Task, device: str) -> Iterator[Row]:
    assert task.train is not None
    method = make(job.method, amplitude=KEEP, train=job.budget, device=device)
    yield from classified(train_rival(method, task.train, job.seed, device), task.train, task.test)


def choose(job: Job, train: Collection, device: str) -> Choice:
    """The treatment of amplitude that suits a baseline, found on training windows alone."""
    return better_amplitude(job.method, train, budget=job.budget, device=device, most=MOST_CHOOSING)


def write_choice(choices: Path, job: Job, choice: Choice) -> None:
    with atomic_file(choices / f"{job.key}.json") as partial:
        payload = {"data": job.data, "target": job.target, "method": job.method, **asdict(choice)}
        partial.write_text(json.dumps(payload) + "\n", encoding="utf-8")


def read_choice(choices: Path, job: Job) -> Choice:
    """What was chosen for a baseline before it is measured."""
    path = choices / f"{job.after}.json"
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
        return Choice(payload["amplitude"], payload["recall"])
    except (OSError, json.JSONDecodeError, KeyError) as error:
        raise DataError(
            f"no choice of amplitude for {job.method} on {job.data} in {path}; run that job first"
        ) from error
