"""Laws of the encoder and its parts: fast == twin, masks hold, and only the window itself decides its embedding."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import naive
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from geopatch.config import DESCRIPTORS, PRESETS, ModelConfig
from geopatch.errors import ConfigError, SignalError
from geopatch.model.encoder import Encoder, zscore
from geopatch.model.layers import (
    ConditionalOperator,
    Fuse,
    Gate,
    GeometryEncoder,
    OrderedAggregate,
    PatchEncoder,
    ReconstructionHead,
    SetAggregate,
)
from geopatch.model.learned import LearnedHalf, LearnedOutput
from geopatch.model.stem import (
    STEP,
    ContextStem,
    MaskedBatchNorm,
    MultiscaleBlock,
    TimeConvolution,
    masked_mean_max,
    spans,
)
from geopatch.patches import PatchBatch, WindowBatch, stack
from geopatch.scaffold import fixed_scaffold
from geopatch.signal import Signal

SMALL: dict[str, Any] = {
    "halves": ("learned",),
    "patch_length": 8,
    "max_patches": 6,
    "width": 16,
    "heads": 2,
    "embedding": 12,
    "layers": 2,
}
MOST_MFLOP = 30.0

STEMS, PATCH_ENCODERS, AGGREGATES, FUSES, AMPLITUDES, RECONSTRUCTIONS = (
    ModelConfig.__dataclass_fields__[name].metadata["choices"]
    for name in ("stem", "patch_encoder", "aggregate", "fuse", "amplitude", "reconstruction")
)
CHOICES = list(itertools.product(STEMS, PATCH_ENCODERS, AGGREGATES, FUSES, AMPLITUDES))
SWITCHES: list[dict[str, Any]] = [
    {"global_branch": False},
    {"gate": False},
    {"curvature_channel": True},
    {"stride": 5},
    {"boundaries": "adaptive"},
    {"descriptors": ()},
    {"descriptors": (), "amplitude": "both"},
    {"patch_length": 16, "max_patches": 16},
    {"max_patches": 1},
]


def shake(module: nn.Module) -> None:
    """Weights and statistics away from their start, where zeros would hide what is wrong."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)


def build(signals: list[Signal], **settings: Any) -> Encoder:
    encoder = Encoder(ModelConfig(**{**SMALL, "channels": signals[0].values.shape[1], **settings}))
    shake(encoder)
    encoder.learn_scale(stack(signals))
    return encoder.eval()


def learned_half(encoder: Encoder) -> LearnedHalf:
    assert encoder.learned is not None
    return encoder.learned


def learned_output(encoder: Encoder, signals: list[Signal]) -> LearnedOutput:
    output: LearnedOutput = learned_half(encoder)(encoder.patch(encoder.scale(stack(signals))))
    return output


def padded(windows: WindowBatch, samples: int, value: float = 0.0) -> WindowBatch:
    """The same windows with room after the longest, and any value past every end."""
    values = F.pad(windows.values, (0, 0, 0, samples))
    wide = WindowBatch(values, F.pad(windows.confidence, (0, samples)), windows.lengths)
    return replace(wide, values=values.masked_fill(~wide.inside[..., None], value))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def mask_of(*rows: int, size: int = 6) -> Tensor:
    """The first n places of each row."""
    return torch.arange(size) < torch.tensor(rows)[:, None]


def check_only_the_window_decides(encoder: Encoder, signals: list[Signal]) -> None:
    together = encoder.encode(stack(signals))
    turned = encoder.encode(stack(signals[::-1]))
    wider = encoder.encode(padded(stack(signals), 37, value=50.0))
    assert together.embedding.isfinite().all()
    for row, signal in enumerate(signals):
        alone = encoder.encode(stack([signal]))
        for other, place in ((together, row), (turned, -1 - row), (wider, row)):
            assert torch.equal(other.valid[place], alone.valid[0])
            close(other.embedding[place], alone.embedding[0])
            close(other.tokens[place], alone.tokens[0])


