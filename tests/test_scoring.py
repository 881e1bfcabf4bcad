"""Laws of scores: fast == twin, bigger is better, and a padded token never wins."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_search import ABOUT, entries_of
from torch import Tensor
from torch.nn import functional as F

from geopatch import scoring
from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.scoring import (
    SCORERS,
    SHARPNESS,
    Scorer,
    bridge,
    encoded_scorers,
    maxsim,
    rerank,
    similarities,
    symmetric_maxsim,
)
from geopatch.search.options import SearchOptions
from geopatch.search.ranking import one_thread

COUNTS = [4, 1, 3, 2, 4]  # valid tokens of each candidate
LATE = tuple(name for name in encoded_scorers() if SCORERS[name].tokens is not None)


def tokens_of(*counts: int, size: int = 4, width: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit tokens and their mask, 0 where not valid."""
    drawn = torch.randn(len(counts), size, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    valid = torch.arange(size) < torch.tensor(counts)[:, None]
    return F.normalize(drawn, dim=-1) * valid[..., None], valid


def pairs(query: Tensor, query_valid: Tensor, tokens: Tensor, valid: Tensor) -> Tensor:
    """Similarities (Q, I, N, J) of every query with every candidate."""
    many = len(query)
    expanded = tokens.expand(many, *tokens.shape), valid.expand(many, *valid.shape)
    similarity: Tensor = similarities(query, query_valid, *expanded)
    return similarity


def padded(tokens: Tensor, valid: Tensor, count: int, value: float = 0.0) -> tuple[Tensor, Tensor]:
    return F.pad(tokens, (0, 0, 0, count), value=value), F.pad(valid, (0, count))


@given(
    asked=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_maxsim_equals_its_twin(asked: list[int], counts: list[int], seed: int) -> None:
    query, query_valid = tokens_of(*asked, seed=seed)
    tokens, valid = tokens_of(*counts, seed=seed + 100)
    similarity = pairs(query, query_valid, tokens, valid)
    found, both = maxsim(similarity), symmetric_maxsim(similarity)
    for q in range(len(asked)):
        for n in range(len(counts)):
            parts = (query[q].numpy(), query_valid[q].numpy(), tokens[n].numpy(), valid[n].numpy())
            assert found[q, n].item() == pytest.approx(naive.maxsim(*parts))
            assert both[q, n].item() == pytest.approx(naive.symmetric_maxsim(*parts))
            for sharpness in (0.5, 10.0):
                expected = naive.bridge(*parts, sharpness)
                assert bridge(similarity, sharpness)[q, n].item() == pytest.approx(expected)


def test_the_bridge_runs_from_the_mean_to_the_max() -> None:
    query, query_valid = tokens_of(3, 4)
    similarity = pairs(query, query_valid, *tokens_of(4, 2, seed=1))
    known = similarity > -torch.inf
    means = torch.where(known, similarity, 0.0).sum(-1) / known.sum(-1).clamp(min=1)  # (Q, I, N)
    mean = means.sum(-2) / query_valid.sum(-1)[:, None]
    assert torch.allclose(bridge(similarity, 1e-6), mean, atol=1e-5)
    assert torch.allclose(bridge(similarity, 1e4), maxsim(similarity), atol=1e-3)
    rising = torch.stack([bridge(similarity, sharpness) for sharpness in (0.1, 1.0, 10.0, 100.0)])
    assert (rising.diff(dim=0) >= 0).all()


def test_maxsim_by_hand() -> None:
    query, candidate = torch.eye(3)[None, :2], torch.eye(3)[None, [0, 2]]
    everything = torch.ones(1, 2, dtype=torch.bool)
    assert maxsim(pairs(query, everything, candidate, everything)).item() == 0.5
    one = torch.tensor([[True, False]])
    assert maxsim(pairs(query, one, candidate, everything)).item() == 1
    assert symmetric_maxsim(pairs(query, one, candidate, everything)).item() == 0.75


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("value", [0.0, 9.0])
def test_padding_changes_no_score(count: int, value: float) -> None:
    query, query_valid = tokens_of(4, 2)
    tokens, valid = tokens_of(*COUNTS, seed=1)
    plain = pairs(query, query_valid, tokens, valid)
    wide = pairs(*padded(query, query_valid, count, value), *padded(tokens, valid, count, value))
    for scorer in (maxsim, symmetric_maxsim):
        torch.testing.assert_close(scorer(wide), scorer(plain))


def test_a_padded_token_never_wins() -> None:
    """All similarities are negative: a padding of 0 would be the best match."""
    query = torch.tensor([[[1.0, 0.0], [0.8, 0.6]]])
    tokens, valid = padded(torch.tensor([[[-1.0, 0.0], [-0.8, -0.6]]]), torch.ones(1, 2, dtype=torch.bool), 3)
    similarity = pairs(query, torch.ones(1, 2, dtype=torch.bool), tokens, valid)
    assert maxsim(similarity).item() == pytest.approx((-0.8 - 0.8) / 2)
    assert symmetric_maxsim(similarity).item() == pytest.approx(-0.8)
    assert maxsim(similarity.swapaxes(1, 3)).item() == pytest.approx(-0.8)


def test_nothing_to_compare_is_the_worst_score() -> None:
    query, query_valid = tokens_of(0, 2)
    tokens, valid = tokens_of(0, 3, seed=1)
    for scorer in (maxsim, symmetric_maxsim):
        scores = scorer(pairs(query, query_valid, tokens, valid))
        assert scores[0].tolist() == [-math.inf, -math.inf]
        assert scores[1, 0].item() == -math.inf
        assert scores[1, 1].isfinite()


def test_scores_of_a_window_with_itself_are_one() -> None:
    query, valid = tokens_of(4, 1, 2)
    scores = maxsim(pairs(query, valid, query, valid))
    torch.testing.assert_close(scores.diagonal(), torch.ones(3, dtype=torch.float64))
    assert scores.max() <= 1 + 1e-9


@pytest.mark.parametrize("scorer", encoded_scorers())
@pytest.mark.parametrize("shortlist", [0, 1, 3, 5, 50])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reranking_equals_its_twin(scorer: str, shortlist: int, seed: int) -> None:
    query, query_valid = tokens_of(4, 2, seed=seed)
    tokens, valid = tokens_of(*COUNTS, seed=seed + 10)
    cosine = torch.rand(2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    scores = rerank(cosine, query, query_valid, tokens, valid, scorer, shortlist)
    for q in range(2):
        parts = (query[q].numpy(), query_valid[q].numpy(), tokens.numpy(), valid.numpy())
        expected = naive.rerank(cosine[q].numpy(), *parts, scorer, shortlist)
        assert scores[q].argsort(descending=True).tolist() == expected


@pytest.mark.parametrize("scorer", encoded_scorers())
def test_what_counts_for_nothing_stays_out(scorer: str) -> None:
    query, query_valid = tokens_of(4)
    tokens, valid = tokens_of(*COUNTS, seed=1)
    cosine = torch.tensor([[0.9, -torch.inf, 0.1, -torch.inf, 0.5]], dtype=torch.float64)
    scores = rerank(cosine, query, query_valid, tokens, valid, scorer, 50)
    assert torch.equal(scores == -torch.inf, cosine == -torch.inf)


@pytest.mark.parametrize("scorer", ["maxsim", "fused"])
def test_the_worst_of_the_shortlist_stays_above_the_best_of_the_rest(scorer: str) -> None:
    """Tokens of the shortlisted candidate could not be further away, and the other's cosine is as near."""
    query, everything = torch.tensor([[[1.0, 0.0]]]), torch.ones(2, 1, dtype=torch.bool)
    tokens = torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]])
    scores = rerank(torch.tensor([[0.9, 0.89]]), query, everything[:1], tokens, everything, scorer, 1)
    assert scores[0, 0] > scores[0, 1] == 0.89


