"""Every test window as a query against the test windows: clean, and warped against a clean gallery."""

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
from geopatch.evaluate.protocol import Places, Protocol, places
from geopatch.evaluate.rows import Row, config_digest
from geopatch.evaluate.stress import warped
from geopatch.scoring import SHORTLIST, rerank

CHUNK = 256  # queries scored at a time
STRESSES = ("clean", "warped queries")
DEFAULT_SCORERS = ("fused", "cosine")


@dataclass(frozen=True)
class Trained:
    """A fitted estimator with what its rows need to say about how it came to be."""

    estimator: GeoPatch
    preset: str
    seed: int
    fit_s: float


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
    stresses: Sequence[str] = STRESSES,
) -> list[Row]:
    """Rows of a trained model on a test collection: each scorer under each stress."""
    protocol = protocol or Protocol()
    labels, where = check_labels(test), places(test.signals)
    started = time.perf_counter()
    gallery = trained.estimator.encode(test.signals)
    encode_s = time.perf_counter() - started
    rows = []
    for stress in stresses:
        query = gallery if stress == "clean" else trained.estimator.encode(stressed(test, stress))
        for scorer in scorers:
            scores = score(query, gallery, where, labels, protocol, scorer)
            rows.append(_row(trained, test, protocol, scorer, stress, scores, encode_s))
    return rows


def check_labels(test: Collection) -> npt.NDArray[np.str_]:
    """The labels of a collection on which retrieval can be measured."""
    if test.labels is None:
        raise SignalError(f"{test.name} has no labels, so no hit can be called right; give a labelled collection")
    if len(np.unique(test.labels)) == len(test.labels):
        raise SignalError(
            f"no two windows of {test.name} have the same label, so no hit can be right; give more windows"
        )
    return test.labels


def stressed(test: Collection, stress: str) -> list[object]:
    """The test windows as queries under a stress."""
    one_of("stress", stress, STRESSES)
    return [warped(signal) for signal in test.signals] if stress == "warped queries" else list(test.signals)


def score(
    query: Encoding, gallery: Encoding, where: Places, labels: npt.NDArray[np.str_], protocol: Protocol, scorer: str
) -> Scores:
    """Metrics of queries against a gallery, both of the same places and labels in the same order."""
    return retrieval_scores(_rankings(query, gallery, where, labels, protocol, scorer))


def _rankings(
    query: Encoding, gallery: Encoding, where: Places, labels: npt.NDArray[np.str_], protocol: Protocol, scorer: str
) -> Iterator[Ranking]:
    embedding, tokens, valid = _tensors(gallery)
    asked, asked_tokens, asked_valid = _tensors(query)
    for start in range(0, len(asked), CHUNK):
        part = slice(start, start + CHUNK)
        candidate = torch.from_numpy(protocol.candidates(where[part], where))
        cosine = (asked[part] @ embedding.mT).masked_fill(~candidate, -torch.inf)
        scores = rerank(cosine, asked_tokens[part], asked_valid[part], tokens, valid, scorer, SHORTLIST)
        relevant = protocol.relevant(where[part], where, labels[part], labels)
        yield Ranking(scores, candidate, torch.from_numpy(relevant))


def _tensors(encoding: Encoding) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(encoding.embedding), torch.from_numpy(encoding.tokens), torch.from_numpy(encoding.valid)


def _row(
    trained: Trained, test: Collection, protocol: Protocol, scorer: str, stress: str, scores: Scores, encode_s: float
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
        stress=stress,
        scores=scores.as_dict(),
        queries=scores.queries,
        without_positive=scores.without_positive,
        fit_s=trained.fit_s,
        encode_s=encode_s,
        peak_memory_mb=_peak_memory_mb(),
        device=str(next(estimator.encoder_.parameters()).device),
    )


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
