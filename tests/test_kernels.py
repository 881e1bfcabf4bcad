"""Laws of the fixed half: closed form == twin, a stream == at once, and only the window itself decides its vectors."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import naive
import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from geopatch.config import ModelConfig, TrainConfig
from geopatch.errors import ConfigError, SignalError
from geopatch.estimator import GeoPatch
from geopatch.kernels import fitting
from geopatch.kernels.bank import FEATURES, GROUPS, TOKEN_FEATURES, TRIPLES
from geopatch.kernels.fitting import KernelFit, Views
from geopatch.kernels.half import KernelHalf, resampled
from geopatch.kernels.moments import GRAM_SAMPLES, SHRINKAGE, Moments, directions, leading_basis, streamed_basis
from geopatch.kernels.prior import FeaturePrior, LowRank, Prior, known_share
from geopatch.model.encoder import Encoder
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train.closed_form import fit_kernels
from geopatch.views import MildClock, View

Array = npt.NDArray[np.float32]


@pytest.fixture(scope="module", autouse=True)
def few_views() -> Iterator[None]:
    """Quick fits: what is tested does not depend on how many views there are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VIEWS": 400, "MAX_VIEWS": 16, "SAMPLE_VIEWS": 128, "TOKEN_VIEWS": 60, "RANK": 64}.items():
            patch.setattr(fitting, name, value)
        yield


@pytest.fixture(scope="module")
def fitted(few_views: None) -> GeoPatch:
    """A model of `walks()`, which no test changes."""
    return instant().fit(walks())


def walks(count: int = 12, length: int = 60, channels: int = 1, seed: int = 0) -> Array:
    steps = np.random.default_rng(seed).normal(size=(count, length, channels))
    return np.cumsum(steps, axis=1).astype(np.float32)


def instant(**settings: Any) -> GeoPatch:
    return GeoPatch("instant", **{"embedding": 8, "width": 16, "device": "cpu", **settings})


def half_of(model: GeoPatch) -> KernelHalf:
    assert model.encoder_.kernels is not None
    return model.encoder_.kernels


def fit_of(model: GeoPatch) -> KernelFit:
    assert model.kernel_fit_ is not None
    return model.kernel_fit_


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def cosines(vectors: Any) -> npt.NDArray[np.float64]:
    unit = np.asarray(vectors, dtype=np.float64)
    products: npt.NDArray[np.float64] = unit @ unit.T
    return products


# The closed form and its twin


def test_moments_are_those_of_the_twin() -> None:
    views = torch.randn(7, 5, 6, dtype=torch.float64) + torch.randn(7, 1, 6)
    moments = Moments.empty(6)
    moments.add(views)
    drift, difference, centre = naive.drift_and_difference(views.numpy())
    np.testing.assert_allclose(moments.drift(), drift, atol=1e-12)
    np.testing.assert_allclose(moments.between(), difference, atol=1e-12)
    np.testing.assert_allclose(moments.mean, centre, atol=1e-12)


def test_class_means_are_those_of_the_twin() -> None:
    means, labels = torch.randn(9, 4, dtype=torch.float64), torch.tensor([0, 2, 2, 0, 2, 0, 0, 2, 2])
    moments = Moments.empty(4, classes=3)  # one class has no window
    moments.add_means(means, labels)
    expected = np.zeros((4, 4))
    for number in (0, 2):
        own = means[labels == number].numpy()
        apart = own.mean(0) - means.numpy().mean(0)
        expected += len(own) / 9 * np.outer(apart, apart)
    np.testing.assert_allclose(moments.between_classes(), expected, atol=1e-12)


def test_moments_added_in_parts_are_those_of_the_whole() -> None:
    views, labels = torch.randn(20, 4, 6, dtype=torch.float64), torch.arange(20) % 3
    whole, parts = Moments.empty(6, classes=3), Moments.empty(6, classes=3)
    whole.add(views, labels)
    for index in torch.arange(20).split(7):
        parts.add(views[index], labels[index])
    for name, value in whole.tensors().items():
        torch.testing.assert_close(parts.tensors()[name], value, atol=1e-12, rtol=0)
    assert (parts.windows, parts.spare) == (20, 60.0)


def test_directions_are_those_of_the_twin() -> None:
    roots = torch.randn(2, 30, 9, dtype=torch.float64)
    drift, between = (root.mT @ root / 30 for root in roots)
    ours = directions(drift, between, 4).numpy()
    twin = naive.whitened_directions(drift.numpy(), between.numpy(), 4, SHRINKAGE)
    points = np.random.default_rng(0).normal(size=(10, 9))
    np.testing.assert_allclose((points @ ours) @ (points @ ours).T, (points @ twin) @ (points @ twin).T, rtol=1e-8)


