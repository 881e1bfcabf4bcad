"""Laws of `aligned`: fast == twin, whatever the numbers of tokens; padding, order, symmetry, the band, the path."""

from __future__ import annotations

import math
import sys
from typing import Any

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geopatch import aligned as module
from geopatch.aligned import aligned, aligned_parts, along_diagonals, in_band
from geopatch.scoring import SCORERS, similarities

Numbers = np.ndarray[Any, np.dtype[np.float64]]
FEW = st.integers(1, 6)  # the twin tries every path
MANY = st.integers(1, 40)
WAYS = (
    aligned,
    along_diagonals,
    lambda similarity: aligned(torch.from_numpy(similarity)),
    lambda similarity: along_diagonals(torch.from_numpy(similarity)),
)


def unit(rng: np.random.Generator, *shape: int) -> Numbers:
    drawn = rng.normal(size=shape)
    made: Numbers = drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)
    return made


def cells(rows: int, columns: int, seed: int = 0) -> Numbers:
    """Similarities (I, J) of random tokens."""
    return np.random.default_rng(seed).uniform(-1, 1, size=(rows, columns))


def scores(pair: Numbers) -> list[float]:
    """The score of one pair by each way to compute it."""
    every = pair[:, None, :]
    tensor = torch.from_numpy(every)
    return [
        float(aligned(every)[0]),
        float(along_diagonals(every)[0]),
        float(aligned(tensor)[0]),
        float(along_diagonals(tensor)[0]),
        float(np.nansum(aligned_parts(pair))),
    ]


