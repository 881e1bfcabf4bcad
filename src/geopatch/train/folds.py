"""Folds that leave whole groups out: patients, speakers, devices or records that a fit has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

FOLDS = 3
SPLITS = 2  # into halves, of groups that fit and groups that are searched
UNSEEN_QUERIES = 800  # of a half, at most
TRAIN_WINDOWS, QUERIES, CANDIDATES = 600, 400, 2000  # of a fold, at most
LEAST_QUERIES = 25  # of a class, where classes ask equally often; those with fewer say too little of what is right
LEAST_HALVED = 4  # groups: then each half has two


@dataclass(frozen=True, eq=False)
class Fold:
    """Numbers of the windows that fit, ask and are searched, and which of them count and are right (Q, N)."""

    fitting: Tensor  # all windows of the groups that fit
    train: Tensor  # drawn of them
    queries: Tensor
    candidates: Tensor
    allowed: Tensor
    right: Tensor
    across: bool


def group_folds(labels: Tensor, groups: Tensor, seed: int) -> Iterator[Fold]:
    """Each group is left out once.

    Where labels occur in several groups, windows are looked for in other groups than their own; where each group has
    labels of its own, among those that were left out together.
    """
    generator = torch.Generator().manual_seed(seed)
    known = groups.unique()
    across = _shared(labels, groups)
    for left in _shuffled(known, generator).chunk(min(FOLDS, len(known))) if len(known) > 1 else ():
        out = torch.isin(groups, left)
        members = out.nonzero().squeeze(1)
        fitting = (~out).nonzero().squeeze(1)
        train = _drawn(fitting, TRAIN_WINDOWS, generator)
        queries = _drawn(members, QUERIES, generator)
        candidates = _drawn(torch.arange(len(groups)) if across else members, CANDIDATES, generator)
        yield from _answerable(labels, groups, (fitting, train, queries, candidates), across=across)


def unseen_folds(labels: Tensor, groups: Tensor, seed: int) -> Iterator[Fold]:
    """Groups in halves, several times: one half fits, and in the other both queries and candidates lie.

    Neither has trained anything, as in a search among patients that are new. Rare classes ask as often as others, as
    far as they can. Of fewer than four groups, each is left out once, and the others are searched.
    """
    generator = torch.Generator().manual_seed(seed)
    known = groups.unique()
    across, halves = _shared(labels, groups), len(known) >= LEAST_HALVED
    orders = [_shuffled(known, generator) for _ in range(SPLITS if halves else 1)]
    for left in (part for order in orders for part in order.chunk(2 if halves else len(known)) if len(known) > 1):
        out = torch.isin(groups, left)
        members = out.nonzero().squeeze(1)
        fitting = (~out).nonzero().squeeze(1)
        train = _drawn(fitting, TRAIN_WINDOWS, generator)
        queries = _balanced(members, labels, generator)
        candidates = _drawn(members if halves or not across else torch.arange(len(groups)), CANDIDATES, generator)
        yield from _answerable(labels, groups, (fitting, train, queries, candidates), across=across)


def _answerable(
    labels: Tensor, groups: Tensor, numbers: tuple[Tensor, Tensor, Tensor, Tensor], *, across: bool
) -> Iterator[Fold]:
    """The fold with those queries that have a right candidate; none without them."""
    fitting, train, queries, candidates = numbers
    allowed = queries[:, None] != candidates
    if across:
        allowed &= groups[queries][:, None] != groups[candidates]
    right = allowed & (labels[queries][:, None] == labels[candidates])
    answerable = right.any(1)
    if answerable.any():
        yield Fold(fitting, train, queries[answerable], candidates, allowed[answerable], right[answerable], across)


def _balanced(members: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    of_classes = [members[labels[members] == label] for label in labels[members].unique()]
    most = max(UNSEEN_QUERIES // len(of_classes), LEAST_QUERIES)
    return torch.cat([_drawn(own, most, generator) for own in of_classes])


def _shuffled(members: Tensor, generator: torch.Generator) -> Tensor:
    return members[torch.randperm(len(members), generator=generator)]


def _shared(labels: Tensor, groups: Tensor) -> bool:
    """Whether a label occurs in more than one group."""
    pairs = torch.stack([labels, groups], 1).unique(dim=0)
    return len(pairs) > len(labels.unique())


def _drawn(members: Tensor, most: int, generator: torch.Generator) -> Tensor:
    return members[torch.randperm(len(members), generator=generator)[:most]].sort().values


def class_mean(hits: Tensor, labels: Tensor, least: int = 1) -> float:
    """The share of hits of each class, averaged over classes with at least so many queries, or over all."""
    classes, counts = labels.unique(return_counts=True)
    heard = classes[counts >= least] if (counts >= least).any() else classes
    return float(torch.stack([hits[labels == label].double().mean() for label in heard]).mean())
