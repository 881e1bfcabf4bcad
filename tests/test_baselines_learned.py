"""The learned baselines: masks, their papers' losses against naive twins, and what each is invariant to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from geopatch.config import TrainConfig
from geopatch.errors import SignalError
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train.objective import Trainable
from geopatch_lab.baselines import make
from geopatch_lab.baselines.invconvnet import KINDS, InvariantConvolution
from geopatch_lab.baselines.layers import Norm, SameConv, halved, max_over_time, mean_over_time
from geopatch_lab.baselines.learned import Learned, Network, Supervised
from geopatch_lab.baselines.patchtst import PATCH, STRIDE, overlapping, patch_count
from geopatch_lab.baselines.registry import NETWORKS, SELF_SUPERVISED
from geopatch_lab.baselines.transformer import averaged
from geopatch_lab.baselines.ts2vec import HierarchicalContrast, contrast, draw_crops, hierarchical_loss, taken
from geopatch_lab.baselines.tstcc import TemporalContextual, agreement, segment_order

FEW = TrainConfig(min_steps=2, max_steps=2, batch_size=4, precision="float32")


def walks(lengths: tuple[int, ...], channels: int = 2, seed: int = 0) -> list[Signal]:
    draw = np.random.default_rng(seed)
    return [
        Signal.from_array(np.cumsum(draw.normal(size=(length, channels)), axis=0), id=f"{seed} {n}")
        for n, length in enumerate(lengths)
    ]


def body(name: str, channels: int, longest: int) -> torch.nn.Module:
    torch.manual_seed(0)
    network = NETWORKS[name](channels, longest)
    for module in network.modules():  # as after training: statistics that are not 0 and 1
        if isinstance(module, torch.nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_()
    return network.eval()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("length", [1, 7, 40, 61])
def test_padding_changes_no_embedding(name: str, length: int) -> None:
    network = body(name, 2, 64)
    alone = stack(walks((length,)))
    padded = stack([*walks((length,)), *walks((64, 90), seed=1)])
    noise = padded.values + 100 * torch.randn_like(padded.values) * ~padded.inside[..., None]
    with torch.no_grad():
        expected = network(alone.values, alone.inside)
        assert_close(network(alone.values, None), expected, atol=1e-5, rtol=1e-5)
        assert_close(network(padded.values, padded.inside)[:1], expected, atol=1e-4, rtol=1e-4)
        if name != "ts2vec":  # the others do not even read what lies past the end
            assert_close(network(noise, padded.inside)[:1], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_learns(name: str) -> None:
    windows, labels = stack(walks((40,) * 6)), torch.tensor([0, 1] * 3)
    network = Network(NETWORKS[name](2, 40), "keep").train()
    aim = SELF_SUPERVISED.get(name, {}).get("aim")
    objective: Trainable = Supervised(network, 2, FEW) if aim is None else aim(network, FEW)
    objective(windows, labels).backward()
    still = [key for key, value in objective.named_parameters() if value.grad is None or not value.grad.abs().max() > 0]
    assert not [key for key in still if not key.endswith("bias")]
    assert objective.capturable


@pytest.mark.parametrize("name", NETWORKS)
def test_training_lowers_the_loss(name: str) -> None:
    draw = np.random.default_rng(0)
    time = np.linspace(0, 6, 32)
    shapes = [np.sin(time + draw.uniform(0, 6)) if n % 2 else time * draw.uniform(0.5, 1) for n in range(16)]
    windows = stack([Signal.from_array(shape, id=str(n)) for n, shape in enumerate(shapes)])
    torch.manual_seed(0)
    network = Network(NETWORKS[name](1, 32), "keep").train()
    aim = SELF_SUPERVISED.get(name, {}).get("aim")
    objective: Trainable = Supervised(network, 2, FEW) if aim is None else aim(network, FEW)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=1e-3)
    seen = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = objective(windows, torch.arange(16) % 2)
        loss.backward()
        optimizer.step()
        seen.append(float(loss.detach()))
    assert np.mean(seen[-3:]) < 0.95 * seen[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_both_precisions_and_a_single_channel_train(name: str) -> None:
    for precision in ("float32", "bfloat16"):
        train = TrainConfig(min_steps=1, max_steps=1, batch_size=4, precision=precision)
        method = make(name, train=train)
        signals = walks((30, 22, 30, 9), channels=1)
        method.fit(signals, ["a", "b", "a", "b"], 0)
        assert np.isfinite(method.scores(signals, signals)).all()


def test_the_budget_is_geopatchs_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []
    monkeypatch.setattr("geopatch_lab.baselines.learned.Stepper.step", lambda _, index, _n: sizes.append(index.shape))
    train = TrainConfig(epochs=1, min_steps=3, max_steps=9, batch_size=16)
    signals = walks((12,) * 40)
    for name, batch in (("ts-resnet", 16), ("ts-tcc", 16), ("ts2vec", 8)):
        sizes.clear()
        make(name, train=train).fit(signals, ["a", "b"] * 20, 0)
        assert sizes == [(batch,)] * train.steps(40)


def test_the_step_of_least_validation_loss_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geopatch.train.validation.MIN_WINDOWS", 2)
    losses = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr("geopatch.train.validation.Validation._loss", lambda _self: next(losses))
    kept: list[int] = []
    monkeypatch.setattr("geopatch_lab.baselines.learned.Validation.keep", lambda self: kept.append(self.step))
    train = TrainConfig(min_steps=3, max_steps=3, batch_size=4, validation=0.5)
    make("invconvnet", train=train).fit(walks((12,) * 8), ["a", "b"] * 4, 0)
    assert kept == [2]


def test_windows_of_other_channels_are_refused_in_training() -> None:
    with pytest.raises(SignalError, match="channels"):
        make("ts-resnet", train=FEW).fit([*walks((9,)), *walks((9,), channels=1, seed=1)], ["a", "b"], 0)


def test_a_learned_method_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make("ts-tcc", train=FEW).fit(walks((16,) * 4), None, 0)
    assert_close(torch.rand(3), expected)


# Layers


@pytest.mark.parametrize("kernel", [1, 2, 3, 8])
def test_same_convolution_keeps_the_length(kernel: int) -> None:
    x = torch.randn(2, 3, 11)
    assert SameConv(3, 5, kernel, dilation=2)(x).shape == (2, 5, 11)


@pytest.mark.parametrize("dilation", [1, 8, 9, 10, 11, 300])
def test_taps_beyond_the_window_are_left_out_without_a_difference(dilation: int) -> None:
    layer, x = SameConv(2, 4, 3, dilation=dilation, bias=True), torch.randn(3, 2, 10)
    expected = torch.nn.functional.conv1d(x, layer.weight, layer.bias, padding=dilation, dilation=dilation)
    assert_close(layer(x), expected)


def test_norm_counts_only_what_lies_inside() -> None:
    x, inside = torch.randn(2, 3, 6), torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    found = Norm(3).train()(x, inside)
    picked = x.mT[inside]
    expected = (picked - picked.mean(0)) / (picked.var(0, correction=0) + 1e-5).sqrt()
    assert_close(found.mT[inside], expected, atol=1e-5, rtol=1e-5)
    assert (found.mT[~inside] == 0).all()


def test_pooling_ignores_what_lies_outside() -> None:
    x = torch.tensor([[[1.0, -2.0, 9.0, 9.0, 9.0]]])
    inside = torch.tensor([[True, True, False, False, False]])
    assert_close(mean_over_time(x, inside), torch.tensor([[-0.5]]))
    assert_close(max_over_time(x, inside), torch.tensor([[1.0]]))
    pooled, kept = halved(x, inside)
    assert_close(pooled, torch.tensor([[[1.0, 0.0, 0.0]]]))
    assert kept.tolist() == [[True, False, False]]


def test_averaging_counts_samples_inside_only() -> None:
    x, inside = torch.arange(5.0).view(1, 5, 1), torch.tensor([[True, True, True, False, False]])
    tokens, valid = averaged(x, inside, 2)
    assert_close(tokens[..., 0], torch.tensor([[0.5, 2.0, 0.0]]))
    assert valid is not None
    assert valid.tolist() == [[True, True, False]]


@given(st.integers(1, 70), st.integers(0, 30))
def test_patches_cover_the_window_once_and_hold_its_end(length: int, padding: int) -> None:
    x = torch.arange(1.0, length + 1).view(1, -1, 1)
    padded = torch.nn.functional.pad(x, (0, 0, 0, padding), value=-7.0)
    inside = (torch.arange(length + padding) < length)[None]
    patches, valid = overlapping(padded, inside)
    assert valid is not None
    assert int(valid.sum()) == patch_count(length)
    for n in range(int(valid.sum())):
        samples = torch.arange(n * STRIDE, n * STRIDE + PATCH).clamp(max=length - 1)
        assert_close(patches[0, 0, n], x[0, samples, 0])
    assert (patch_count(length) - 1) * STRIDE + PATCH >= length


# InvConvNet


def naive_invariant(layer: InvariantConvolution, x: Tensor) -> Tensor:
    """Stretch by stretch, with the mean or the line taken off the signal."""
    length, time = layer.length, torch.arange(layer.length, dtype=torch.float64)
    line = torch.stack([torch.ones_like(time), time], dim=1)
    padded = torch.nn.functional.pad(x.double(), (length // 2, length // 2))
    out = torch.zeros(len(x), sum(KINDS), x.shape[2], dtype=torch.float64)
    plain, level, trend = layer.weight.double().split(KINDS)
    for t in range(x.shape[2]):
        stretch = padded[:, :, t : t + length]  # (B, C, l)
        centred = stretch - stretch.mean(2, keepdim=True)
        fit = torch.linalg.lstsq(line, stretch.flatten(0, 1).mT).solution
        straight = stretch - (line @ fit).mT.view_as(stretch)
        parts = [torch.einsum("bcl,kcl->bk", stretch, plain)]
        for kernels, shaped in ((level, centred), (trend, straight)):
            norm = shaped.norm(dim=2, keepdim=True)
            parts.append(torch.einsum("bcl,kcl->bk", shaped / norm, kernels))
        out[:, :, t] = torch.cat(parts, dim=1)
    return out


def test_invariant_convolution_is_the_naive_one() -> None:
    layer, x = InvariantConvolution(2, 7), torch.randn(3, 2, 20)
    with torch.no_grad():
        assert_close(layer(x).double(), naive_invariant(layer, x), atol=1e-4, rtol=1e-3)


@given(st.floats(0.2, 20), st.floats(-20, 20), st.floats(-2, 2))
def test_invariant_kernels_do_not_see_scale_offset_and_trend(gain: float, offset: float, slope: float) -> None:
    torch.manual_seed(0)
    layer, x = InvariantConvolution(1, 9), torch.randn(1, 1, 40)
    moved, tilted = gain * x + offset, gain * x + offset + slope * torch.arange(40.0)
    inner = slice(4, -4)  # beyond the ends there are zeros, which no transformation moves
    with torch.no_grad():
        plain, level, trend = layer(x)[..., inner].split(KINDS, dim=1)
        assert_close(layer(moved)[..., inner].split(KINDS, dim=1)[1], level, atol=1e-2, rtol=1e-2)
        assert_close(layer(tilted)[..., inner].split(KINDS, dim=1)[2], trend, atol=2e-2, rtol=2e-2)
        assert not torch.allclose(layer(3 * x + 1)[..., inner].split(KINDS, dim=1)[0], plain, atol=1e-2)


def test_a_flat_stretch_has_no_shape() -> None:
    layer = InvariantConvolution(1, 5)
    found = layer(torch.full((1, 1, 20), 3.0))[..., 2:-2]
    assert (found[:, KINDS[0] :] == 0).all()


# TS2Vec


def naive_contrast(one: Tensor, other: Tensor) -> float:
    """Rows of `one` and `other` that belong together, against all rows of both: the paper's equations 1 and 2."""
    total = 0.0
    both = torch.cat([one, other])
    for n in range(len(both)):
        partner = (n + len(one)) % len(both)
        rest = [float(both[n] @ both[m]) for m in range(len(both)) if m != n]
        total += math.log(sum(math.exp(value) for value in rest)) - float(both[n] @ both[partner])
    return total / len(both)


