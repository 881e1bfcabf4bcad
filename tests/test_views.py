"""Laws of the views: time runs forward, ends and padding hold, shape and inputs stay, strength 0 changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train import views

View = Callable[[WindowBatch], WindowBatch]

VIEWS: dict[str, View] = {
    "warp": lambda windows: views.warp(windows, 0.12, 0.05),
    "amplitude": lambda windows: views.amplitude(windows, 0.1),
    "noise": lambda windows: views.noise(windows, 0.1),
    "mask_span": lambda windows: views.mask_span(windows, 0.3),
}
NOTHING: dict[str, View] = {
    "warp": lambda windows: views.warp(windows, 0.0, 0.0),
    "amplitude": lambda windows: views.amplitude(windows, 0.0),
    "noise": lambda windows: views.noise(windows, 0.0),
    "mask_span": lambda windows: views.mask_span(windows, 0.0),
}


def ramp(*lengths: int) -> WindowBatch:
    """Windows whose value is the time: a view of them shows where it was read. With a clock that runs backwards."""
    windows = stack([Signal.from_array(np.arange(float(length))) for length in lengths])
    return replace(windows, clock=-windows.values[..., 0])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_the_shape_of_its_window(awkward_signals: list[Signal], name: str) -> None:
    windows = stack(awkward_signals)
    before = [windows.values.clone(), windows.confidence.clone(), windows.lengths.clone()]
    view = VIEWS[name](windows)
    assert view.values.shape == windows.values.shape
    assert view.confidence.shape == windows.confidence.shape
    assert torch.equal(view.lengths, windows.lengths)
    assert not torch.equal(view.values, windows.values)
    assert all(torch.equal(*pair) for pair in zip(before, vars(windows).values(), strict=False))


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_leaves_padding_empty(awkward_signals: list[Signal], name: str) -> None:
    view = VIEWS[name](stack(awkward_signals))
    assert not view.values[~view.inside].any()
    assert not view.confidence[~view.inside].any()
    assert view.values.isfinite().all()
    assert ((view.confidence >= 0) & (view.confidence <= 1)).all()


@pytest.mark.parametrize("name", NOTHING)
def test_a_view_of_strength_zero_is_the_window(awkward_signals: list[Signal], name: str) -> None:
    windows = stack(awkward_signals)
    view = NOTHING[name](windows)
    torch.testing.assert_close(view.values, windows.values, atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(view.confidence, windows.confidence)


@pytest.mark.parametrize("name", VIEWS)
def test_the_seed_decides_and_windows_differ(name: str) -> None:
    windows = stack([Signal.from_array(np.sin(np.arange(50)))] * 2)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(VIEWS[name](windows).values)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_time_never_runs_backwards_in_a_warp() -> None:
    for _ in range(30):
        view = views.warp(ramp(100, 37), 0.15, 0.05)
        for row, length in enumerate(view.lengths.tolist()):
            assert view.values[row, :length, 0].diff().min() >= 0


def test_a_warp_holds_its_ends_and_moves_what_lies_between() -> None:
    moved = []
    for _ in range(30):
        view = views.warp(ramp(100), 0.12, 0.0)
        assert view.values[0, 0, 0].item() == pytest.approx(0, abs=1e-4)
        assert view.values[0, -1, 0].item() == pytest.approx(99, abs=2)
        moved.append((view.values[0, :, 0] - torch.arange(100)).abs().max().item())
    assert 5 < max(moved) <= 2 * 0.12 * 100
    assert min(moved) < 5


def test_a_shift_is_the_same_everywhere_and_within_its_share() -> None:
    shifts = []
    for _ in range(30):
        view = views.warp(ramp(200), 0.0, 0.05)
        shift = view.values[0, 20:180, 0] - torch.arange(20, 180)
        assert shift.max() - shift.min() < 1e-3
        shifts.append(shift.mean().item())
    assert max(abs(shift) for shift in shifts) <= 10
    assert min(shifts) < -2
    assert max(shifts) > 2


def test_resampling_equals_interpolation(awkward_signals: list[Signal]) -> None:
    windows = stack(awkward_signals)
    times = torch.rand(windows.values.shape[:2]) * 120 - 10
    view = views.resample(windows, times)
    for row, length in enumerate(windows.lengths.tolist()):
        at, samples = times[row, :length].numpy(), np.arange(length)
        for channel in range(windows.values.shape[2]):
            expected = np.interp(at, samples, windows.values[row, :length, channel].numpy())
            np.testing.assert_allclose(view.values[row, :length, channel], expected, atol=1e-3)
        expected = np.interp(at, samples, windows.confidence[row, :length].numpy())
        np.testing.assert_allclose(view.confidence[row, :length], expected, atol=1e-4)


def test_the_clock_travels_with_the_values() -> None:
    view = views.warp(ramp(60, 40), 0.12, 0.05)
    assert view.clock is not None
    assert torch.equal(view.clock[view.inside], -view.values[..., 0][view.inside])
    assert views.warp(replace(ramp(60), clock=None), 0.1, 0.0).clock is None


def test_one_sample_cannot_be_warped() -> None:
    windows = stack([Signal.from_array([5.0])])
    assert views.warp(windows, 0.12, 0.05).values.item() == 5


def test_amplitude_is_one_gain_for_each_channel_of_each_window() -> None:
    windows = stack([Signal.from_array(np.random.default_rng(n).normal(2, 1, size=(30, 3))) for n in range(200)])
    gain = views.amplitude(windows, 0.1).values / windows.values  # (B, T, C)
    assert (gain.amax(1) - gain.amin(1)).max() < 1e-3
    assert gain[:, 0].std().item() == pytest.approx(0.1, rel=0.15)
    assert gain[:, 0].mean().item() == pytest.approx(1, abs=0.02)
    assert not torch.allclose(gain[:, 0, 0], gain[:, 0, 1], atol=1e-3)


def test_noise_has_its_strength() -> None:
    windows = stack([Signal.from_array(np.zeros((500, 2)))] * 4)
    drawn = views.noise(windows, 0.3).values
    assert drawn.std().item() == pytest.approx(0.3, rel=0.1)
    assert drawn.mean().item() == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_span_is_lost_in_one_piece(share: float) -> None:
    starts = []
    for _ in range(30):
        view = views.mask_span(stack([Signal.from_array(np.ones(100)), Signal.from_array(np.ones(40))]), share)
        for row, length in enumerate((100, 40)):
            lost = torch.nonzero(view.confidence[row, :length] == 0)[:, 0]
            assert abs(len(lost) - share * length) <= 1
            assert int(lost[-1] - lost[0]) == len(lost) - 1
            assert torch.equal(view.values[row, :, 0], view.confidence[row])
            starts.append(int(lost[0]) / length)
    assert min(starts) < 0.3 * (1 - share)
    assert max(starts) > 0.7 * (1 - share)
