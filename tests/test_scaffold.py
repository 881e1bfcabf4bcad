"""Laws of the scaffold: it covers the window, knows only its length, and the adaptive one is the one that moves."""

from __future__ import annotations

import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from geopatch.config import PatchConfig
from geopatch.geometry import motion
from geopatch.patches import PatchBatch, patchify, stack
from geopatch.scaffold import Scaffold, adaptive_scaffold, fixed_scaffold, random_scaffold
from geopatch.signal import Signal
from geopatch.warp import warped

LENGTHS = torch.tensor([1, 2, 5, 16, 17, 31, 40, 100, 255])
STRIDES = [None, 1, 5, 8, 16, 40, 200]


def wave(length: int = 120, channels: int = 1) -> Signal:
    time = np.arange(length)[:, None] / length
    return Signal.from_array(np.exp(-(((time - 0.3) / 0.05) ** 2)) + np.zeros((1, channels)), id="wave")


def starts_of(scaffold: Scaffold, row: int) -> list[int]:
    return [int(start) for start in scaffold.starts[row][scaffold.valid[row]]]


def patched(signal: Signal, boundaries: str) -> PatchBatch:
    return patchify(stack([signal]), PatchConfig(boundaries=boundaries, max_patches=8))


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize(("patch_length", "max_patches"), [(16, 16), (3, 4), (8, 1), (16, 40)])
def test_equals_its_twin(patch_length: int, max_patches: int, stride: int | None) -> None:
    scaffold = fixed_scaffold(LENGTHS, patch_length, max_patches, stride)
    assert scaffold.starts.shape == scaffold.valid.shape == (len(LENGTHS), max_patches)
    for row, length in enumerate(LENGTHS.tolist()):
        expected = naive.fixed_scaffold(length, patch_length, max_patches, stride)
        assert starts_of(scaffold, row) == expected
        assert scaffold.valid[row].tolist() == [k < len(expected) for k in range(max_patches)]
        assert not scaffold.starts[row][~scaffold.valid[row]].any()


@given(
    length=st.integers(1, 400),
    patch_length=st.integers(3, 40),
    max_patches=st.integers(1, 40),
    stride=st.none() | st.integers(1, 60),
)
def test_equals_its_twin_for_any_size(length: int, patch_length: int, max_patches: int, stride: int | None) -> None:
    scaffold = fixed_scaffold(torch.tensor([length]), patch_length, max_patches, stride)
    assert starts_of(scaffold, 0) == naive.fixed_scaffold(length, patch_length, max_patches, stride)


@pytest.mark.parametrize("stride", STRIDES)
def test_every_valid_patch_holds_a_sample(stride: int | None) -> None:
    scaffold = fixed_scaffold(LENGTHS, 16, 20, stride)
    assert torch.equal(scaffold.inside.any(-1), scaffold.valid)


def test_first_and_last_sample_are_covered() -> None:
    scaffold = fixed_scaffold(LENGTHS, 16, 16)
    for row, length in enumerate(LENGTHS.tolist()):
        held = scaffold.positions[row][scaffold.inside[row]]
        assert (int(held.min()), int(held.max())) == (0, length - 1)


@pytest.mark.parametrize("length", [1, 5, 15])
def test_a_window_shorter_than_a_patch_has_one_incomplete_patch(length: int) -> None:
    scaffold = fixed_scaffold(torch.tensor([length]), 16, 4)
    assert scaffold.valid.tolist() == [[True, False, False, False]]
    assert scaffold.inside[0, 0].tolist() == [place < length for place in range(16)]
    assert scaffold.positions[0, 0].tolist() == [min(place, length - 1) for place in range(16)]
    assert scaffold.centres[0, 0] == (length - 1) / 2


@pytest.mark.parametrize("stride", [None, 7])
def test_centres_lie_in_the_middle_of_the_samples_held(stride: int | None) -> None:
    scaffold = fixed_scaffold(LENGTHS, 16, 16, stride)
    for row, length in enumerate(LENGTHS.tolist()):
        for k, start in enumerate(starts_of(scaffold, row)):
            assert scaffold.centres[row, k] == naive.centre(start, length, 16)


