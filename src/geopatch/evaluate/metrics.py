"""Recall@R, MRR and mAP of ranked candidates, over all queries and by the class of the query.

A tie is no hit: among equal scores the wrong candidates stand first, so the order of the gallery never matters.
Queries without a right candidate are left out of the means and counted. Where one class is most of the data, the mean
over queries says little: the mean over classes stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.errors import SignalError
from geopatch.evaluate.rows import CLASS_MEAN

RECALL_AT = (1, 5, 10)


@dataclass(frozen=True)
class RetrievalScores:
    """Means over the queries that have a right candidate; by class where the queries' labels are known."""

    recall: dict[int, float]
    mrr: float
    map: float
    queries: int
    without_positive: int
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)  # label -> recall@1, map, queries

    def as_dict(self) -> dict[str, float]:
        recall = {f"recall@{rank}": value for rank, value in self.recall.items()}
        return {**recall, "mrr": self.mrr, "map": self.map, **self.class_means()}

    def class_means(self) -> dict[str, float]:
        """Every class counts the same, however many queries it has; empty where labels are not known."""
        columns: dict[str, list[float]] = {}
        for values in self.per_class.values():
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        return {f"{CLASS_MEAN}{name}": float(np.mean(column)) for name, column in columns.items() if name != "queries"}


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """RetrievalScores of a chunk of queries against the whole gallery, with what counts and what is right."""

    scores: Tensor  # (Q, N)
    candidate: Tensor  # (Q, N) bool
    relevant: Tensor  # (Q, N) bool


def retrieval_scores(
    chunks: Iterable[ScoredQueries], recall_at: tuple[int, ...] = RECALL_AT, labels: npt.NDArray[np.str_] | None = None
) -> RetrievalScores:
    """Metrics over chunks of queries: memory stays at one chunk times the gallery. `labels` are the queries'."""
    columns = [_per_query(chunk, recall_at) for chunk in chunks]
    measured = torch.cat(columns) if columns else torch.zeros(0, len(recall_at) + 3)
    if labels is not None and len(labels) != len(measured):
        raise SignalError(f"expected a label for each of {len(measured)} queries, got {len(labels)}")
    known = measured[:, -1] > 0
    counted = measured[known, :-1].double()
    means = counted.mean(0).tolist() if len(counted) else [float("nan")] * (len(recall_at) + 2)
    recall = dict(zip(recall_at, means, strict=False))
    per_class = {} if labels is None else _per_class(counted, labels[known.numpy()], recall_at)
    return RetrievalScores(recall, means[-2], means[-1], len(counted), len(measured) - len(counted), per_class)


def _per_class(
    counted: Tensor, labels: npt.NDArray[np.str_], recall_at: tuple[int, ...]
) -> dict[str, dict[str, float]]:
    """The first recall and mAP of each class that has a counted query, and how many it has."""
    scores = {}
    for label in np.unique(labels):
        own = counted[torch.from_numpy(labels == label)]
        means = own.mean(0)
        scores[str(label)] = {
            f"recall@{recall_at[0]}": float(means[0]),
            "map": float(means[-1]),
            "queries": float(len(own)),
        }
    return scores


def _per_query(chunk: ScoredQueries, recall_at: tuple[int, ...]) -> Tensor:
    """Recall at each R, reciprocal rank, average precision, number of positives: (Q, R + 3)."""
    hits = _ranked_hits(chunk)  # (Q, N) bool, best first
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits.cumsum(1) / rank
    positives = hits.sum(1)
    average = (precision * hits).sum(1) / positives.clamp(min=1)
    first = (hits / rank).amax(1)
    recall = [hits[:, :most].any(1) for most in recall_at]
    return torch.stack([*recall, first, average, positives], dim=1).cpu()


def _ranked_hits(chunk: ScoredQueries) -> Tensor:
    relevant = chunk.relevant & chunk.candidate
    scores = chunk.scores.masked_fill(~chunk.candidate, -torch.inf)
    place_in_tie = torch.where(chunk.candidate, relevant.to(torch.int8), 2)  # wrong, right, not in the ranking at all
    wrong_first = place_in_tie.argsort(dim=1, stable=True)
    order = scores.gather(1, wrong_first).argsort(dim=1, descending=True, stable=True)
    return relevant.gather(1, wrong_first.gather(1, order))
