"""Train and evaluate: a row for each scorer under each stress, true to its metrics."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import naive
import numpy as np
import pytest

from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.collection import Collection
from geopatch.errors import ConfigError, SignalError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import retrieval
from geopatch.evaluate.retrieval import EncodedSide, Trained, evaluate, score, train
from geopatch.evaluate.rows import Row, config_digest
from geopatch.evaluate.stress import Stress, curve, default_stresses
from geopatch.protocol import Protocol, places
from geopatch.scoring import encoded_scorers
from geopatch.signal import Signal
from geopatch.warp import warped

MODEL = ModelConfig(halves=("learned",), patch_length=4, max_patches=6, width=16, embedding=8, layers=1, heads=1)
RECALLS = ("recall@1", "recall@5", "recall@10")
TRAIN = TrainConfig(epochs=1, min_steps=3, max_steps=3, batch_size=8)


def waves(name: str, seed: int, count: int = 12) -> Collection:
    """Slow and fast waves of unequal lengths."""
    rng = np.random.default_rng(seed)
    signals = []
    for n in range(count):
        time = np.linspace(0, 1, 24 + 2 * n)
        wave = np.sin(2 * np.pi * (1 + 3 * (n % 2)) * time + rng.uniform(0, 6)) + 0.1 * rng.normal(size=len(time))
        signals.append(Signal.from_array(wave, id=str(n)))
    return Collection(name, tuple(signals), np.asarray(["slow", "fast"] * count)[:count])


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train(waves("waves_TRAIN", 0), GeoPatch(model=MODEL, train=TRAIN, random_state=5, device="cpu"), "tiny")


@pytest.fixture(scope="module")
def split() -> Collection:
    return waves("waves_TEST", 1)


@pytest.fixture(scope="module")
def rows(trained: Trained, split: Collection) -> list[Row]:
    return evaluate(trained, split)


def test_a_row_for_each_scorer_under_each_stress(rows: list[Row]) -> None:
    assert [(row.stress, row.scorer) for row in rows] == [
        ("clean", "fused"),
        ("clean", "cosine"),
        ("warped queries", "fused"),
        ("warped queries", "cosine"),
    ]


def test_a_row_describes_itself(rows: list[Row], trained: Trained, split: Collection) -> None:
    row = rows[0]
    assert (row.data, row.preset, row.seed, row.device, row.failures) == ("waves_TEST", "tiny", 5, "cpu", 0)
    assert split.digest().startswith(row.data_digest)
    assert (row.protocol, row.protocol_digest) == ("standard", Protocol().digest)
    assert row.config_digest == config_digest(MODEL, TRAIN)
    assert (row.queries, row.without_positive) == (12, 0)
    assert set(row.scores) == {*RECALLS, "mrr", "map", "class_mean_recall@1", "class_mean_map"}
    assert set(row.per_class) == {"slow", "fast"}
    assert row.per_class["slow"]["queries"] == 6
    assert row.stress_digest == Stress("clean", 0).digest
    assert row.fit_s == trained.fit_s > 0
    assert row.encode_s > 0
    assert row.peak_memory_mb is None or row.peak_memory_mb > 10


def test_stress_and_scorer_reach_the_scores(rows: list[Row]) -> None:
    assert len({tuple(row.scores.values()) for row in rows}) > 1


def test_scores_equal_the_naive_twin(trained: Trained, split: Collection) -> None:
    """Cosines of clean queries, ranked one at a time; the query itself left out."""
    (row,) = evaluate(trained, split, scorers=["cosine"], stresses=["clean"])
    vectors = trained.estimator.transform(split.signals).astype(np.float64)
    assert split.labels is not None
    precisions = []
    for n, vector in enumerate(vectors):
        others = np.arange(len(vectors)) != n
        ranked = naive.hits(vectors @ vector, others, split.labels == split.labels[n])
        precisions.append(naive.average_precision(ranked))
    assert row.scores["map"] == pytest.approx(np.mean(precisions), abs=1e-6)


@pytest.mark.parametrize("scorer", ["maxsim", "fused"])
def test_a_shortlist_equals_the_naive_twin(
    scorer: str, trained: Trained, split: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the three nearest are ordered anew; the query itself takes none of the three places."""
    monkeypatch.setattr(retrieval, "SHORTLIST", 3)
    (row,) = evaluate(trained, split, scorers=[scorer], stresses=["clean"])
    encoding = trained.estimator.encode(split.signals)
    vectors, tokens, valid = encoding.embedding.astype(float), encoding.tokens.astype(float), encoding.valid
    assert split.labels is not None
    precisions = []
    for n, vector in enumerate(vectors):
        others = np.flatnonzero(np.arange(len(vectors)) != n)
        query, gallery = (tokens[n], valid[n]), (tokens[others], valid[others])
        order = naive.rerank(vectors[others] @ vector, *query, *gallery, scorer, 3)
        precisions.append(naive.average_precision([split.labels[others[m]] == split.labels[n] for m in order]))
    assert row.scores["map"] == pytest.approx(np.mean(precisions), abs=1e-6)