@pytest.mark.parametrize(("stem", "patch_encoder", "aggregate", "fuse", "amplitude"), CHOICES)
def test_padding_and_batch_order_change_nothing(
    mixed_signals: list[Signal], stem: str, patch_encoder: str, aggregate: str, fuse: str, amplitude: str
) -> None:
    choice = {"stem": stem, "patch_encoder": patch_encoder, "aggregate": aggregate, "fuse": fuse}
    encoder = build(mixed_signals, amplitude=amplitude, **choice)
    with torch.no_grad():
        check_only_the_window_decides(encoder, mixed_signals)


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_padding_and_batch_order_change_nothing_under_any_switch(
    awkward_signals: list[Signal], settings: dict[str, Any]
) -> None:
    with torch.no_grad():
        check_only_the_window_decides(build(awkward_signals, **settings), awkward_signals)


@pytest.mark.parametrize("patch_encoder", PATCH_ENCODERS)
def test_fused_and_plain_attention_agree(mixed_signals: list[Signal], patch_encoder: str) -> None:
    """Without gradients torch takes another path through a Transformer layer; it must give the same numbers."""
    encoder, windows = build(mixed_signals, patch_encoder=patch_encoder), stack(mixed_signals)
    plain = encoder.encode(windows)
    with torch.inference_mode():
        fused = encoder.encode(windows)
    close(fused.embedding, plain.embedding.detach())
    close(fused.tokens, plain.tokens.detach())


@pytest.mark.parametrize("stem", STEMS)
def test_padding_changes_nothing_in_training(mixed_signals: list[Signal], stem: str) -> None:
    encoder = build(mixed_signals, stem=stem, dropout=0.0).train()
    first = encoder.encode(stack(mixed_signals))
    close(encoder.encode(padded(stack(mixed_signals), 37)).embedding, first.embedding)


@pytest.mark.parametrize("training", [True, False])
def test_full_windows_need_no_masks(training: bool) -> None:
    """Windows of one length leave out what only serves padding, and nothing changes."""
    signals = [Signal.from_array(np.random.default_rng(n).normal(size=(53, 2))) for n in range(4)]
    found, windows = [], stack(signals)
    for masked in (True, False):
        torch.manual_seed(1)
        encoder = build(signals, dropout=0.0).train(training)
        encoded = encoder.encode(replace(windows, padded=masked))
        norms = [buffer for buffer in encoder.buffers() if buffer.is_floating_point()]
        found.append([encoded.embedding, encoded.tokens, *norms])
    for one, other in zip(*found, strict=True):
        close(one, other)


def spoiled(batch: PatchBatch) -> PatchBatch:
    """The batch with rubbish in everything that belongs to padded tokens."""
    hole = ~batch.valid[..., None]
    found = replace(
        batch.geometry,
        descriptors=batch.geometry.descriptors.masked_fill(hole, 1e3),
        evidence=batch.geometry.evidence.masked_fill(hole, 1e3),
    )
    return replace(batch, patches=batch.patches.masked_fill(hole[..., None], 1e3), geometry=found)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("patch_encoder", PATCH_ENCODERS)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_masked_tokens_do_not_move_the_result_at_all(
    mixed_signals: list[Signal], stem: str, patch_encoder: str, aggregate: str
) -> None:
    encoder = build(mixed_signals, stem=stem, patch_encoder=patch_encoder, aggregate=aggregate, fuse="concat")
    batch = encoder.patch(encoder.scale(stack(mixed_signals)))
    assert not batch.valid.all()
    half = learned_half(encoder)
    with torch.no_grad():
        clean, dirty = half(batch), half(spoiled(batch))
    for name in ("embedding", "tokens", "gated"):
        assert torch.equal(getattr(clean, name), getattr(dirty, name))


def test_embedding_and_tokens_are_unit_vectors(awkward_signals: list[Signal]) -> None:
    encoded = learned_output(build(awkward_signals), awkward_signals)
    assert encoded.embedding.shape == (len(awkward_signals), SMALL["embedding"])
    assert encoded.tokens.shape == (len(awkward_signals), SMALL["max_patches"], SMALL["width"])
    close(encoded.embedding.norm(dim=-1), torch.ones(len(awkward_signals)))
    close(encoded.tokens.norm(dim=-1), encoded.valid.float())
    assert not encoded.gated[~encoded.valid].any()