def test_batch_mates_and_their_order_change_nothing() -> None:
    scaffold, order = fixed_scaffold(LENGTHS, 16, 16), torch.randperm(len(LENGTHS))
    turned = fixed_scaffold(LENGTHS[order], 16, 16)
    assert torch.equal(turned.starts, scaffold.starts[order])
    assert torch.equal(turned.inside, scaffold.inside[order])
    for row in range(len(LENGTHS)):
        assert torch.equal(fixed_scaffold(LENGTHS[row : row + 1], 16, 16).starts[0], scaffold.starts[row])


@pytest.mark.parametrize("strength", [-0.1, 0.05, 0.15])
@pytest.mark.parametrize("channels", [1, 2])
def test_the_fixed_scaffold_of_a_warped_signal_is_the_same_and_the_adaptive_one_moves(
    strength: float, channels: int
) -> None:
    signal = wave(channels=channels)
    bent = warped(signal, strength)
    assert not np.allclose(signal.values, bent.values, atol=0.1)
    assert torch.equal(patched(signal, "fixed").scaffold.starts, patched(bent, "fixed").scaffold.starts)
    assert not torch.equal(patched(signal, "adaptive").scaffold.starts, patched(bent, "adaptive").scaffold.starts)


def curvature_of(signals: list[Signal]) -> tuple[Tensor, Tensor]:
    windows = stack(signals)
    return motion(windows.values, windows.lengths).curvature, windows.lengths


def test_adaptive_patches_gather_where_the_curvature_is() -> None:
    curvature, lengths = curvature_of([wave()])
    adaptive, fixed = adaptive_scaffold(curvature, lengths, 16, 8), fixed_scaffold(lengths, 16, 8)
    assert torch.equal(adaptive.valid, fixed.valid)
    bump = 0.3 * 120
    assert (adaptive.centres - bump).abs().mean() < (fixed.centres - bump).abs().mean()


def test_adaptive_patches_of_a_constant_are_evenly_spaced() -> None:
    curvature, lengths = curvature_of([Signal.from_array(np.ones(100))])
    starts = adaptive_scaffold(curvature, lengths, 10, 5).starts[0]
    assert (starts.diff() - 20).abs().max() <= 1


def test_adaptive_patches_ignore_padding() -> None:
    alone, lengths = curvature_of([wave(50)])
    together, both = curvature_of([wave(50), wave(200)])
    assert torch.equal(
        adaptive_scaffold(alone, lengths, 8, 6).starts[0], adaptive_scaffold(together, both, 8, 6).starts[0]
    )


@pytest.mark.parametrize("boundaries", ["adaptive", "random"])
def test_other_boundaries_stay_inside_and_in_order(awkward_signals: list[Signal], boundaries: str) -> None:
    windows = stack(awkward_signals)
    batch = patchify(windows, PatchConfig(boundaries=boundaries))
    fixed = fixed_scaffold(windows.lengths, 16, 16)
    assert torch.equal(batch.valid, fixed.valid)
    room = (windows.lengths - 16).clamp(min=0)
    for row in range(len(windows)):
        starts = starts_of(batch.scaffold, row)
        assert starts == sorted(starts)
        assert 0 <= starts[0] <= starts[-1] <= room[row]


def test_random_patches_hang_on_the_seed_and_the_length_alone() -> None:
    lengths = torch.tensor([200, 90, 200])
    first, again = random_scaffold(lengths, 16, 8, seed=3), random_scaffold(lengths, 16, 8, seed=3)
    assert torch.equal(first.starts, again.starts)
    assert not torch.equal(first.starts, random_scaffold(lengths, 16, 8, seed=4).starts)
    assert torch.equal(first.starts[0], first.starts[2])
    assert not torch.equal(first.starts[0], first.starts[1])