@pytest.mark.parametrize("scorer", encoded_scorers())
def test_gallery_order_does_not_matter(scorer: str) -> None:
    query, query_valid = tokens_of(4, 2)
    tokens, valid = tokens_of(*COUNTS, seed=1)
    cosine, order = torch.rand(2, 5, dtype=torch.float64), torch.tensor([3, 0, 4, 1, 2])
    scores = rerank(cosine, query, query_valid, tokens, valid, scorer, 3)
    turned = rerank(cosine[:, order], query, query_valid, tokens[order], valid[order], scorer, 3)
    torch.testing.assert_close(turned, scores[:, order])


def test_reranking_does_not_edit_its_input() -> None:
    query, query_valid = tokens_of(4)
    tokens, valid = tokens_of(*COUNTS, seed=1)
    cosine = torch.rand(1, 5, dtype=torch.float64)
    before = cosine.clone()
    rerank(cosine, query, query_valid, tokens, valid, "fused", 3)
    assert torch.equal(cosine, before)


def test_another_scorer_is_refused() -> None:
    query, valid = tokens_of(4)
    with pytest.raises(
        ConfigError, match="scorer must be one of cosine, maxsim, fused, bridge, aligned, fused-aligned, got 'dtw'"
    ):
        rerank(torch.zeros(1, 1), query, valid, query, valid, "dtw", 5)


