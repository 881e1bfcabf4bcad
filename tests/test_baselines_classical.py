"""The classical baselines against naive twins, and against aeon and scikit-learn where those have the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from aeon.classification.convolution_based import MultiRocketHydraClassifier
from aeon.transformations.collection.convolution_based import MiniRocket as AeonMiniRocket
from aeon.transformations.collection.feature_based import Catch22 as AeonCatch22
from sklearn.linear_model import RidgeClassifierCV

from geopatch.signal import Signal
from geopatch_lab.baselines.classical import Catch22, Euclidean, aeon
from geopatch_lab.baselines.method import unit
from geopatch_lab.baselines.minirocket import KERNELS, MiniRocket, dilations_for, kernels, quantiles
from geopatch_lab.baselines.ridge import STRENGTHS, Ridge
from geopatch_lab.baselines.rocket import MultiRocketHydraRidge, class_vectors

Series = npt.NDArray[np.float64]


def walks(count: int, length: int, channels: int, seed: int = 0) -> list[Signal]:
    steps = np.random.default_rng(seed).normal(size=(count, length, channels))
    return [Signal.from_array(np.cumsum(walk, axis=0), id=f"{seed} {n}") for n, walk in enumerate(steps)]


def array(signals: list[Signal]) -> npt.NDArray[np.float32]:
    return np.stack([signal.values.T for signal in signals])


def standardised(signals: list[Signal], train: list[Signal]) -> list[Series]:
    samples = np.concatenate([signal.values for signal in train]).astype(np.float64)
    return [(signal.values - samples.mean(0)) / samples.std(0) for signal in signals]


def test_euclidean_is_the_distance_over_samples_and_channels() -> None:
    train, queries, gallery = walks(4, 20, 2), walks(3, 20, 2, seed=1), walks(5, 20, 2, seed=2)
    method = Euclidean()
    method.fit(train)
    asked, found = standardised(queries, train), standardised(gallery, train)
    expected = [[-np.sqrt(((one - other) ** 2).sum()) for other in found] for one in asked]
    np.testing.assert_allclose(method.scores(queries, gallery), expected, rtol=1e-4)


def test_catch22_is_aeons_standardised() -> None:
    train, test = walks(6, 40, 2), walks(4, 40, 2, seed=1)
    method = Catch22()
    method.fit(train)
    features = [
        AeonCatch22(replace_nans=True).fit_transform([series.T for series in standardised(part, train)])
        for part in (train, test)
    ]
    spread = features[0].std(0)
    expected = (features[1] - features[0].mean(0)) / np.where(spread > 1e-6, spread, 1)
    np.testing.assert_allclose(method.embed(test), unit(expected), atol=2e-3)


def of_aeon(rocket: AeonMiniRocket, channels: int) -> MiniRocket:
    """Our transform with what aeon's fit found."""
    counts, indices, dilations, per_dilation, biases = rocket.parameters
    ends = np.cumsum(counts)
    chosen = np.zeros((len(counts), channels), dtype=bool)
    for row, (count, end) in enumerate(zip(counts, ends, strict=True)):
        chosen[row, indices[end - count : end]] = True
    edges = np.cumsum(per_dilation * KERNELS)[:-1]
    parts = [torch.from_numpy(part).view(KERNELS, -1) for part in np.split(biases, edges)]
    return MiniRocket(dilations.tolist(), list(torch.from_numpy(chosen).split(KERNELS)), parts)


@pytest.mark.parametrize(("channels", "length"), [(1, 60), (3, 47), (12, 9)])
def test_minirocket_features_are_aeons(channels: int, length: int) -> None:
    series = array(walks(7, length, channels))
    theirs = AeonMiniRocket(random_state=0, n_jobs=1)
    expected = theirs.fit_transform(series)
    found = of_aeon(theirs, channels).transform(torch.from_numpy(series)).numpy()
    assert found.shape == expected.shape
    differ = np.abs(found - expected) > 1e-5
    assert differ.mean() < 1e-3  # a response may equal its bias, and rounding decides
    dilations, counts = dilations_for(length, 10_000)
    assert (dilations == theirs.parameters[2]).all()
    assert (counts == theirs.parameters[3]).all()


def test_minirocket_biases_are_quantiles_of_responses_to_training_series() -> None:
    series = torch.from_numpy(array(walks(1, 30, 1)))  # one series, so there is nothing to draw
    found = MiniRocket.fit(series, seed=3)
    theirs = AeonMiniRocket(random_state=0, n_jobs=1)
    theirs.fit(series.numpy())
    expected = of_aeon(theirs, 1).biases
    for ours, other in zip(found.biases, expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-3)
    assert kernels().sum(1).abs().max() == 0
    assert len(quantiles(9)) == 9


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)])
def test_ridge_is_scikit_learns(shape: tuple[int, int], rng: np.random.Generator) -> None:
    features, classes = rng.normal(size=shape), rng.integers(3, size=shape[0])
    features[:, 0] += classes
    theirs = RidgeClassifierCV(alphas=np.logspace(-3, 3, 10)).fit(features, classes)
    ours = Ridge.fit(torch.from_numpy(features), torch.from_numpy(classes))
    assert ours.strength == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(ours.scores(torch.from_numpy(features)), theirs.decision_function(features), atol=1e-6)
    np.testing.assert_allclose(STRENGTHS, np.logspace(-3, 3, 10))


def test_ridge_of_two_classes_has_a_score_for_each() -> None:
    features = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    scores = Ridge.fit(features, torch.tensor([0, 0, 1, 1])).scores(features)
    torch.testing.assert_close(scores[:, 0], -scores[:, 1])
    vectors = class_vectors(scores)
    assert vectors[0] @ vectors[1] > 0.9 > vectors[0] @ vectors[2]


def test_multirocket_hydra_decides_as_aeons_classifier() -> None:
    train, test = walks(12, 30, 2), walks(8, 30, 2, seed=1)
    labels = np.array([0, 1, 2] * 4)
    method = MultiRocketHydraRidge()
    method.fit(train, labels, 0)
    scaled = np.stack([series.T for series in standardised(train, train)]).astype(np.float32)
    theirs = MultiRocketHydraClassifier(random_state=0, n_jobs=1)
    theirs.fit(scaled, labels)
    asked = np.stack([series.T for series in standardised(test, train)]).astype(np.float32)
    assert (method.embed(test).argmax(1) == theirs.predict(asked)).all()


def test_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    with aeon("distances", "a test"):
        torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before
