"""Laws of every baseline: shapes, seeds, amplitude, gaps, unequal lengths, errors; and the choice of amplitude."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from geopatch.config import TrainConfig
from geopatch.data import Collection
from geopatch.data.sample import basic_motions
from geopatch.errors import ConfigError, GeoPatchError, MissingExtraError, SignalError
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch_lab.baselines import METHODS, Method, better_amplitude, make
from geopatch_lab.baselines import choice as choice_module
from geopatch_lab.baselines.choice import folds, recall_at_1
from geopatch_lab.baselines.method import Embedder, Scale, resampled
from geopatch_lab.baselines.registry import NETWORKS, SELF_SUPERVISED

FEW = TrainConfig(min_steps=2, max_steps=2, batch_size=8, precision="float32")
SUPERVISED = [name for name in METHODS if name.endswith("ridge") or name in set(NETWORKS) - set(SELF_SUPERVISED)]
WITH_AEON = ("catch22", "multirocket-hydra-ridge")


def small(split: Collection, per_class: int = 2, length: int = 36) -> Collection:
    """A few gestures of each class, cut short."""
    assert split.labels is not None
    rows = np.concatenate([np.flatnonzero(split.labels == label)[:per_class] for label in np.unique(split.labels)])
    part = split.subset(rows)
    return Collection("small", tuple(replace(one, values=one.values[:length]) for one in part.signals), part.labels)


TRAIN, TEST = (small(split) for split in basic_motions())


def quick(name: str, **settings: Any) -> Method:
    return make(name, train=FEW, **settings)


def fitted(name: str, train: Collection = TRAIN, seed: int = 0, **settings: Any) -> Method:
    method = quick(name, **settings)
    method.fit(train.signals, train.labels, seed)
    return method


def changed(signals: Sequence[Signal], change: Any) -> list[Signal]:
    return [replace(signal, values=change(signal.values, n)) for n, signal in enumerate(signals)]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_scores_every_pair_and_nothing_beats_the_query_itself(name: str) -> None:
    method = fitted(name)
    assert method.name == name
    scores = method.scores(TEST.signals[:5], TEST.signals)
    assert scores.shape == (5, len(TEST))
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert (scores.max(1) <= scores[np.arange(5), np.arange(5)] + 1e-5).all()
    assert (scores.min(1) < scores.max(1) - 1e-4).all()
    np.testing.assert_allclose(method.scores(TEST.signals, TEST.signals)[:5], scores, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_one_seed_gives_one_result(name: str) -> None:
    first, second = (fitted(name).scores(TEST.signals, TEST.signals) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", [*NETWORKS, "minirocket", "minirocket-ridge"])
def test_another_seed_gives_another_result(name: str) -> None:
    first, second = (fitted(name, seed=seed).scores(TEST.signals, TEST.signals) for seed in (0, 1))
    assert not np.allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("euclidean", "dtw", "dtw-10")])
def test_embeddings_are_unit_vectors_whose_cosine_is_the_score(name: str) -> None:
    method = fitted(name)
    assert isinstance(method, Embedder)
    vectors = method.embed(TEST.signals)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, method.scores(TEST.signals, TEST.signals), atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_zscore_does_not_see_gain_and_level_and_keep_does(name: str) -> None:
    louder = changed(TEST.signals, lambda values, n: values * (2 + n) + 5)
    blind, seeing = fitted(name, amplitude="zscore"), fitted(name, amplitude="keep")
    gallery = TEST.signals
    np.testing.assert_allclose(blind.scores(louder, gallery), blind.scores(TEST.signals, gallery), atol=5e-3)
    assert not np.allclose(seeing.scores(louder, gallery), seeing.scores(TEST.signals, gallery), atol=5e-3)


@pytest.mark.parametrize("name", METHODS)
def test_gaps_and_unequal_lengths_are_defined_for_every_method(name: str) -> None:
    def ragged(values: Any, n: int) -> Any:
        holes = values[: 36 - 3 * n].copy()
        holes[2:5, 0] = np.nan
        holes[:, 1] = np.nan if n == 1 else holes[:, 1]
        return holes

    train = Collection("ragged", tuple(changed(TRAIN.signals, ragged)), TRAIN.labels)
    scores = fitted(name, train).scores(changed(TEST.signals, ragged), TEST.signals)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_what_it_cannot_use_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match="amplitude must be one of keep, zscore, got 'loud'"):
        quick(name, amplitude="loud")
    with pytest.raises(GeoPatchError, match=f"{name} was asked before it was fitted; call fit"):
        quick(name).scores(TEST.signals, TEST.signals)
    with pytest.raises(SignalError, match=r"fitted on 6 channel\(s\), these signals have 2; give the same"):
        fitted(name).scores(changed(TEST.signals, lambda values, _: values[:, :2]), TEST.signals)


@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised_methods_ask_for_labels(name: str) -> None:
    with pytest.raises(SignalError, match=f"{name} learns from labels, got none"):
        quick(name).fit(TRAIN.signals, None, 0)
    with pytest.raises(SignalError, match=r"one label for each of 8 signals, got labels of shape \(3,\)"):
        quick(name).fit(TRAIN.signals, ["a", "b", "c"], 0)
    with pytest.raises(SignalError, match=f"{name} needs two classes or more to tell apart, got 1"):
        quick(name).fit(TRAIN.signals, ["a"] * len(TRAIN), 0)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in SUPERVISED])
def test_the_others_use_no_label(name: str) -> None:
    with_labels, without = fitted(name), quick(name)
    without.fit(TRAIN.signals, None, 0)
    expected = with_labels.scores(TEST.signals, TEST.signals)
    np.testing.assert_array_equal(without.scores(TEST.signals, TEST.signals), expected)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ConfigError, match=r"method must be one of euclidean, dtw, .* got 'soft-dtw'"):
        make("soft-dtw")


@pytest.mark.parametrize("name", WITH_AEON)
def test_what_aeon_is_missing_for_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.startswith("aeon")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "aeon", None)
    with pytest.raises(MissingExtraError, match=r"needs aeon, which is not installed; pip install .*\[archive\]"):
        fitted(name).scores(TEST.signals, TEST.signals)


def test_learned_methods_and_minirocket_need_only_torch_and_numpy() -> None:
    absent = ("aeon", "numba", "sklearn", "scipy", "pandas", "rich", "click", "matplotlib", "polars", "narwhals")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({absent}))
import numpy as np
from geopatch_lab.baselines import make
from geopatch.signal import Signal
signals = [Signal.from_array(np.random.default_rng(n).normal(size=20), id=str(n)) for n in range(4)]
method = make("minirocket-ridge")
method.fit(signals, ["a", "b", "a", "b"], 0)
print(method.scores(signals, signals).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "(4, 4)", done.stderr


def test_scale_is_that_of_the_training_data_and_a_constant_channel_stays_finite() -> None:
    values = np.stack([np.arange(10.0), np.full(10, 7.0)], axis=1)
    scale = Scale.learn("keep", stack([Signal.from_array(values)]))
    applied = scale.apply([Signal.from_array(values + 1, id="x")])[0]
    np.testing.assert_allclose(applied[:, 0], (np.arange(10) + 1 - 4.5) / np.arange(10).std(), rtol=1e-5)
    np.testing.assert_allclose(applied[:, 1], 1.0, rtol=1e-5)


def test_resampling_keeps_the_ends_and_straight_lines() -> None:
    line = np.linspace(2, 5, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(resampled(line, 13), np.linspace(2, 5, 13)[:, None], rtol=1e-6)
    assert resampled(line, 7) is line
    assert resampled(line[:1], 3).tolist() == [[2.0]] * 3


WAVE = np.sin(np.linspace(0, 6, 30))


def loud_and_soft(label: str, draw: np.random.Generator) -> Any:
    """Two classes that differ in loudness alone."""
    return WAVE * (3 if label == "a" else 1)


def any_loudness(label: str, draw: np.random.Generator) -> Any:
    """Two shapes, each at any loudness and level."""
    return (WAVE if label == "a" else WAVE**2) * draw.uniform(1, 30) + draw.normal() * 30


@pytest.mark.parametrize(("shape", "expected"), [(loud_and_soft, "keep"), (any_loudness, "zscore")])
def test_the_better_amplitude_is_found_inside_the_train_split(shape: Any, expected: str) -> None:
    draw = np.random.default_rng(0)
    labels = np.array(["a", "b"] * 8)
    values = [shape(label, draw) + 0.05 * draw.normal(size=30) for label in labels]
    train = Collection("t", tuple(Signal.from_array(one, id=str(n)) for n, one in enumerate(values)), labels)
    choice = better_amplitude("euclidean", train)
    assert choice.amplitude == expected
    assert choice.recall[expected] == 1.0 > min(choice.recall.values())


def test_selection_receives_the_train_split_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = inspect.signature(better_amplitude).parameters
    assert [name for name, one in parameters.items() if "Collection" in str(one.annotation)] == ["train"]
    seen: set[str] = set()

    class Spy:
        def fit(self, signals: Sequence[Signal], labels: Any, seed: int) -> None:
            self.ids = {signal.id for signal in signals}

        def scores(self, queries: Sequence[Signal], gallery: Sequence[Signal]) -> Any:
            asked = {signal.id for signal in [*queries, *gallery]}
            assert not asked & self.ids, "a window it was fitted on is asked for"
            seen.update(asked | self.ids)
            return np.eye(len(queries), len(gallery))

    monkeypatch.setattr(choice_module, "make", lambda name, **settings: Spy())
    better_amplitude("euclidean", TRAIN)
    assert seen == {signal.id for signal in TRAIN.signals}


def test_folds_are_stratified_and_bounded() -> None:
    labels = np.array(["a"] * 40 + ["b"] * 20)
    whole = Collection("w", tuple(Signal.from_array(np.arange(5.0) + n, id=str(n)) for n in range(60)), labels)
    for kept, asked in folds(whole, most=30):
        assert kept.labels is not None
        assert asked.labels is not None
        assert [(kept.labels == name).sum() for name in "ab"] == [10, 5]
        assert [(asked.labels == name).sum() for name in "ab"] == [10, 5]
        assert not {one.id for one in kept.signals} & {one.id for one in asked.signals}


def test_recall_counts_ties_as_misses_and_leaves_out_queries_without_a_right_candidate() -> None:
    labels = np.array(["a", "a", "b", "b", "c"])
    scores = np.zeros((5, 5), dtype=np.float32)
    assert recall_at_1(scores, labels) == 0.0
    scores[0, 1] = scores[2, 3] = 1.0
    assert recall_at_1(scores, labels) == 0.5
    assert np.isnan(recall_at_1(scores[:1, :1], labels[:1]))


def test_choosing_needs_labels() -> None:
    with pytest.raises(SignalError, match="has no labels, so no treatment can be called better"):
        better_amplitude("euclidean", Collection("plain", TRAIN.signals))
