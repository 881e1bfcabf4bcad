"""The work of the study as a list of jobs: the same list in the same order wherever it is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from geopatch.config import TrainConfig
from geopatch.errors import DataError, one_of
from geopatch.storage import atomic_file
from geopatch_lab.baselines.registry import METHODS, NETWORKS
from geopatch_lab.study import paper, sets
from geopatch_lab.study.ablations import ALL_ABLATIONS, ENCODERS, FULL, INSTANT

PARTS = ("main", "late", "robustness", "ablations", "stability", "pool", "published", "long")
MEASURE, CHOOSE, CLASSIFY = "measure", "choose", "classify"
STABILITY, STABILITY_QUICK = "stability", "stability-quick"  # the theorems, at either size
WITH_AEON = ("catch22", "multirocket-hydra-ridge")
WITHOUT_CHANCE = ("euclidean", "dtw", "dtw-10", "catch22")  # one seed tells all
PRESETS = ("default", INSTANT, FULL, "paper")
SEEDS = (0, 1, 2)
ABLATION_SETS = ("nsrdb", "mitdb", "Handwriting")
STABILITY_SETS = ("nsrdb", "mitdb")
LONG = "long"  # the part in which the paper's claims are judged again, after ten times the steps
LONG_SETS = ("nsrdb", "nstdb", "mitdb", "arctic", "Handwriting")
LONG_ABLATIONS = ("no-geometry", "boundaries-adaptive", "minus-curvature", "minus-residual", "other-aggregate")
SPEECH_ABLATIONS = ("no-geometry", "minus-curvature", "minus-residual")  # what the paper says of speech
POOL_METHODS = ("minirocket-ridge", "dtw-10", "euclidean")
STEPS, BATCH = 500, 64  # of every training, to keep the whole short; GeoPatch's own are 1200 and 128
LONG_STEPS, LONG_BATCH = 5000, 128
PUBLISHED_TIMES = 3  # as many steps where a baseline is compared with its own paper
AT = "@"  # between a method and a budget of its own
CHOICE_STEPS = 200  # of a training that only compares two treatments of amplitude


@dataclass(frozen=True)
class Job:
    """One method on one set with one seed: its scores, what the theorems say of it, or a baseline's choice."""

    part: str  # the first that asks for it
    data: str
    target: str
    method: str
    seed: int = 0
    aim: str = MEASURE
    steps: int = STEPS
    batch: int = BATCH

    def __post_init__(self) -> None:
        one_of("part", self.part, PARTS)
        one_of("method", self.method, (*ENCODERS, *METHODS))
        one_of("aim", self.aim, (MEASURE, CHOOSE, CLASSIFY, STABILITY, STABILITY_QUICK))

    @property
    def key(self) -> str:
        """Its name: two jobs of one name are one."""
        trains = self.method in NETWORKS or not (self.is_baseline or self.method == INSTANT)
        budget = f".{self.budget.max_steps}x{self.batch}" if trains else ""
        return f"{self.aim}.{self.data}.{self.target}.{self.method}.{self.seed}{budget}"

    @property
    def title(self) -> str:
        """What its rows call the method: with the budget, where that is not the one of all others."""
        return f"{self.method}{AT}{self.steps}x{self.batch}" if self.part == LONG else self.method

    @property
    def needs(self) -> str:
        return "aeon" if self.method in WITH_AEON else "torch"

    @property
    def is_baseline(self) -> bool:
        return self.method in METHODS

    @property
    def is_theory(self) -> bool:
        return self.aim in (STABILITY, STABILITY_QUICK)

    @property
    def after(self) -> str | None:
        """The job whose result this one needs."""
        if not self.is_baseline or self.aim != MEASURE:
            return None
        return replace(self, aim=CHOOSE, seed=0).key

    @property
    def budget(self) -> TrainConfig:
        steps = min(self.steps, CHOICE_STEPS) if self.aim == CHOOSE else self.steps
        return TrainConfig(min_steps=steps, max_steps=steps, batch_size=self.batch)

    @property
    def cost(self) -> float:
        """Roughly how long it takes, in trainings of the learned half; long jobs go first."""
        method = METHOD_COST.get(self.method, 1.5 if self.method in NETWORKS else 1.0)
        return method * DATA_COST.get(self.data, 1.0) * AIM_COST.get(self.aim, 1.0)


