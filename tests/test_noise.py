"""Geometry noise: descriptors move, nothing else does, and batches do not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from geopatch.config import ModelConfig, TrainConfig
from geopatch.estimator import GeoPatch
from geopatch.evaluate.noise import DescriptorSpread, GeometryNoise
from geopatch.model.encoder import Encoder
from geopatch.patches import PatchBatch, stack
from geopatch.signal import Signal

MODEL = ModelConfig(
    halves=("learned",), channels=2, patch_length=4, max_patches=6, width=16, embedding=8, layers=1, heads=1
)
TRAIN = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=4)


@pytest.fixture
def batch(mixed_signals: list[Signal]) -> PatchBatch:
    encoder = Encoder(replace(MODEL, amplitude="both"))
    return encoder.patch(encoder.scale(stack(mixed_signals)))


@pytest.fixture
def trained(mixed_signals: list[Signal]) -> GeoPatch:
    return GeoPatch(model=MODEL, train=TRAIN, device="cpu").fit(mixed_signals)


def spread_of(batch: PatchBatch) -> Tensor:
    seen = DescriptorSpread()
    seen(batch, 0)
    return seen.spread


def naive_noise(batch: PatchBatch, strength: float, first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """One descriptor of one patch of one window at a time."""
    clean, valid = batch.geometry.descriptors.double().numpy(), batch.valid.numpy()
    windows, patches, columns = clean.shape
    out = clean.copy()
    for g in range(columns):
        known = [clean[b, k, g] for b in range(windows) for k in range(patches) if valid[b, k]]
        middle = sum(known) / len(known)
        spread = (sum((value - middle) ** 2 for value in known) / len(known)) ** 0.5
        for b in range(windows):
            draws = np.random.default_rng((1337, first + b)).standard_normal((patches, columns))
            for k in range(patches):
                if valid[b, k]:
                    out[b, k, g] += strength * spread * draws[k, g]
    return out


@pytest.mark.parametrize("first", [0, 256])
@pytest.mark.parametrize("strength", [0.0, 0.2, 1.6])
def test_noise_equals_the_naive_loop(batch: PatchBatch, strength: float, first: int) -> None:
    found = GeometryNoise(strength, spread_of(batch))(batch, first).geometry.descriptors
    np.testing.assert_allclose(found.numpy(), naive_noise(batch, strength, first), rtol=1e-4, atol=1e-5)


def test_only_descriptors_of_valid_patches_move(batch: PatchBatch) -> None:
    before = batch.geometry.descriptors.clone()
    noisy = GeometryNoise(0.2, spread_of(batch))(batch, 0)
    assert noisy.patches is batch.patches
    assert (noisy.windows, noisy.scaffold) == (batch.windows, batch.scaffold)
    assert noisy.geometry.evidence is batch.geometry.evidence
    assert torch.equal(noisy.geometry.descriptors[~batch.valid], before[~batch.valid])
    assert (noisy.geometry.descriptors[batch.valid] != before[batch.valid]).any(0).all()
    assert torch.equal(batch.geometry.descriptors, before)  # the input is not edited


def test_strength_0_changes_nothing(batch: PatchBatch) -> None:
    noisy = GeometryNoise(0.0, spread_of(batch))(batch, 0)
    assert torch.equal(noisy.geometry.descriptors, batch.geometry.descriptors)


def test_a_descriptor_that_never_changes_stays() -> None:
    """Windows of one length, all measured: confidence and length are the same for every patch."""
    encoder = Encoder(replace(MODEL, descriptors=("slope", "confidence", "length")))
    batch = encoder.patch(encoder.scale(stack([Signal.from_array(np.random.rand(30, 2), id=str(n)) for n in range(9)])))
    noisy = GeometryNoise(1.0, spread_of(batch))(batch, 0)
    moved = (noisy.geometry.descriptors != batch.geometry.descriptors).flatten(0, 1).any(0)
    assert moved.tolist() == [True, False, False]


def test_the_spread_of_parts_is_that_of_the_whole(batch: PatchBatch, mixed_signals: list[Signal]) -> None:
    encoder, seen = Encoder(replace(MODEL, amplitude="both")), DescriptorSpread()
    for part in (mixed_signals[:1], mixed_signals[1:4], mixed_signals[4:]):
        seen(encoder.patch(encoder.scale(stack(part))), 0)
    known = batch.geometry.descriptors[batch.valid].double()
    torch.testing.assert_close(seen.spread, known.std(0, unbiased=False), rtol=1e-5, atol=1e-6)


def test_batches_do_not_matter(trained: GeoPatch, mixed_signals: list[Signal]) -> None:
    noise = GeometryNoise(0.5, torch.ones(MODEL.descriptor_columns, dtype=torch.float64))
    whole, parts = (trained.encode(mixed_signals, between=noise, batch_size=size) for size in (100, 2))
    np.testing.assert_allclose(whole.embedding, parts.embedding, atol=1e-5)
    np.testing.assert_allclose(whole.tokens, parts.tokens, atol=1e-5)
    clean = trained.encode(mixed_signals)
    assert np.abs(whole.embedding - clean.embedding).max() > 1e-3
    assert (whole.valid == clean.valid).all()


def test_watching_changes_nothing(trained: GeoPatch, mixed_signals: list[Signal]) -> None:
    seen = DescriptorSpread()
    np.testing.assert_array_equal(
        trained.encode(mixed_signals, between=seen).embedding, trained.encode(mixed_signals).embedding
    )
    assert seen.spread.shape == (MODEL.descriptor_columns,)


def test_without_geometry_noise_has_nothing_to_touch(mixed_signals: list[Signal]) -> None:
    bare = GeoPatch(model=replace(MODEL, descriptors=(), fuse="none"), train=TRAIN, device="cpu").fit(mixed_signals)
    seen = DescriptorSpread()
    clean = bare.encode(mixed_signals, between=seen)
    noisy = bare.encode(mixed_signals, between=GeometryNoise(1.0, seen.spread))
    np.testing.assert_array_equal(noisy.embedding, clean.embedding)
