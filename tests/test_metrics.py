"""Metrics: equal to torchmetrics without ties, pessimistic with them, blind to the order of the gallery."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.retrieval import RetrievalHitRate, RetrievalMAP, RetrievalMRR

from geopatch.errors import SignalError
from geopatch.evaluate.metrics import RetrievalScores, ScoredQueries, retrieval_scores


def random_ranking(seed: int, queries: int = 17, gallery: int = 23, levels: int | None = None) -> ScoredQueries:
    """Scores without ties, or with `levels` different values; each query is in the gallery and leaves itself out."""
    generator = torch.Generator().manual_seed(seed)
    if levels is None:  # above 0: torchmetrics' MAP takes nothing else for found
        scores = torch.stack([1 + torch.randperm(gallery, generator=generator) for _ in range(queries)]) / gallery
    else:
        scores = torch.randint(levels, (queries, gallery), generator=generator).float()
    relevant = torch.rand(queries, gallery, generator=generator) < 0.15
    candidate = torch.arange(gallery) != torch.arange(queries)[:, None]
    return ScoredQueries(scores, candidate, relevant)


def chunks(ranking: ScoredQueries, size: int) -> Iterator[ScoredQueries]:
    for part in torch.arange(len(ranking.scores)).split(size):
        yield ScoredQueries(ranking.scores[part], ranking.candidate[part], ranking.relevant[part])


def reordered(ranking: ScoredQueries, order: Tensor) -> ScoredQueries:
    return ScoredQueries(ranking.scores[:, order], ranking.candidate[:, order], ranking.relevant[:, order])


def one_query(scores: list[float], relevant: list[int], candidate: list[int] | None = None) -> ScoredQueries:
    kept = torch.ones(1, len(scores)) if candidate is None else torch.tensor([candidate])
    return ScoredQueries(torch.tensor([scores]), kept.bool(), torch.tensor([relevant]).bool())


def assert_same(one: RetrievalScores, other: RetrievalScores) -> None:
    assert one.as_dict() == pytest.approx(other.as_dict(), abs=1e-6)
    assert (one.queries, one.without_positive) == (other.queries, other.without_positive)


def expected(ranking: ScoredQueries) -> dict[str, float]:
    """The obvious slow twin."""
    arrays = zip(ranking.scores.double(), ranking.candidate, ranking.relevant, strict=True)
    ranked = [naive.hits(*(row.numpy() for row in rows)) for rows in arrays]
    ranked = [hits for hits in ranked if any(hits)]
    columns: dict[str, list[float]] = {
        **{f"recall@{most}": [naive.recall_at(hits, most) for hits in ranked] for most in (1, 5, 10)},
        "mrr": [naive.reciprocal_rank(hits) for hits in ranked],
        "map": [naive.average_precision(hits) for hits in ranked],
    }
    return {name: float(np.mean(values)) for name, values in columns.items()}


@pytest.mark.parametrize("seed", range(4))
def test_equals_torchmetrics(seed: int) -> None:
    ranking = random_ranking(seed)
    found = retrieval_scores([ranking])
    kept = ranking.candidate
    query = torch.arange(len(kept))[:, None].expand_as(kept)
    flat = (ranking.scores[kept], ranking.relevant[kept], query[kept])
    ranks = {most: RetrievalHitRate(empty_target_action="skip", top_k=most) for most in (1, 5, 10)}
    assert found.recall == pytest.approx({most: float(metric(*flat)) for most, metric in ranks.items()}, abs=1e-6)
    assert found.mrr == pytest.approx(float(RetrievalMRR(empty_target_action="skip")(*flat)), abs=1e-6)
    assert found.map == pytest.approx(float(RetrievalMAP(empty_target_action="skip")(*flat)), abs=1e-6)


@pytest.mark.parametrize("levels", [None, 1, 2, 5])
def test_equals_the_naive_twin(levels: int | None) -> None:
    ranking = random_ranking(7, levels=levels)
    assert retrieval_scores([ranking]).as_dict() == pytest.approx(expected(ranking), abs=1e-6)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_chunks_change_nothing(size: int) -> None:
    ranking = random_ranking(1, levels=6)
    assert_same(retrieval_scores(chunks(ranking, size)), retrieval_scores([ranking]))


@given(st.integers(0, 2**31), st.integers(1, 4), st.permutations(range(12)))
def test_gallery_order_changes_nothing(seed: int, levels: int, order: list[int]) -> None:
    ranking = random_ranking(seed, queries=5, gallery=12, levels=levels)
    assert_same(retrieval_scores([reordered(ranking, torch.tensor(order))]), retrieval_scores([ranking]))


@given(st.integers(0, 2**31), st.sampled_from([-math.inf, 0.0, 1.0]))
def test_what_is_no_candidate_changes_nothing(seed: int, score: float) -> None:
    ranking = random_ranking(seed, queries=5, gallery=12, levels=3)
    lowest = replace(ranking, scores=ranking.scores.masked_fill(ranking.scores == 0, -math.inf))
    others = (
        torch.full((5, 3), score),
        torch.zeros(5, 3, dtype=torch.bool),
        torch.ones(5, 3, dtype=torch.bool),
    )
    own = (lowest.scores, lowest.candidate, lowest.relevant)
    wider = ScoredQueries(*(torch.cat([extra, part], dim=1) for extra, part in zip(others, own, strict=True)))
    assert_same(retrieval_scores([wider]), retrieval_scores([lowest]))


def test_a_tie_is_no_find() -> None:
    found = retrieval_scores([one_query([0.5, 0.5, 0.1], [1, 0, 0])])
    assert (found.recall[1], found.recall[5], found.mrr, found.map) == (0.0, 1.0, 0.5, 0.5)


def test_constant_scores_give_the_worst_order() -> None:
    found = retrieval_scores([one_query([0.3] * 8, [1, 0, 0, 1, 0, 0, 0, 0])])
    assert (found.recall[1], found.recall[5], found.recall[10]) == (0.0, 0.0, 1.0)
    assert found.mrr == pytest.approx(1 / 7)
    assert found.map == pytest.approx((1 / 7 + 2 / 8) / 2)


def test_a_perfect_order() -> None:
    found = retrieval_scores([one_query([0.1, 0.9, 0.8], [0, 1, 1])])
    assert found.as_dict() == {"recall@1": 1, "recall@5": 1, "recall@10": 1, "mrr": 1, "map": 1}


def test_the_query_itself_is_left_out() -> None:
    found = retrieval_scores([one_query([1.0, 0.5, 0.4], [1, 0, 1], candidate=[0, 1, 1])])
    assert (found.recall[1], found.mrr, found.map) == (0.0, 0.5, 0.5)


def test_queries_without_a_positive_are_left_out_and_counted() -> None:
    right, alone = one_query([0.9, 0.1], [1, 0]), one_query([0.9, 0.1], [1, 0], candidate=[0, 1])
    found = retrieval_scores([right, alone, one_query([0.9, 0.1], [0, 0])])
    assert (found.queries, found.without_positive) == (1, 2)
    assert found.as_dict() == retrieval_scores([right]).as_dict()


@pytest.mark.parametrize("rankings", [[], [one_query([0.9, 0.1], [0, 0])]], ids=["no query", "no positive"])
def test_without_any_positive_nothing_is_claimed(rankings: list[ScoredQueries]) -> None:
    found = retrieval_scores(rankings)
    assert (found.queries, found.without_positive) == (0, len(rankings))
    assert all(math.isnan(value) for value in found.as_dict().values())


def test_other_ranks_can_be_asked_for() -> None:
    found = retrieval_scores([one_query([0.9, 0.8, 0.7], [0, 0, 1])], recall_at=(2, 3))
    assert found.recall == {2: 0.0, 3: 1.0}


def test_the_scores_are_not_edited() -> None:
    ranking = random_ranking(2)
    before = ranking.scores.clone()
    retrieval_scores([ranking])
    torch.testing.assert_close(ranking.scores, before, rtol=0, atol=0)


def random_labels(seed: int, queries: int = 17) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Mostly N, some V, and now and then an S."""
    return np.random.default_rng(seed).choice(["N", "V", "S"], size=queries, p=[0.7, 0.2, 0.1])


