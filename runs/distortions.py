"""Retrieval under the nine distortions of queries: development sets, and archive sets that no choice has seen.

A machine that has the archives packs them; one with a GPU, torch, numpy, safetensors and scikit-learn measures. A run
that was stopped goes on where it was. DTW needs no training and is measured with amplitude kept and z-scored.

    python runs/distortions.py --prepare archive --packs packs --rows rows.jsonl
    python runs/distortions.py --packs packs --rows rows.jsonl --device cuda --workers 8 --seeds 3
    python runs/distortions.py --packs packs --rows rows.jsonl --sets others instant default dtw dtw-10
    python runs/distortions.py --rows rows.jsonl --table
    python runs/distortions.py --packs packs --rows tried.jsonl \
        --variant "few directions" '{"preset": "instant", "labels": false, "model": {"embedding": 64}}' "few directions"
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from filelock import FileLock
from side_by_side import add_flags, side_by_side

from geopatch.config import PRESETS, TrainConfig
from geopatch.data.collection import Collection
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, distortions, evaluate, read_rows, train
from geopatch_lab.baselines import make
from geopatch_lab.baselines.method import AMPLITUDES
from geopatch_lab.rival import evaluate_rival, train_rival
from geopatch_lab.study.pack import read_pack, write_packs
from geopatch_lab.study.sets import FULL, POOL

DEVELOPMENT = (  # choices were made while their test splits were looked at
    *("ArticularyWordRecognition", "ERing", "Epilepsy", "Handwriting", "NATOPS", "UWaveGestureLibrary"),
    *("AllGestureWiimoteX", "AllGestureWiimoteZ", "OSULeaf", "Adiac", "ArrowHead", "Fish", "MedicalImages"),
    *("ToeSegmentation1", "ShakeGestureWiimoteZ", "DiatomSizeReduction"),
)
OTHERS = (
    *("AbnormalHeartbeat", "AtrialFibrillation", "BasicMotions", "CharacterTrajectories", "FingerMovements"),
    *("HandMovementDirection", "AllGestureWiimoteY", "ECG5000", "GunPoint", "Trace"),
    *(name for name in POOL if name not in DEVELOPMENT),
)
TARGETS = {"mitdb": "subject"}  # a set that has no classes
SETS = {"development": DEVELOPMENT, "others": OTHERS}
WHOLE = replace(FULL, pool_train=0, pool_test=0)
STRESSES = tuple(stress.text for stress in distortions())
SCORERS = ("fused", "cosine")
PEERS = ("dtw", "dtw-10")
BETTER = "better by set"  # of the two treatments of amplitude, the one with the higher clean R@1


@dataclass(frozen=True)
class Variant:
    """What is fitted, on which side, with labels or without."""

    preset: str
    labels: bool = True
    fit_on: str = "train"
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


VARIANTS = {
    "instant": Variant("instant", labels=False),
    "instant, gallery": Variant("instant", labels=False, fit_on="test"),
    "default": Variant("default"),
    "learned": Variant("default", model={"halves": ("learned",)}),
    "learned, no labels": Variant("default", labels=False, model={"halves": ("learned",)}),
    "paper": Variant("paper"),
}


@dataclass(frozen=True)
class Job:
    """One training or peer on one set."""

    data: str
    name: str
    seed: int
    variant: Variant | None  # None: a peer

    @property
    def presets(self) -> tuple[str, ...]:
        """What its rows are called."""
        return (self.name,) if self.variant else tuple(f"{self.name}, {amplitude}" for amplitude in AMPLITUDES)


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """Seed by seed, so that a run that is stopped has all sets."""
    more = {name: Variant(**json.loads(settings)) for name, settings in arguments.variant}
    known = {**VARIANTS, **more, **dict.fromkeys(PEERS)}
    for seed in range(arguments.seeds):
        for name in arguments.names or ("instant", "instant, gallery", "default", *PEERS):
            for data in arguments.only or SETS[arguments.sets]:
                job = Job(data, name, seed, known[name])
                if seed == 0 or job.variant is not None:  # a peer has no chance
                    yield job


def work(arguments: argparse.Namespace, claims: Path) -> None:
    """One worker: the jobs of the list that have no rows yet and that no other worker has claimed."""
    started = time.monotonic()
    done = {(row.data, row.preset, row.seed) for row in read_rows(arguments.rows)} if arguments.rows.exists() else set()
    for number, job in enumerate(jobs(arguments)):
        if time.monotonic() - started > arguments.seconds:
            return
        if all((job.data, preset, job.seed) in done for preset in job.presets) or not claimed(claims / str(number)):
            continue
        rows = run(job, arguments.packs, arguments.device, arguments.scorers)
        with FileLock(f"{arguments.rows}.lock"):
            append_rows(arguments.rows, rows)
        print(f"{time.monotonic() - started:6.1f} s  {job.name}, seed {job.seed}: {job.data}", flush=True)


def claimed(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def run(job: Job, packs: Path, device: str, scorers: Sequence[str] = SCORERS) -> list[Row]:
    task = read_pack(packs, job.data, TARGETS.get(job.data, "class"))
    assert task.train is not None
    if job.variant is None:
        rows = []
        for amplitude in AMPLITUDES:
            peer = train_rival(make(job.name, amplitude=amplitude, device=device), task.train, job.seed, device)
            rows += evaluate_rival(peer, task.test, target=task.target, stresses=STRESSES)
        return rows
    variant = job.variant
    model = replace(PRESETS[variant.preset], **_tuples(variant.model))
    training = replace(TrainConfig(), **_tuples(variant.train))
    side = task.train if variant.fit_on == "train" else task.test
    collection = side if variant.labels else Collection(side.name, side.signals)
    estimator = GeoPatch(model=model, train=training, random_state=job.seed, device=device)
    fitted = train(collection, estimator, job.name)
    return evaluate(fitted, task.test, target=task.target, scorers=scorers, stresses=STRESSES)


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def prepare(root: Path, packs: Path) -> None:
    """Development sets whole, other sets as the study takes them."""
    for names, thinning in ((DEVELOPMENT, WHOLE), (OTHERS, FULL)):
        written = write_packs(names, root, packs, thinning)
        print(f"{len(written)} of {len(names)} sets in {packs}; not there: {sorted({*names} - {*written}) or 'none'}")


def table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Means over sets and seeds of R@1 / mAP, clean and under each distortion, and the mean of the nine."""
    rows = [row for row in rows if row.data in names and row.stress in STRESSES]
    rows = [*rows, *(row for peer in PEERS for row in _better(rows, peer))]
    lines = ["| | sets, seeds | " + " | ".join([*STRESSES, "mean of nine"]) + " |", "|" + "---|" * (len(STRESSES) + 3)]
    for preset, scorer in dict.fromkeys((row.preset, row.scorer) for row in rows):
        mine = [row for row in rows if (row.preset, row.scorer) == (preset, scorer)]
        cells = [_cell([row for row in mine if row.stress == stress]) for stress in STRESSES]
        cells.append(_cell([row for row in mine if row.stress != "clean"]))
        counted = f"{len({row.data for row in mine})}, {len({row.seed for row in mine})}"
        lines.append(f"| {preset}, {scorer} | {counted} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _better(rows: Sequence[Row], peer: str) -> Iterator[Row]:
    clean: dict[str, tuple[float, str]] = {}
    for row in rows:
        if row.stress == "clean" and row.preset in (f"{peer}, {amplitude}" for amplitude in AMPLITUDES):
            clean[row.data] = max(clean.get(row.data, (-1.0, "")), (row.scores["recall@1"], row.preset))
    for row in rows:
        if row.data in clean and row.preset == clean[row.data][1]:
            yield replace(row, preset=f"{peer}, {BETTER}")


def _cell(rows: Sequence[Row]) -> str:
    """Every set counts the same, however many seeds it has."""
    if not rows:
        return "-"
    means = []
    for metric in ("recall@1", "map"):
        by_set: dict[str, list[float]] = {}
        for row in rows:
            by_set.setdefault(row.data, []).append(row.scores[metric])
        means.append(mean(map(mean, by_set.values())))
    return " / ".join(f"{value:.3f}" for value in means)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join([*VARIANTS, *PEERS])} and those of --variant")
    parser.add_argument("--sets", choices=SETS, default="development")
    parser.add_argument("--only", nargs="*", help="these sets alone")
    parser.add_argument("--variant", nargs=2, action="append", default=[], metavar=("NAME", "SETTINGS"))
    parser.add_argument("--scorers", nargs="*", default=SCORERS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--prepare", type=Path, metavar="DATA_ROOT")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no job after so long")
    add_flags(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.prepare is not None:
        prepare(arguments.prepare, arguments.packs)
        return
    claims = Path(f"{arguments.rows}.claims")
    if arguments.worker is None and not arguments.table:
        shutil.rmtree(claims, ignore_errors=True)
        claims.mkdir(parents=True)
    if arguments.table or side_by_side(arguments, range(arguments.workers), lambda _: work(arguments, claims)):
        print(table(read_rows(arguments.rows), SETS[arguments.sets]))


if __name__ == "__main__":
    main()