def naive_hierarchy(one: Tensor, other: Tensor) -> float:
    """Without masks: (B, T, D)."""
    total, levels = 0.0, 0
    while True:
        instance = np.mean([naive_contrast(one[:, t], other[:, t]) for t in range(one.shape[1])])
        temporal = np.mean([naive_contrast(a, b) for a, b in zip(one, other, strict=True)])
        total, levels = total + 0.5 * float(instance + temporal), levels + 1
        if one.shape[1] == 1:
            return total / levels
        one, other = (torch.nn.functional.max_pool1d(z.mT, 2).mT for z in (one, other))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_the_hierarchical_loss_is_the_naive_one_whatever_the_buffer(length: int) -> None:
    one, other = 0.5 * torch.randn(3, length, 4), 0.5 * torch.randn(3, length, 4)
    expected = naive_hierarchy(one, other)
    for room in (length, 8, 11):
        short = max(room - length, 0)
        padded = [torch.nn.functional.pad(z, (0, 0, 0, short)) for z in (one, other)]
        valid = (torch.arange(length + short) < length).expand(3, -1)
        assert float(hierarchical_loss(padded[0], padded[1], valid)) == pytest.approx(expected, rel=1e-4)


def test_contrast_of_a_lone_row_is_nothing() -> None:
    z = torch.randn(1, 2, 3)
    assert float(contrast(z, torch.ones(1, 2, dtype=torch.bool))) == pytest.approx(0.0, abs=1e-6)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(2, 60), st.integers(0, 99))