@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize("seed", range(4))
def test_classes_equal_the_naive_twin(seed: int, levels: int | None) -> None:
    ranking, labels = random_ranking(seed, levels=levels), random_labels(seed)
    found = retrieval_scores([ranking], labels=labels)
    expected_classes: dict[str, dict[str, float]] = {}
    for label in sorted(set(labels.tolist())):
        firsts, precisions = [], []
        for n in range(len(labels)):
            hits = naive.hits(ranking.scores[n].numpy(), ranking.candidate[n].numpy(), ranking.relevant[n].numpy())
            if labels[n] == label and any(hits):
                firsts.append(naive.recall_at(hits, 1))
                precisions.append(naive.average_precision(hits))
        if firsts:
            count = len(firsts)
            means = (sum(firsts) / count, sum(precisions) / count, float(count))
            expected_classes[label] = dict(zip(("recall@1", "map", "queries"), means, strict=True))
    assert list(found.per_class) == list(expected_classes)
    for label, values in expected_classes.items():
        assert found.per_class[label] == pytest.approx(values, abs=1e-6)
    for name in ("recall@1", "map"):
        column = [values[name] for values in expected_classes.values()]
        assert found.as_dict()[f"class_mean_{name}"] == pytest.approx(sum(column) / len(column), abs=1e-6)


