"""Every test window as a query against the test windows, clean and under stress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.data.collection import Collection
from geopatch.errors import SignalError, one_of
from geopatch.estimator import Encoding, GeoPatch
from geopatch.evaluate.metrics import Ranking, Scores, retrieval_scores
from geopatch.evaluate.noise import DescriptorSpread, GeometryNoise
from geopatch.evaluate.protocol import Places, Protocol, places
from geopatch.evaluate.rows import Row, config_digest
from geopatch.evaluate.stress import GEOMETRY_NOISE, Stress
from geopatch.scoring import SCORERS, SHORTLIST, rerank
from geopatch.signal import Signal

CHUNK = 256  # queries scored at a time
DEFAULT_STRESSES = ("clean", "warp-queries")
DEFAULT_SCORERS = ("fused", "cosine")


@dataclass(frozen=True)
class Trained:
    """A fitted estimator with what its rows need to say about how it came to be."""

    estimator: GeoPatch
    preset: str
    seed: int
    fit_s: float

    @property
    def device(self) -> torch.device:
        """Where the encoder is, and where scores are taken."""
        return next(self.estimator.encoder_.parameters()).device


def train(collection: Collection, estimator: GeoPatch, preset: str) -> Trained:
    """Fit on a training collection, and take the time."""
    started = time.perf_counter()
    estimator.fit(collection.signals, collection.labels)
    return Trained(estimator, preset, estimator.seed, time.perf_counter() - started)


def evaluate(
    trained: Trained,
    test: Collection,
    *,
    protocol: Protocol | None = None,
    scorers: Sequence[str] = DEFAULT_SCORERS,
    stresses: Sequence[Stress | str] = DEFAULT_STRESSES,
) -> list[Row]:
    """Rows of a trained model on a test collection: each scorer under each stress."""
    protocol = protocol or Protocol()
    for scorer in scorers:
        one_of("scorer", scorer, SCORERS)
    asked = {stress.text: stress for stress in map(_parsed, stresses)}  # all stresses of strength 0 are one
    labels, where = check_labels(test), places(test.signals)
    sides, rows = _Sides.encoded(trained.estimator, test.signals), []
    for stress in asked.values():
        query, gallery = sides.under(stress)
        for scorer in scorers:
            scores = score(query, gallery, where, labels, protocol, scorer, trained.device)
            rows.append(_row(trained, test, protocol, scorer, stress, scores, sides.encode_s))
    return rows


def _parsed(stress: Stress | str) -> Stress:
    return stress if isinstance(stress, Stress) else Stress.parse(stress)


@dataclass(frozen=True, eq=False)
class _Sides:
    """Windows that are queries and gallery at once, and how they are encoded under a stress."""

    estimator: GeoPatch
    signals: Sequence[Signal]
    clean: Encoding
    spread: Tensor  # (G,) of the geometry descriptors
    encode_s: float

    @classmethod
    def encoded(cls, estimator: GeoPatch, signals: Sequence[Signal]) -> _Sides:
        seen, started = DescriptorSpread(), time.perf_counter()
        clean = estimator.encode(signals, between=seen)
        return cls(estimator, signals, clean, seen.spread, time.perf_counter() - started)

    def under(self, stress: Stress) -> tuple[Encoding, Encoding]:
        """Query and gallery; what the stress leaves alone is not encoded again."""
        if stress.name == GEOMETRY_NOISE:
            noise = GeometryNoise(stress.strength, self.spread)
            return self.estimator.encode(self.signals, between=noise), self.clean
        query, gallery = stress.queries(self.signals), stress.gallery(self.signals)
        return self._encode(query), self._encode(gallery)

    def _encode(self, signals: Sequence[Signal]) -> Encoding:
        same = all(one is other for one, other in zip(signals, self.signals, strict=True))
        return self.clean if same else self.estimator.encode(signals)


def check_labels(test: Collection) -> npt.NDArray[np.str_]:
    """The labels of a collection on which retrieval can be measured."""
    if test.labels is None:
        raise SignalError(f"{test.name} has no labels, so no hit can be called right; give a labelled collection")
    if len(np.unique(test.labels)) == len(test.labels):
        raise SignalError(
            f"no two windows of {test.name} have the same label, so no hit can be right; give more windows"
        )
    return test.labels


def score(
    query: Encoding,
    gallery: Encoding,
    where: Places,
    labels: npt.NDArray[np.str_],
    protocol: Protocol,
    scorer: str,
    device: torch.device | str = "cpu",
) -> Scores:
    """Metrics of queries against a gallery, both of the same places and labels in the same order."""
    sides = _tensors(query, device), _tensors(gallery, device)
    return retrieval_scores(_rankings(*sides, where, labels, protocol, scorer), labels=labels)


Tensors = tuple[Tensor, Tensor, Tensor]  # embedding (N, D), tokens (N, K, d), valid (N, K)


def _rankings(
    query: Tensors, gallery: Tensors, where: Places, labels: npt.NDArray[np.str_], protocol: Protocol, scorer: str
) -> Iterator[Ranking]:
    asked, asked_tokens, asked_valid = query
    embedding, tokens, valid = gallery
    for start in range(0, len(asked), CHUNK):
        part = slice(start, start + CHUNK)
        candidate = torch.from_numpy(protocol.candidates(where[part], where)).to(asked.device)
        cosine = (asked[part] @ embedding.mT).masked_fill(~candidate, -torch.inf)
        scores = rerank(cosine, asked_tokens[part], asked_valid[part], tokens, valid, scorer, SHORTLIST)
        relevant = torch.from_numpy(protocol.relevant(where[part], where, labels[part], labels)).to(asked.device)
        yield Ranking(scores, candidate, relevant)


def _tensors(encoding: Encoding, device: torch.device | str) -> Tensors:
    arrays = (encoding.embedding, encoding.tokens, encoding.valid)
    embedding, tokens, valid = (torch.from_numpy(array).to(device) for array in arrays)
    return embedding, tokens, valid


def _row(
    trained: Trained, test: Collection, protocol: Protocol, scorer: str, stress: Stress, scores: Scores, encode_s: float
) -> Row:
    estimator = trained.estimator
    return Row(
        data=test.name,
        data_digest=test.digest()[:12],
        preset=trained.preset,
        config_digest=config_digest(estimator.encoder_.config, estimator.train_config),
        seed=trained.seed,
        protocol=protocol.name,
        protocol_digest=protocol.digest,
        scorer=scorer,
        stress=stress.text,
        scores=scores.as_dict(),
        queries=scores.queries,
        without_positive=scores.without_positive,
        fit_s=trained.fit_s,
        encode_s=encode_s,
        peak_memory_mb=_peak_memory_mb(),
        device=str(trained.device),
        per_class=scores.per_class,
        stress_digest=stress.digest,
    )


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