def test_chunks_change_nothing(
    trained: Trained, split: Collection, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "CHUNK", 5)
    for row, again in zip(rows, evaluate(trained, split), strict=True):
        assert again.scores == pytest.approx(row.scores, abs=1e-6)


def test_the_order_of_the_gallery_changes_nothing(trained: Trained, split: Collection, rows: list[Row]) -> None:
    backwards = split.subset(range(len(split))[::-1])
    for row, again in zip(rows, evaluate(trained, backwards), strict=True):
        assert again.scores == pytest.approx(row.scores, abs=1e-6)


def test_a_copy_in_the_gallery_is_found_first(trained: Trained) -> None:
    """A window twice in the gallery, the second time under another id and at another place."""
    own = waves("waves", 3, count=6)
    twins = tuple(replace(signal, id=f"{signal.id}'") for signal in reversed(own.signals))
    names = [signal.id for signal in own.signals]
    doubled = Collection("doubled", own.signals + twins, np.asarray(names + names[::-1]))
    for row in evaluate(trained, doubled, stresses=["clean"]):
        assert row.scores["recall@1"] == 1.0
        assert row.queries == 12


def test_a_saved_model_is_measured_alike(trained: Trained, split: Collection, rows: list[Row], tmp_path: Path) -> None:
    trained.estimator.save(tmp_path / "model")
    loaded = GeoPatch.load(tmp_path / "model", device="cpu")
    again = evaluate(Trained(loaded, "tiny", loaded.seed_, trained.fit_s), split)
    for row, other in zip(rows, again, strict=True):
        assert replace(other, encode_s=row.encode_s, peak_memory_mb=row.peak_memory_mb) == row


def test_every_stress_and_scorer_has_its_row(trained: Trained, split: Collection) -> None:
    found = evaluate(trained, split, stresses=default_stresses(), scorers=encoded_scorers())
    assert [(row.stress, row.scorer) for row in found] == [
        (stress.text, scorer) for stress in default_stresses() for scorer in encoded_scorers()
    ]
    assert len({row.stress_digest for row in found}) == len(default_stresses())
    assert all(math.isfinite(value) for row in found for value in row.scores.values())


@pytest.mark.parametrize(
    ("name", "asked", "searched"),
    [("warp-queries", 0.1, 0), ("warp-both-alike", 0.1, 0.1), ("warp-both-differently", 0.1, -0.1)],
)
def test_a_warp_equals_the_naive_twin(
    name: str, asked: float, searched: float, trained: Trained, split: Collection
) -> None:
    """Each side encoded on its own clock, ranked one query at a time."""
    (row,) = evaluate(trained, split, scorers=["cosine"], stresses=[name])
    query, gallery = (
        trained.estimator.transform([warped(signal, strength) for signal in split.signals]).astype(float)
        for strength in (asked, searched)
    )
    assert split.labels is not None
    precisions = []
    for n, vector in enumerate(query):
        others = np.arange(len(gallery)) != n
        ranked = naive.hits(gallery @ vector, others, split.labels == split.labels[n])
        precisions.append(naive.average_precision(ranked))
    assert row.scores["map"] == pytest.approx(np.mean(precisions), abs=1e-6)


