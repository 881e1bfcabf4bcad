"""Laws of the views: time runs forward, ends and padding hold, shape and inputs stay, strength 0 changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from geopatch import views
from geopatch.config import DISTORTIONS, TrainConfig
from geopatch.errors import ConfigError
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train.objective import draw_view

View = Callable[[WindowBatch], WindowBatch]

VIEWS: dict[str, View] = {
    "warp": lambda windows: views.warp(windows, 0.12, 0.05),
    "amplitude": lambda windows: views.amplitude(windows, 0.1),
    "noise": lambda windows: views.noise(windows, 0.1),
    "mask_span": lambda windows: views.mask_span(windows, 0.3),
    "view": lambda windows: views.view(windows).windows,
}
STILL = views.MildClock(0.0, 0.0, 0.0, 0.0)
NOTHING: dict[str, View] = {
    "warp": lambda windows: views.warp(windows, 0.0, 0.0),
    "amplitude": lambda windows: views.amplitude(windows, 0.0),
    "noise": lambda windows: views.noise(windows, 0.0),
    "mask_span": lambda windows: views.mask_span(windows, 0.0),
    "view": lambda windows: views.view(windows, (), STILL).windows,
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


def one(name: str, windows: WindowBatch, seed: int = 0) -> tuple[views.View, torch.Tensor]:
    """Views with one distortion and no mild clock, and which windows have it."""
    torch.manual_seed(seed)
    view = views.view(windows, (name,), STILL)
    torch.manual_seed(seed)
    return view, views.Drawn(windows, (name,), None).has(name)[:, 0]


@pytest.mark.parametrize("name", DISTORTIONS)
def test_half_of_the_windows_have_the_only_distortion_and_the_others_are_as_they_were(name: str) -> None:
    draw = np.random.default_rng(0)
    windows = stack([Signal.from_array(draw.normal(size=(40 + n % 20, 2))) for n in range(400)])
    view, chosen = one(name, windows)
    changed = (view.windows.values - windows.values).abs().amax((1, 2)) > 1e-3
    assert 0.4 < chosen.float().mean() < 0.6
    assert not (changed & ~chosen).any()
    assert (changed & chosen).sum() > 0.95 * chosen.sum()
    assert torch.equal(view.windows.confidence[~chosen], windows.confidence[~chosen])


def test_each_distortion_and_none_of_them_are_as_likely() -> None:
    windows = stack([Signal.from_array(np.zeros(8))] * 8000)
    drawn = views.Drawn(windows, DISTORTIONS, torch.Generator().manual_seed(0))
    shares = torch.stack([drawn.has(name)[:, 0] for name in DISTORTIONS]).float()
    torch.testing.assert_close(shares.mean(1), torch.full((7,), 1 / 8), atol=0.02, rtol=0)
    assert shares.sum(0).max() == 1
    assert (shares.sum(0) == 0).float().mean().item() == pytest.approx(1 / 8, abs=0.02)


def test_without_a_distortion_a_view_is_the_mild_clock_alone(awkward_signals: list[Signal]) -> None:
    windows = stack(awkward_signals)
    torch.manual_seed(4)
    view = views.view(windows, (), views.MildClock(0.12, 0.05, 0.1, 0.03)).windows
    torch.manual_seed(4)
    expected = views.noise(views.amplitude(views.warp(windows, 0.12, 0.05), 0.1), 0.03)
    assert torch.equal(view.values, expected.values)
    assert torch.equal(view.confidence, expected.confidence)
    torch.manual_seed(4)
    assert torch.equal(draw_view(windows, TrainConfig(robust_to=())).windows.values, view.values)


def test_an_unknown_distortion_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"robust_to must be one of speed, crop, .* got 'sped'"):
        views.view(ramp(20), ("gain", "sped"))
    with pytest.raises(ConfigError, match="robust_to must be one of"):
        TrainConfig(robust_to=("sped",))
    assert TrainConfig(robust_to=["gain"]).robust_to == ("gain",)  # type: ignore[arg-type]


def test_a_generator_decides_alone() -> None:
    windows = ramp(50, 30)
    before = torch.get_rng_state()
    first, second = (views.view(windows, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.windows.values, second.windows.values)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["speed", "crop", "shift"])
def test_times_say_where_each_sample_was_read(name: str) -> None:
    windows = ramp(*[90, 37, 60] * 40)
    for mild in (STILL, views.MildClock(amplitude=0.0, noise=0.0)):
        view = views.view(windows, (name,), mild)
        inside = windows.inside
        torch.testing.assert_close(view.times[inside], view.windows.values[..., 0][inside], atol=1e-3, rtol=1e-5)
        forward = view.times.diff(dim=1)[inside[:, 1:]]
        assert forward.min() >= -1e-3
        assert view.times.min() >= 0
        assert (view.times <= windows.lengths[:, None] - 1).all()


def test_speeds_hold_the_ends_and_differ_within_a_window() -> None:
    view, chosen = one("speed", ramp(*[121] * 200))
    times = view.times[chosen]
    torch.testing.assert_close(times[:, 0], torch.zeros(len(times)))
    torch.testing.assert_close(times[:, -1], torch.full((len(times),), 120.0), atol=1e-2, rtol=0)
    speed = times.diff(dim=1).unflatten(1, (views.SPEEDS, 20))
    assert (speed.amax(2) - speed.amin(2)).max() < 1e-3
    assert speed.amax((1, 2)).max() > 1.5
    assert speed.amin((1, 2)).min() < 0.6


def test_a_crop_stretches_a_part_or_squeezes_the_whole() -> None:
    view, chosen = one("crop", ramp(*[101] * 900))
    times = view.times[chosen]
    speed = times.diff(dim=1)[:, 40:60].mean(1)
    assert speed.min().item() == pytest.approx(views.CROP, abs=0.01)
    assert speed.max().item() == pytest.approx(1 / views.CROP, abs=0.02)
    squeezed = speed > 1
    assert squeezed.float().mean().item() == pytest.approx(1 / 3, abs=0.06)
    assert (times[~squeezed, -1] - times[~squeezed, 0] < 100).all()
    assert (times[squeezed, 0] == 0).all()
    assert (times[squeezed, -1] == 100).all()


def test_a_gain_is_one_for_all_channels() -> None:
    windows = stack([Signal.from_array(np.random.default_rng(n).normal(3, 0.1, size=(30, 3))) for n in range(300)])
    view, chosen = one("gain", windows)
    gain = (view.windows.values / windows.values)[chosen].flatten(1)
    assert (gain.amax(1) - gain.amin(1)).max() < 1e-3
    assert gain.log().abs().max().item() == pytest.approx(views.GAIN, abs=0.03)
    assert gain.log().mean().item() == pytest.approx(0, abs=0.06)


def test_noise_of_a_distortion_has_every_strength_up_to_its_own() -> None:
    view, chosen = one("noise", stack([Signal.from_array(np.zeros(400))] * 400))
    spread = view.windows.values[chosen].std((1, 2))
    assert spread.max().item() == pytest.approx(views.NOISE, abs=0.03)
    assert spread.min() < 0.03
    assert spread.mean().item() == pytest.approx(views.NOISE / 2, abs=0.02)


def test_a_wander_is_slow_and_another_on_each_channel() -> None:
    view, chosen = one("wander", stack([Signal.from_array(np.zeros((200, 2)))] * 300))
    wave = view.windows.values[chosen]
    assert 0.5 < wave.abs().max() <= views.WANDER
    assert wave.diff(dim=1).abs().max() <= views.WANDER * 2 * np.pi * views.TURNS[1] / 200 + 1e-5
    assert (wave[..., 0] - wave[..., 1]).abs().amax(1).min() > 0


def test_a_dropped_span_is_bridged_and_half_of_the_time_known_to_be_lost() -> None:
    draw = np.random.default_rng(0)
    windows = stack([Signal.from_array(draw.normal(size=n)) for n in [100, 60] * 150])
    view, chosen = one("drop", windows)
    known = 0
    for row in torch.nonzero(chosen)[:, 0].tolist():
        length = int(windows.lengths[row])
        values, before = view.windows.values[row, :length, 0], windows.values[row, :length, 0]
        lost = torch.nonzero(values != before)[:, 0]
        start, stop = int(lost[0]), int(lost[-1]) + 1
        assert stop - start <= views.DROP * length
        bend = values[max(start - 1, 0) : stop + 1].diff().diff()
        if start > 0 and stop < length:
            assert bend.abs().max() < 1e-4
        trust = view.windows.confidence[row, :length]
        if (trust == 0).any():
            known += 1
            assert int((trust == 0).sum()) == int(views.DROP * length)
            assert (trust[lost] == 0).all()
    assert known / int(chosen.sum()) == pytest.approx(views.KNOWN_DROPS, abs=0.12)


def test_what_a_reconstruction_aims_at_has_no_noise_wander_or_gap() -> None:
    windows = ramp(*[80, 50] * 20)
    view = views.view(windows, ("noise", "wander", "drop"), views.MildClock(0.12, 0.05, 0.0, 0.03))
    assert torch.equal(view.clean.values, views.resample(windows, view.times).values)
    assert torch.equal(view.clean.confidence, views.resample(windows, view.times).confidence)


def test_windows_of_one_sample_have_views() -> None:
    view = views.view(stack([Signal.from_array([5.0])] * 50)).windows
    assert view.values.isfinite().all()
