"""Laws of geometry: fast == twin, lines leave no residual, an affine change of clock no trace, padding no signal."""

from __future__ import annotations

import naive
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from geopatch.config import DESCRIPTORS
from geopatch.geometry import Geometry, affine_residual, geometry, local_residual, motion, residual_norms
from geopatch.patches import WindowBatch, stack
from geopatch.scaffold import Scaffold, fixed_scaffold
from geopatch.signal import Signal

NAMES = tuple(DESCRIPTORS)
PATCH, MOST = 16, 6

tracks = st.lists(st.floats(-5, 5), min_size=8, max_size=8)


def close(found: Tensor, expected: npt.ArrayLike, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found.double().numpy(), np.asarray(expected, dtype=float), atol=atol, rtol=1e-4)


def patches_of(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def describe(windows: WindowBatch, names: tuple[str, ...] = NAMES, *, clock: bool = False) -> tuple[Geometry, Scaffold]:
    source = clock_of(windows) if clock else windows.values
    scaffold = fixed_scaffold(windows.lengths, PATCH, MOST)
    moves = motion(source, windows.lengths)
    return geometry(source, windows.confidence, scaffold, moves, names, clock=clock), scaffold


def clock_of(windows: WindowBatch) -> Tensor:
    """A clock that runs unevenly."""
    time = torch.arange(windows.values.shape[1]).float()
    return (time + 3 * torch.sin(time / 5)).expand(len(windows), -1)[..., None] / 10  # (B, T, 1)


def test_motion_equals_its_twin(awkward_signals: list[Signal]) -> None:
    windows = stack(awkward_signals)
    found = motion(windows.values, windows.lengths)
    for row, length in enumerate(windows.lengths.tolist()):
        expected = naive.motion(windows.values[row, :length].double().numpy())
        for track, twin in zip((found.speed, found.acceleration, found.curvature), expected, strict=True):
            close(track[row, :length], twin)
            assert not track[row, length:].any()


def test_a_ramp_has_speed_and_nothing_else() -> None:
    ramp = 3.0 * torch.arange(10.0)[None, :, None] * torch.tensor([3.0, 4.0])
    found = motion(ramp, torch.tensor([10]))
    close(found.speed[0, 1:-1], np.full(8, 15.0))
    assert not found.acceleration[0, 1:-1].any()
    assert not found.curvature[0, 1:-1].any()


@pytest.mark.parametrize("length", [1, 2, 30])
def test_a_constant_does_not_move(length: int) -> None:
    found = motion(torch.full((1, length, 2), 7.3), torch.tensor([length]))
    assert not any(track.any() for track in (found.speed, found.acceleration, found.curvature))


def test_motion_ignores_what_lies_past_the_end() -> None:
    values, lengths = torch.randn(2, 20, 3), torch.tensor([12, 20])
    changed = values.clone()
    changed[0, 12:] = 1e4
    for one, other in zip(vars(motion(values, lengths)).values(), vars(motion(changed, lengths)).values(), strict=True):
        assert torch.equal(one, other)


WEIGHTS = [
    pytest.param([1.0] * 8, id="all known"),
    pytest.param([1.0, 0.5, 0.0, 0.25, 1.0, 1.0, 0.0, 0.0], id="gaps and shares"),
    pytest.param([0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0], id="two known"),
    pytest.param([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], id="one known"),
    pytest.param([0.0] * 8, id="none known"),
]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_residual_and_norms_equal_their_twins(weights: list[float], channels: int) -> None:
    patches, weight = patches_of((2, 8, channels)), torch.tensor(weights, dtype=torch.float64)
    residual, slope = affine_residual(patches, weight.expand(2, 8))
    local = local_residual(patches, weight.expand(2, 8))
    norms = residual_norms(residual, weight.expand(2, 8))
    for k in range(2):
        twin, slopes = naive.affine_residual(patches[k].numpy(), weight.numpy())
        close(residual[k], twin, 1e-9)
        close(slope[k], slopes, 1e-9)
        close(local[k], naive.local_residual(patches[k].numpy(), weight.numpy()), 1e-6)
        close(norms[k], naive.residual_norms(twin, weight.numpy()), 1e-9)


def test_residual_is_what_least_squares_leaves() -> None:
    patch = patches_of((8, 1))
    residual, slope = affine_residual(patch, torch.ones(8))
    line = np.polyfit(np.arange(8), patch[:, 0].numpy(), 1)
    close(residual[:, 0], patch[:, 0].numpy() - np.polyval(line, np.arange(8)), 1e-9)
    close(slope, [line[0]], 1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_line_leaves_nothing(weights: list[float]) -> None:
    line = (2.5 * torch.arange(8, dtype=torch.float64) - 7)[:, None]
    assert affine_residual(line, torch.tensor(weights, dtype=torch.float64))[0].abs().max() < 1e-9


@pytest.mark.parametrize("level", [0.1, 12.3, 1234.567])
@pytest.mark.parametrize("length", [3, 13, 16])
def test_a_clock_that_stands_still_leaves_nothing(level: float, length: int) -> None:
    assert not local_residual(torch.full((length, 1), level), torch.ones(length)).any()


@given(track=tracks, rate=st.floats(0.1, 3), alpha=st.floats(0.01, 100), beta=st.floats(-1e3, 1e3))
def test_local_residual_has_no_affine_gauge(track: list[float], rate: float, alpha: float, beta: float) -> None:
    """R(alpha tau + beta) = R(tau) for alpha > 0 (Prop. affine)."""
    tau = (torch.tensor(track, dtype=torch.float64).cumsum(0) + rate * torch.arange(8))[:, None]
    weights = torch.ones(8, dtype=torch.float64)
    slope = affine_residual(tau, weights)[1].abs()
    assume(slope.item() * min(alpha, 1) > 1e-3)  # alpha_loc has a floor: a clock that hardly runs has no rate
    plain, moved = local_residual(tau, weights), local_residual(alpha * tau + beta, weights)
    np.testing.assert_allclose(moved.numpy(), plain.numpy(), rtol=1e-6, atol=1e-6)
    residual = affine_residual(tau, weights)[0]
    np.testing.assert_allclose(affine_residual(alpha * tau + beta, weights)[0], alpha * residual, rtol=1e-6, atol=1e-8)


def test_local_residual_sees_what_no_affine_change_explains() -> None:
    even, uneven = torch.arange(8.0)[:, None], (torch.arange(8.0) ** 2)[:, None]
    assert local_residual(even, torch.ones(8)).abs().max() < 1e-5
    assert local_residual(uneven, torch.ones(8)).abs().max() > 0.5


@pytest.mark.parametrize("clock", [False, True], ids=["values", "clock"])
def test_descriptors_and_evidence_equal_their_twins(awkward_signals: list[Signal], clock: bool) -> None:
    windows = stack(awkward_signals)
    found, _ = describe(windows, clock=clock)
    source = clock_of(windows) if clock else windows.values
    for row, length in enumerate(windows.lengths.tolist()):
        series = source[row, :length].double().numpy()
        confidence = windows.confidence[row, :length].double().numpy()
        starts = naive.fixed_scaffold(length, PATCH, MOST)
        for k, start in enumerate(starts):
            twin = naive.descriptors(series, confidence, starts, k, PATCH, MOST, clock=clock)
            close(found.descriptors[row, k], [value for name in NAMES for value in twin[name]], 2e-4)
            close(found.evidence[row, k], naive.evidence(series, confidence, start, PATCH, clock=clock), 2e-4)
        assert not found.descriptors[row, len(starts) :].any()
        assert not found.evidence[row, len(starts) :].any()
    assert found.descriptors.isfinite().all()


def test_confidence_multiplies_the_last_two_entries_of_the_evidence() -> None:
    """With every sample measured by half of the channels c_bar is 1/2, and nothing else changes."""
    windows = stack([Signal.from_array(np.random.default_rng(0).normal(size=(50, 2)))])
    half = WindowBatch(windows.values, windows.confidence / 2, windows.lengths)
    whole, halved = describe(windows)[0].evidence[0, 0], describe(half)[0].evidence[0, 0]
    close(halved / whole, [1.0, 1.0, 0.5, 0.5])


@pytest.mark.parametrize("name", NAMES)
def test_each_descriptor_can_be_switched_off(name: str) -> None:
    windows = stack([Signal.from_array(np.random.default_rng(0).normal(size=50))])
    columns = describe(windows)[0].descriptors.split(list(DESCRIPTORS.values()), dim=-1)
    everything = dict(zip(NAMES, columns, strict=True))
    kept = tuple(other for other in NAMES if other != name)
    found = describe(windows, kept)[0].descriptors
    assert found.shape[-1] == sum(DESCRIPTORS.values()) - DESCRIPTORS[name]
    assert torch.equal(found, torch.cat([everything[other] for other in kept], dim=-1))


def test_descriptors_stand_in_the_order_asked_for() -> None:
    windows = stack([Signal.from_array(np.random.default_rng(0).normal(size=50))])
    forward, backward = (describe(windows, names)[0].descriptors for names in (("slope", "index"), ("index", "slope")))
    assert torch.equal(forward.flip(-1), backward)


def test_without_descriptors_there_are_no_columns() -> None:
    found, scaffold = describe(stack([Signal.from_array(np.arange(50.0))]), ())
    assert found.descriptors.shape == (*scaffold.valid.shape, 0)
    assert found.evidence.shape == (*scaffold.valid.shape, 4)


@pytest.mark.parametrize("clock", [False, True], ids=["values", "clock"])
def test_batch_mates_and_their_order_change_nothing(awkward_signals: list[Signal], clock: bool) -> None:
    together, _ = describe(stack(awkward_signals), clock=clock)
    turned, _ = describe(stack(awkward_signals[::-1]), clock=clock)
    for row, signal in enumerate(awkward_signals):
        alone, _ = describe(stack([signal]), clock=clock)
        for name in ("descriptors", "evidence"):
            close(getattr(together, name)[row], getattr(alone, name)[0])
            close(getattr(turned, name)[-1 - row], getattr(alone, name)[0])
