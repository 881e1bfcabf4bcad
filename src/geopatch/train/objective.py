"""What one training step asks of the encoder: two views of each window, and the weighted sum of the losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geopatch.errors import at_least, one_of
from geopatch.model.encoder import Encoded, Encoder
from geopatch.patches import WindowBatch
from geopatch.train import losses, views

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class TrainConfig:
    """How the encoder is trained. Steps: `epochs` over the data, within `min_steps` and `max_steps`."""

    epochs: int = 100
    min_steps: int = 1200
    max_steps: int = 1500
    batch_size: int = 128  # windows; each gives two views
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    warmup: float = 0.1  # share of the steps
    clip: float = 1.0
    temperature: float = 0.1
    contrastive: float = 1.0
    task: float = 0.5
    decorrelation: float = 0.05
    reconstruction: float = 0.0
    warp: float = 0.12  # share of the window
    shift: float = 0.05
    amplitude: float = 0.1
    noise: float = 0.03  # in units of the training spread
    span_mask: float = 0.0  # share of the window
    validation: float = 0.1  # share of the training windows that chooses the step, if it has at least 100 of them
    precision: str = "auto"  # auto: bfloat16 where the hardware multiplies it
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "min_steps", "max_steps"):
            at_least(name, getattr(self, name), 1)
        at_least("batch_size", self.batch_size, 2)
        at_least("max_steps", self.max_steps, self.min_steps)
        for name in ("learning_rate", "temperature", "clip"):
            at_least(name, getattr(self, name), 1e-9)
        for name in ("warp", "shift", "amplitude", "noise", "span_mask", "validation", "warmup"):
            at_least(name, getattr(self, name), 0)
        for name in ("warp", "span_mask", "validation", "warmup"):
            at_least(f"1 - {name}", 1 - getattr(self, name), 0.1)
        at_least("1 / (2 pi) - warp (so that time never runs backwards)", 0.159 - self.warp, 0)
        one_of("precision", self.precision, PRECISIONS)

    def steps(self, windows: int) -> int:
        per_epoch = -(-windows // self.batch_size)
        return min(max(self.epochs * per_epoch, self.min_steps), self.max_steps)


@dataclass(frozen=True)
class Peers:
    """The embeddings of all processes of one training, in rank order. Alone, one's own."""

    rank: int = 0
    gather: Callable[[Tensor], Tensor] = lambda tensor: tensor


class Trainable(nn.Module):
    """What a stepper moves: its forward gives the loss of windows and labels; `encoder` is what is kept in the end."""

    encoder: nn.Module

    @property
    def capturable(self) -> bool:
        """Whether a step can be recorded as a CUDA graph: no shape and no branch depends on values."""
        return True


class Objective(Trainable):
    """The encoder with what only training needs: a direction for each class and the sum of the losses."""

    encoder: Encoder

    def __init__(self, encoder: Encoder, classes: int, config: TrainConfig, peers: Peers | None = None) -> None:
        super().__init__()
        self.encoder, self.config, self.peers = encoder, config, peers or Peers()
        self.prototypes = (
            nn.Linear(encoder.config.embedding, classes, bias=False) if classes > 1 and config.task else None
        )

    @property
    def capturable(self) -> bool:
        return self.encoder.config.boundaries != "random"

    def forward(self, scaled: WindowBatch, labels: Tensor) -> Tensor:
        config = self.config
        both, twice = scaled.rows(torch.arange(len(scaled), device=labels.device).repeat(2)), labels.repeat(2)
        distorted = distort(both, config)
        batch = self.encoder.patch(corrupt(distorted, config))
        encoded: Encoded = self.encoder(batch)
        loss = config.contrastive * self.contrast(encoded.embedding, twice)
        if config.decorrelation:
            loss = loss + config.decorrelation * losses.decorrelation(encoded.gated.float(), encoded.valid)
        if self.prototypes is not None:
            weight = self.prototypes.weight
            loss = loss + config.task * losses.classification(encoded.embedding, weight, twice, config.temperature)
        if encoded.reconstruction is not None:
            target = self.encoder.patch(distorted).patches
            error = losses.reconstruction(encoded.reconstruction.float(), target, batch.inside)
            loss = loss + config.reconstruction * error
        return loss

    def contrast(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Contrastive loss of own embeddings against those of every process."""
        keys, key_labels = self.peers.gather(embedding), self.peers.gather(labels)
        columns = torch.arange(len(keys), device=keys.device)
        own = columns == torch.arange(len(embedding), device=keys.device)[:, None] + self.peers.rank * len(embedding)
        return losses.supervised_contrastive(embedding, labels, keys, key_labels, own, self.config.temperature)


def distort(windows: WindowBatch, config: TrainConfig) -> WindowBatch:
    """The same content on another clock and gain: what a reconstruction should give back."""
    if config.warp or config.shift:
        windows = views.warp(windows, config.warp, config.shift)
    return views.amplitude(windows, config.amplitude) if config.amplitude else windows


def corrupt(windows: WindowBatch, config: TrainConfig) -> WindowBatch:
    """The same content, seen badly."""
    if config.noise:
        windows = views.noise(windows, config.noise)
    return views.mask_span(windows, config.span_mask) if config.span_mask else windows
