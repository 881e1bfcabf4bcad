"""Train an encoder on windows, with labels or without."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from geopatch.model.encoder import Encoder, ModelConfig
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.train.launch import Team
from geopatch.train.objective import Objective, TrainConfig
from geopatch.train.resume import RunState
from geopatch.train.stepper import LazyScaled, Stepper
from geopatch.train.validation import Validation, seeded, split_validation

CHOICES_PER_RUN = 20  # how often the validation part is asked


@dataclass(frozen=True)
class Progress:
    """Where a training stands."""

    step: int
    steps: int
    loss: float
    validation: float | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained encoder and how it came about."""

    encoder: Encoder
    step: int  # whose weights were kept
    steps: int
    loss: float
    validation: float | None


def fit(
    windows: WindowBatch | LazyWindows,
    labels: Tensor | None,
    model: ModelConfig,
    train: TrainConfig,
    *,
    device: torch.device | str = "cpu",
    resume: Path | None = None,
    report: Callable[[Progress], None] | None = None,
    team: Team | None = None,
) -> Fitted:
    """Train from scratch, or go on from the state that an interrupted run of the same data and config left.

    The state stays in the file `resume` when training ends, so that nothing is lost before the encoder is saved.
    """
    device = torch.device(device) if team is None else team.device
    with seeded(train.seed, device):
        encoder = Encoder(replace(model, channels=windows.channels))
        encoder.learn_scale(windows)
        targets = torch.arange(len(windows)) if labels is None else labels
        classes = 0 if labels is None else int(labels.max()) + 1
        kept, held_out = split_validation(targets, train, labelled=labels is not None)
        objective = Objective(encoder, classes, train, None if team is None else team.peers()).to(device)
        scaled = _scaled(windows, encoder, device)
        targets = targets.to(device)
        stepper = Stepper(objective, scaled, targets, train, train.steps(len(kept)), team)
        held_out = held_out.to(device)
        chooser = scaled.rows(held_out) if len(held_out) else None
        validate = Validation(objective, chooser, targets[held_out])
        leads = team is None or team.leads
        state = RunState(resume, run_name(windows, targets, encoder.config, train), writes=leads)
        return _run(encoder, stepper, validate, kept, state, report if report and leads else lambda _: None)


def _scaled(windows: WindowBatch | LazyWindows, encoder: Encoder, device: torch.device) -> WindowBatch | LazyScaled:
    if isinstance(windows, LazyWindows):
        return LazyScaled(windows, encoder, device)
    return encoder.scale(windows.to(device))


def run_name(windows: WindowBatch | LazyWindows, labels: Tensor, model: ModelConfig, train: TrainConfig) -> str:
    """What a training is, in one digest: the same name means the same result."""
    sha = hashlib.sha256(f"{model} {train}".encode())
    for part in windows.parts():
        for tensor in (part.values, part.confidence, part.lengths):
            sha.update(tensor.numpy().tobytes())
    sha.update(labels.cpu().numpy().tobytes())
    return sha.hexdigest()


def _run(
    encoder: Encoder,
    stepper: Stepper,
    validate: Validation,
    kept: Tensor,
    state: RunState,
    report: Callable[[Progress], None],
) -> Fitted:
    steps = stepper.steps
    order = batches(kept, min(stepper.config.batch_size, len(kept)), steps, stepper.config.seed)
    step = state.restore(stepper, validate)
    every = max(steps // CHOICES_PER_RUN, 1)
    loss = math.nan
    while step < steps:
        stepper.step(order[step], step)
        step += 1
        if validate and (step % every == 0 or step == steps):
            validate.choose(step)
        loss = stepper.loss(step)
        report(Progress(step, steps, loss, validate.best))
        state.save_if_due(stepper, validate, step)
    state.save(stepper, validate, step)
    chosen = validate.keep() if validate else steps
    return Fitted(encoder.eval().cpu(), chosen, steps, loss, validate.best)


def batches(kept: Tensor, size: int, steps: int, seed: int) -> Tensor:
    """Which windows each step sees (steps, size): shuffled passes over the data, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    passes = -(-steps * size // len(kept))
    order = torch.cat([kept[torch.randperm(len(kept), generator=generator)] for _ in range(passes)])
    return order[: steps * size].view(steps, size)
