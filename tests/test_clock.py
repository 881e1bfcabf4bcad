"""Laws of the clock: it never runs backwards, meets its anchors, and its affine gauge leaves the residual alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from geopatch.clock import Clock, anchor_confidence, clock_from_anchors, monotone_marks
from geopatch.errors import ConfigError, SignalError
from geopatch.geometry import local_residual

GRID = 64
ANCHORS = [3, 10, 22, 30, 47, 60]
MARKS = [0.0, 1.5, 2.0, 4.5, 5.0, 7.0]

anchor_lists = st.lists(st.integers(-20, 90), min_size=2, max_size=12, unique=True)
mark_values = st.floats(-50, 50, width=32)
alphas = st.floats(0.05, 20)
betas = st.floats(-100, 100)


def residuals(clock: Clock, patch_length: int = 16) -> npt.NDArray[np.float64]:
    """R of every patch of a clock, cut one after the other."""
    patches = torch.from_numpy(clock.time).unfold(0, patch_length, patch_length)[..., None]  # (K, L, 1)
    found: npt.NDArray[np.float64] = local_residual(patches, torch.ones(patches.shape[:2])).numpy()
    return found


@given(anchors=anchor_lists, data=st.data())
def test_time_never_runs_backwards(anchors: list[int], data: st.DataObject) -> None:
    marks = data.draw(st.none() | st.lists(mark_values, min_size=len(anchors), max_size=len(anchors)))
    clock = clock_from_anchors(anchors, GRID, marks)
    assert all(len(track) == GRID for track in vars(clock).values())
    assert all(np.isfinite(track).all() for track in vars(clock).values())
    assert np.diff(clock.time).min() >= -1e-9


@given(anchors=anchor_lists, data=st.data())
def test_pchip_passes_through_its_anchors(anchors: list[int], data: st.DataObject) -> None:
    marks = data.draw(st.lists(mark_values, min_size=len(anchors), max_size=len(anchors)))
    times, values = monotone_marks(anchors, marks)
    clock = clock_from_anchors(anchors, GRID, marks)
    met = (times >= 0) & (times < GRID)
    np.testing.assert_allclose(clock.time[times[met].astype(int)], values[met], atol=1e-9)


@given(anchors=anchor_lists, data=st.data())
def test_marks_are_the_nearest_that_never_decrease(anchors: list[int], data: st.DataObject) -> None:
    marks = data.draw(st.lists(mark_values, min_size=len(anchors), max_size=len(anchors)))
    times, values = monotone_marks(anchors, marks)
    order = np.argsort(anchors)
    assert times.tolist() == sorted(anchors)
    assert np.diff(values).min() >= 0
    np.testing.assert_allclose(values, isotonic_regression(np.asarray(marks)[order]).x, atol=1e-9)


def test_the_order_of_anchors_does_not_matter() -> None:
    order = np.random.default_rng(0).permutation(len(ANCHORS))
    turned = clock_from_anchors(np.asarray(ANCHORS)[order], GRID, np.asarray(MARKS)[order])
    assert np.array_equal(turned.time, clock_from_anchors(ANCHORS, GRID, MARKS).time)


def test_without_marks_each_anchor_is_one_step() -> None:
    times, values = monotone_marks([30, 10, 20, 10])
    assert times.tolist() == [10, 20, 30]
    assert values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("marks", [[0, 2, 6, 9], [0, 6, 2, 9]])
def test_marks_at_one_time_are_met_half_way(marks: list[float]) -> None:
    times, values = monotone_marks([0, 10, 10, 20], marks)
    assert times.tolist() == [0, 10, 20]
    assert values.tolist() == [0, 4, 9]


def test_marks_at_one_time_weigh_as_many() -> None:
    _, values = monotone_marks([0, 10, 10, 20], [0, 6, 6, 3])
    assert values.tolist() == [0, 5, 5]


def test_beyond_its_anchors_the_clock_runs_on() -> None:
    time = clock_from_anchors([10, 20, 40], 60, [0, 5, 45]).time
    np.testing.assert_allclose(np.diff(time[:11]), 0.5)
    np.testing.assert_allclose(np.diff(time[40:]), 2.0)


def test_an_even_clock_has_no_acceleration() -> None:
    clock = clock_from_anchors([0, 16, 32, 63], GRID, [0, 8, 16, 31.5])
    np.testing.assert_allclose(clock.time, np.arange(GRID) / 2, atol=1e-12)
    np.testing.assert_allclose(residuals(clock), 0, atol=1e-9)


@given(alpha=alphas, beta=betas)
def test_affine_marks_leave_the_residual_as_it_is(alpha: float, beta: float) -> None:
    plain = clock_from_anchors(ANCHORS, GRID, MARKS)
    moved = clock_from_anchors(ANCHORS, GRID, alpha * np.asarray(MARKS) + beta)
    np.testing.assert_allclose(moved.time, alpha * plain.time + beta, rtol=1e-9, atol=1e-9)
    assert np.abs(residuals(plain)).max() > 0.1
    np.testing.assert_allclose(residuals(moved), residuals(plain), rtol=1e-6, atol=1e-8)


@given(anchors=anchor_lists)
def test_confidence_is_one_at_anchors_and_falls_with_distance(anchors: list[int]) -> None:
    times, _ = monotone_marks(anchors)
    confidence = clock_from_anchors(anchors, GRID).confidence
    typical = np.median(np.diff(times))
    for sample in range(GRID):
        nearest = min(abs(sample - anchor) for anchor in anchors)
        assert confidence[sample] == pytest.approx(np.exp(-nearest / typical))
    assert all(confidence[anchor] == 1 for anchor in anchors if 0 <= anchor < GRID)


def test_confidence_is_low_in_a_long_gap() -> None:
    confidence = anchor_confidence(np.asarray([0.0, 10.0, 20.0, 100.0, 110.0]), 120)
    assert confidence[5] == pytest.approx(np.exp(-0.5))
    assert confidence[60] < 0.02


def test_a_clock_does_not_edit_its_input() -> None:
    anchors, marks = np.asarray([9.0, 3.0, 30.0]), np.asarray([5.0, 0.0, 4.0])
    clock_from_anchors(anchors, GRID, marks)
    assert (anchors.tolist(), marks.tolist()) == ([9, 3, 30], [5, 0, 4])


@pytest.mark.parametrize(
    ("anchors", "marks", "message"),
    [
        ([], None, "a clock needs two anchors at different times, got 0"),
        ([4], None, "a clock needs two anchors at different times, got 1"),
        ([4, 4, 4], [0, 1, 2], "a clock needs two anchors at different times, got 1"),
        ([1, 2, 3], [0, 1], "expected one mark for each of 3 anchors, got 2"),
        ([1, np.nan], None, "anchors and marks must be finite; leave out"),
        ([1, 2], [0, np.inf], "anchors and marks must be finite"),
    ],
)
def test_anchors_that_make_no_clock_are_refused(anchors: list[float], marks: list[float] | None, message: str) -> None:
    with pytest.raises(SignalError, match=message):
        clock_from_anchors(anchors, GRID, marks)


def test_a_grid_has_two_samples() -> None:
    with pytest.raises(ConfigError, match="grid must be at least 2, got 1"):
        clock_from_anchors(ANCHORS, 1)