def test_crops_lie_in_their_window_and_overlap(lengths: list[int], room: int, seed: int) -> None:
    torch.manual_seed(seed)
    rows = torch.tensor(lengths)
    crops = draw_crops(rows, room)
    assert (crops.first_start >= 0).all()
    assert (crops.second_start >= crops.first_start).all()
    assert (crops.second_start + crops.second_length <= rows).all()
    assert (crops.first_start + crops.first_length <= crops.second_start + crops.second_length).all()
    assert_close(crops.first_start + crops.first_length - crops.second_start, crops.overlap)
    assert (crops.overlap >= torch.minimum(rows, torch.tensor(2)).clamp(max=room)).all()
    assert int(torch.maximum(crops.first_length, crops.second_length).max()) <= room


def test_taken_reads_a_span_of_each_row() -> None:
    x = torch.arange(12.0).view(2, 6, 1)
    values, inside = taken(x, torch.tensor([1, 4]), torch.tensor([3, 2]), 4)
    assert values[..., 0].tolist() == [[1, 2, 3, 0], [10, 11, 0, 0]]
    assert inside.sum(1).tolist() == [3, 2]


def test_the_two_crops_of_a_window_agree_where_they_overlap() -> None:
    """With an encoder that sees one sample alone, the overlap of both views is the same, so the loss is least."""
    torch.manual_seed(0)
    windows = stack(walks((30,) * 4))
    network = Network(NETWORKS["ts2vec"](2, 30), "keep").eval()
    objective = HierarchicalContrast(network, FEW)
    body = network.body
    body.timestamps = lambda x, inside: 10 * torch.nn.functional.normalize(x, dim=2)  # type: ignore[assignment]
    lined_up = float(objective(windows, torch.arange(4)))
    assert lined_up < 1.5