def test_a_class_equals_torchmetrics() -> None:
    ranking, labels = random_ranking(3), random_labels(3)
    found = retrieval_scores([ranking], labels=labels)
    assert len(found.per_class) > 1
    for label, values in found.per_class.items():
        own = torch.from_numpy(labels == label)
        kept = ranking.candidate & own[:, None]
        query = torch.arange(len(kept))[:, None].expand_as(kept)
        flat = (ranking.scores[kept], ranking.relevant[kept], query[kept])
        first = RetrievalHitRate(empty_target_action="skip", top_k=1)(*flat)
        assert values["recall@1"] == pytest.approx(float(first), abs=1e-6)
        assert values["map"] == pytest.approx(float(RetrievalMAP(empty_target_action="skip")(*flat)), abs=1e-6)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_chunks_do_not_move_classes(size: int) -> None:
    ranking, labels = random_ranking(1, levels=6), random_labels(1)
    found, whole = (retrieval_scores(parts, labels=labels) for parts in (chunks(ranking, size), [ranking]))
    assert found.per_class == whole.per_class


def test_labels_do_not_move_the_means_over_queries() -> None:
    ranking = random_ranking(5)
    plain, by_class = retrieval_scores([ranking]), retrieval_scores([ranking], labels=random_labels(5)).as_dict()
    assert plain.as_dict().items() <= by_class.items()
    assert (plain.per_class, plain.class_means()) == ({}, {})


def test_every_class_counts_the_same() -> None:
    right, wrong = one_query([0.9, 0.1], [1, 0]), one_query([0.1, 0.9], [1, 0])
    found = retrieval_scores([right, right, right, wrong], labels=np.asarray(["N", "N", "N", "V"]))
    assert (found.recall[1], found.class_means()["class_mean_recall@1"]) == (0.75, 0.5)
    assert found.class_means()["class_mean_map"] == pytest.approx((1 + 0.5) / 2)


def test_a_class_without_a_counted_query_claims_nothing() -> None:
    alone = one_query([0.9, 0.1], [0, 0])
    found = retrieval_scores([one_query([0.9, 0.1], [1, 0]), alone], labels=np.asarray(["N", "S"]))
    assert list(found.per_class) == ["N"]
    assert found.class_means()["class_mean_recall@1"] == 1.0
    assert retrieval_scores([alone], labels=np.asarray(["S"])).per_class == {}


def test_labels_that_are_too_few_are_refused() -> None:
    with pytest.raises(SignalError, match="expected a label for each of 17 queries, got 3"):
        retrieval_scores([random_ranking(0)], labels=np.asarray(["a", "b", "c"]))