def test_the_drift_is_the_unit_in_every_direction() -> None:
    roots = torch.randn(2, 40, 6, dtype=torch.float64)
    drift, between = (root.mT @ root / 40 for root in roots)
    map = directions(drift, between, 6, shrinkage=0.0)
    torch.testing.assert_close(map.mT @ drift @ map, torch.eye(6, dtype=torch.float64), atol=1e-9, rtol=0)
    kept = (map.mT @ between @ map).diagonal()
    assert bool((kept.diff() <= 0).all()), "the directions in which windows differ most come first"


def test_more_directions_than_there_are_stay_zero() -> None:
    drift, between = torch.eye(3, dtype=torch.float64), torch.diag(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    map = directions(drift, between, 5)
    assert map.shape == (3, 5)
    assert (map.abs().sum(0) > 0).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("size", [60, GRAM_SAMPLES + 60])
def test_a_basis_of_samples_that_come_in_parts_is_that_of_all(size: int) -> None:
    samples = torch.randn(size, 40, generator=torch.Generator().manual_seed(3)) * torch.linspace(4, 0.1, 40)
    whole, streamed = leading_basis(samples, 5), streamed_basis(iter(samples.split(50)), size, 5)
    torch.testing.assert_close(streamed, whole, atol=2e-3, rtol=0)  # 16 bits


def test_the_leading_basis_spans_what_varies_most() -> None:
    spread = torch.cat([torch.tensor([9.0, 5.0, 3.0]), torch.full((37,), 0.01)])
    samples = torch.randn(20, 40) * spread
    basis = leading_basis(samples, 3)
    assert basis.shape == (40, 3)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(3), atol=5e-3, rtol=0)
    leading = np.linalg.svd(samples.numpy(), full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(leading @ basis.numpy()), np.eye(3), atol=5e-3)