def test_gated_tokens_are_tokens_times_their_gate(mixed_signals: list[Signal]) -> None:
    encoder = build(mixed_signals)
    batch = encoder.patch(encoder.scale(stack(mixed_signals)))
    half = learned_half(encoder)
    gated = half(batch)
    assert half.gate is not None
    opening = half.gate(batch.geometry.evidence, batch.valid)
    half.gate = None
    plain = half(batch)
    close(gated.gated, plain.gated * opening[..., None])
    assert torch.equal(gated.tokens, plain.tokens)
    assert not torch.allclose(gated.embedding, plain.embedding, atol=1e-3)
    close(F.normalize(plain.gated, dim=-1), plain.tokens)


@pytest.mark.parametrize("kind", RECONSTRUCTIONS)
@pytest.mark.parametrize(("stem", "patch_encoder"), [("context", "mlp"), ("context", "cnn"), ("patch", "mlp")])
@pytest.mark.parametrize("curvature_channel", [False, True])
def test_reconstructions_have_the_shape_of_patches(
    mixed_signals: list[Signal], kind: str, stem: str, patch_encoder: str, curvature_channel: bool
) -> None:
    settings = {"stem": stem, "patch_encoder": patch_encoder, "curvature_channel": curvature_channel}
    encoder = build(mixed_signals, reconstruction=kind, **settings)
    batch = encoder.patch(encoder.scale(stack(mixed_signals)))
    rebuilt = learned_half(encoder)(batch).reconstruction
    assert (rebuilt is None) == (kind == "none")
    assert rebuilt is None or (rebuilt.shape == batch.patches.shape and bool(rebuilt.isfinite().all()))


def test_a_patch_stem_is_blind_to_what_lies_around_and_a_context_stem_is_not(mixed_signals: list[Signal]) -> None:
    names = tuple(name for name in DESCRIPTORS if name != "global")
    windows = stack([mixed_signals[0]])
    moved = replace(windows, values=windows.values.clone())
    moved.values[0, 30:] += 5.0
    for stem in STEMS:
        encoder = build(mixed_signals, stem=stem, descriptors=names, max_patches=7)
        first, other = encoder.encode(windows).tokens[0, 2], encoder.encode(moved).tokens[0, 2]  # samples 17 .. 24
        assert torch.equal(first, other) == (stem == "patch")


@pytest.mark.parametrize("kind", RECONSTRUCTIONS)
@pytest.mark.parametrize("fuse", FUSES)
@pytest.mark.parametrize(("stem", "patch_encoder"), [("context", "mlp"), ("patch", "attention")])
def test_every_parameter_learns(
    mixed_signals: list[Signal], kind: str, fuse: str, stem: str, patch_encoder: str
) -> None:
    encoder = build(mixed_signals, reconstruction=kind, fuse=fuse, stem=stem, patch_encoder=patch_encoder).train()
    encoded = learned_output(encoder, mixed_signals)
    parts = [encoded.embedding, encoded.tokens, encoded.reconstruction]
    torch.stack([part.sum() for part in parts if part is not None]).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("channels", [1, 3])
def test_wrong_channel_count_is_refused(mixed_signals: list[Signal], channels: int) -> None:
    other = stack([Signal.from_array(np.zeros((20, channels)))])
    message = rf"trained on 2 channel\(s\), these signals have {channels}; give the same channels in the same order"
    with pytest.raises(SignalError, match=message):
        build(mixed_signals).encode(other)


def test_scale_is_learnt_from_what_was_measured() -> None:
    values = np.random.default_rng(0).normal(5.0, 3.0, size=(50, 1))
    values[10:40] = np.nan
    encoder = Encoder(ModelConfig())
    windows = stack([Signal.from_array(values), Signal.from_array([2.0, 8.0])])
    encoder.learn_scale(windows)
    known = np.append(values[~np.isnan(values)], [2.0, 8.0])
    assert encoder.level.item() == pytest.approx(known.mean(), rel=1e-5)
    assert encoder.spread.item() == pytest.approx(known.std(), rel=1e-5)
    scaled = encoder.scale(padded(windows, 3, value=9.0))
    assert scaled.values[1, :2, 0].tolist() == pytest.approx([(v - known.mean()) / known.std() for v in (2.0, 8.0)])
    assert not scaled.values[1, 2:].any()


@pytest.mark.parametrize("level", [0.0, 0.1, 1234.567])
def test_a_constant_channel_has_spread_one(level: float) -> None:
    encoder = Encoder(ModelConfig())
    windows = stack([Signal.from_array(np.full(101, level))] * 3)
    encoder.learn_scale(windows)
    assert encoder.spread.item() == 1
    assert encoder.scale(windows).values.abs().max() < 1e-3


