"""Retrieval on ECG: MITDB by patient under every protocol, NSTDB over its noise, NSRDB by subject.

Reads prepared windows (`geopatch data prepare mitdb nstdb nsrdb`), so that a machine with torch alone can run it.

The level of NSTDB is not that of MITDB (their converters have another zero), so what compares the two is filtered:
prepare both a second time with `--band 0.5,40 --cache filtered`.

    python runs/ecg.py --cache cache --filtered filtered --rows results/ecg.jsonl --workers 14 --device cuda
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from side_by_side import add_flags, side_by_side

from geopatch.config import PRESETS
from geopatch.data.cache import Cache
from geopatch.data.collection import Collection
from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, train
from geopatch.evaluate.retrieval import Trained
from geopatch.evaluate.task import check_sense, thinned
from geopatch.protocol import MEANING, Protocol

SCORERS = ("cosine", "maxsim", "fused", "bridge")
TRAIN_PER_RECORD, TEST_PER_RECORD = 600, 200
NOISE_STARTS_S, NOISE_LASTS_S = 300, 120  # of NSTDB: two minutes of noise, two without, from the fifth minute on
UNDER_NOISE = ("118", "119")


@dataclass(frozen=True)
class Job:
    """One training and all that is measured on it."""

    data: str
    target: str
    geometry: str
    seed: int

    @property
    def preset(self) -> str:
        return "default" if self.geometry == "values" else "default, clock geometry"


def jobs(seeds: int) -> Iterator[Job]:
    for seed in range(seeds):
        for target in ("subject", "beat", "rhythm", "rate"):
            yield Job("mitdb", target, "values", seed)
        for target in ("subject", "beat"):
            yield Job("mitdb", target, "clock", seed)
        yield Job("nstdb", "subject", "values", seed)
        yield Job("nsrdb", "subject", "values", seed)


def trained_on(collection: Collection, job: Job, device: str) -> Trained:
    model = replace(PRESETS["default"], geometry_source=job.geometry)
    return train(collection, GeoPatch(model=model, random_state=job.seed, device=device), job.preset)


def split_rows(job: Job, cache: Path, device: str) -> Iterator[Row]:
    """Trained on the train side, measured on the test side under every protocol that makes sense."""
    windows = Cache(cache / job.data)
    test = thinned(windows.windows("test"), TEST_PER_RECORD).collection(job.target)
    trained = trained_on(thinned(windows.windows("train"), TRAIN_PER_RECORD).collection(job.target), job, device)
    for name in MEANING:
        protocol = Protocol(name)
        try:
            check_sense(test, job.target, protocol)
        except ConfigError:
            continue
        stresses = ("clean", "warp-queries") if name == "standard" or name.startswith("strict") else ("clean",)
        yield from evaluate(trained, test, target=job.target, protocol=protocol, scorers=SCORERS, stresses=stresses)


def noise_rows(job: Job, cache: Path, device: str) -> Iterator[Row]:
    """Noisy windows of two patients look for their patient among clean windows of 24; none of them trained.

    The clean copy of the query's own stretch is no candidate (strict-nonoverlap).
    """
    mitdb, nstdb = Cache(cache / "mitdb"), Cache(cache / "nstdb").windows("test")
    patients = thinned(mitdb.windows("train"), TRAIN_PER_RECORD)
    is_other = np.asarray([signal.record not in UNDER_NOISE for signal in patients.signals])
    trained = trained_on(patients.subset(is_other).collection("subject"), job, device)
    clean = thinned(patients.subset(~is_other), TEST_PER_RECORD).collection("subject")
    others = thinned(mitdb.windows("test"), TEST_PER_RECORD).collection("subject")
    gallery = together("clean windows of 24 patients", others, clean)
    yield from measured(trained, renamed(clean, "nstdb, no noise", "clean "), gallery)
    for record in ("e24", "e18", "e12", "e06", "e00", "e_6"):
        is_asked = [is_noisy(signal.record, signal.start_s, record) for signal in nstdb.signals]
        noisy = nstdb.subset(np.asarray(is_asked))
        snr = int(record[1:].replace("_", "-"))
        queries = thinned(noisy, TEST_PER_RECORD).collection("subject")
        yield from measured(trained, renamed(queries, f"nstdb, {snr} dB", ""), gallery)


def measured(trained: Trained, queries: Collection, gallery: Collection) -> list[Row]:
    return evaluate(
        trained,
        queries,
        gallery=gallery,
        target="subject",
        protocol=Protocol("strict-nonoverlap"),
        scorers=SCORERS,
        stresses=("clean",),
    )


def is_noisy(record: str, start_s: float, noise: str) -> bool:
    """Whether a window of this noise lies whole in a stretch that has it."""
    into = (start_s - NOISE_STARTS_S) % (2 * NOISE_LASTS_S)
    return record.endswith(noise) and start_s >= NOISE_STARTS_S and into + 2 <= NOISE_LASTS_S


def renamed(queries: Collection, name: str, prefix: str) -> Collection:
    """Queries on the timeline of the clean record, so that their own stretch of it can be left out."""
    signals = [replace(one, record=one.record[:3], id=f"{prefix}{one.id}") for one in queries.signals]
    return replace(queries, name=name, signals=tuple(signals))


def together(name: str, one: Collection, other: Collection) -> Collection:
    assert one.labels is not None
    assert other.labels is not None
    return Collection(name, (*one.signals, *other.signals), np.concatenate([one.labels, other.labels]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--filtered", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=("mitdb", "nstdb", "nsrdb"))
    parser.add_argument("--seeds", type=int, default=3)
    add_flags(parser)
    return parser.parse_args()


if __name__ == "__main__":
    asked = parse()

    def measure(job: Job) -> None:
        if job.data == "nstdb":
            append_rows(asked.rows, noise_rows(job, asked.filtered, asked.device))
        else:
            append_rows(asked.rows, split_rows(job, asked.cache, asked.device))

    side_by_side(asked, [job for job in jobs(asked.seeds) if job.data in asked.only], measure)