AIM_COST = {CHOOSE: 1.3, STABILITY: 5.0, STABILITY_QUICK: 5.0}
METHOD_COST = {"inceptiontime": 2.0, "transformer": 3.0, "minirocket": 0.3, "minirocket-ridge": 0.4, "euclidean": 0.1}
METHOD_COST |= {"default": 1.5, INSTANT: 0.7, "dtw": 8.0, "dtw-10": 3.0, "multirocket-hydra-ridge": 2.0, "catch22": 1.0}
DATA_COST = {"AbnormalHeartbeat": 3.0, "arctic": 2.0, "mitdb": 2.0, "nstdb": 1.5, "CharacterTrajectories": 1.5}
DATA_COST |= {"HandMovementDirection": 1.5, "EOGHorizontalSignal": 2.0, "EOGVerticalSignal": 2.0, "ACSF1": 2.0}


@dataclass(frozen=True)
class Scope:
    """How much of the study: all of it, or a small version that goes the same way."""

    seeds: tuple[int, ...] = SEEDS
    main: tuple[str, ...] = sets.MAIN
    late: tuple[str, ...] = ("mitdb",)
    robustness: tuple[str, ...] = sets.ROBUSTNESS
    ablations: tuple[str, ...] = ABLATION_SETS
    stability: tuple[str, ...] = STABILITY_SETS
    pool: tuple[str, ...] = sets.POOL
    published: tuple[str, ...] = paper.PUBLISHED_SETS
    long: tuple[str, ...] = LONG_SETS
    steps: int = STEPS
    batch: int = BATCH
    long_steps: int = LONG_STEPS
    long_batch: int = LONG_BATCH
    stability_aim: str = STABILITY

    @property
    def data(self) -> tuple[str, ...]:
        """Every set it needs."""
        parts = (self.main, self.late, self.robustness, self.ablations, self.stability, self.pool, self.published)
        return tuple(dict.fromkeys(name for part in (*parts, self.long) for name in part))


WHOLE = Scope()
QUICK = Scope(
    seeds=(0,),
    main=("nsrdb", "mitdb", "BasicMotions"),
    robustness=("BasicMotions",),
    ablations=("nsrdb", "BasicMotions"),
    stability=("nsrdb",),
    pool=("BME", "ItalyPowerDemand", "Plane", "SmoothSubspace", "SyntheticControl", "UMD"),
    published=("GunPoint",),
    long=("nsrdb",),
    steps=12,
    batch=16,
    long_steps=24,
    long_batch=16,
    stability_aim=STABILITY_QUICK,
)


def jobs(scope: Scope, data: Iterable[str] | None = None, parts: Sequence[str] = PARTS) -> list[Job]:
    """Each job once, choices first, then part by part, the longest first; only sets that are among `data`."""
    there = set(scope.data if data is None else data)
    wanted: dict[str, Job] = {}
    for part in parts:
        one_of("part", part, PARTS)
        for job in BY_PART[part](scope):
            if job.data in there:
                wanted.setdefault(job.key, replace(job, part=part))
    return sorted(wanted.values(), key=lambda job: (job.aim != CHOOSE, PARTS.index(job.part), -job.cost, job.key))


def _job(scope: Scope, data: str, method: str, seed: int, target: str = "") -> Job:
    return Job("main", data, target or sets.target_of(data), method, seed, steps=scope.steps, batch=scope.batch)


