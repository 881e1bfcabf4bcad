"""Baselines under the same protocols and stresses, as rows beside ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from geopatch.data.collection import Collection
from geopatch.errors import ConfigError
from geopatch.evaluate.metrics import ScoredQueries, retrieval_scores
from geopatch.evaluate.retrieval import CHUNK, DEFAULT_STRESSES, check_labels, make_row
from geopatch.evaluate.rows import Row
from geopatch.evaluate.stress import GEOMETRY_NOISE, Stress
from geopatch.protocol import Places, Protocol, places
from geopatch_lab.baselines.method import Method

SCORER = "own"  # a baseline scores in its own way


@dataclass(frozen=True, eq=False)
class Rival:
    """A fitted baseline with what its rows need to say."""

    method: Method
    seed: int
    fit_s: float
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"{self.method.name}, {self.method.amplitude}"


def train_rival(method: Method, collection: Collection, seed: int, device: str = "cpu") -> Rival:
    """Fit a baseline on a training collection, and take the time."""
    started = time.perf_counter()
    method.fit(collection.signals, collection.labels, seed)
    return Rival(method, seed, time.perf_counter() - started, device)


def evaluate_rival(
    rival: Rival,
    test: Collection,
    *,
    target: str = "class",
    protocol: Protocol | None = None,
    stresses: Sequence[str] = DEFAULT_STRESSES,
) -> list[Row]:
    """Rows of a baseline on a test collection, one for each stress."""
    protocol, labels, where = protocol or Protocol(), check_labels(test), places(test.signals)
    rows = []
    for stress in (Stress.parse(text) for text in stresses):
        if stress.name == GEOMETRY_NOISE:
            raise ConfigError(f"{rival.method.name} has no geometry that noise could touch; leave {stress.name} out")
        started = time.perf_counter()
        similarity = rival.method.scores(stress.queries(test.signals), stress.gallery(test.signals))
        taken = time.perf_counter() - started
        scores = retrieval_scores(_rankings(similarity, where, labels, protocol), labels=labels)
        rows.append(
            make_row(
                test,
                protocol,
                stress,
                scores,
                preset=rival.name,
                config_digest="",
                seed=rival.seed,
                scorer=SCORER,
                target=target,
                fit_s=rival.fit_s,
                encode_s=taken,
                device=rival.device,
            )
        )
    return rows


def _rankings(
    similarity: npt.NDArray[np.float32], where: Places, labels: npt.NDArray[np.str_], protocol: Protocol
) -> Iterator[ScoredQueries]:
    for start in range(0, len(similarity), CHUNK):
        part = slice(start, start + CHUNK)
        candidate = torch.from_numpy(protocol.candidates(where[part], where))
        relevant = torch.from_numpy(protocol.relevant(where[part], where, labels[part], labels))
        yield ScoredQueries(torch.from_numpy(np.ascontiguousarray(similarity[part])), candidate, relevant)
