"""Dynamic time warping: equal to its twin, in units of the training data, and a path that is one."""

from __future__ import annotations

import math
import sys

import naive_search
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geopatch.config import ModelConfig
from geopatch.dtw import dtw_distance, dtw_path, mean_distance, scaled
from geopatch.errors import MissingExtraError
from geopatch.model import Encoder
from geopatch.signal import Signal


@given(
    lengths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    channels=st.integers(1, 3),
    band=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_dtw_equals_its_twin_and_its_path_is_as_long(
    lengths: tuple[int, int], channels: int, band: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    one, other = (rng.normal(size=(length, channels)) for length in lengths)
    width = 1 + math.ceil(band * max(lengths))
    distance = dtw_distance(one, other, band)
    assert distance == pytest.approx(naive_search.dtw(one.tolist(), other.tolist(), width))
    path = dtw_path(one, other, band)
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [lengths[0] - 1, lengths[1] - 1]
    steps = np.diff(path, axis=0)
    assert ((steps >= 0) & (steps <= 1)).all()
    assert (steps.sum(1) >= 1).all()
    assert math.sqrt(sum(((one[i] - other[j]) ** 2).sum() for i, j in path)) == pytest.approx(distance)


def test_a_signal_has_no_distance_to_itself_and_little_to_its_warp() -> None:
    time = np.linspace(0, 1, 100)
    one, slower = np.sin(6 * time)[:, None], np.sin(6 * time**1.1)[:, None]
    assert dtw_distance(one, one) == 0
    assert dtw_distance(one, slower) < 0.2 * float(np.linalg.norm(one - slower))


def test_the_mean_distance_does_not_grow_with_length_and_channels() -> None:
    one, other = np.zeros((5, 1)), np.full((5, 1), 3.0)
    assert mean_distance(one, other) == pytest.approx(3)
    assert mean_distance(np.zeros((40, 2)), np.full((40, 2), 3.0)) == pytest.approx(3)


@pytest.mark.parametrize("amplitude", ["keep", "zscore", "both"])
def test_values_are_scaled_as_the_encoder_scales_them(amplitude: str) -> None:
    encoder = Encoder(ModelConfig(halves=("learned",), channels=2, amplitude=amplitude))
    encoder.level.copy_(torch.tensor([1.0, -2.0]))
    encoder.spread.copy_(torch.tensor([2.0, 4.0]))
    values = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    signals = [Signal.from_array(values, id="whole"), Signal.from_array(values[:5], id="short")]
    whole, short = scaled(encoder, signals)
    expected = (values - [1, -2]) / [2, 4]
    assert (whole.shape, short.shape) == ((9, 2), (5, 2))
    if amplitude == "zscore":
        expected = (expected - expected.mean(0)) / expected.std(0)
    np.testing.assert_allclose(whole, expected, atol=1e-5)


def test_gaps_are_bridged() -> None:
    values = np.arange(6, dtype=np.float32)[:, None]
    gap = values.copy()
    gap[2:4] = np.nan
    whole, bridged = scaled(Encoder(ModelConfig()), [Signal.from_array(part, id="s") for part in (values, gap)])
    np.testing.assert_allclose(bridged, whole)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dtaidistance", None)
    with pytest.raises(MissingExtraError, match=r"geopatch-ts\[dtw\]"):
        dtw_distance(np.zeros((2, 1)), np.zeros((2, 1)))