def test_zscore_equals_its_twin(awkward_signals: list[Signal]) -> None:
    windows = stack(awkward_signals)
    scaled, level, spread = zscore(windows)
    for row, signal in enumerate(awkward_signals):
        twin = naive.zscore(windows.values[row, : signal.length].double().numpy())
        np.testing.assert_allclose(scaled.values[row, : signal.length], twin[0], atol=1e-4)
        np.testing.assert_allclose(level[row], twin[1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(spread[row], np.maximum(twin[2], 1e-6), rtol=1e-4, atol=1e-6)
        assert not scaled.values[row, signal.length :].any()


@pytest.mark.parametrize("length", [1, 2, 51, 100, 394])
@pytest.mark.parametrize("level", [0.0, 0.1, 3.3, 123.456, 1e3 / 3])
def test_what_is_flat_stays_flat(length: int, level: float) -> None:
    scaled, _, spread = zscore(padded(stack([Signal.from_array(np.full(length, level))]), 13))
    assert scaled.values.abs().max() < 1e-3
    assert spread.item() == pytest.approx(1e-6)


@pytest.mark.parametrize("amplitude", AMPLITUDES)
def test_amplitude_is_kept_or_taken_away_or_handed_back(mixed_signals: list[Signal], amplitude: str) -> None:
    encoder = build(mixed_signals, amplitude=amplitude)
    walk = stack([mixed_signals[0]])
    louder = replace(walk, values=encoder.level + 3 * (walk.values - encoder.level))
    one, other = (encoder.patch(encoder.scale(windows)) for windows in (walk, louder))
    same_patches = torch.allclose(one.patches, other.patches, atol=1e-5)
    same_geometry = torch.allclose(one.geometry.descriptors, other.geometry.descriptors, atol=1e-4)
    expected = {"keep": (False, False), "zscore": (True, True), "both": (True, False)}
    assert (same_patches, same_geometry) == expected[amplitude]


def test_level_and_spread_come_back_as_geometry(mixed_signals: list[Signal]) -> None:
    encoder = build(mixed_signals, amplitude="both")
    scaled = encoder.scale(stack(mixed_signals))
    batch = encoder.patch(scaled)
    _, level, spread = zscore(scaled)
    extra = batch.geometry.descriptors[..., -4:]
    for row in range(len(mixed_signals)):
        expected = torch.cat([level[row], spread[row].log()])
        assert torch.equal(extra[row], expected * batch.valid[row][:, None])


def test_presets_exist() -> None:
    assert PRESETS["default"] == ModelConfig()
    assert PRESETS["instant"] == ModelConfig(halves=("kernels",))
    paper = PRESETS["paper"]
    assert paper.halves == ("learned",)
    assert (paper.stem, paper.amplitude, paper.global_branch, paper.patch_encoder) == ("patch", "zscore", False, "cnn")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("length", [1, 10, 300])
def test_presets_encode_any_length(preset: str, length: int) -> None:
    encoder = Encoder(PRESETS[preset]).eval()
    if encoder.kernels is not None:
        for value in (encoder.kernels.map, encoder.kernels.bias, encoder.kernels.mixes):
            value.normal_()
    encoded = encoder.encode(stack([Signal.from_array(np.random.default_rng(0).normal(size=length))]))
    assert encoded.embedding.shape == (1, encoder.config.embedding_width)
    assert encoded.embedding.norm().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("amplitude", AMPLITUDES)
@pytest.mark.parametrize("name", ["", *DESCRIPTORS])
def test_columns_follow_the_descriptors(mixed_signals: list[Signal], amplitude: str, name: str) -> None:
    kept = tuple(other for other in DESCRIPTORS if other != name)
    encoder = build(mixed_signals, descriptors=kept, amplitude=amplitude)
    columns = sum(DESCRIPTORS[other] for other in kept) + (4 if amplitude == "both" else 0)
    batch = encoder.patch(encoder.scale(stack(mixed_signals)))
    assert encoder.config.descriptor_columns == batch.geometry.descriptors.shape[-1] == columns
    assert encoder(batch).embedding.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"amplitude": "loud"}, "amplitude must be one of keep, zscore, both, got 'loud'"),
        ({"stem": "root"}, "stem must be one of context, patch, got 'root'"),
        ({"fuse": "glue"}, "fuse must be one of film, gated, concat, none, got 'glue'"),
        ({"patch_encoder": "rnn"}, "patch_encoder must be one of mlp, cnn, attention, got 'rnn'"),
        ({"aggregate": "sum"}, "aggregate must be one of ordered, set, got 'sum'"),
        ({"reconstruction": "all"}, "reconstruction must be one of none, head, operator, got 'all'"),
        ({"boundaries": "even"}, "boundaries must be one of fixed, adaptive, random, got 'even'"),
        ({"geometry_source": "sun"}, "geometry_source must be one of values, clock, got 'sun'"),
        ({"descriptors": ("colour",)}, "descriptors must be one of slope, .*, got 'colour'"),
        ({"patch_length": 2}, "patch_length must be at least 3, got 2"),
        ({"max_patches": 0}, "max_patches must be at least 1, got 0"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"channels": 0}, "channels must be at least 1, got 0"),
        ({"halves": ()}, "halves must name at least one of kernels, learned"),
        ({"halves": ("left",)}, "halves must be one of kernels, learned, got 'left'"),
        ({"kernel_share": 1.5}, "kernel_share must be at most 1, got 1.5"),
        ({"length": 8}, "length must be at least 9, got 8"),
        ({"embedding": 0}, "embedding must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"width": 8}, "width must be at least 16, got 8"),
        ({"width": 66}, r"width must be a multiple of heads \(4\) and of 4, got 66"),
        ({"width": 18, "heads": 2}, r"width must be a multiple of heads \(2\) and of 4, got 18"),
        ({"width": 64, "heads": 5}, r"width must be a multiple of heads \(5\)"),
        ({"dropout": -0.1}, "dropout must be at least 0, got -0.1"),
        ({"dropout": 1.5}, "dropout must be at most 1, got 1.5"),
        ({"dropout": float("nan")}, "dropout must be at least 0, got nan"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)


def test_one_window_of_256_samples_is_cheap(capsys: pytest.CaptureFixture[str]) -> None:
    """In training mode no fused layer hides its operations from the counter; the global branch's norm needs a batch."""
    encoder = Encoder(PRESETS["default"]).train()
    overview = learned_half(encoder).overview
    assert overview is not None
    overview.norm.eval()
    window = stack([Signal.from_array(np.random.default_rng(0).normal(size=256))])
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        encoder.encode(window)
    mflop = counter.get_total_flops() / 1e6
    with capsys.disabled():
        print(f"\ndefault preset: {mflop:.1f} MFLOP for one window of 256 samples and one channel")
    assert 1 < mflop <= MOST_MFLOP


def statistics(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean.clone(), norm.running_var.clone()


def test_masked_batch_norm_equals_its_twin() -> None:
    norm = MaskedBatchNorm(3)
    shake(norm)
    mean, variance = (part.numpy() for part in statistics(norm))
    x, inside = torch.randn(4, 7, 3) * 2 + 1, mask_of(7, 3, 1, 5, size=7)  # 16 samples
    found = norm.forward_masked(x, inside).detach()
    weight, bias = (part.detach().double().numpy() for part in (norm.weight, norm.bias))
    twin, new_mean, new_variance = naive.masked_batch_norm(x.double().numpy(), inside.numpy(), weight, bias, norm.eps)
    np.testing.assert_allclose(found[inside].numpy(), twin[inside.numpy()], atol=1e-5)
    after = [part.numpy() for part in statistics(norm)]
    np.testing.assert_allclose(after[0], 0.9 * mean + 0.1 * new_mean, atol=1e-5)
    np.testing.assert_allclose(after[1], 0.9 * variance + 0.1 * new_variance * 16 / 15, atol=1e-5)


def test_the_gradient_of_masked_batch_norm_is_right() -> None:
    norm = MaskedBatchNorm(3).double()
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    inside = mask_of(5, 3, size=5)

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        moved: Tensor = torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x, inside))
        return moved

    norm.forward = norm.forward_masked  # type: ignore[method-assign,assignment]
    weight, bias = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(normed, (x, weight, bias))


