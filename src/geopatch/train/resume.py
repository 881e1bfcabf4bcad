"""The state of a training on disk, so that a killed one resumes and ends with the same weights."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from geopatch.errors import CheckpointError
from geopatch.storage import atomic_file
from geopatch.train.stepper import Stepper
from geopatch.train.validation import Validation

EVERY_S = 20.0


class RunState:
    """One safetensors file with weights, optimizer, random state and step; its header names the run it belongs to."""

    def __init__(self, file: Path | None, run: str, *, writes: bool = True) -> None:
        self.file, self.run, self.writes = file, run, writes
        self.saved_at = time.monotonic()

    def restore(self, stepper: Stepper, validation: Validation) -> tuple[int, list[dict[str, Any]]]:
        """The step to go on from and the history until it: 0 and none where there is nothing to restore."""
        if self.file is None or not self.file.exists():
            return 0, []
        try:
            with safe_open(self.file, framework="pt") as stored:
                header = stored.metadata()
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{self.file} is no training state ({error}); delete it to start anew") from error
        if header.get("run") != self.run:
            raise CheckpointError(
                f"{self.file} belongs to a training with other data or settings; delete it to start anew"
            )
        _take(tensors, stepper, validation)
        validation.best, validation.step = json.loads(header["validation"])
        return int(header["step"]), json.loads(header.get("history", "[]"))

    def save_if_due(self, stepper: Stepper, validation: Validation, step: int, history: list[dict[str, Any]]) -> None:
        if time.monotonic() - self.saved_at >= EVERY_S:
            self.save(stepper, validation, step, history)

    def save(self, stepper: Stepper, validation: Validation, step: int, history: list[dict[str, Any]]) -> None:
        if self.file is None or not self.writes:
            return
        best = json.dumps([validation.best, validation.step])
        header = {"run": self.run, "step": str(step), "validation": best, "history": json.dumps(history)}
        with atomic_file(self.file) as partial:
            save_file(_state(stepper, validation), partial, metadata=header)
        self.saved_at = time.monotonic()


def _state(stepper: Stepper, validation: Validation) -> dict[str, Tensor]:
    tensors = {f"model.{name}": value for name, value in stepper.objective.state_dict().items()}
    for index, values in stepper.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
    tensors |= {f"best.{name}": value for name, value in validation.weights.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if stepper.cuda:
        tensors["random.cuda"] = torch.cuda.get_rng_state(stepper.device)
    return {name: value.clone().contiguous() for name, value in tensors.items()}


def _take(tensors: dict[str, Tensor], stepper: Stepper, validation: Validation) -> None:
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}, "random": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    stepper.objective.load_state_dict(parts["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["optimizer"].items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    stepper.restore_optimizer(state)
    validation.weights = {name: value.to(stepper.device) for name, value in parts["best"].items()}
    torch.set_rng_state(parts["random"]["cpu"])
    if stepper.cuda and "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"], stepper.device)
