"""One step of training after the other. On a GPU the step is captured once as a CUDA graph and replayed:
small trainings are bound by kernel launches, not by arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from geopatch.config import TrainConfig
from geopatch.model.encoder import Encoder
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.train.launch import Team
from geopatch.train.objective import Trainable

EAGER_STEPS = 3  # before a capture: lazy set-up must not be recorded


class LazyScaled:
    """Windows that are stacked, moved and scaled when a step asks for them."""

    def __init__(self, windows: LazyWindows, encoder: Encoder, device: torch.device) -> None:
        self.windows, self.encoder, self.device = windows, encoder, device

    def rows(self, index: Tensor) -> WindowBatch:
        return self.encoder.scale(self.windows.rows(index.cpu()).to(self.device))


class Stepper:
    """Holds the data on the device, the optimizer and, on a GPU, the captured graph."""

    def __init__(
        self,
        objective: Trainable,
        scaled: WindowBatch | LazyScaled,
        labels: Tensor,
        config: TrainConfig,
        steps: int,
        team: Team | None = None,
    ) -> None:
        self.objective, self.scaled, self.labels, self.config, self.steps = objective, scaled, labels, config, steps
        self.device = labels.device
        self.cuda = self.device.type == "cuda"
        self.team = team
        fixed = objective.capturable and isinstance(scaled, WindowBatch)
        self.capturable = self.cuda and team is None and fixed
        self.rate = torch.tensor(config.learning_rate, device=self.device)
        self.optimizer = torch.optim.AdamW(
            objective.parameters(),
            lr=self.rate,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=self.cuda,
        )
        self.forward, self.stepping = objective, self.optimizer
        if team is not None:
            self.forward, self.stepping = team.join(objective, self.optimizer)
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=uses_bfloat16(config, self.device))
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm_steps = 0
        self.index = torch.empty(0)
        self.value = torch.zeros((), device=self.device)
        objective.train()

    def step(self, index: Tensor, number: int) -> None:
        """Move the weights once, on the windows `index`."""
        self.rate.fill_(self.config.learning_rate * schedule(number / self.steps, self.config.warmup))
        if not self.capturable:
            self._eager((index if self.team is None else self.team.share(index)).to(self.device))
        elif self.graph is not None:
            self.index.copy_(index, non_blocking=True)
            self.graph.replay()
        else:
            self._warm_up(index.to(self.device))

    @property
    def loss(self) -> float:
        """The loss of the latest step; reading it waits for the device."""
        return float(self.value)

    def _eager(self, index: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = self.forward(self.scaled.rows(index), self.labels[index])
        if self.team is None:
            loss.backward()
        else:
            self.team.fabric.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.objective.parameters(), self.config.clip)
        self.stepping.step()
        self.value.copy_(loss.detach())

    def restore_optimizer(self, state: dict[int, dict[str, Tensor]]) -> None:
        """Take up the moments of an earlier run; rates and options stay as they are set now."""
        saved = self.optimizer.state_dict()
        saved["state"] = state
        self.optimizer.load_state_dict(saved)
        self.optimizer.param_groups[0]["lr"] = self.rate

    def _warm_up(self, index: Tensor) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._eager(index)
        torch.cuda.current_stream().wait_stream(stream)
        self.warm_steps += 1
        if self.warm_steps >= EAGER_STEPS:
            self._capture(index)

    def _capture(self, index: Tensor) -> None:
        self.index = index.clone()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._eager(self.index)
        self.graph = graph


def schedule(share: float, warmup: float) -> float:
    """Linear warm-up, then a cosine to 0."""
    if share < warmup:
        return (share + 1e-3) / (warmup + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (share - warmup) / (1 - warmup)))


def uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    """By default where the hardware multiplies it: GPUs since Ampere, CPUs with AMX (two thirds of the time)."""
    if config.precision != "auto":
        return config.precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("amx_bf16", False))