def test_masked_batch_norm_stands_still_after_training() -> None:
    norm = MaskedBatchNorm(3).eval()
    shake(norm)
    mean, variance = statistics(norm)
    x = torch.randn(4, 7, 3)
    inside = mask_of(7, 3, 1, 5, size=7)
    found = norm.forward_masked(x, inside)
    close(found, ((x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias) * inside[..., None])
    assert all(torch.equal(*pair) for pair in zip(statistics(norm), (mean, variance), strict=True))


@pytest.mark.parametrize("given", [True, False], ids=["with a mask", "without"])
def test_masked_batch_norm_of_full_windows_is_batch_norm(given: bool) -> None:
    masked, plain = MaskedBatchNorm(3), nn.BatchNorm1d(3)
    x = torch.randn(4, 7, 3)
    whole = mask_of(7, 7, 7, 7, size=7) if given else None
    close(masked.forward_masked(x, whole), plain(x.mT).mT)
    for one, other in zip(statistics(masked), statistics(plain), strict=True):
        close(one, other)


def test_masked_batch_norm_of_one_sample_is_finite() -> None:
    norm = MaskedBatchNorm(3)
    assert norm.forward_masked(torch.randn(1, 5, 3), mask_of(1, size=5)).isfinite().all()
    assert all(part.isfinite().all() for part in statistics(norm))


@pytest.mark.parametrize("kernel", [1, 3, 31])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("length", [1, 8, 9])
def test_time_convolution_is_a_convolution_over_time(kernel: int, stride: int, length: int) -> None:
    convolution, x = TimeConvolution(2, 4, kernel, stride), torch.randn(3, length, 2)
    plain = F.conv1d(x.mT, convolution.weight.squeeze(2), stride=stride, padding=kernel // 2).mT
    assert plain.shape[1] == len(range(0, length, stride))
    close(convolution(x), plain)


@pytest.mark.parametrize(("patch_length", "max_patches"), [(16, 16), (3, 4), (8, 1), (5, 40)])
@pytest.mark.parametrize("stride", [None, 6])
def test_spans_equal_their_twin(patch_length: int, max_patches: int, stride: int | None) -> None:
    lengths = torch.tensor([1, 2, 5, 16, 40, 100, 255])
    scaffold = fixed_scaffold(lengths, patch_length, max_patches, stride)
    index, mask = spans(scaffold, 300)
    for row, length in enumerate(lengths.tolist()):
        starts = naive.fixed_scaffold(length, patch_length, max_patches, stride)
        for k, start in enumerate(starts):
            expected = naive.spans(start, length, patch_length, max_patches, STEP)
            assert index[row, k][mask[row, k]].tolist() == expected
        assert not mask[row, len(starts) :].any()
        assert index[row].max() <= (length - 1) // STEP


def test_masked_mean_max_equals_its_twin() -> None:
    x, mask = -torch.rand(4, 6, 3) - 1, mask_of(6, 2, 1, 0)
    found = masked_mean_max(x, mask[..., None], dim=1)
    for row in range(4):
        np.testing.assert_allclose(found[row], naive.masked_mean_max(x[row].numpy(), mask[row].numpy()), rtol=1e-5)


def test_the_context_stem_reads_its_places_from_the_window() -> None:
    """Tokens pool the stem's own output over their spans and join it with the raw patch."""
    signals = [Signal.from_array(np.random.default_rng(n).normal(size=n)) for n in (40, 70)]
    encoder = build(signals)
    stem, batch = learned_half(encoder).stem, encoder.patch(encoder.scale(stack(signals)))
    assert isinstance(stem, ContextStem)
    assert stem.join is not None
    pooled, mask, features, inside = stem(batch)
    assert torch.equal(inside, torch.arange(features.shape[1]) * STEP < batch.windows.lengths[:, None])
    assert not features[~inside].any()
    for row, length in enumerate(batch.windows.lengths.tolist()):
        for k, start in enumerate(naive.fixed_scaffold(length, 8, 6)):
            places = features[row, naive.spans(start, length, 8, 6, STEP)]
            raw = stem.raw(batch.patches[row, k].flatten())
            close(pooled[row, k, 0], stem.join(torch.cat([places.mean(0), places.amax(0), raw])))
    assert torch.equal(mask, batch.valid[..., None])


@pytest.mark.parametrize("kind", ["film", "gated", "none"])
def test_fusing_starts_as_the_identity(kind: str) -> None:
    h = torch.randn(2, 3, 4, 8)
    assert torch.equal(Fuse(kind, 8)(h, torch.randn(2, 3, 8)), h)


@pytest.mark.parametrize("kind", FUSES)
def test_fusing_is_what_it_says(kind: str) -> None:
    fuse, h, c = Fuse(kind, 8), torch.randn(2, 3, 4, 8), torch.randn(2, 3, 8)
    shake(fuse)
    found = fuse(h, c)
    for b, k, place in itertools.product(range(2), range(3), range(4)):
        one, condition = h[b, k, place], c[b, k]
        if kind == "none":
            expected = one
        elif kind == "concat":
            expected = fuse.project(torch.cat([one, condition]))
        else:
            scale, shift = fuse.project(condition).split(8)
            expected = one * (1 + scale) + shift if kind == "film" else one * 2 / (1 + torch.exp(-scale)) + shift
        close(found[b, k, place], expected)


def test_without_descriptors_every_condition_is_the_same() -> None:
    encoder = GeometryEncoder(0, 8)
    shake(encoder)
    conditions = encoder(torch.zeros(2, 3, 0))
    assert conditions.shape == (2, 3, 8)
    assert torch.equal(conditions, conditions[:1, :1].expand(2, 3, 8))


@pytest.mark.parametrize("kind", ["cnn", "attention"])
def test_masked_places_do_not_move_a_token_at_all(kind: str) -> None:
    encoder = PatchEncoder(kind, 12, 2, 0.0).eval()
    shake(encoder)
    u, mask = torch.randn(2, 3, 6, 12), mask_of(6, 4, 1, 0, 3, 2).reshape(2, 3, 6)
    with torch.no_grad():
        clean, dirty = encoder(u, mask), encoder(u.masked_fill(~mask[..., None], 1e3), mask)
        alone = encoder(u[:, :, :4], mask[:, :, :4])
    assert clean.isfinite().all()
    held = mask.any(-1)
    assert torch.equal(clean[held], dirty[held])
    few = mask.sum(-1).clamp(max=4) == mask.sum(-1)
    close(clean[few], alone[few])


def test_a_pooled_patch_is_taken_as_it_is() -> None:
    encoder = PatchEncoder("mlp", 12, 2, 0.0).eval()
    u = torch.randn(2, 3, 1, 12)
    assert torch.equal(encoder(u, torch.ones(2, 3, 1, dtype=torch.bool)), encoder.out(u[:, :, 0]))


@pytest.mark.parametrize("kind", ["cnn", "attention"])
def test_the_order_of_places_matters_to_convolutions_alone(kind: str) -> None:
    encoder = PatchEncoder(kind, 12, 2, 0.0).eval()
    shake(encoder)
    u, mask = torch.randn(1, 1, 6, 12), torch.ones(1, 1, 6, dtype=torch.bool)
    assert torch.allclose(encoder(u, mask), encoder(u.flip(2), mask), atol=1e-5) == (kind == "attention")


def test_the_gate_starts_at_sigmoid_of_minus_two() -> None:
    xi, valid = torch.randn(3, 6, 4) * 10, mask_of(6, 2, 0)
    opening = Gate()(xi, valid)
    assert torch.equal(opening, torch.sigmoid(torch.tensor(-2.0)) * valid)
    assert opening[0, 0].item() == pytest.approx(1 / (1 + math.e**2))


def test_the_gate_equals_its_twin() -> None:
    gate, xi, valid = Gate(), torch.randn(3, 6, 4), mask_of(6, 2, 0)
    shake(gate)
    found = gate(xi, valid)
    w1, b1, w2, b2 = (part.detach().double().numpy() for part in gate.parameters())
    for b, k in itertools.product(range(3), range(6)):
        expected = naive.gate(xi[b, k].tolist(), w1, b1, w2[0], float(b2[0]), bool(valid[b, k]))
        assert found[b, k].item() == pytest.approx(expected, abs=1e-6)


def aggregates() -> list[SetAggregate | OrderedAggregate]:
    found: list[SetAggregate | OrderedAggregate] = [SetAggregate(8, 5), OrderedAggregate(8, 5, 6, 2, 2, 0.0)]
    for aggregate in found:
        shake(aggregate.eval())
    return found


@pytest.mark.parametrize("grad", [True, False])
def test_masked_tokens_do_not_move_an_aggregate_at_all(grad: bool) -> None:
    tokens, valid = torch.randn(4, 6, 8), mask_of(6, 3, 1, 0)
    for aggregate in aggregates():
        with torch.set_grad_enabled(grad):
            clean, dirty = aggregate(tokens, valid), aggregate(tokens.masked_fill(~valid[..., None], 1e4), valid)
        assert clean.isfinite().all()
        assert torch.equal(clean, dirty)


def test_an_aggregate_of_one_equals_that_of_a_batch() -> None:
    tokens, valid = torch.randn(4, 6, 8), mask_of(6, 3, 1, 0)
    for aggregate in aggregates():
        together = aggregate(tokens, valid)
        for row in range(4):
            close(aggregate(tokens[row : row + 1], valid[row : row + 1])[0], together[row])


def test_order_matters_to_the_ordered_aggregate_alone() -> None:
    tokens, valid = torch.randn(2, 6, 8), mask_of(6, 6)
    unordered, ordered = aggregates()
    close(unordered(tokens, valid), unordered(tokens.flip(1), valid))
    assert not torch.allclose(ordered(tokens, valid), ordered(tokens.flip(1), valid), atol=1e-3)


def test_the_set_aggregate_is_rho_of_the_mean_of_phi() -> None:
    aggregate = aggregates()[0]
    assert isinstance(aggregate, SetAggregate)
    tokens, valid = torch.randn(3, 6, 8), mask_of(6, 3, 1)
    found = aggregate(tokens, valid)
    for row, count in enumerate((6, 3, 1)):
        mean = torch.stack([aggregate.phi(tokens[row, k]) for k in range(count)]).mean(0)
        close(found[row], aggregate.rho(mean))


def test_the_operator_rebuilds_from_content_and_condition() -> None:
    operator, head = ConditionalOperator(8, 5, 2), ReconstructionHead(8, 5, 2)
    h, c = torch.randn(3, 4, 8), torch.randn(3, 4, 8)
    assert operator(h, c).shape == head(h).shape == (3, 4, 5, 2)
    assert not torch.allclose(operator(h, c), operator(h, c + 1))
    flat = operator.head.layers(torch.cat([h[1, 2], operator.condition(c[1, 2])]))
    close(operator(h, c)[1, 2].flatten(), flat)


def test_the_operator_reads_only_places_that_hold_samples(mixed_signals: list[Signal]) -> None:
    encoder = build(mixed_signals, stem="patch", patch_encoder="cnn", reconstruction="operator")
    batch = encoder.patch(encoder.scale(stack(mixed_signals)))
    short = 5  # the signal shorter than a patch
    assert mixed_signals[short].length < SMALL["patch_length"]
    half = learned_half(encoder)
    features, mask = half.stem(batch)
    held = features[short, 0, : mixed_signals[short].length]
    assert isinstance(half.rebuild, ConditionalOperator)
    assert half.geometry is not None
    expected = half.rebuild(held.mean(0), half.geometry(batch.geometry.descriptors)[short, 0])
    rebuilt = learned_half(encoder)(batch).reconstruction
    assert rebuilt is not None
    close(rebuilt[short, 0], expected)
    assert int(mask[short].sum()) == mixed_signals[short].length


def test_the_gradient_of_a_strided_convolution_of_one_sample_is_written() -> None:
    """In bfloat16, after memory full of NaN was given back: what is not written would be NaN."""
    convolution = TimeConvolution(16, 16, 7, 2)
    x = torch.randn(4, 1, 16)
    for dtype in (torch.float32, torch.bfloat16):
        rubbish = [torch.full((size,), math.nan) for size in range(10, 20_000, 97)]
        del rubbish
        convolution.weight.grad = None
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            convolution(x).sum().backward()
        assert convolution.weight.grad is not None
        assert torch.isfinite(convolution.weight.grad).all()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("samples", [1, 2, 17, 64])
def test_one_wide_convolution_is_the_same_as_several_narrow_ones(stride: int, samples: int) -> None:
    torch.manual_seed(0)
    block = MultiscaleBlock(3, 64, stride).double()
    x = torch.randn(2, samples, 3, dtype=torch.float64)
    torch.testing.assert_close(block.as_one_convolution(x), block.as_branches(x))
