"""The closed form with labels: equal to a plain twin, class means first, the rest with a small weight."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from geopatch.kernels.labelled import labelled_directions
from geopatch.kernels.moments import Moments

Floats = npt.NDArray[np.float64]
WIDTH, CLASSES, WINDOWS = 20, 4, 60


def views(seed: int = 0) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Views (N, V, r) of windows of four classes: drift, a spread within classes and one between them."""
    draw = np.random.default_rng(seed)
    labels = np.arange(WINDOWS) % CLASSES
    centre = draw.normal(size=(CLASSES, WIDTH))[labels]
    windows = centre + draw.normal(size=(WINDOWS, WIDTH)) * np.linspace(0.2, 1.5, WIDTH)
    drift = draw.normal(size=(WINDOWS, 8, WIDTH)) * np.linspace(1.5, 0.1, WIDTH)
    return windows[:, None] + drift, labels


def moments(seen: Floats, labels: npt.NDArray[np.int64], classes: int = CLASSES) -> Moments:
    counted = Moments.empty(WIDTH, classes)
    counted.add(torch.from_numpy(seen), torch.from_numpy(labels))
    return counted


def solved(counted: Moments, count: int, **settings: float) -> Floats:
    drift, between, between_classes = counted.drift(), counted.between(), counted.between_classes()
    return np.asarray(labelled_directions(drift, between, between_classes, count, **settings))


def naive(
    seen: Floats, labels: npt.NDArray[np.int64], count: int, share: float, shrinkage: float, rest: float
) -> Floats:
    """From the windows themselves, by whitening with a matrix root and singular values."""
    mean = seen.mean(1)
    apart = (seen - mean[:, None]).reshape(-1, WIDTH)
    drift = apart.T @ apart / (len(seen) * (seen.shape[1] - 1))
    centred = mean - mean.mean(0)
    class_mean = np.stack([centred[labels == name].mean(0) for name in np.unique(labels)])[labels]
    own = centred - class_mean
    noise = drift + share * own.T @ own / len(own)
    noise += shrinkage * np.trace(noise) / WIDTH * np.eye(WIDTH)
    value, vector = np.linalg.eigh(noise)
    white = vector @ np.diag(value**-0.5) @ vector.T
    first = np.linalg.svd(class_mean @ white)[2][: len(np.unique(labels)) - 1]
    left = own @ white
    left = left - left @ first.T @ first
    second = np.linalg.svd(left)[2][: count - len(first)]
    second = second[: np.linalg.matrix_rank(left, tol=1e-6)]
    return np.asarray(white @ np.concatenate([first, rest**0.5 * second]).T)


def cosines(values: Floats, map: Floats) -> Floats:
    vectors = values @ map
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors @ vectors.T)


@pytest.mark.parametrize(("share", "shrinkage", "rest"), [(0.3, 0.01, 0.1), (1.0, 0.1, 0.5), (0.0, 0.001, 1.0)])
@pytest.mark.parametrize("count", [3, 8, 20])
def test_the_closed_form_equals_its_twin(count: int, share: float, shrinkage: float, rest: float) -> None:
    seen, labels = views()
    map = solved(moments(seen, labels), count, class_share=share, shrinkage=shrinkage, rest_weight=rest)
    assert map.shape == (WIDTH, count)
    twin = naive(seen, labels, count, share, shrinkage, rest)
    values = seen.mean(1) - seen.mean((0, 1))
    np.testing.assert_allclose(cosines(values, map), cosines(values, twin), atol=1e-6)


def test_windows_of_one_class_are_nearer_than_without_labels() -> None:
    seen, labels = views()
    same = (labels[:, None] == labels) & ~np.eye(WINDOWS, dtype=bool)
    values = seen.mean(1) - seen.mean((0, 1))
    near = cosines(values, solved(moments(seen, labels), 10))
    far = cosines(values, solved(moments(seen, labels), 10, class_share=0.0, rest_weight=1.0))
    assert near[same].mean() > far[same].mean() + 0.1


def test_what_is_left_over_of_the_directions_is_empty() -> None:
    seen, labels = views()
    map = solved(moments(seen, labels), WIDTH + 5)
    assert map.shape == (WIDTH, WIDTH + 5)
    assert not map[:, WIDTH:].any()
    assert np.isfinite(map).all()


def test_one_class_leaves_what_differs_within_it() -> None:
    seen, _ = views()
    counted = moments(seen, np.zeros(WINDOWS, dtype=np.int64), 1)
    map = solved(counted, 6, class_share=0.0, shrinkage=1e-9, rest_weight=0.25)
    np.testing.assert_allclose(map.T @ counted.drift().numpy() @ map, 0.25 * np.eye(6), atol=1e-6)


def test_windows_that_are_all_alike_give_no_direction() -> None:
    seen = np.ones((WINDOWS, 3, WIDTH))
    assert not solved(moments(seen, np.arange(WINDOWS) % CLASSES), 5).any()