def test_twins_of_the_metrics_by_hand() -> None:
    """Ranks of the right candidates: 3 and 4, for the tie at 0.8 is no find; the self-match does not count."""
    scores = np.asarray([0.9, 0.8, 0.8, 0.1, 1.0, 0.3])
    candidate = np.asarray([True, True, True, True, False, True])
    relevant = np.asarray([False, True, False, False, True, True])
    ranked = naive.hits(scores, candidate, relevant)
    assert ranked == [False, False, True, True, False]
    assert naive.average_precision(ranked) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert naive.reciprocal_rank(ranked) == pytest.approx(1 / 3)
    assert [naive.recall_at(ranked, most) for most in (1, 2, 3)] == [0, 0, 1]
    assert (naive.average_precision([False]), naive.reciprocal_rank([])) == (0, 0)


@given(
    asked=st.integers(0, 4),
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    n_padding=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_the_shortlist_kernel_equals_torch_and_its_twin(
    asked: int, counts: list[int], n_padding: int, seed: int
) -> None:
    query, query_valid = padded(*tokens_of(asked, seed=seed), n_padding, 9.0)
    tokens, valid = padded(*tokens_of(*counts, seed=seed + 100), n_padding, 9.0)
    cosine = torch.randn(len(counts), generator=torch.Generator().manual_seed(seed)).double()
    similarity = pairs(query, query_valid, tokens, valid)
    given_parts = (query[0].float().numpy(), query_valid[0].numpy(), tokens.float().numpy(), valid.numpy())
    for scorer in LATE:
        found = SCORERS[scorer].score(cosine.float().numpy(), *given_parts)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, SCORERS[scorer].combine(cosine[None], similarity)[0].numpy(), atol=2e-6)
        for n in range(len(counts)):
            parts = (query[0].numpy(), query_valid[0].numpy(), tokens[n].numpy(), valid[n].numpy())
            expected = {
                "maxsim": naive.maxsim(*parts),
                "fused": cosine[n].item() + naive.symmetric_maxsim(*parts),
                "bridge": naive.bridge(*parts, SHARPNESS),
                "aligned": naive.aligned(*parts),
                "fused-aligned": cosine[n].item() + naive.aligned(*parts),
            }[scorer]
            assert found[n] == pytest.approx(expected, abs=2e-6)