# TS-TCC


@given(st.integers(1, 40), st.integers(0, 10), st.integers(0, 99))
def test_shuffled_segments_are_a_permutation_and_padding_stays(length: int, padding: int, seed: int) -> None:
    torch.manual_seed(seed)
    inside = (torch.arange(length + padding) < length)[None]
    order = segment_order(inside)[0]
    assert sorted(order[:length].tolist()) == list(range(length))
    assert order[length:].tolist() == list(range(length, length + padding))
    jumps = int((order[:length].diff() != 1).sum())
    assert jumps <= 6


def test_agreement_is_nt_xent() -> None:
    one, other = torch.randn(3, 4), torch.randn(3, 4)
    both = torch.nn.functional.normalize(torch.cat([one, other]), dim=1)
    total = 0.0
    for n in range(6):
        rest = [math.exp(float(both[n] @ both[m]) / 0.2) for m in range(6) if m != n]
        total -= math.log(math.exp(float(both[n] @ both[(n + 3) % 6]) / 0.2) / sum(rest))
    assert float(agreement(one, other)) == pytest.approx(total / 6, rel=1e-4)


def test_prediction_asks_only_for_features_inside_the_window() -> None:
    torch.manual_seed(0)
    network = Network(NETWORKS["ts-tcc"](2, 64), "keep").eval()
    objective = TemporalContextual(network, FEW).eval()
    windows = stack(walks((64, 64, 20)))
    valid = network.body.features(windows.values, windows.inside)[1]  # type: ignore[operator]
    for _ in range(20):
        now = objective._now(valid)
        assert (now >= 0).all()
        assert (now[:2] + objective.ahead < valid.sum(1)[:2]).all()


def test_one_sample_windows_are_defined() -> None:
    windows = WindowBatch(torch.zeros(2, 1, 1), torch.ones(2, 1), torch.ones(2, dtype=torch.long))
    for name in NETWORKS:
        network = Network(NETWORKS[name](1, 1), "zscore").train()
        aim = SELF_SUPERVISED.get(name, {}).get("aim")
        objective: Trainable = Supervised(network, 2, FEW) if aim is None else aim(network, FEW)
        assert torch.isfinite(objective(windows, torch.tensor([0, 1])))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_step_is_captured_on_a_gpu(name: str) -> None:
    signals = walks((40, 40, 33, 40) * 4)
    method = make(name, train=TrainConfig(min_steps=20, max_steps=20, batch_size=8), device="cuda")
    method.fit(signals, ["a", "b"] * 8, 0)
    assert np.isfinite(method.scores(signals, signals)).all()


def test_a_learned_method_is_one_of_the_interface() -> None:
    assert isinstance(make("patchtst"), Learned)