def _encoders(scope: Scope, data: Iterable[str], methods: Sequence[str], target: str = "") -> Iterator[Job]:
    for name in data:
        for method in methods:
            yield from (_job(scope, name, method, seed, target) for seed in scope.seeds)


def _baselines(scope: Scope, data: Iterable[str], methods: Iterable[str]) -> Iterator[Job]:
    """Each with the choice that goes before it."""
    for name in data:
        for method in methods:
            for seed in scope.seeds[:1] if method in WITHOUT_CHANCE else scope.seeds:
                job = _job(scope, name, method, seed)
                yield from (replace(job, aim=CHOOSE, seed=0), job)


def _main(scope: Scope) -> Iterator[Job]:
    yield from _encoders(scope, scope.main, PRESETS)
    yield from _baselines(scope, scope.main, METHODS)


def _late(scope: Scope) -> Iterator[Job]:
    for target in ("subject", "beat"):
        yield from _encoders(scope, scope.late, PRESETS, target)


def _robustness(scope: Scope) -> Iterator[Job]:
    yield from _encoders(scope, scope.robustness, PRESETS)


def _ablations(scope: Scope) -> Iterator[Job]:
    for name in scope.ablations:
        yield from _encoders(scope, (name,), (FULL, *ALL_ABLATIONS), ablation_target(name))
    speech = [name for name in scope.main if name == sets.SPEECH]
    yield from _encoders(scope, speech, (FULL, *SPEECH_ABLATIONS))
    for name in scope.long:  # what the long budget is compared with
        yield from _encoders(scope, (name,), (FULL, *LONG_ABLATIONS), ablation_target(name))


def ablation_target(data: str) -> str:
    """MITDB by beat: there, a candidate of another record can be right."""
    return "beat" if data == "mitdb" else sets.target_of(data)


def _stability(scope: Scope) -> Iterator[Job]:
    """By subject on NSRDB, where nearly every beat is normal and retrieval by beat would be right by chance."""
    for name in scope.stability:
        for job in _encoders(scope, (name,), (FULL,), ablation_target(name)):
            yield replace(job, aim=scope.stability_aim)


def _pool(scope: Scope) -> Iterator[Job]:
    yield from _encoders(scope, scope.pool, ("default", INSTANT, FULL))
    yield from _baselines(scope, scope.pool, POOL_METHODS)


def _published(scope: Scope) -> Iterator[Job]:
    """With more steps than elsewhere, because those papers took many more."""
    for one in paper.PUBLISHED:
        for seed in scope.seeds[:1] if one.method in WITHOUT_CHANCE else scope.seeds:
            if one.data in scope.published:
                job = _job(scope, one.data, one.method, seed)
                yield replace(job, aim=CLASSIFY, steps=PUBLISHED_TIMES * job.steps)


def _long(scope: Scope) -> Iterator[Job]:
    """The paper's preset, the learned half and the ablations that its claims are about, with ten times the steps."""
    longer = replace(scope, steps=scope.long_steps, batch=scope.long_batch)
    for name in scope.long:
        yield from _encoders(longer, (name,), ("paper", FULL, *LONG_ABLATIONS), ablation_target(name))
        yield from _encoders(longer, (name,), ("paper", FULL))


BY_PART = {
    "main": _main,
    "late": _late,
    "robustness": _robustness,
    "ablations": _ablations,
    "stability": _stability,
    "pool": _pool,
    "published": _published,
    LONG: _long,
}


def write_jobs(path: Path, todo: Sequence[Job]) -> None:
    """One line a job."""
    with atomic_file(path) as partial:
        partial.write_text("".join(json.dumps(asdict(job)) + "\n" for job in todo), encoding="utf-8")


def read_jobs(path: Path) -> list[Job]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Job(**json.loads(line)) for line in lines]
    except OSError as error:
        raise DataError(f"cannot read jobs from {path}: {error.strerror}; check the path") from error
    except (json.JSONDecodeError, TypeError) as error:
        raise DataError(f"{path} is no list of jobs ({error}); write it again") from error
