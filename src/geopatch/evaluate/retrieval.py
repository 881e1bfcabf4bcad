"""Every test window as a query against the test windows, clean and under stress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.data.collection import Collection
from geopatch.encoding import Encoding
from geopatch.errors import SignalError, one_of
from geopatch.estimator import GeoPatch
from geopatch.evaluate.metrics import RetrievalScores, ScoredQueries, retrieval_scores
from geopatch.evaluate.noise import DescriptorSpread, GeometryNoise
from geopatch.evaluate.rows import Row, config_digest
from geopatch.evaluate.stress import GEOMETRY_NOISE, Stress
from geopatch.protocol import Places, Protocol, places
from geopatch.scoring import DEFAULT_SCORERS, SHORTLIST, encoded_scorers, rerank
from geopatch.signal import Signal

CHUNK = 256  # queries scored at a time
MOST_CLASSES = 40  # a row lists the scores of each class up to so many; their mean is always there
DEFAULT_STRESSES = ("clean", "warp-queries")


@dataclass(frozen=True)
class Trained:
    """A fitted estimator with what its rows say about how it came to be.

    Parameters
    ----------
    estimator : GeoPatch
        The fitted estimator.
    preset : str
        Its preset, or the folder it was loaded from.
    seed : int
        The seed it was trained with.
    fit_s : float
        Seconds that the training took.
    """

    estimator: GeoPatch
    preset: str
    seed: int
    fit_s: float

    @property
    def device(self) -> torch.device:
        """Where the encoder is, and where scores are taken."""
        return self.estimator.encoder_.level.device

    def as_row(self) -> dict[str, Any]:
        """What a row says about the model.

        Returns
        -------
        dict
            Fields of `Row`.
        """
        return {
            "preset": self.preset,
            "config_digest": config_digest(self.estimator.encoder_.config, self.estimator.train_config),
            "seed": self.seed,
            "fit_s": self.fit_s,
            "device": str(self.device),
        }


def train(collection: Collection, estimator: GeoPatch, preset: str) -> Trained:
    """Fit on a training collection, and take the time.

    Where several windows are of one record, records are the groups that choices are made on.

    Parameters
    ----------
    collection : Collection
        The training windows with their labels.
    estimator : GeoPatch
        What is fitted.
    preset : str
        What rows call it.

    Returns
    -------
    Trained
        The estimator with the seconds it took.
    """
    started = time.perf_counter()
    estimator.fit(collection.signals, collection.labels, _groups(collection))
    return Trained(estimator, preset, estimator.seed_, time.perf_counter() - started)


def _groups(collection: Collection) -> list[str] | None:
    records = [signal.record for signal in collection.signals]
    known = len(set(records))
    return records if collection.labels is not None and 1 < known < len(records) else None


def evaluate(
    trained: Trained,
    test: Collection,
    *,
    gallery: Collection | None = None,
    target: str = "class",
    protocol: Protocol | None = None,
    scorers: Sequence[str] = DEFAULT_SCORERS,
    stresses: Sequence[Stress | str] = DEFAULT_STRESSES,
) -> list[Row]:
    """Measure a trained model: each scorer under each stress.

    Parameters
    ----------
    trained : Trained
        The model.
    test : Collection
        The queries with their labels.
    gallery : Collection, optional
        What is searched; by default the test windows search each other.
    target : str, default="class"
        What the labels are, for the rows.
    protocol : Protocol, optional
        Which candidates count; by default all but the query itself.
    scorers : sequence of str, default=("fused", "cosine")
        What ranks; those that need values are not measured here.
    stresses : sequence of Stress or str
        What queries are put under; by default clean and warped queries.

    Returns
    -------
    list of Row
        One for each scorer and stress.

    Raises
    ------
    SignalError
        When there are no labels, or no two windows share one.
    ConfigError
        When a scorer or stress is unknown.
    """
    protocol = protocol or Protocol()
    for scorer in scorers:
        one_of("scorer", scorer, encoded_scorers())
    chosen = {stress.text: stress for stress in map(_parsed, stresses)}  # all stresses of strength 0 are one
    sides, rows = Sides.encoded(trained.estimator, test, gallery), []
    for stress in chosen.values():
        query, kept = sides.under(stress)
        for scorer in scorers:
            scores = score(query, kept, protocol, scorer, trained.device)
            how = {**trained.as_row(), "scorer": scorer, "target": target, "encode_s": sides.encode_s}
            rows.append(make_row(test, protocol, stress, scores, **how))
    return rows


def _parsed(stress: Stress | str) -> Stress:
    return stress if isinstance(stress, Stress) else Stress.parse(stress)


@dataclass(frozen=True, eq=False)
class EncodedSide:
    """EncodedSide windows with what a protocol needs to know of them."""

    encoding: Encoding
    where: Places
    labels: npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Sides:
    """Queries and gallery (None: the queries themselves), and how they are encoded under a stress."""

    estimator: GeoPatch
    test: Collection
    gallery: Collection | None
    query: EncodedSide
    kept: EncodedSide
    spread: Tensor  # (G,) of the geometry descriptors
    encode_s: float

    @classmethod
    def encoded(cls, estimator: GeoPatch, test: Collection, gallery: Collection | None) -> Sides:
        labels = check_labels(test) if gallery is None else known_labels(test)
        seen, started = DescriptorSpread(), time.perf_counter()
        query = EncodedSide(estimator.encode(test.signals, between=seen), places(test.signals), labels)
        taken = time.perf_counter() - started
        kept = query
        if gallery is not None:
            kept = EncodedSide(estimator.encode(gallery.signals), places(gallery.signals), known_labels(gallery))
        return cls(estimator, test, gallery, query, kept, seen.spread, taken)

    def under(self, stress: Stress) -> tuple[EncodedSide, EncodedSide]:
        """Query and gallery; what the stress leaves alone is not encoded again."""
        if stress.name == GEOMETRY_NOISE:
            noise = GeometryNoise(stress.strength, self.spread)
            return replace(self.query, encoding=self.estimator.encode(self.test.signals, between=noise)), self.kept
        gallery = self.test if self.gallery is None else self.gallery
        query = self._encode(self.query, self.test.signals, stress.queries(self.test.signals))
        return query, self._encode(self.kept, gallery.signals, stress.gallery(gallery.signals))

    def _encode(self, clean: EncodedSide, signals: Sequence[Signal], stressed: Sequence[Signal]) -> EncodedSide:
        same = all(one is other for one, other in zip(stressed, signals, strict=True))
        return clean if same else replace(clean, encoding=self.estimator.encode(stressed))


def known_labels(collection: Collection) -> npt.NDArray[np.str_]:
    if collection.labels is None:
        raise SignalError(f"{collection.name} has no labels, so no hit can be called right; give a labelled collection")
    return collection.labels


def check_labels(test: Collection) -> npt.NDArray[np.str_]:
    """The labels of a collection on which retrieval can be measured."""
    labels = known_labels(test)
    if len(np.unique(labels)) == len(labels):
        raise SignalError(
            f"no two windows of {test.name} have the same label, so no hit can be right; give more windows"
        )
    return labels


def score(
    query: EncodedSide, gallery: EncodedSide, protocol: Protocol, scorer: str, device: torch.device | str = "cpu"
) -> RetrievalScores:
    """Metrics of queries against a gallery."""
    return retrieval_scores(_rankings(query, gallery, protocol, scorer, device), labels=query.labels)


Tensors = tuple[Tensor, Tensor, Tensor]  # embedding (N, D), tokens (N, K, d), valid (N, K)


def _rankings(
    query: EncodedSide, gallery: EncodedSide, protocol: Protocol, scorer: str, device: torch.device | str
) -> Iterator[ScoredQueries]:
    queries, query_tokens, query_valid = _tensors(query.encoding, device)
    embedding, tokens, valid = _tensors(gallery.encoding, device)
    for start in range(0, len(queries), CHUNK):
        part = slice(start, start + CHUNK)
        where, labels = query.where[part], query.labels[part]
        candidate = torch.from_numpy(protocol.candidates(where, gallery.where)).to(queries.device)
        cosine = (queries[part] @ embedding.mT).masked_fill(~candidate, -torch.inf)
        scores = rerank(cosine, query_tokens[part], query_valid[part], tokens, valid, scorer, SHORTLIST)
        relevant = torch.from_numpy(protocol.relevant(where, gallery.where, labels, gallery.labels)).to(queries.device)
        yield ScoredQueries(scores, candidate, relevant)


def _tensors(encoding: Encoding, device: torch.device | str) -> Tensors:
    arrays = (encoding.embedding, encoding.tokens, encoding.valid)
    embedding, tokens, valid = (torch.from_numpy(array).to(device) for array in arrays)
    return embedding, tokens, valid


def make_row(test: Collection, protocol: Protocol, stress: Stress, scores: RetrievalScores, **how: Any) -> Row:
    """One measurement; `how` says by what, on what and in which time."""
    return Row(
        data=test.name,
        data_digest=test.digest()[:12],
        protocol=protocol.name,
        protocol_digest=protocol.digest,
        stress=stress.text,
        stress_digest=stress.digest,
        scores=scores.as_dict(),
        queries=scores.queries,
        without_positive=scores.without_positive,
        per_class=scores.per_class if len(scores.per_class) <= MOST_CLASSES else {},
        peak_memory_mb=_peak_memory_mb(),
        **how,
    )


def _peak_memory_mb() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