def test_a_padded_token_never_wins_in_the_kernel() -> None:
    """All similarities are negative: a padding of 0 would be the best match."""
    query = np.asarray([[1.0, 0.0], [0.8, 0.6]], dtype=np.float32)
    tokens = np.asarray([[[-1.0, 0.0], [-0.8, -0.6], [0.0, 0.0]]], dtype=np.float32)
    valid, cosine = np.asarray([[True, True, False]]), np.zeros(1, dtype=np.float32)
    everything = np.ones(2, dtype=bool)
    assert SCORERS["maxsim"].score(cosine, query, everything, tokens, valid)[0] == pytest.approx(-0.8)
    assert SCORERS["fused"].score(cosine, query, everything, tokens, valid)[0] == pytest.approx(-0.8)


def test_scoring_edits_nothing() -> None:
    query, query_valid = tokens_of(3)
    tokens, valid = tokens_of(4, 2, seed=1)
    before = tokens.clone()
    parts = (np.zeros(2, dtype=np.float32), query[0].numpy(), query_valid[0].numpy(), tokens.numpy(), valid.numpy())
    SCORERS["fused"].score(*parts)
    assert torch.equal(tokens, before)


def test_one_thread_gives_back_what_it_took() -> None:
    from threadpoolctl import ThreadpoolController, threadpool_limits

    def threads() -> list[int]:
        libraries = ThreadpoolController().lib_controllers
        return [library.num_threads for library in libraries if library.user_api == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert 1 in threads() or not before
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert threads() == before


def strongest(similarity: Any) -> Any:
    """A toy scorer: the one best pair of tokens of each candidate."""
    best = similarity.max(-1) if isinstance(similarity, np.ndarray) else similarity.amax(-1)
    return best.max(-2) if isinstance(best, np.ndarray) else best.amax(-2)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Scorer:
    scorer = Scorer("strongest", "the score is the highest similarity of any two patches", tokens=strongest)
    monkeypatch.setitem(SCORERS, scorer.name, scorer)  # gone again after the test
    del SCORERS[scorer.name]
    scoring.register(scorer)
    return scorer


def test_a_scorer_is_added_in_one_place(toy: Scorer, tmp_path: Path) -> None:
    """Search, evaluation, explanation, certificate and command line take it up; the schema has its name."""
    entries = entries_of(30)
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(entries)
        hits = gallery.search("w3", 5, scorer="strongest", certify=True)
    for hit in hits:
        row = entries.ids.index(hit.id)
        pair = entries.tokens[3][entries.valid[3]] @ entries.tokens[row][entries.valid[row]].T
        assert hit.score == pytest.approx(float(pair.max()), abs=1e-6)
        assert hit.explain().note == toy.note
        assert hit.certificate is not None
        assert "among the 5 best by strongest" in hit.certificate.covers
    query, valid = tokens_of(4, 2)
    assert rerank(torch.zeros(2, 2), query.float(), valid, query.float(), valid, "strongest", 2).shape == (2, 2)
    assert "strongest" in scoring.encoded_scorers()
    (choices,) = [item.metadata["choices"]() for item in fields(SearchOptions) if item.name == "scorer"]
    assert "strongest" in choices


def test_a_scorer_whose_name_is_taken_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is a scorer 'fused' already; give another name"):
        scoring.register(Scorer("fused", "another one"))


def test_every_scorer_says_its_least_value_and_how_it_falls_apart() -> None:
    rng = np.random.default_rng(0)
    for name, scorer in SCORERS.items():
        assert scorer.name == name
        pair = rng.uniform(-1, 1, size=(3, 4)).astype(np.float32)
        if scorer.tokens is not None:
            assert np.nansum(scorer.parts(pair)) == pytest.approx(float(scorer.tokens(pair[:, None, :])[0]), abs=1e-6)
            worst = scorer.combine(-np.ones(1, dtype=np.float32), -np.ones((3, 1, 4), dtype=np.float32))
            assert worst[0] == pytest.approx(scorer.lowest) or scorer.needs_windows
