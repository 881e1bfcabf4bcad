"""Laws of the clock: it never runs backwards, meets its anchors, and its affine gauge leaves the residual alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression, minimize

from geopatch import clock as clock_module
from geopatch.clock import Clock, Track, anchor_confidence, clock_from_anchors, monotone_marks, trend_filter
from geopatch.errors import ConfigError, SignalError
from geopatch.geometry import local_residual

GRID = 64
ANCHORS = [3, 10, 22, 30, 47, 60]
MARKS = [0.0, 1.5, 2.0, 4.5, 5.0, 7.0]

anchor_lists = st.lists(st.integers(-20, 90), min_size=2, max_size=12, unique=True)
mark_values = st.floats(-50, 50, width=32)
alphas = st.floats(0.05, 20)
betas = st.floats(-100, 100)


def objective(x: Track, time: Track) -> float:
    return float(0.5 * np.square(x - time).sum() + np.abs(np.diff(x, 2)).sum())


def residuals(clock: Clock, patch_length: int = 16) -> npt.NDArray[np.float64]:
    """R of every patch of a clock, cut one after the other."""
    patches = torch.from_numpy(clock.time).unfold(0, patch_length, patch_length)[..., None]  # (K, L, 1)
    found: npt.NDArray[np.float64] = local_residual(patches, torch.ones(patches.shape[:2])).numpy()
    return found


@given(anchors=anchor_lists, data=st.data(), solver=st.sampled_from(["pchip", "trend"]), smooth=st.integers(1, 9))
def test_time_never_runs_backwards(anchors: list[int], data: st.DataObject, solver: str, smooth: int) -> None:
    marks = data.draw(st.none() | st.lists(mark_values, min_size=len(anchors), max_size=len(anchors)))
    clock = clock_from_anchors(anchors, GRID, marks, solver=solver, smooth=smooth)
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
    np.testing.assert_allclose(clock.speed, 0.5)
    np.testing.assert_allclose(clock.acceleration, 0, atol=1e-12)
    np.testing.assert_allclose(clock.curvature, 0, atol=1e-12)
    np.testing.assert_allclose(residuals(clock), 0, atol=1e-9)


def test_curvature_is_acceleration_over_arc() -> None:
    clock = clock_from_anchors(ANCHORS, GRID, MARKS)
    for t in range(1, GRID - 1):
        assert clock.speed[t] == pytest.approx((clock.time[t + 1] - clock.time[t - 1]) / 2)
        assert clock.acceleration[t] == pytest.approx((clock.speed[t + 1] - clock.speed[t - 1]) / 2)
        expected = abs(clock.acceleration[t]) / ((1 + clock.speed[t] ** 2) ** 1.5 + 1e-6)
        assert clock.curvature[t] == pytest.approx(expected)


@pytest.mark.parametrize("smooth", [2, 3, 8])
def test_smoothing_is_a_moving_average(smooth: int) -> None:
    rough = clock_from_anchors(ANCHORS, GRID, MARKS).time
    smoothed = clock_from_anchors(ANCHORS, GRID, MARKS, smooth=smooth).time
    for t in range(smooth, GRID - smooth):
        first = t - smooth // 2
        assert smoothed[t] == pytest.approx(rough[first : first + smooth].mean())


@given(alpha=alphas, beta=betas, smooth=st.sampled_from([1, 5]))
def test_affine_marks_leave_the_residual_as_it_is(alpha: float, beta: float, smooth: int) -> None:
    plain = clock_from_anchors(ANCHORS, GRID, MARKS, smooth=smooth)
    moved = clock_from_anchors(ANCHORS, GRID, alpha * np.asarray(MARKS) + beta, smooth=smooth)
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


@pytest.mark.parametrize("size", range(3, 20))
def test_normal_bands_are_those_of_the_dense_matrix(size: int) -> None:
    first, second = np.diff(np.eye(size), axis=0), np.diff(np.eye(size), 2, axis=0)
    dense = np.eye(size) + first.T @ first + second.T @ second
    bands = clock_module._normal_bands(size)
    for offset in range(3):
        assert bands[2 - offset, offset:].tolist() == np.diagonal(dense, offset).tolist()
        assert not bands[2 - offset, :offset].any()


@pytest.mark.parametrize("size", [3, 4, 9])
def test_transposed_differences_are_those_of_the_dense_matrices(size: int) -> None:
    first, second = np.diff(np.eye(size), axis=0), np.diff(np.eye(size), 2, axis=0)
    one, two = np.random.default_rng(0).normal(size=size - 1), np.random.default_rng(1).normal(size=size - 2)
    np.testing.assert_allclose(clock_module._first_transposed(one, size), first.T @ one)
    np.testing.assert_allclose(clock_module._second_transposed(two, size), second.T @ two)


@given(anchors=anchor_lists, data=st.data())
def test_the_trend_filter_is_monotone_and_no_worse_than_its_start(anchors: list[int], data: st.DataObject) -> None:
    marks = data.draw(st.lists(mark_values, min_size=len(anchors), max_size=len(anchors)))
    start = clock_from_anchors(anchors, GRID, marks).time
    found = trend_filter(start)
    assert np.diff(found).min() >= 0
    assert objective(found, start) <= objective(start, start) + 1e-6 * (1 + objective(start, start))


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(np.maximum.accumulate(np.random.default_rng(0).normal(0.3, 1.0, size=12).cumsum()), id="rough"),
        pytest.param(np.asarray([0.0, 2, 4, 6, 4, 2, 0, 2, 4, 6, 8, 10]), id="backwards for a while"),
        pytest.param(np.repeat([0.0, 4.0], 6), id="a step"),
        pytest.param(np.cumsum(np.repeat([0.01, 0.02, 0.005], 4)), id="a slow clock"),
    ],
)
def test_the_trend_filter_solves_its_problem(start: Track) -> None:
    def cost(steps: npt.NDArray[np.float64]) -> float:
        """Of the clock with these steps, each taken forwards."""
        return objective(np.cumsum(np.concatenate([steps[:1], np.abs(steps[1:])])), start)

    allowed = np.maximum.accumulate(start)
    begins = (np.diff(allowed, prepend=0.0), np.full(12, np.diff(start).mean()))
    best = min(float(minimize(cost, begin, method="Powell", tol=1e-10).fun) for begin in begins)
    found = trend_filter(start)
    assert np.diff(found).min() >= 0
    assert objective(found, start) <= best * (1 + 1e-3)
    assert objective(allowed, start) > 1.5 * best


@pytest.mark.parametrize("gap", [20, 100])
def test_the_trend_filter_comes_near_its_minimum_on_clocks_of_beats(gap: int) -> None:
    beats = np.random.default_rng(0).normal(gap, 0.12 * gap, size=512 // gap + 3).cumsum() - gap
    start = clock_from_anchors(beats, 512).time
    best = objective(trend_filter(start, iterations=5000), start)
    assert objective(trend_filter(start), start) <= 1.05 * best


@pytest.mark.parametrize("strength", [0.0, 1000.0])
def test_the_strength_of_the_trend_filter_goes_from_nothing_to_a_line(strength: float) -> None:
    start = clock_from_anchors(ANCHORS, GRID, MARKS).time
    found = trend_filter(start, strength, iterations=2000)
    line = np.polyval(np.polyfit(np.arange(GRID), start, 1), np.arange(GRID))
    np.testing.assert_allclose(found, line if strength else start, atol=1e-3)


def test_the_trend_filter_leaves_a_line_alone() -> None:
    line = np.linspace(0, 5, 40)
    np.testing.assert_allclose(trend_filter(line), line, atol=1e-9)


@pytest.mark.parametrize("size", [1, 2])
def test_the_trend_filter_has_nothing_to_do_below_three_samples(size: int) -> None:
    line = np.arange(size, dtype=np.float64)
    assert trend_filter(line).tolist() == line.tolist()


def test_a_clock_does_not_edit_its_input() -> None:
    anchors, marks = np.asarray([9.0, 3.0, 30.0]), np.asarray([5.0, 0.0, 4.0])
    clock_from_anchors(anchors, GRID, marks, solver="trend", smooth=3)
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "spline"}, "solver must be one of pchip, trend, got 'spline'"),
        ({"grid": 1}, "grid must be at least 2, got 1"),
        ({"smooth": 0}, "smooth must be at least 1, got 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, str | int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        clock_from_anchors(**{"anchors": ANCHORS, "grid": GRID, **settings})  # type: ignore[arg-type]
