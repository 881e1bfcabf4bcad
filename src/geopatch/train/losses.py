"""What training asks for: positives near, tokens unlike each other, patches that can be rebuilt."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-8


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
