"""The margin theorem on real embeddings: whose top R is certified at which drift, and what drift really does.

For each query the best right candidate is looked at, where it stands among the R best: while it stays there, recall@R
stays. Its certificate says how far all embeddings may drift (`certificate`). Then they do drift by just that length:

- random: every embedding in a direction of its own;
- against: the worst we know for this query. It turns from its right candidate towards the best one outside the top R,
  all other candidates turn towards it, and the right one turns away.

A query whose right candidate leaves although its radius is larger than the drift would contradict the theorem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError, SignalError, at_least
from geopatch.evaluate.distortions import SEED
from geopatch.search.certificate import cosine_certificate
from geopatch_lab.stability.finding import Finding, Numbers, spread_of

DRIFTS = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
TURNS = 3  # draws of random drift
SMALL = 1e-12

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Margins:
    """Queries whose best right candidate is among the R best, with what is sure of each."""

    query: npt.NDArray[np.intp]  # place of each such query
    right: npt.NDArray[np.intp]  # place of its best right candidate
    rival: npt.NDArray[np.intp]  # place of the best candidate outside the top R
    margin: Numbers
    radius: Numbers  # of unit embeddings; 0 where nothing is sure
    product_radius: Numbers  # the paper's form: margin = 4 r + 2 r^2
    queries: int  # all that have a right candidate
    R: int

    def __len__(self) -> int:
        return len(self.query)


def margins(embedding: Numbers, candidate: Mask, relevant: Mask, R: int) -> Margins:
    """Of unit embeddings (N, D) that search each other; what counts and what is right as a protocol says (N, N)."""
    at_least("R", R, 1)
    scores = np.where(candidate, embedding @ embedding.T, -np.inf)
    if not (candidate.sum(1) > R).any():
        raise SignalError(f"no query has more than {R} candidates, so nothing can leave its top {R}; give more windows")
    right = np.where(relevant & candidate, scores, -np.inf)
    best, order = right.argmax(1), np.argsort(-scores, axis=1, kind="stable")
    rows = np.arange(len(scores))
    known = np.isfinite(right[rows, best])
    rival = order[:, R]
    inside = known & np.isfinite(scores[rows, rival]) & (scores[rows, best] > scores[rows, rival])
    query = np.flatnonzero(inside)
    near, far = scores[query, best[query]], scores[query, rival[query]]
    sure = [cosine_certificate(float(one), float(other), R, "stays") for one, other in zip(near, far, strict=True)]
    return Margins(
        query,
        best[query],
        rival[query],
        near - far,
        np.asarray([one.radius or 0.0 for one in sure]),
        np.asarray([one.product_radius or 0.0 for one in sure]),
        int(known.sum()),
        R,
    )


def kept_by_chance(embedding: Numbers, candidate: Mask, margins: Margins, length: float, turn: int = 0) -> Mask:
    """Whose right candidate stays among the R best after one draw of random drift of this length."""
    rng = np.random.default_rng((SEED, turn))
    moved = embedding + length * _unit(rng.normal(size=embedding.shape))
    moved_query = embedding + length * _unit(
        rng.normal(size=embedding.shape)
    )  # the query is another copy than the candidate
    scores = _unit(moved_query[margins.query]) @ _unit(moved).T
    return _stays(scores, candidate[margins.query], margins)


def kept_against(embedding: Numbers, candidate: Mask, margins: Margins, length: float) -> Mask:
    """Whose right candidate stays among the R best after the worst drift we know for each query.

    A drift of length r turns a unit vector by asin r at most; vectors that turn straight towards or away from the query
    change their angle to it by just that.
    """
    if not 0 <= length < 1:
        raise ConfigError(f"drift must be at least 0 and below 1, the length of an embedding, got {length}")
    turn = np.arcsin(length)
    query = embedding[margins.query]
    away = _tangent(query, embedding[margins.rival]) - _tangent(query, embedding[margins.right])
    turned = np.cos(turn) * query + np.sin(turn) * _tangent(query, away)
    angles = np.arccos(np.clip(turned @ embedding.T, -1, 1))
    rows = np.arange(len(margins))
    lost = angles[rows, margins.right] + turn
    angles = np.maximum(angles - turn, 0)
    angles[rows, margins.right] = np.minimum(lost, np.pi)
    return _stays(-angles, candidate[margins.query], margins)


def _stays(scores: Numbers, candidate: Mask, margins: Margins) -> Mask:
    """Whether fewer than R others score as much as the right candidate does."""
    own = scores[np.arange(len(margins)), margins.right][:, None]
    return np.asarray(((scores >= own) & candidate).sum(1) - 1 < margins.R)


def _unit(vectors: Numbers) -> Numbers:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), SMALL))


def _tangent(at: Numbers, towards: Numbers) -> Numbers:
    """The unit direction in which `at` turns towards another vector."""
    return _unit(towards - np.sum(at * towards, axis=-1, keepdims=True) * at)


def margin_findings(
    embedding: npt.NDArray[np.floating],
    candidate: Mask,
    relevant: Mask,
    R: int,
    drifts: Sequence[float] = DRIFTS,
    protocol: str = "standard",
) -> list[Finding]:
    """For each drift: who is certified, who stays, and whether anyone left who was certified. Counted over all queries.

    A query whose right candidate is not among the R best to begin with is neither certified nor kept.
    """
    exact = _unit(np.asarray(embedding, dtype=np.float64))
    measured = margins(exact, candidate, relevant, R)
    if not len(measured):
        raise SignalError(f"no query has a right candidate among its {R} best, so no margin can be measured; raise R")
    return [_finding(exact, candidate, measured, float(length), protocol) for length in drifts]


def _finding(embedding: Numbers, candidate: Mask, margins: Margins, length: float, protocol: str) -> Finding:
    chance = [kept_by_chance(embedding, candidate, margins, length, turn) for turn in range(TURNS)]
    worst = kept_against(embedding, candidate, margins, length)
    sure, paper = margins.radius > length, margins.product_radius > length
    everyone = max(margins.queries, 1)
    flips = sum(int((sure & ~kept).sum()) for kept in (*chance, worst))
    values = {
        "certified": float(sure.sum() / everyone),
        "certified_product": float(paper.sum() / everyone),
        "kept_random": float(np.mean([kept.sum() for kept in chance]) / everyone),
        "kept_against": float(worst.sum() / everyone),
        "certified_flips": float(flips),
        "recall": float(len(margins) / everyone),
        **spread_of(margins.margin, "margin_"),
        **spread_of(margins.radius, "radius_"),
    }
    return Finding("margin", {"drift": length, "R": float(margins.R), "protocol": protocol}, values, margins.queries)