class RecordedViews(Views):
    """Keeps what it drew."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(("noise", "gain"), MildClock(), generator)
        object.__setattr__(self, "_drawn", [])

    def draw(self, batch: WindowBatch, count: int) -> View:
        seen = super().draw(batch, count)
        self._drawn.append(seen.windows)  # type: ignore[attr-defined]
        return seen

    def features(self, half: KernelHalf) -> Tensor:
        """Of all views since the last call."""
        drawn: list[WindowBatch] = self._drawn[:]  # type: ignore[attr-defined]
        self._drawn.clear()  # type: ignore[attr-defined]
        return torch.cat([fitting.half_features(half, part) for part in drawn])


def some_prior(count: int, generator: torch.Generator) -> FeaturePrior:
    """Of so many features: no file is read."""
    low = [LowRank(0.1 * torch.randn(count, 5, generator=generator), torch.full((count,), 0.3)) for _ in range(2)]
    mean, scale = torch.rand(count, generator=generator), 0.1 + torch.rand(count, generator=generator)
    return FeaturePrior(mean, scale, low[0], low[1], torch.zeros(count, 8))


def full(covariance: LowRank, ratio: Tensor) -> npt.NDArray[np.float64]:
    """In the units of other scales."""
    factor, rest = (covariance.factor * ratio[:, None]).double(), (covariance.rest * ratio.square()).double()
    matrix: npt.NDArray[np.float64] = (factor @ factor.mT + torch.diag(rest)).numpy()
    return matrix


def test_a_scale_is_shrunk_towards_the_prior_by_the_number_of_windows() -> None:
    prior, mean, scale = some_prior(6, torch.Generator().manual_seed(1)), torch.rand(6), torch.rand(6)
    assert [known_share(windows, 20.0) for windows in (0, 20, 60, 100)] == [1.0, 0.5, 0.25, 0.0]
    assert known_share(0, 0.0) == 0.0
    blended_mean, blended_scale = prior.blended(mean, scale, known_share(60, 20.0))
    torch.testing.assert_close(blended_mean, 0.75 * mean + 0.25 * prior.mean)
    torch.testing.assert_close(blended_scale.square(), 0.75 * scale.square() + 0.25 * prior.scale.square())


def test_the_closed_form_is_that_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = stack([Signal.from_array(one) for one in walks(10)])
    half = KernelHalf(ModelConfig(halves=("kernels",), length=60, embedding=8, width=16, prior_windows=20.0))
    generator = torch.Generator().manual_seed(3)
    known_before = some_prior(FEATURES, generator), some_prior(TOKEN_FEATURES, generator)
    prior = Prior(*known_before, torch.zeros(GROUPS, len(TRIPLES)))
    monkeypatch.setattr(fitting, "general_prior", lambda: prior)
    views = RecordedViews(generator)
    state = fitting.start(half, windows, lambda batch: batch, views)
    drawn = views.features(half)
    state.add(half, windows, lambda batch: batch, views)
    state.solve(half)
    shares = views.features(half).numpy().reshape(10, -1, FEATURES)
    ratio, known = prior.features.scale / state.scale, 20 / 30
    rows = [((1 - known) / len(drawn)) ** 0.5 * (drawn - state.mean) / state.scale]
    covariances = prior.features.drift, prior.features.between
    rows += [known**0.5 * (one.factor * ratio[:, None]).mT for one in covariances]
    scale = state.mean.numpy(), state.scale.numpy()
    drift, between = (full(one, ratio) for one in covariances)
    embed = naive.closed_form(shares, torch.cat(rows).numpy(), scale, (drift, between), (fitting.RANK, 8))
    clean = fitting.half_features(half, windows)
    ours, _ = half(windows, half.scaffold(windows.lengths))
    np.testing.assert_allclose(cosines(ours), cosines(embed(clean.numpy())), atol=5e-3)


# The model


def test_vectors_are_unit_and_tokens_are_where_patches_are(mixed_signals: list[Signal]) -> None:
    encoding = instant().fit(mixed_signals).encode(mixed_signals)
    assert encoding.embedding.shape == (len(mixed_signals), 8)
    assert encoding.tokens.shape[2] == 16
    np.testing.assert_allclose(np.linalg.norm(encoding.embedding, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(encoding.tokens, axis=2), encoding.valid, atol=1e-5)


def test_only_the_window_decides(awkward_signals: list[Signal]) -> None:
    """Neither the batch, nor its order, nor the padding."""
    model = instant().fit(awkward_signals)
    together = model.encode(awkward_signals)
    turned = model.encode(awkward_signals[::-1])
    wide = model.encode([*awkward_signals, Signal.from_array(np.zeros((400, awkward_signals[0].values.shape[1])))])
    for row, signal in enumerate(awkward_signals):
        alone = model.encode([signal])
        for other, place in ((together, row), (turned, -1 - row), (wide, row)):
            np.testing.assert_allclose(other.embedding[place], alone.embedding[0], atol=2e-4)
            tokens = other.tokens[place][other.valid[place]]
            np.testing.assert_allclose(tokens, alone.tokens[0][alone.valid[0]], atol=2e-4)


def test_one_seed_gives_one_model(fitted: GeoPatch) -> None:
    X = walks()
    same_seed, other = (instant(random_state=seed).fit(X).transform(X) for seed in (0, 2))
    assert np.array_equal(fitted.transform(X), same_seed)
    assert not np.allclose(same_seed, other, atol=1e-3)


def test_a_window_is_found_under_another_clock() -> None:
    X = walks(30, 80)
    model = instant(embedding=32).fit(X)
    time = np.linspace(0, 1, 80)
    places = 79 * (time + 0.06 * np.sin(2 * np.pi * time))
    warped = np.stack([np.interp(places, np.arange(80), one[:, 0]) for one in X])
    nearest = (model.transform(warped) @ model.transform(X).T).argmax(1)
    assert (nearest == np.arange(30)).mean() > 0.8


def test_amplitude_is_kept_or_left_aside(fitted: GeoPatch) -> None:
    X = walks()
    for model, most, least in ((fitted, 0.9, -1.0), (instant(amplitude="zscore").fit(X), 1.1, 0.95)):
        likeness = float((model.transform(3 * X + 5) * model.transform(X)).sum(1).mean())
        assert least < likeness < most


def test_the_length_is_the_median_and_bounded() -> None:
    lengths = (20, 30, 50, 60, 900)
    model = instant().fit([walks(1, length, seed=length)[0] for length in lengths])
    assert model.encoder_.config.length == 50
    assert instant().fit(walks(3, 4)).encoder_.config.length == 9
    assert instant().fit(walks(2, 3000)).encoder_.config.length == 1024


# Awkward windows


@pytest.mark.parametrize("length", [9, 20_000])
def test_short_and_long_windows(length: int) -> None:
    X = walks(4, length)
    vectors = instant().fit(X).transform(X)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_long_window_is_averaged_not_sampled() -> None:
    """What lies between two places of the kernels counts, too."""
    values = np.zeros((1, 1000, 1), dtype=np.float32)
    values[0, 503] = 10.0
    batch = stack([Signal.from_array(values[0])])
    assert float(resampled(batch, 100, 1).sum()) == pytest.approx(1.0, rel=0.2)


def test_many_channels() -> None:
    X = walks(6, 40, channels=50)
    model = instant().fit(X)
    mixes = half_of(model).mixes
    assert mixes.shape[2] == 50
    assert bool(((mixes != 0).sum(2) >= 1).all())
    torch.testing.assert_close(mixes.square().sum(2), torch.ones(mixes.shape[:2]))
    assert np.isfinite(model.transform(X)).all()


def test_a_window_alone_and_constant_windows_fit() -> None:
    for X in (walks(1), np.full((3, 40), 7.0), np.concatenate([walks(3), np.full((2, 60, 1), 2.0)])):
        model = instant().fit(X)
        assert np.isfinite(model.transform(X)).all()
        assert np.isfinite(model.transform(walks(2, seed=5))).all()


def test_one_sample_and_unequal_lengths() -> None:
    X = [walks(1, length, seed=length)[0] for length in (1, 5, 33, 90)]
    vectors = instant().fit(X).transform(X)
    assert np.isfinite(vectors).all()


def test_a_window_without_any_value_is_refused() -> None:
    X = walks(4)
    X[2] = np.nan
    with pytest.raises(SignalError):
        instant().fit(X)


def test_gaps_are_bridged(fitted: GeoPatch) -> None:
    X = walks()
    gap = X.copy()
    gap[:, 20:24] = np.nan
    bridged = X.copy()
    for n in range(20, 24):
        bridged[:, n] = X[:, 19] + (X[:, 24] - X[:, 19]) * (n - 19) / 5
    likeness = (fitted.transform(gap) * fitted.transform(bridged)).sum(1)
    assert likeness.min() > 0.99


# What views say is harmless


def test_robust_to_decides_what_is_harmless() -> None:
    X = walks(40, 64)
    noisy = X + 0.5 * X.std() * np.random.default_rng(1).normal(size=X.shape).astype(np.float32)

    def likeness(*names: str) -> float:
        model = instant(robust_to=names, embedding=16).fit(X)
        return float((model.transform(X) * model.transform(noisy)).sum(1).mean())

    assert likeness("noise") > likeness() + 0.05


def test_robust_to_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"robust_to must be one of speed, .*, got 'rain'"):
        instant(robust_to=("rain",)).fit(walks())


# Streams, files, devices


def test_a_stream_gives_the_model_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of another size the same numbers are added; only views are drawn in another order."""
    windows = stack([Signal.from_array(one) for one in walks(10)])

    class Still(Views):
        def draw(self, batch: WindowBatch, count: int) -> View:
            rows = torch.arange(len(batch)).repeat_interleave(count)
            many = batch.rows(rows)
            shift = torch.arange(count).repeat(len(batch))[:, None, None] * 0.01
            moved = replace(many, values=many.values + shift)
            return View(moved, many, torch.arange(many.values.shape[1]).float().expand(len(many), -1))

    def fitted(size: int) -> tuple[KernelHalf, KernelFit]:
        monkeypatch.setattr(fitting, "BATCH_VIEWS", size)
        half = KernelHalf(ModelConfig(halves=("kernels",), length=60, embedding=8, width=16))
        views = Still((), MildClock(), torch.Generator())
        state = fitting.start(half, windows, lambda batch: batch, views)
        state.add(half, windows, lambda batch: batch, views)
        state.solve(half)
        return half, state

    (whole, one), (parts, other) = fitted(10_000), fitted(48)
    for name, value in one.moments.tensors().items():
        torch.testing.assert_close(other.moments.tensors()[name].double(), value.double(), atol=1e-3, rtol=1e-4)
    vectors = [half(windows, half.scaffold(windows.lengths))[0] for half in (whole, parts)]
    np.testing.assert_allclose(cosines(vectors[0]), cosines(vectors[1]), atol=1e-2)


