"""Training: what it promises about seeds, resuming, validation and labels."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from geopatch.config import ModelConfig, TrainConfig
from geopatch.errors import CheckpointError, ConfigError
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train import Fitted, fit
from geopatch.train.fit import batches
from geopatch.train.stepper import schedule, uses_bfloat16
from geopatch.train.validation import split_validation

MODEL = ModelConfig(halves=("learned",), width=16, embedding=8, layers=1, max_patches=4, patch_length=8)
TRAIN = TrainConfig(min_steps=6, max_steps=6, batch_size=8)


def two_shapes(count: int, length: int = 40, seed: int = 0) -> tuple[WindowBatch, Tensor]:
    """Sines and ramps at random phases."""
    draw = np.random.default_rng(seed)
    time = np.linspace(0, 1, length)
    labels = np.arange(count) % 2
    shapes = [np.sin(6 * time + draw.uniform(0, 6)) if label else time * draw.uniform(1, 3) for label in labels]
    return stack([Signal.from_array(shape, id=str(n)) for n, shape in enumerate(shapes)]), torch.from_numpy(labels)


def weights(fitted: Fitted) -> dict[str, Tensor]:
    return fitted.encoder.state_dict()


def same(one: Fitted, other: Fitted) -> bool:
    return all(torch.equal(value, weights(other)[name]) for name, value in weights(one).items())


def test_one_seed_gives_the_same_weights_and_another_does_not() -> None:
    windows, labels = two_shapes(12)
    first, second = (fit(windows, labels, MODEL, TRAIN) for _ in range(2))
    other = fit(windows, labels, MODEL, TRAIN, seed=1)
    assert same(first, second)
    assert not same(first, other)


def test_training_lowers_the_loss_and_parts_the_classes() -> None:
    windows, labels = two_shapes(24)
    seen: list[dict[str, Any]] = []
    fitted = fit(
        windows, labels, MODEL, TrainConfig(min_steps=60, max_steps=60, batch_size=16), callbacks=[seen.append]
    )
    assert [row["step"] for row in seen] == list(range(1, 61))
    assert seen[-1]["loss"] < 0.9 * seen[0]["loss"]
    with torch.no_grad():
        embedding = fitted.encoder.encode(windows).embedding
    scores = (embedding @ embedding.mT).fill_diagonal_(-2)
    assert (labels[scores.argmax(1)] == labels).float().mean() > 0.9


def test_training_without_labels_draws_the_views_of_a_window_together() -> None:
    windows, _ = two_shapes(16)
    seen: list[dict[str, Any]] = []
    fit(windows, None, MODEL, TrainConfig(min_steps=60, max_steps=60, batch_size=16), callbacks=[seen.append])
    assert seen[-1]["loss"] < 0.9 * seen[0]["loss"]


def test_the_callers_random_numbers_go_on_as_if_nothing_had_happened() -> None:
    windows, labels = two_shapes(8)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(windows, labels, MODEL, TRAIN)
    assert torch.equal(torch.rand(3), expected)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("validation", [0.0, 0.5])
def test_a_killed_training_goes_on_and_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: float
) -> None:
    monkeypatch.setattr("geopatch.train.resume.EVERY_S", 0.0)
    monkeypatch.setattr("geopatch.train.validation.MIN_WINDOWS", 4)
    windows, labels = two_shapes(16)
    train = TrainConfig(min_steps=8, max_steps=8, batch_size=8, validation=validation)
    whole = fit(windows, labels, MODEL, train)

    def kill(row: dict[str, Any]) -> None:
        if row["step"] == 5:
            raise KilledError

    state = tmp_path / "state"
    with pytest.raises(KilledError):
        fit(windows, labels, MODEL, train, resume=state, callbacks=[kill])
    seen: list[int] = []
    resumed = fit(windows, labels, MODEL, train, resume=state, callbacks=[lambda row: seen.append(row["step"])])
    assert seen[0] == 5  # the step whose state was not yet written is done again, those before it are not
    assert same(whole, resumed)
    assert whole.history == resumed.history
    assert (whole.step, whole.validation) == (resumed.step, resumed.validation)


def test_the_state_of_another_training_is_refused(tmp_path: Path) -> None:
    windows, labels = two_shapes(8)
    state = tmp_path / "state"
    fit(windows, labels, MODEL, TRAIN, resume=state)
    with pytest.raises(CheckpointError, match="other data or settings; delete it"):
        fit(windows, labels, MODEL, TrainConfig(min_steps=7, max_steps=7, batch_size=8), resume=state)
    state.write_bytes(b"garbage")
    with pytest.raises(CheckpointError, match="is no training state"):
        fit(windows, labels, MODEL, TRAIN, resume=state)


def test_validation_keeps_the_best_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geopatch.train.validation.MIN_WINDOWS", 4)
    losses = iter([3.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr("geopatch.train.validation.Validation._loss", lambda _self: next(losses))
    monkeypatch.setattr(sys.modules["geopatch.train.fit"], "CHOICES_PER_RUN", 4)  # the package shows its function fit
    windows, labels = two_shapes(16)
    train = TrainConfig(min_steps=8, max_steps=8, batch_size=8, validation=0.5)
    fitted = fit(windows, labels, MODEL, train)
    assert (fitted.step, fitted.steps, fitted.validation) == (4, 8, 1.0)


def test_validation_takes_its_share_of_every_class_and_none_of_it_is_trained_on() -> None:
    labels = torch.tensor([0] * 800 + [1] * 400)
    kept, held_out = split_validation(labels, 0.1, 0, labelled=True)
    assert torch.bincount(labels[held_out]).tolist() == [80, 40]
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(1200))
    few, none = split_validation(labels[:900], 0.1, 0, labelled=True)
    assert len(few) == 900
    assert len(none) == 0


def test_batches_pass_over_all_windows_before_any_comes_again() -> None:
    kept = torch.tensor([3, 5, 7, 9, 11, 13])
    order = batches(kept, size=4, steps=6, seed=0).flatten()
    for start in range(0, 24, 6):
        assert sorted(order[start : start + 6].tolist()) == kept.tolist()


def test_schedule_warms_up_and_cools_down() -> None:
    rates = [schedule(step / 100, 0.1) for step in range(101)]
    assert rates[0] < 0.05
    assert max(rates) == pytest.approx(1.0, abs=0.02)
    assert rates.index(max(rates)) == 10
    assert rates[-1] == pytest.approx(0.0, abs=1e-9)
    assert all(later <= earlier for earlier, later in pairwise(rates[10:]))


def test_steps_are_epochs_within_bounds() -> None:
    train = TrainConfig(epochs=10, min_steps=5, max_steps=50, batch_size=10)
    assert [train.steps(windows) for windows in (1, 30, 31, 10_000)] == [10, 30, 40, 50]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"min_steps": 10, "max_steps": 5}, "max_steps is 5 and min_steps 10; leave min_steps out"),
        ({"warp": 0.2}, "time never runs backwards"),
        ({"noise": -0.1}, "noise must be at least 0"),
        ({"precision": "float16"}, "precision must be one of auto, float32, bfloat16, got 'float16'"),
        ({"learning_rate": float("nan")}, "learning_rate must be at least"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("reconstruction", ["head", "operator"])
def test_reconstruction_is_learned_under_a_span_mask(reconstruction: str) -> None:
    windows, labels = two_shapes(16)
    model = ModelConfig(
        halves=("learned",),
        width=16,
        embedding=8,
        layers=1,
        max_patches=4,
        patch_length=8,
        reconstruction=reconstruction,
    )
    train = TrainConfig(
        min_steps=60,
        max_steps=60,
        batch_size=16,
        contrastive=0,
        task=0,
        decorrelation=0,
        reconstruction=1,
        span_mask=0.2,
    )
    seen: list[float] = []
    fit(windows, labels, model, train, callbacks=[lambda row: seen.append(row["loss"])])
    assert np.mean(seen[-10:]) < 0.75 * np.mean(seen[:10])


def test_windows_of_unequal_length_and_with_gaps_train() -> None:
    draw = np.random.default_rng(0)
    signals = [Signal.from_array(draw.normal(size=length), id=str(length)) for length in (5, 9, 30, 44)]
    gap = np.where(np.arange(30) % 3 == 0, np.nan, draw.normal(size=30))
    windows = stack([*signals, Signal.from_array(gap, id="gap")])
    fitted = fit(windows, torch.tensor([0, 0, 1, 1, 0]), MODEL, TRAIN)
    assert all(value.isfinite().all() for value in weights(fitted).values())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_precisions_train(precision: str) -> None:
    windows, labels = two_shapes(8)
    train = TrainConfig(min_steps=4, max_steps=4, batch_size=8, precision=precision)
    assert uses_bfloat16(train, torch.device("cpu")) == (precision == "bfloat16")
    assert np.isfinite(fit(windows, labels, MODEL, train).loss or np.nan)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_captured_step_on_a_gpu_learns_what_the_cpu_learns() -> None:
    windows, labels = two_shapes(24)
    train = TrainConfig(min_steps=60, max_steps=60, batch_size=16, precision="float32")
    on_cpu, on_gpu = (fit(windows, labels, MODEL, train, device=device) for device in ("cpu", "cuda"))
    assert on_gpu.loss == pytest.approx(on_cpu.loss, abs=0.5)
