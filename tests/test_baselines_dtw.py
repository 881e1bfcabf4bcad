"""Dynamic time warping of many pairs at once against the recursion, and against aeon's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import ConfigError
from geopatch.signal import Signal
from geopatch_lab.baselines import dtw
from geopatch_lab.baselines.classical import aeon
from geopatch_lab.baselines.dtw import DTW, dtw_distances

Series = npt.NDArray[np.float32]

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


def series(lengths: list[int], channels: int = 2, seed: int = 0) -> list[Series]:
    draw = np.random.default_rng(seed)
    return [np.cumsum(draw.normal(size=(length, channels)), axis=0).astype(np.float32) for length in lengths]


def naive(one: Series, other: Series, band: float | None) -> float:
    """By the recursion, cell by cell."""
    rows, columns = len(one), len(other)
    shorter = min(rows, columns)
    cost = np.full((rows + 1, columns + 1), np.inf)
    cost[0, 0] = 0
    for i in range(rows):
        for j in range(columns):
            off = abs(i / max(rows - 1, 1) - j / max(columns - 1, 1)) * (shorter - 1)
            if band is None or off <= max(np.floor(band * shorter), 0.5) + 1e-6:
                step = ((one[i].astype(np.float64) - other[j]) ** 2).sum()
                cost[i + 1, j + 1] = step + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return float(np.sqrt(cost[-1, -1]))


@given(LENGTHS, LENGTHS, st.sampled_from([None, 0.0, 0.1, 0.3, 1.0]), st.integers(1, 3), st.integers(0, 99))
def test_every_pair_is_the_recursion(
    some: list[int], others: list[int], band: float | None, channels: int, seed: int
) -> None:
    asked, found = series(some, channels, seed), series(others, channels, seed + 100)
    expected = [[naive(one, other, band) for other in found] for one in asked]
    np.testing.assert_allclose(dtw_distances(asked, found, band=band, device=CPU), expected, rtol=1e-4)


@pytest.mark.parametrize("band", [None, 0.1, 0.25])
def test_it_is_aeons(band: float | None) -> None:
    asked, found = series([40] * 5), series([40] * 6, seed=1)
    turned = ([one.T.astype(float) for one in side] for side in (asked, found))
    with aeon("distances", "a test") as distances:
        theirs = distances.dtw_pairwise_distance(*turned, window=band)
    np.testing.assert_allclose(dtw_distances(asked, found, band=band, device=CPU), np.sqrt(theirs), rtol=1e-4)


@pytest.mark.parametrize("lengths", [[9] * 7, [3, 12, 5, 9, 1, 12, 7]])
@pytest.mark.parametrize("band", [None, 0.2])
def test_blocks_and_mirrors_change_nothing(
    lengths: list[int], band: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = series(lengths)
    whole = dtw_distances(one, list(one), band=band, device=CPU)
    monkeypatch.setattr(dtw, "CPU_CELLS", 30)
    monkeypatch.setattr(dtw, "TOGETHER", 2)
    np.testing.assert_array_equal(dtw_distances(one, list(one), band=band, device=CPU), whole)
    np.testing.assert_array_equal(dtw_distances(one, one, band=band, device=CPU), whole)
    assert np.diag(whole).max() == 0


def signals(lengths: list[int], seed: int = 0) -> list[Signal]:
    return [Signal.from_array(values, id=f"{seed} {n}") for n, values in enumerate(series(lengths, 2, seed))]


def test_the_method_compares_in_units_of_the_training_data() -> None:
    train, queries, gallery = signals([20] * 4), signals([20, 13], 1), signals([24, 20, 20], 2)
    method = DTW()
    method.fit(train)
    samples = np.concatenate([signal.values for signal in train]).astype(np.float64)
    level, spread = samples.mean(0), samples.std(0)
    asked, found = ([((one.values - level) / spread).astype(np.float32) for one in side] for side in (queries, gallery))
    expected = [[-naive(one, other, None) for other in found] for one in asked]
    np.testing.assert_allclose(method.scores(queries, gallery), expected, rtol=1e-4)


def test_long_series_are_shortened_by_one_factor() -> None:
    method = DTW(longest=10)
    method.fit(signals([40] * 3))
    assert [values.shape for values in method._series(signals([40, 20]))] == [(10, 2), (5, 2)]


def test_a_band_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="band"):
        dtw_distances(series([3]), series([3]), band=-0.1, device=CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same() -> None:
    asked, found = series([9, 30, 14]), series([30, 8, 11, 2], seed=1)
    there = dtw_distances(asked, found, band=0.2, device=torch.device("cuda"))
    np.testing.assert_allclose(there, dtw_distances(asked, found, band=0.2, device=CPU), rtol=1e-4)