def test_partial_fit_adds_to_what_was_fitted(fitted: GeoPatch) -> None:
    first, second = walks(12), walks(8, seed=1)
    model = copy.deepcopy(fitted)
    before = model.encoder_
    vectors = model.transform(first)
    model.partial_fit(second)
    assert fit_of(model).moments.windows == 20
    assert model.card_.data["windows"] == 20
    assert model.encoder_ is not before
    assert not np.allclose(model.transform(first), vectors, atol=1e-4)
    assert torch.equal(half_of(model).bias, before.kernels.bias)  # type: ignore[union-attr]


def test_partial_fit_is_adding_to_the_moments(fitted: GeoPatch) -> None:
    second = walks(8, seed=1)
    model, other = copy.deepcopy(fitted).partial_fit(second), copy.deepcopy(fitted)
    train = TrainConfig()
    windows = stack([Signal.from_array(one) for one in second])
    state = fit_kernels(other.encoder_, windows, None, train, seed=0, state=fit_of(other))
    assert same(state.tensors(), fit_of(model).tensors())
    assert same(other.encoder_.state_dict(), model.encoder_.state_dict())


def test_the_first_partial_fit_is_a_fit(fitted: GeoPatch) -> None:
    X = walks()
    assert np.array_equal(instant().partial_fit(X).transform(X), fitted.transform(X))