def test_geometry_noise_reaches_the_scores_by_its_strength(trained: Trained, split: Collection) -> None:
    stresses = ["clean", "geometry-noise@1e-9", "geometry-noise@5"]
    clean, faint, strong = evaluate(trained, split, scorers=["cosine"], stresses=stresses)
    assert faint.scores == pytest.approx(clean.scores, abs=1e-6)
    assert strong.scores != pytest.approx(clean.scores, abs=1e-3)


def test_all_strengths_0_are_one_clean_row(trained: Trained, split: Collection) -> None:
    stresses: list[Stress | str] = [*curve("shuffle", [0, 4]), *curve("span-mask", [0, 0.5]), "clean"]
    found = evaluate(trained, split, scorers=["cosine"], stresses=stresses)
    assert [row.stress for row in found] == ["clean", "shuffle@4", "span-mask@0.5"]


def test_classes_equal_the_naive_twin(trained: Trained, split: Collection) -> None:
    (row,) = evaluate(trained, split, scorers=["cosine"], stresses=["clean"])
    vectors = trained.estimator.transform(split.signals).astype(np.float64)
    assert split.labels is not None
    for label, values in row.per_class.items():
        found = []
        for n in np.flatnonzero(split.labels == label):
            others = np.arange(len(vectors)) != n
            found.append(naive.average_precision(naive.hits(vectors @ vectors[n], others, split.labels == label)))
        assert values["map"] == pytest.approx(np.mean(found), abs=1e-6)


def test_an_unknown_stress_is_refused(trained: Trained, split: Collection) -> None:
    with pytest.raises(ConfigError, match=r"stress must be one of clean, warp-queries, .*, got 'heat'"):
        evaluate(trained, split, stresses=["heat"])


def test_an_unknown_scorer_is_refused(trained: Trained, split: Collection) -> None:
    with pytest.raises(ConfigError, match=r"scorer must be one of .*, got 'magic'"):
        evaluate(trained, split, scorers=["magic"])


def test_an_unlabelled_test_collection_is_refused(trained: Trained, split: Collection) -> None:
    with pytest.raises(SignalError, match="waves_TEST has no labels, so no hit can be called right"):
        evaluate(trained, replace(split, labels=None))


def test_labels_that_occur_once_are_refused(trained: Trained, split: Collection) -> None:
    names = np.asarray([signal.id for signal in split.signals])
    with pytest.raises(SignalError, match="no two windows of waves_TEST have the same label"):
        evaluate(trained, replace(split, labels=names))


def test_lone_labels_are_counted(trained: Trained, split: Collection) -> None:
    labels = np.asarray(["slow", "slow", *(signal.id for signal in split.signals[2:])])
    row = evaluate(trained, replace(split, labels=labels))[0]
    assert (row.queries, row.without_positive) == (2, 10)


def test_training_without_labels(split: Collection) -> None:
    unlabelled = replace(waves("waves_TRAIN", 0), labels=None)
    trained = train(unlabelled, GeoPatch(model=MODEL, train=TRAIN, device="cpu"), "tiny")
    assert all(math.isfinite(row.scores["map"]) for row in evaluate(trained, split))


def test_score_of_queries_without_a_right_candidate(trained: Trained, split: Collection) -> None:
    """With a label each, the query itself left out, no query has a right candidate."""
    gallery = trained.estimator.encode(split.signals)
    labels, where = np.asarray(gallery.ids), places(split.signals)
    encoded = EncodedSide(gallery, where, labels)
    assert score(encoded, encoded, Protocol(), "cosine").queries == 0


def test_strict_protocols_leave_out_the_query_s_record(trained: Trained, split: Collection) -> None:
    """Every window is its own record here, so strict and standard agree; of one record, nothing remains."""
    standard, strict = (
        evaluate(trained, split, protocol=Protocol(name), scorers=("cosine",), stresses=("clean",))[0]
        for name in ("standard", "strict-cross-record")
    )
    assert standard.scores == strict.scores
    assert standard.protocol_digest != strict.protocol_digest
    one = replace(split, signals=tuple(replace(signal, record="r") for signal in split.signals))
    (row,) = evaluate(trained, one, protocol=Protocol("strict-cross-record"), scorers=("cosine",), stresses=("clean",))
    assert (row.queries, row.without_positive) == (0, len(split))
