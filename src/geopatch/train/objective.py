"""What one training step minimises: the weighted sum of the losses over two views of each window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import TrainConfig
from geopatch.model.encoder import Encoder
from geopatch.model.learned import LearnedOutput
from geopatch.patches import WindowBatch
from geopatch.views import MildClock, View, mask_span, view

EPSILON = 1e-8


@dataclass(frozen=True)
class Peers:
    """The embeddings of all processes of one training, in rank order. Alone, one's own."""

    rank: int = 0
    gather: Callable[[Tensor], Tensor] = lambda tensor: tensor


class Trainable(nn.Module):
    """What a `Stepper` trains: `forward` gives the loss of windows and labels, `encoder` is what is kept."""

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
        seen = draw_view(both, config)
        batch = self.encoder.patch(seen.windows)
        assert self.encoder.learned is not None, "there is a half to train"
        encoded: LearnedOutput = self.encoder.learned(batch)
        loss = config.contrastive * self.contrast(encoded.embedding, twice)
        if config.decorrelation:
            loss = loss + config.decorrelation * decorrelation(encoded.gated.float(), encoded.valid)
        if self.prototypes is not None:
            weight = self.prototypes.weight
            loss = loss + config.task * classification(encoded.embedding, weight, twice, config.temperature)
        if encoded.reconstruction is not None:
            target = self.encoder.patch(seen.clean).patches
            error = reconstruction(encoded.reconstruction.float(), target, batch.inside)
            loss = loss + config.reconstruction * error
        return loss

    def contrast(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Contrastive loss of own embeddings against those of every process."""
        keys, key_labels = self.peers.gather(embedding), self.peers.gather(labels)
        columns = torch.arange(len(keys), device=keys.device)
        own = columns == torch.arange(len(embedding), device=keys.device)[:, None] + self.peers.rank * len(embedding)
        return supervised_contrastive(embedding, labels, keys, key_labels, own, self.config.temperature)


def draw_view(windows: WindowBatch, config: TrainConfig) -> View:
    """What the encoder sees of windows in a step, a hidden span included."""
    mild = MildClock(config.warp, config.shift, config.amplitude, config.noise)
    drawn = view(windows, config.robust_to, mild)
    return replace(drawn, windows=mask_span(drawn.windows, config.span_mask)) if config.span_mask else drawn


def supervised_contrastive(
    query: Tensor, query_labels: Tensor, key: Tensor, key_labels: Tensor, same: Tensor, temperature: float
) -> Tensor:
    """Mean over queries of -log p(positive), over all positives of each. `same` (Q, N) marks a query's own entry."""
    scores = (query @ key.mT / temperature).masked_fill(same, -torch.inf)
    log_share = scores - scores.logsumexp(1, keepdim=True)
    positive = (query_labels[:, None] == key_labels) & ~same
    count = positive.sum(1)
    per_query = -torch.where(positive, log_share, 0.0).sum(1) / count.clamp(min=1)
    return (per_query * (count > 0)).sum() / (count > 0).sum().clamp(min=1)


def decorrelation(gated: Tensor, valid: Tensor) -> Tensor:
    """Mean absolute cosine between different valid tokens of a window, averaged over the batch (Eq. decorrelation)."""
    length = gated.norm(dim=-1)
    cosine = (gated @ gated.mT) / (length[:, :, None] * length[:, None, :] + EPSILON)  # (B, K, K)
    pair = valid[:, :, None] & valid[:, None, :]
    pair = pair & ~torch.eye(valid.shape[1], dtype=torch.bool, device=valid.device)
    count = pair.sum((1, 2))
    per_window: Tensor = (cosine.abs() * pair).sum((1, 2)) / count.clamp(min=1)
    return per_window.mean()


def reconstruction(rebuilt: Tensor, target: Tensor, inside: Tensor) -> Tensor:
    """Mean over valid patches of the squared distance to the clean patch, positions without a sample left out."""
    error = ((rebuilt - target).square() * inside[..., None]).sum((2, 3))  # (B, K)
    valid = inside.any(-1)
    return (error * valid).sum() / valid.sum().clamp(min=1)


def classification(embedding: Tensor, prototypes: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The task loss where there are classes: cross-entropy over the cosine to each class's direction."""
    cosine = embedding @ F.normalize(prototypes.float(), dim=1).mT  # (B, classes)
    return F.cross_entropy(cosine / temperature, labels)
