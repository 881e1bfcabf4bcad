"""Recall@R, MRR and mAP of ranked candidates.

A tie is no find: among equal scores the wrong candidates stand first, so the order of the gallery never matters.
Queries without a right candidate are left out of the means and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

RECALL_AT = (1, 5, 10)


@dataclass(frozen=True)
class Scores:
    """Means over the queries that have a right candidate."""

    recall: dict[int, float]
    mrr: float
    map: float
    queries: int
    without_positive: int

    def as_dict(self) -> dict[str, float]:
        recall = {f"recall@{rank}": value for rank, value in self.recall.items()}
        return {**recall, "mrr": self.mrr, "map": self.map}


@dataclass(frozen=True, eq=False)
class Ranking:
    """Scores of a chunk of queries against the whole gallery, with what counts and what is right."""

    scores: Tensor  # (Q, N)
    candidate: Tensor  # (Q, N) bool
    relevant: Tensor  # (Q, N) bool


def retrieval_scores(chunks: Iterable[Ranking], recall_at: tuple[int, ...] = RECALL_AT) -> Scores:
    """Metrics over chunks of queries: memory stays at one chunk times the gallery."""
    columns = [_per_query(chunk, recall_at) for chunk in chunks]
    found = torch.cat(columns) if columns else torch.zeros(0, len(recall_at) + 3)
    counted = found[found[:, -1] > 0, :-1].double()
    means = counted.mean(0).tolist() if len(counted) else [float("nan")] * (len(recall_at) + 2)
    recall = dict(zip(recall_at, means, strict=False))
    return Scores(recall, means[-2], means[-1], len(counted), len(found) - len(counted))


def _per_query(chunk: Ranking, recall_at: tuple[int, ...]) -> Tensor:
    """Recall at each R, reciprocal rank, average precision, number of positives: (Q, R + 3)."""
    hits = _ranked_hits(chunk)  # (Q, N) bool, best first
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits.cumsum(1) / rank
    positives = hits.sum(1)
    average = (precision * hits).sum(1) / positives.clamp(min=1)
    first = (hits / rank).amax(1)
    recall = [hits[:, :most].any(1) for most in recall_at]
    return torch.stack([*recall, first, average, positives], dim=1).cpu()


def _ranked_hits(chunk: Ranking) -> Tensor:
    relevant = chunk.relevant & chunk.candidate
    scores = chunk.scores.masked_fill(~chunk.candidate, -torch.inf)
    place_in_tie = torch.where(chunk.candidate, relevant.to(torch.int8), 2)  # wrong, right, not in the ranking at all
    wrong_first = place_in_tie.argsort(dim=1, stable=True)
    order = scores.gather(1, wrong_first).argsort(dim=1, descending=True, stable=True)
    return relevant.gather(1, wrong_first.gather(1, order))
