"""Folds that leave whole groups out: patients, speakers, devices or records that a fit has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

FOLDS = 3
TRAIN_WINDOWS, QUERIES, CANDIDATES = 600, 400, 2000  # of a fold, at most
LEAST_QUERIES = 25  # of a class, where classes ask equally often


@dataclass(frozen=True, eq=False)
class Fold:
    """Numbers of the windows that fit, ask and are searched, and which of them count and are right (Q, N)."""

    train: Tensor
    queries: Tensor
    candidates: Tensor
    allowed: Tensor
    right: Tensor
    across: bool


def group_folds(labels: Tensor, groups: Tensor, seed: int, *, balanced: bool = False) -> Iterator[Fold]:
    """Each group is left out once; with `balanced`, rare classes ask as often as others, as far as they can.

    Where labels occur in several groups, windows are looked for in other groups than their own; where each group has
    labels of its own, among those that were left out together.
    """
    generator = torch.Generator().manual_seed(seed)
    known = groups.unique()
    known = known[torch.randperm(len(known), generator=generator)]
    across = _shared(labels, groups)
    for left in known.chunk(min(FOLDS, len(known))) if len(known) > 1 else ():
        out = torch.isin(groups, left)
        train = _drawn((~out).nonzero().squeeze(1), TRAIN_WINDOWS, generator)
        queries = _queries(out.nonzero().squeeze(1), labels, generator, balanced=balanced)
        others = torch.arange(len(groups)) if across else out.nonzero().squeeze(1)
        candidates = _drawn(others, CANDIDATES, generator)
        allowed = queries[:, None] != candidates
        if across:
            allowed &= groups[queries][:, None] != groups[candidates]
        right = allowed & (labels[queries][:, None] == labels[candidates])
        answerable = right.any(1)
        if answerable.any():
            yield Fold(train, queries[answerable], candidates, allowed[answerable], right[answerable], across)


def _queries(members: Tensor, labels: Tensor, generator: torch.Generator, *, balanced: bool) -> Tensor:
    if not balanced:
        return _drawn(members, QUERIES, generator)
    of_classes = [members[labels[members] == label] for label in labels[members].unique()]
    most = max(QUERIES // len(of_classes), LEAST_QUERIES)
    return torch.cat([_drawn(own, most, generator) for own in of_classes])


def _shared(labels: Tensor, groups: Tensor) -> bool:
    """Whether a label occurs in more than one group."""
    pairs = torch.stack([labels, groups], 1).unique(dim=0)
    return len(pairs) > len(labels.unique())


def _drawn(members: Tensor, most: int, generator: torch.Generator) -> Tensor:
    return members[torch.randperm(len(members), generator=generator)[:most]].sort().values


def class_mean(hits: Tensor, labels: Tensor) -> float:
    """The share of hits of each class, averaged over classes."""
    return float(torch.stack([hits[labels == label].double().mean() for label in labels.unique()]).mean())
