"""Laws of a batch: gaps are bridged, patches are cut where the scaffold says, padding and order change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import naive
import numpy as np
import pytest
import torch
from torch import Tensor

from geopatch.clock import clock_from_anchors
from geopatch.config import DESCRIPTORS, PatchConfig
from geopatch.errors import ConfigError, SignalError
from geopatch.geometry import motion
from geopatch.patches import LazyWindows, WindowBatch, cut, fill_gaps, patchify, stack
from geopatch.scaffold import fixed_scaffold
from geopatch.signal import Signal

NAN = float("nan")

GAPS = [
    pytest.param([1, 2, 3], [1, 2, 3], id="none"),
    pytest.param([0, NAN, NAN, 6], [0, 2, 4, 6], id="inside"),
    pytest.param([NAN, NAN, 5, 6], [5, 5, 5, 6], id="before"),
    pytest.param([5, 6, NAN, NAN], [5, 6, 6, 6], id="after"),
    pytest.param([NAN, 4, NAN], [4, 4, 4], id="around"),
    pytest.param([NAN, NAN], [0, 0], id="nothing measured"),
    pytest.param([NAN], [0], id="one sample, not measured"),
    pytest.param([3], [3], id="one sample"),
]


def series(*channels: list[float]) -> Tensor:
    return torch.tensor(channels, dtype=torch.float32).T[None]  # (1, T, C)


def padded(windows: WindowBatch, samples: int) -> WindowBatch:
    """The same windows with room after their ends."""
    clock = None if windows.clock is None else torch.nn.functional.pad(windows.clock, (0, samples))
    return WindowBatch(
        torch.nn.functional.pad(windows.values, (0, 0, 0, samples)),
        torch.nn.functional.pad(windows.confidence, (0, samples)),
        windows.lengths,
        clock,
    )


@pytest.mark.parametrize(("values", "expected"), GAPS)
def test_gaps_are_bridged(values: list[float], expected: list[float]) -> None:
    filled = fill_gaps(series(values), torch.tensor([len(values)]))
    assert filled[0, :, 0].tolist() == expected


def test_bridges_equal_their_twin(awkward_signals: list[Signal]) -> None:
    windows = stack(awkward_signals)
    for row, signal in enumerate(awkward_signals):
        twin = naive.fill_gaps(signal.values.astype(float))
        np.testing.assert_allclose(windows.values[row, : signal.length], twin, atol=1e-5, rtol=1e-6)
        assert not windows.values[row, signal.length :].any()


def test_channels_are_bridged_apart() -> None:
    filled = fill_gaps(series([0, NAN, 2], [NAN, 7, NAN], [NAN, NAN, NAN]), torch.tensor([3]))
    assert filled[0].T.tolist() == [[0, 1, 2], [7, 7, 7], [0, 0, 0]]


@pytest.mark.parametrize("rest", [0.0, 1e6, NAN])
@pytest.mark.parametrize(("values", "expected"), GAPS)
def test_bridges_never_reach_past_the_end(values: list[float], expected: list[float], rest: float) -> None:
    filled = fill_gaps(series([*values, rest, rest]), torch.tensor([len(values)]))
    assert filled[0, :, 0].tolist() == [*expected, 0, 0]


def test_bridging_does_not_edit_its_input() -> None:
    values = series([0, NAN, 2])
    fill_gaps(values, torch.tensor([3]))
    assert values.isnan().sum() == 1


def test_confidence_is_the_share_of_channels_measured() -> None:
    gaps = np.asarray([[1, NAN], [NAN, NAN], [1, 2]])
    windows = stack([Signal.from_array(gaps), Signal.from_array([[1, 2]] * 4)])
    assert windows.confidence.tolist() == [[0.5, 0, 1, 0], [1, 1, 1, 1]]
    assert windows.lengths.tolist() == [3, 4]
    assert windows.inside.tolist() == [[True] * 3 + [False], [True] * 4]
    assert len(windows) == 2


def test_a_batch_knows_whether_it_is_padded() -> None:
    even, uneven = ([Signal.from_array(np.ones(n)) for n in lengths] for lengths in ((5, 5), (5, 4)))
    assert not stack(even).padded
    assert stack(uneven).padded
    assert not stack(even).rows(slice(0, 1)).to("cpu").trimmed().padded
    assert stack(uneven).rows(slice(0, 1)).to("cpu").trimmed().padded


def test_other_channel_counts_are_refused() -> None:
    with pytest.raises(SignalError, match=r"signal 'b' has 2 channels, the first .*1; give all"):
        stack([Signal.from_array([1.0]), Signal.from_array([[1.0, 2.0]], id="b")])


def test_rows_and_trimming_keep_every_part() -> None:
    windows = replace(stack([Signal.from_array(np.ones(n)) for n in (3, 5, 9)]), clock=torch.rand(3, 9))
    part = windows.rows(torch.tensor([1, 0])).trimmed()
    assert part.lengths.tolist() == [5, 3]
    assert part.values.shape == (2, 5, 1)
    assert part.confidence.shape == (2, 5)
    assert part.clock is not None
    assert windows.clock is not None
    assert torch.equal(part.clock, windows.clock[[1, 0], :5])
    assert windows.rows(slice(0, 1)).trimmed().to("cpu").clock is not None
    assert stack([Signal.from_array(np.ones(3))]).rows(slice(0, 1)).trimmed().to("cpu").clock is None


@pytest.mark.parametrize("stride", [None, 5, 16, 30])
def test_patches_equal_their_twin(awkward_signals: list[Signal], stride: int | None) -> None:
    windows = stack(awkward_signals)
    batch = patchify(windows, PatchConfig(patch_length=12, max_patches=7, stride=stride))
    for row, length in enumerate(windows.lengths.tolist()):
        starts = naive.fixed_scaffold(length, 12, 7, stride)
        twin = naive.cut(windows.values[row, :length].double().numpy(), starts, 12)
        np.testing.assert_allclose(batch.patches[row, : len(starts)], twin)
        assert batch.valid[row].tolist() == [k < len(starts) for k in range(7)]
        assert not batch.patches[row, len(starts) :].any()


def test_a_patch_past_the_end_holds_zero_whatever_lies_there() -> None:
    values = torch.full((1, 30, 1), 7.0)
    patches = cut(values, fixed_scaffold(torch.tensor([5]), 8, 2))
    assert patches[0, 0, :, 0].tolist() == [7] * 5 + [0] * 3
    assert not patches[0, 1].any()


@pytest.mark.parametrize("boundaries", ["fixed", "adaptive"])
@pytest.mark.parametrize("curvature_channel", [False, True])
def test_padding_and_order_change_nothing(
    awkward_signals: list[Signal], boundaries: str, curvature_channel: bool
) -> None:
    config = PatchConfig(boundaries=boundaries, curvature_channel=curvature_channel, max_patches=5)
    together, wider = patchify(stack(awkward_signals), config), patchify(padded(stack(awkward_signals), 40), config)
    turned = patchify(stack(awkward_signals[::-1]), config)
    for row, signal in enumerate(awkward_signals):
        alone = patchify(stack([signal]), config)
        for other, place in ((together, row), (wider, row), (turned, -1 - row)):
            assert torch.equal(other.scaffold.starts[place], alone.scaffold.starts[0])
            assert torch.equal(other.inside[place], alone.inside[0])
            torch.testing.assert_close(other.patches[place], alone.patches[0], atol=1e-5, rtol=1e-4)
            for name in ("descriptors", "evidence"):
                one, rest = getattr(alone.geometry, name)[0], getattr(other.geometry, name)[place]
                torch.testing.assert_close(rest, one, atol=1e-5, rtol=1e-4)


def test_curvature_can_be_a_channel() -> None:
    windows = stack([Signal.from_array(np.random.default_rng(0).normal(size=(40, 2)))])
    batch = patchify(windows, PatchConfig(curvature_channel=True, max_patches=3))
    assert batch.patches.shape == (1, 3, 16, 3)
    expected = motion(windows.values, windows.lengths).curvature.log1p()
    assert torch.equal(batch.windows.values[..., 2], expected)
    assert torch.equal(batch.patches[..., 2], cut(expected[..., None], batch.scaffold)[..., 0])
    assert torch.equal(batch.patches[..., :2], patchify(windows, PatchConfig(max_patches=3)).patches)
    assert windows.values.shape == (1, 40, 2)


def test_a_clock_is_the_other_source_of_geometry() -> None:
    signal = Signal.from_array(np.random.default_rng(0).normal(size=64))
    even = replace(stack([signal]), clock=torch.arange(64.0)[None] / 8)
    uneven = replace(even, clock=(torch.arange(64.0)[None] / 8) ** 2)
    config = PatchConfig(geometry_source="clock", descriptors=("residual", "slope"))
    smooth, bent = patchify(even, config), patchify(uneven, config)
    assert torch.equal(smooth.patches, bent.patches)
    assert smooth.geometry.descriptors[..., :3].abs().max() < 1e-4
    assert bent.geometry.descriptors[..., :3].max() > 0.01
    for alpha, beta in ((5.0, 100.0), (0.2, -3.0)):
        assert uneven.clock is not None
        moved = patchify(replace(uneven, clock=alpha * uneven.clock + beta), config)
        torch.testing.assert_close(
            moved.geometry.descriptors[..., :3], bent.geometry.descriptors[..., :3], atol=1e-3, rtol=1e-2
        )


def test_a_clock_that_is_missing_is_refused() -> None:
    with pytest.raises(SignalError, match="geometry_source is 'clock' but these windows carry no clock; give anchors"):
        patchify(stack([Signal.from_array([1.0, 2.0])]), PatchConfig(geometry_source="clock"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_length": 2}, "patch_length must be at least 3, got 2"),
        ({"max_patches": 0}, "max_patches must be at least 1, got 0"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"boundaries": "even"}, "boundaries must be one of fixed, adaptive, random, got 'even'"),
        ({"geometry_source": "sun"}, "geometry_source must be one of values, clock, got 'sun'"),
        ({"descriptors": ("slope", "colour")}, "descriptors must be one of slope, .*, got 'colour'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PatchConfig(**settings)


def test_descriptors_may_come_as_a_list() -> None:
    listed: Any = ["slope"]
    assert PatchConfig(descriptors=listed).descriptors == ("slope",)
    assert PatchConfig().descriptors == tuple(DESCRIPTORS)


def test_a_stack_takes_its_clocks_from_the_anchors() -> None:
    anchors = np.array([-3.0, 10.0, 31.0, 55.0])
    signals = [
        Signal.from_array(np.random.default_rng(0).normal(size=50), id="beats", anchors=anchors),
        Signal.from_array(np.ones(30), id="one", anchors=np.array([4.0])),
    ]
    windows = stack(signals, clock=True)
    assert windows.clock is not None
    clock = clock_from_anchors(anchors, 50)
    np.testing.assert_allclose(windows.clock[0].numpy(), clock.time, rtol=1e-6)
    np.testing.assert_allclose(windows.confidence[0].numpy(), clock.confidence, rtol=1e-6)
    assert windows.clock[1, :30].tolist() == list(range(30)), "one anchor makes no clock: an even one that none trusts"
    assert not windows.confidence[1].any()


def test_a_clock_needs_anchors() -> None:
    with pytest.raises(SignalError, match="'0' has no anchors; give them, or use geometry_source 'values'"):
        stack([Signal.from_array(np.ones(30))], clock=True)


def test_lazy_windows_are_the_stack_in_pieces() -> None:
    draw = np.random.default_rng(0)
    signals = [Signal.from_array(draw.normal(size=(length, 2)), id=str(length)) for length in (9, 30, 12)]
    whole, lazy = stack(signals), LazyWindows(signals, [9, 30, 12])
    parts = list(lazy.parts())
    assert len(lazy) == 3
    assert lazy.channels == whole.channels == 2
    for name in ("values", "confidence", "lengths"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
        chosen = torch.tensor([2, 0])
        assert torch.equal(getattr(lazy.rows(chosen), name), getattr(whole.rows(chosen), name))
