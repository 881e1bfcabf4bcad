"""The stress warp: another clock, the same content."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from conftest import walk
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import ConfigError
from geopatch.evaluate.stress import STRONGEST, warped
from geopatch.signal import Signal


def naive_warp(values: npt.NDArray[np.float32], strength: float = 0.1) -> npt.NDArray[np.float64]:
    """sigma(t) = t + strength T sin(2 pi t / T), one sample and one channel at a time."""
    length, channels = values.shape
    out = np.empty((length, channels))
    for t in range(length):
        time = min(max(t + strength * length * math.sin(2 * math.pi * t / length), 0), length - 1)
        left = math.floor(time)
        for c in range(channels):
            low, high = float(values[left, c]), float(values[min(left + 1, length - 1), c])
            out[t, c] = low if time == left else low + (high - low) * (time - left)
    return out


@pytest.mark.parametrize("length", [1, 2, 3, 50, 101])
@pytest.mark.parametrize("strength", [-0.15, 0.03, 0.1])
def test_equals_the_naive_loop(length: int, strength: float) -> None:
    signal = walk(length, 2, seed=length)
    np.testing.assert_allclose(
        warped(signal, strength).values, naive_warp(signal.values, strength), rtol=1e-5, atol=1e-5
    )


def test_the_default_is_a_tenth_of_the_window() -> None:
    signal = walk(80, 1, seed=0)
    np.testing.assert_allclose(warped(signal).values, naive_warp(signal.values), rtol=1e-5, atol=1e-5)
    assert np.abs(warped(signal).values - signal.values).max() > 0.1


def test_a_ramp_shows_the_clock_itself() -> None:
    length = 64
    ramp = Signal.from_array(np.arange(length))
    time = np.arange(length)
    clock = np.clip(time + 0.1 * length * np.sin(2 * np.pi * time / length), 0, length - 1)
    np.testing.assert_allclose(warped(ramp).values[:, 0], clock, atol=1e-4)


def test_strength_0_is_the_identity() -> None:
    signal = walk(33, 3, seed=0)
    np.testing.assert_array_equal(warped(signal, 0.0).values, signal.values)


@given(st.floats(-0.999 * STRONGEST, 0.999 * STRONGEST), st.integers(1, 200))
def test_time_never_runs_backwards(strength: float, length: int) -> None:
    ramp = warped(Signal.from_array(np.arange(length)), strength).values[:, 0]
    assert (np.diff(ramp) >= 0).all()


@pytest.mark.parametrize("strength", [STRONGEST, -0.2, 5.0, math.nan])
def test_too_strong_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match=r"warp strength must lie within \+-0\.159 so that time runs forward"):
        warped(walk(20, 1, seed=0), strength)


def test_what_was_not_measured_stays_so() -> None:
    signal = walk(60, 2, seed=3)
    values = signal.values.copy()
    values[20:30, 0], values[1, 0], values[0, 1] = np.nan, np.nan, np.nan
    out = warped(Signal.from_array(values)).values
    np.testing.assert_array_equal(np.isnan(out), np.isnan(naive_warp(values)))
    assert np.isnan(out[:, 0]).any()
    assert out[0, 0] == values[0, 0]  # the first sample is read at its own time, whatever stands beside it
    measured = ~np.isnan(out)
    np.testing.assert_array_equal(out[measured], warped(signal).values[measured])


def test_a_constant_stays_constant() -> None:
    np.testing.assert_array_equal(warped(Signal.from_array(np.full((40, 2), 3.7))).values, np.float32(3.7))


def test_one_sample_stays_as_it_is() -> None:
    np.testing.assert_array_equal(warped(Signal.from_array([[2.5, -1.0]])).values, [[2.5, -1.0]])


def test_the_input_is_not_edited() -> None:
    signal = walk(30, 2, seed=1)
    before = signal.values.copy()
    warped(signal)
    np.testing.assert_array_equal(signal.values, before)


def test_only_the_values_change() -> None:
    window = Signal.from_array(np.arange(40.0), id="r", rate_hz=4.0, channels=["x"]).window(8, 32)
    found = warped(window)
    assert (found.id, found.rate_hz, found.channels) == (window.id, 4.0, ("x",))
    assert (found.record, found.start_s) == ("r", 2.0)
