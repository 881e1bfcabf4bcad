"""The certificate is sound: no drift shorter than its radius, however chosen, moves a hit out of the top R."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geopatch import scoring
from geopatch.dtw import WEIGHT
from geopatch.scoring import SCORERS
from geopatch.search.certificate import Certificate, cosine_certificate, token_certificate

Vectors = npt.NDArray[np.float64]
TOKEN_SCORERS = sorted(name for name, scorer in SCORERS.items() if scorer.tokens is not None)

TRIALS = 600  # of each of the shapes below, three kinds of drift each: 21,600 trials in all
SHAPES = [(2, 3, 1), (2, 12, 4), (3, 8, 2), (3, 30, 5), (8, 20, 1), (8, 20, 7), (16, 12, 3), (32, 40, 10)]
SHAPES += [(64, 16, 2), (64, 50, 5), (128, 20, 1), (128, 60, 10)]  # width D, candidates N, R
SHORTER = 1 - 1e-9  # "less than the radius"


def unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def drawn(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Vectors, Vectors]:
    """Queries (B, D) and candidates (B, N, D) that lie all round them, near and far, the nearest to the query first."""
    width, count, _ = shape
    query = unit(rng.normal(size=(TRIALS, width)))
    noise = rng.normal(size=(TRIALS, count, width)) * rng.uniform(0.05, 3, size=(TRIALS, count, 1)) / math.sqrt(width)
    candidates = unit(query[:, None] + noise)
    order = np.argsort(-cosines(query, candidates), axis=1)
    return query, np.take_along_axis(candidates, order[..., None], axis=1)


def cosines(query: Vectors, candidates: Vectors) -> Vectors:
    return np.asarray(np.einsum("bd,bnd->bn", unit(query), unit(candidates)))


def certified(query: Vectors, candidates: Vectors, R: int, chosen: npt.NDArray[np.intp]) -> list[Certificate]:
    ranked = cosines(query, candidates)
    return [cosine_certificate(row[hit], row[R], R, "stays") for row, hit in zip(ranked, chosen, strict=True)]


def tangent(at: Vectors, towards: Vectors) -> Vectors:
    """The unit direction in which `at` turns towards another vector."""
    flat = towards - np.sum(at * towards, axis=-1, keepdims=True) * at
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=-1, keepdims=True), 1e-300))


def turned(vectors: Vectors, direction: Vectors, length: Vectors) -> Vectors:
    """Unit vectors with the drift of this length added that turns them most: the sum stands upright on the drift."""
    drift = length * (np.sqrt(1 - length**2) * direction - length * vectors)
    assert (np.linalg.norm(drift, axis=-1) <= length[..., 0] * (1 + 1e-12) + 1e-15).all()
    return np.asarray(vectors + drift)


def stays(scores: Vectors, hit: npt.NDArray[np.intp], R: int) -> npt.NDArray[np.bool_]:
    """Whether fewer than R others score as much as the hit does."""
    own = np.take_along_axis(scores, hit[:, None], axis=1)
    return np.asarray((scores >= own).sum(1) - 1 < R)


def random_drift(shape: tuple[int, ...], length: Vectors, rng: np.random.Generator) -> Vectors:
    return unit(rng.normal(size=shape)) * length * rng.uniform(size=(*shape[:-1], 1)) ** 0.1


@pytest.mark.parametrize("shape", SHAPES)
def test_no_drift_shorter_than_the_radius_moves_a_hit_out(shape: tuple[int, int, int]) -> None:
    rng, R = np.random.default_rng(sum(shape)), shape[2]
    query, candidates = drawn(shape, rng)
    hit = rng.integers(0, R, size=TRIALS)
    found = certified(query, candidates, R, hit)
    radius = np.asarray([one.radius or 0.0 for one in found])
    assert (radius > 0).mean() > 0.9
    length = radius[:, None] * SHORTER
    rows = np.arange(TRIALS)

    by_chance = cosines(
        query + random_drift(query.shape, length, rng),
        candidates + random_drift(candidates.shape, length[..., None], rng),
    )
    assert stays(by_chance, hit, R).all()

    for rival in (candidates[:, R], candidates[rows, rng.integers(R, shape[1], size=TRIALS)]):
        between = tangent(query, rival) - tangent(query, candidates[rows, hit])
        between = np.where(np.linalg.norm(between, axis=1, keepdims=True) < 1e-6, rng.normal(size=query.shape), between)
        away = turned(query, tangent(query, between), length)  # off the hit and towards the rival
        aim = tangent(candidates, np.broadcast_to(unit(away)[:, None], candidates.shape))
        aim[rows, hit] *= -1  # all others come, the hit goes
        against = cosines(away, turned(candidates, aim, length[..., None]))
        assert stays(against, hit, R).all()


def test_a_longer_drift_can_move_it_out() -> None:
    """Hit, query and rival on one circle: the radius is the largest that is sound."""
    for gap in (0.01, 0.3, 1.0, 2.0):
        hit, rival = np.asarray([math.cos(0.4), -math.sin(0.4)]), np.asarray([math.cos(0.4 + gap), math.sin(0.4 + gap)])
        query, candidates = np.asarray([[1.0, 0.0]]), np.stack([hit, rival])[None]
        sure = certified(query, candidates, 1, np.asarray([0]))[0]
        assert sure.radius is not None
        assert sure.radius == pytest.approx(math.sin(gap / 4), abs=2e-5)
        for share, kept in ((0.999, True), (1.01, False)):
            length = np.asarray([[min(sure.radius * share, 1.0)]])
            away = turned(query, tangent(query, candidates[:, 1]), length)
            aim = tangent(candidates, np.broadcast_to(unit(away)[:, None], candidates.shape))
            aim[:, 0] *= -1
            scores = cosines(away, turned(candidates, aim, length[..., None]))
            assert stays(scores, np.asarray([0]), 1)[0] == kept


@pytest.mark.parametrize("shape", SHAPES)
def test_the_product_radius_holds_without_bringing_vectors_back_to_unit_length(shape: tuple[int, int, int]) -> None:
    rng, R = np.random.default_rng(sum(shape) + 1), shape[2]
    query, candidates = drawn(shape, rng)
    hit, rows = rng.integers(0, R, size=TRIALS), np.arange(TRIALS)
    found = certified(query, candidates, R, hit)
    radius = np.asarray([one.product_radius or 0.0 for one in found])
    assert all((one.product_radius or 0.0) <= (one.radius or 0.0) for one in found)
    length = radius[:, None] * SHORTER
    away = query + length * unit(candidates[:, R] - candidates[rows, hit] + 1e-12)
    sign = np.ones((TRIALS, shape[1], 1))
    sign[rows, hit] = -1
    products = np.einsum("bd,bnd->bn", away, candidates + sign * length[..., None] * unit(away)[:, None])
    assert stays(products, hit, R).all()


@pytest.mark.parametrize("scorer", TOKEN_SCORERS)
@pytest.mark.parametrize("adverse", [False, True], ids=["by chance", "against the hit"])
def test_a_token_certificate_covers_drift_of_every_token(scorer: str, adverse: bool) -> None:
    """Embeddings and tokens of both sides drift; 2,000 trials a scorer and kind."""
    rng, trials, count, R = np.random.default_rng(len(scorer)), 2000, 6, 2
    query, tokens = unit(rng.normal(size=(trials, 4))), unit(rng.normal(size=(trials, 3, 4)))
    others = unit(query[:, None] + rng.normal(size=(trials, count, 4)) * rng.uniform(0, 1, (trials, count, 1)))
    other_tokens = unit(
        tokens[:, None] + rng.normal(size=(trials, count, 3, 4)) * rng.uniform(0, 1, (trials, count, 1, 1))
    )
    scores = token_scores(scorer, query, tokens, others, other_tokens)
    hit = np.argmax(scores, axis=1)
    ranked = -np.sort(-scores, axis=1)
    found = [token_certificate(scorer, row[0], row[R], R) for row in ranked]
    radius = np.asarray([one.radius or 0.0 for one in found])
    assert (radius > 0).mean() > 0.95
    length = radius[:, None] * SHORTER
    if adverse:
        sign = np.ones((trials, count, 1))
        sign[np.arange(trials), hit] = -1
        others = turned(others, sign * tangent(others, query[:, None]), length[..., None])
        near = np.argmax(np.einsum("bid,bnjd->bnij", tokens, other_tokens), axis=2)  # (B, N, K): the best query token
        best = np.take_along_axis(np.repeat(tokens[:, None], count, 1), near[..., None], axis=2)
        other_tokens = turned(other_tokens, sign[..., None] * tangent(other_tokens, best), length[..., None, None])
    else:
        others = others + random_drift(others.shape, length[..., None], rng)
        other_tokens = other_tokens + random_drift(other_tokens.shape, length[..., None, None], rng)
    query = query + random_drift(query.shape, length, rng)
    tokens = tokens + random_drift(tokens.shape, length[..., None], rng)
    after = token_scores(scorer, unit(query), unit(tokens), unit(others), unit(other_tokens))
    assert stays(after, hit, R).all()


def token_scores(scorer: str, query: Vectors, tokens: Vectors, others: Vectors, other_tokens: Vectors) -> Any:
    everything = torch.ones(other_tokens.shape[:3], dtype=torch.bool)
    similarity = scoring.similarities(
        torch.from_numpy(tokens), everything[:, 0], torch.from_numpy(other_tokens), everything
    )
    scores = SCORERS[scorer].combine(torch.from_numpy(cosines(query, others)), similarity).numpy()
    distances = np.linspace(0, 3, scores.shape[1])  # of values, the same before and after the drift
    return scores - WEIGHT * distances if scorer == "dtw" else scores


@given(score=st.floats(-1, 1), above=st.floats(0, 2))
def test_without_a_positive_margin_it_says_nothing(score: float, above: float) -> None:
    outside = min(score + above, 1.0)
    for sure in (
        cosine_certificate(score, outside, 3, "stays"),
        *(token_certificate(s, score, outside, 3) for s in TOKEN_SCORERS),
    ):
        assert sure.radius is None
        assert sure.product_radius is None
        assert sure.margin == pytest.approx(score - outside)
        assert "no certificate: its margin" in sure.covers
        assert "is not positive" in sure.covers


@given(score=st.floats(-1, 1), below=st.floats(0, 2))
def test_the_radius_grows_with_the_margin_and_never_passes_half_a_vector(score: float, below: float) -> None:
    near, far = (cosine_certificate(score, max(score - share * below, -1.0), 1, "stays") for share in (0.5, 1.0))
    assert (near.radius or 0.0) <= (far.radius or 0.0) <= math.sin(math.pi / 4)


def test_a_margin_that_rounding_could_have_made_is_none() -> None:
    assert cosine_certificate(0.5 + 1e-6, 0.5, 1, "stays").radius is None
    assert token_certificate("fused", 0.5 + 1e-6, 0.5, 1).radius is None
    assert token_certificate("fused", 0.5, -math.inf, 1).radius is None
