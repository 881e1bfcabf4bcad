"""Train an encoder on windows, with labels or without."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geopatch.config import ModelConfig, TrainConfig, check_reconstruction
from geopatch.kernels.bank import MAX_LENGTH, MIN_LENGTH
from geopatch.model.encoder import Encoder
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.train.launch import Team
from geopatch.train.objective import Objective
from geopatch.train.resume import RunState
from geopatch.train.stepper import LazyScaled, Stepper
from geopatch.train.validation import Validation, seeded, split_validation

CHOICES_PER_RUN = 20  # how often the validation windows choose
HISTORY_ROWS = 150  # reading the loss waits for the device, so that a long training does not read it at every step

HistoryRow = dict[str, Any]
Callback = Callable[[HistoryRow], bool | None]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained encoder and how it came about.

    Parameters
    ----------
    encoder : Encoder
        The trained encoder, on the CPU.
    step : int
        The step whose weights were kept.
    steps : int
        The steps that were trained.
    history : list of dict
        What callbacks got: `step`, `steps`, `loss` and `validation_loss`, which is None where it was not measured.
    validation : float or None
        Least loss on the validation windows; None without them.
    """

    encoder: Encoder
    step: int
    steps: int
    history: list[HistoryRow]
    validation: float | None

    @property
    def loss(self) -> float | None:
        """The last loss that was read."""
        return self.history[-1]["loss"] if self.history else None


def fit(
    windows: WindowBatch | LazyWindows,
    labels: Tensor | None,
    model: ModelConfig,
    train: TrainConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    resume: Path | None = None,
    callbacks: Sequence[Callback] = (),
    team: Team | None = None,
) -> Fitted:
    """Train from scratch, or go on from the state that an interrupted run of the same data and config left.

    Parameters
    ----------
    windows : WindowBatch or LazyWindows
        The training windows.
    labels : Tensor of shape (N,) or None
        Class numbers from 0; None draws together the views of each window.
    model : ModelConfig
        What the encoder is.
    train : TrainConfig
        How it is trained.
    seed : int, default=0
        Seed of the weights, the order of the windows and the views.
    device : torch.device or str, default="cpu"
        Where to train; a team brings its own.
    resume : Path, optional
        File of the training state. It stays when training ends, so that nothing is lost before the encoder is saved.
    callbacks : sequence of callables, default=()
        Each is called with every row of the history; one that returns True ends the training.
    team : Team, optional
        The processes that train together.

    Returns
    -------
    Fitted
        The encoder of the best validation step, or of the last one without validation windows.

    Raises
    ------
    ConfigError
        When model and training contradict each other.
    CheckpointError
        When `resume` belongs to another training.
    """
    check_reconstruction(model, train)
    device = torch.device(device) if team is None else team.device
    with seeded(seed, device):
        encoder = Encoder(fitting_config(model, windows))
        encoder.learn_scale(windows)
        targets = torch.arange(len(windows)) if labels is None else labels
        classes = 0 if labels is None else int(labels.max()) + 1
        kept, held_out = split_validation(targets, train.validation, seed, labelled=labels is not None)
        objective = Objective(encoder, classes, train, None if team is None else team.peers()).to(device)
        scaled = _scaled(windows, encoder, device)
        targets = targets.to(device)
        steps = train.steps(len(kept))
        stepper = Stepper(objective, scaled, targets, train, steps, team)
        order = batches(kept, min(train.batch_size, len(kept)), steps, seed)
        held_out = held_out.to(device)
        validation = Validation(objective, scaled.rows(held_out) if len(held_out) else None, targets[held_out])
        writes = team is None or team.leads
        state = RunState(resume, run_name(windows, targets, encoder.config, train, seed), writes=writes)
        return _run(encoder, stepper, validation, order, state, callbacks)


def fitting_config(model: ModelConfig, windows: WindowBatch | LazyWindows) -> ModelConfig:
    """The config with the channels of the windows and their median length, within what the fixed kernels take."""
    length = min(max(int(windows.lengths.float().median()), MIN_LENGTH), MAX_LENGTH)
    return replace(model, channels=windows.channels, length=length)


def _scaled(windows: WindowBatch | LazyWindows, encoder: Encoder, device: torch.device) -> WindowBatch | LazyScaled:
    if isinstance(windows, LazyWindows):
        return LazyScaled(windows, encoder, device)
    return encoder.scale(windows.to(device))


def run_name(
    windows: WindowBatch | LazyWindows, labels: Tensor, model: ModelConfig, train: TrainConfig, seed: int
) -> str:
    """What a training is, in one digest: the same name means the same result."""
    sha = hashlib.sha256(f"{model} {train} {seed}".encode())
    for part in windows.parts():
        for tensor in (part.values, part.confidence, part.lengths):
            sha.update(tensor.numpy().tobytes())
    sha.update(labels.cpu().numpy().tobytes())
    return sha.hexdigest()


def _run(
    encoder: Encoder,
    stepper: Stepper,
    validation: Validation,
    order: Tensor,
    state: RunState,
    callbacks: Sequence[Callback],
) -> Fitted:
    steps = stepper.steps
    choose_every, row_every = max(steps // CHOICES_PER_RUN, 1), max(steps // HISTORY_ROWS, 1)
    step, history, stopped = *state.restore(stepper, validation), False
    while step < steps and not stopped:
        stepper.step(order[step], step)
        step += 1
        choosing = bool(validation) and (step % choose_every == 0 or step == steps)
        validation_loss = validation.choose(step) if choosing else None
        if choosing or step % row_every == 0 or step == steps:
            row = {"step": step, "steps": steps, "loss": stepper.loss, "validation_loss": validation_loss}
            history.append(row)
            stopped = _stopped(row, callbacks, stepper.team)
        state.save_if_due(stepper, validation, step, history)
    if stopped and validation and not choosing:
        validation.choose(step)
    state.save(stepper, validation, step, history)
    chosen = validation.keep() if validation else step
    return Fitted(encoder.eval().cpu(), chosen, step, history, validation.best)


def _stopped(row: HistoryRow, callbacks: Sequence[Callback], team: Team | None) -> bool:
    """Call the callbacks, in the leading process only; all processes stop together."""
    answers = [callback(dict(row)) for callback in callbacks] if team is None or team.leads else []
    stop = any(isinstance(answer, (bool, np.bool_)) and bool(answer) for answer in answers)
    return stop if team is None else team.broadcast(stop)


def batches(kept: Tensor, size: int, steps: int, seed: int) -> Tensor:
    """Which windows each step sees (steps, size): shuffled passes over the data, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    passes = -(-steps * size // len(kept))
    order = torch.cat([kept[torch.randperm(len(kept), generator=generator)] for _ in range(passes)])
    return order[: steps * size].view(steps, size)