def test_partial_fit_is_refused_where_it_cannot_be(fitted: GeoPatch) -> None:
    X, labels = walks(8), ["a", "b"] * 4
    with pytest.raises(ConfigError, match="partial_fit takes windows without labels"):
        instant().partial_fit(X, labels)
    learned = ModelConfig(halves=("learned",), width=16, embedding=8, layers=1, heads=1)
    trained = GeoPatch(model=learned, max_steps=1, device="cpu").fit(X, labels)
    with pytest.raises(ConfigError, match="only preset='instant' takes windows later"):
        trained.partial_fit(X)
    with pytest.raises(SignalError):
        fitted.partial_fit(walks(3, channels=2))


def test_save_and_load_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    X, later = walks(channels=2), walks(6, channels=2, seed=4)
    model = instant().fit(X)
    model.save(tmp_path / "model")
    loaded = GeoPatch.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.transform(X), model.transform(X))
    assert np.array_equal(loaded.encode(X).tokens, model.encode(X).tokens)
    assert same(fit_of(loaded).tensors(), fit_of(model).tensors())
    assert np.array_equal(loaded.partial_fit(later).transform(X), model.partial_fit(later).transform(X))
    loaded.save(tmp_path / "model", overwrite=True)
    assert np.array_equal(GeoPatch.load(tmp_path / "model", device="cpu").transform(X), model.transform(X))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_two_halves_are_weighed_in_the_cosine(share: float) -> None:
    X, labels = walks(8), ["a", "b"] * 4
    sizes = {"width": 16, "embedding": 8, "layers": 1, "heads": 1}
    model = GeoPatch(model=ModelConfig(kernel_share=share, **sizes), max_steps=1, device="cpu").fit(X, labels)  # type: ignore[arg-type]
    encoder: Encoder = model.encoder_
    batch = encoder.patch(encoder.scale(stack([Signal.from_array(one) for one in X])))
    assert encoder.kernels is not None
    assert encoder.learned is not None
    fixed, learned = encoder.kernels(batch.windows, batch.scaffold)[0], encoder.learned(batch).embedding
    expected = share * fixed @ fixed.mT + (1 - share) * learned @ learned.mT
    vectors = model.transform(X)
    assert vectors.shape == (8, encoder.config.embedding_width) == (8, 16)
    np.testing.assert_allclose(vectors @ vectors.T, expected.detach().numpy(), atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same_vectors(tmp_path: Path) -> None:
    X = walks(channels=3)
    model = instant().fit(X)
    model.save(tmp_path / "model")
    other = GeoPatch.load(tmp_path / "model", device="cuda")
    np.testing.assert_allclose(other.transform(X), model.transform(X), atol=1e-4)
    fitted = instant(device="cuda").fit(X)
    np.testing.assert_allclose(np.linalg.norm(fitted.transform(X), axis=1), 1, atol=1e-4)


# A model that nothing was fitted for


def test_the_general_model_embeds_any_window_and_takes_more(tmp_path: Path) -> None:
    X = walks(5, 70, channels=2)
    model = GeoPatch.pretrained("general", channels=2, device="cpu")
    vectors = model.transform(X)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    model.save(tmp_path / "model")
    assert np.array_equal(GeoPatch.load(tmp_path / "model", device="cpu").transform(X), vectors)
    model.partial_fit(X)
    assert fit_of(model).moments.windows == 5
    assert not np.allclose(model.transform(X), vectors, atol=1e-3)


def test_there_is_no_other_model() -> None:
    with pytest.raises(ConfigError, match="name must be one of general, got 'ecg'"):
        GeoPatch.pretrained("ecg")
