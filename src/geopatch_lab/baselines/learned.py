"""Networks under one training budget: the same steps, batch, rate and schedule as GeoPatch's own encoder.

Supervised networks have GeoPatch's objective too (contrastive over labels, cross-entropy over cosines, the same views),
so that only the encoder differs. Self-supervised ones keep the loss and the views of their papers and see no label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import TrainConfig
from geopatch.model.encoder import zscore
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train.fit import CHOICES_PER_RUN, batches
from geopatch.train.objective import Trainable, classification, draw_view, supervised_contrastive
from geopatch.train.stepper import Stepper
from geopatch.train.validation import Validation, seeded, split_validation
from geopatch_lab.baselines.layers import EMBEDDING
from geopatch_lab.baselines.method import Embedder, Floats, Scale, check_amplitude, class_numbers, fitted

CHUNK = 256  # windows embedded at a time

Build = Callable[[int, int], nn.Module]  # channels, longest window -> (B, T, C), inside (B, T) or None -> (B, D)


class Network(nn.Module):
    """A published network between the treatment of amplitude and the unit sphere."""

    def __init__(self, body: nn.Module, amplitude: str) -> None:
        super().__init__()
        self.body, self.amplitude = body, amplitude

    def shaped(self, scaled: WindowBatch) -> WindowBatch:
        return zscore(scaled)[0] if self.amplitude == "zscore" else scaled

    def forward(self, scaled: WindowBatch) -> Tensor:
        windows = self.shaped(scaled)
        return F.normalize(self.body(windows.values, windows.mask).float(), dim=1)  # (B, D)


class Supervised(Trainable):
    """GeoPatch's objective on any network: views of one label near, and each near the direction of its class."""

    encoder: Network

    def __init__(self, network: Network, classes: int, config: TrainConfig) -> None:
        super().__init__()
        self.encoder, self.config = network, config
        self.prototypes = nn.Linear(EMBEDDING, classes, bias=False)

    def forward(self, scaled: WindowBatch, labels: Tensor) -> Tensor:
        config = self.config
        both, twice = scaled.rows(torch.arange(len(scaled), device=labels.device).repeat(2)), labels.repeat(2)
        embedding = self.encoder(draw_view(both, config).windows)
        own = torch.eye(len(twice), dtype=torch.bool, device=twice.device)
        contrast = supervised_contrastive(embedding, twice, embedding, twice, own, config.temperature)
        task = classification(embedding, self.prototypes.weight, twice, config.temperature)
        return config.contrastive * contrast + config.task * task


class Learned(Embedder):
    """A network that is trained, then embeds."""

    def __init__(
        self,
        name: str,
        build: Build,
        *,
        amplitude: str = "keep",
        train: TrainConfig | None = None,
        device: str = "cpu",
        aim: Callable[[Network, TrainConfig], Trainable] | None = None,
        batch_size: int | None = None,
    ) -> None:
        """`aim` makes the objective of a self-supervised method, whose paper may also name its `batch_size`."""
        self.name, self.build, self.aim = name, build, aim
        self.amplitude, self.device = check_amplitude(amplitude), torch.device(device)
        self.train, self.batch_size = train or TrainConfig(), batch_size
        self.scale: Scale | None = None
        self.network: Network | None = None

    def fit(self, signals: Sequence[Signal], labels: Any, seed: int) -> None:
        windows, config = stack(signals), self.train
        scale = Scale.learn(self.amplitude, windows)
        with seeded(seed, self.device):
            network = Network(self.build(windows.values.shape[2], windows.values.shape[1]), self.amplitude)
            objective, targets, config = self._aim(network, labels, len(signals), config)
            objective.to(self.device)
            scaled = scale.units(windows).to(self.device)
            run(objective, scaled, targets.to(self.device), config, self.batch_size, seed)
        self.scale, self.network = scale, network.eval()

    @torch.inference_mode()
    def embed(self, signals: Sequence[Signal]) -> Floats:
        network = fitted(self.name, self.network)
        parts = []
        for start in range(0, len(signals), CHUNK):
            windows = fitted(self.name, self.scale).units(stack(signals[start : start + CHUNK]))
            parts.append(network(windows.to(self.device)).cpu().numpy())
        return np.concatenate(parts)

    def _aim(
        self, network: Network, labels: Any, count: int, config: TrainConfig
    ) -> tuple[Trainable, Tensor, TrainConfig]:
        """The objective, what it takes for labels, and its settings."""
        if self.aim is not None:  # trains to the end, as its paper does: there is no label to choose a step by
            return self.aim(network, config), torch.arange(count), replace(config, validation=0.0)
        numbers = torch.from_numpy(class_numbers(labels, count, self.name))
        return Supervised(network, int(numbers.max()) + 1, config), numbers, config


def run(
    objective: Trainable, scaled: WindowBatch, targets: Tensor, config: TrainConfig, batch: int | None, seed: int
) -> None:
    """All steps of one training; on a GPU as a CUDA graph. A smaller batch of a paper's own changes no step count."""
    kept, held_out = split_validation(targets.cpu(), config.validation, seed, labelled=True)
    steps = config.steps(len(kept))
    stepper = Stepper(objective, scaled, targets, config, steps)
    aside = held_out.to(targets.device)
    validate = Validation(objective, scaled.rows(aside), targets[aside])
    order = batches(kept, min(batch or config.batch_size, len(kept)), steps, seed)
    every = max(steps // CHOICES_PER_RUN, 1)
    for step in range(steps):
        stepper.step(order[step], step)
        if validate and ((step + 1) % every == 0 or step + 1 == steps):
            validate.choose(step + 1)
    if validate:
        validate.keep()