@given(rows=FEW, columns=FEW, seed=st.integers(0, 999))
def test_every_way_equals_the_twin(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, candidate = unit(rng, rows, 3), unit(rng, columns, 3)
    expected = naive.aligned(query, np.ones(rows, bool), candidate, np.ones(columns, bool))
    assert scores(query @ candidate.T) == pytest.approx([expected] * 5)


@settings(deadline=None)
@given(rows=MANY, columns=MANY, seed=st.integers(0, 99))
def test_any_two_numbers_of_tokens_have_a_path(rows: int, columns: int, seed: int) -> None:
    found = scores(cells(rows, columns, seed))
    assert np.isfinite(found).all()
    assert found == pytest.approx(found[:1] * 5)


@given(rows=FEW, columns=FEW, valid=st.lists(st.booleans(), min_size=12, max_size=12), seed=st.integers(0, 99))
def test_padding_changes_nothing_wherever_it_stands(rows: int, columns: int, valid: list[bool], seed: int) -> None:
    """Padded tokens before, between and after the others; several pairs with padding of their own in one call."""
    rng = np.random.default_rng(seed)
    query, candidates = unit(rng, rows, 3), unit(rng, 2, columns, 3)
    query_valid = np.asarray(valid[:rows])
    known = np.stack([np.asarray(valid[6 : 6 + columns]), rng.uniform(size=columns) < 0.7])
    similarity = np.where(query_valid[:, None, None] & known, np.einsum("id,njd->inj", query, candidates), -np.inf)
    for way in WAYS:
        expected = [naive.aligned(query, query_valid, candidates[n], known[n]) for n in range(2)]
        assert np.asarray(way(similarity)) == pytest.approx(np.asarray(expected))


@pytest.mark.parametrize("value", [0.0, 9.0])
def test_padded_tokens_of_any_value_change_nothing(value: float) -> None:
    rng = np.random.default_rng(1)
    query, tokens = unit(rng, 5, 4), unit(rng, 3, 7, 4)
    plain = similarities(query, np.ones(5, bool), tokens, np.ones((3, 7), bool))
    wide = np.concatenate([tokens, np.full((3, 4, 4), value)], axis=1)
    known = np.arange(11) < np.asarray([[7], [7], [7]])
    longer = np.concatenate([query, np.full((2, 4), value)])
    padded = similarities(longer[None], (np.arange(7) < 5)[None], wide[None], known[None])
    assert aligned(padded)[0] == pytest.approx(aligned(plain))


def test_a_batch_is_each_query_by_itself() -> None:
    batch = np.random.default_rng(0).uniform(-1, 1, size=(4, 6, 5, 3)).astype(np.float32)  # (Q, I, N, J)
    for way in (aligned, along_diagonals):
        together = way(batch)
        assert together.shape == (4, 5)
        assert together.dtype == np.float32
        np.testing.assert_allclose(together, np.stack([way(one) for one in batch]), atol=1e-6)


def test_by_hand() -> None:
    """Two tokens: the diagonal alone. One against three: every token meets the one."""
    assert scores(np.asarray([[0.5, 1.0], [1.0, -0.5]])) == pytest.approx([0.0] * 5)
    assert scores(np.asarray([[0.8, 0.4, -0.2]])) == pytest.approx([(0.8 + 0.2 - 0.1) / 2] * 5)


def test_a_step_aside_costs_half_and_wins_where_it_should() -> None:
    """Four tokens, the second heard twice: the path waits there."""
    pair = np.full((4, 5), -1.0)
    for i, j in ((0, 0), (1, 1), (1, 2), (2, 3), (3, 4)):
        pair[i, j] = 1.0
    assert scores(pair) == pytest.approx([1.0] * 5)
    weights = aligned_parts(pair) * (4 + 5) / 2
    assert [float(weights[at]) for at in ((0, 0), (1, 1), (1, 2), (2, 3), (3, 4))] == [1.0, 1.0, 0.5, 1.0, 1.0]


def test_order_counts() -> None:
    """The same tokens turned round are as near as can be to MaxSim, and not to aligned."""
    tokens = unit(np.random.default_rng(0), 16, 8)
    turned = (tokens @ tokens[::-1].T)[:, None, :]
    assert SCORERS["maxsim"].tokens is not None
    assert float(SCORERS["maxsim"].tokens(turned)[0]) == pytest.approx(1)
    assert float(aligned(turned)[0]) < 0.5
    assert float(aligned((tokens @ tokens.T)[:, None, :])[0]) == pytest.approx(1)


@given(rows=MANY, columns=MANY, seed=st.integers(0, 99))
def test_both_directions_are_one_score_and_it_lies_between_the_cosines(rows: int, columns: int, seed: int) -> None:
    pair = cells(rows, columns, seed)
    forth, back = aligned(pair[:, None, :])[0], aligned(pair.T[:, None, :])[0]
    assert forth == pytest.approx(back)
    assert pair.min() - 1e-9 <= forth <= pair.max() + 1e-9


def test_the_band_of_sixteen_tokens_is_nine_wide() -> None:
    inside = np.asarray([[in_band(i, j, 16, 16) for j in range(16)] for i in range(16)])
    assert [int(row.sum()) for row in inside] == [5, 6, 7, 8, *[9] * 8, 8, 7, 6, 5]
    unlike = np.asarray([[in_band(i, j, 8, 24) for j in range(24)] for i in range(8)])
    middles = [float(np.flatnonzero(row).mean()) for row in unlike[2:6]]
    assert middles == pytest.approx([3 * i + 1 for i in range(2, 6)])  # along the true diagonal


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_small_change_of_the_cosines_changes_the_score_by_no_more(rows: int, columns: int, seed: int) -> None:
    """What its certificate rests on."""
    pair = cells(rows, columns, seed)
    shift = np.random.default_rng(seed + 1).uniform(-0.1, 0.1, size=pair.shape)
    before, after = aligned(pair[:, None, :])[0], aligned((pair + shift)[:, None, :])[0]
    assert abs(after - before) <= np.abs(shift).max() + 1e-9


def test_without_numba_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = np.random.default_rng(0).uniform(-1, 1, size=(7, 5, 9)).astype(np.float32)
    expected = aligned(similarity)
    module._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "geopatch.aligned_loop", None)
    try:
        np.testing.assert_allclose(aligned(similarity), expected, atol=1e-6)
        assert module._compiled() is None
    finally:
        module._compiled.cache_clear()


def test_nothing_to_compare_is_the_worst_score() -> None:
    nothing = np.full((3, 2, 4), -np.inf)
    for way in (aligned, along_diagonals):
        assert way(nothing).tolist() == [-math.inf, -math.inf]
        assert way(np.zeros((3, 0, 4))).shape == (0,)
