"""What is kept of level and scale, chosen by searches for windows of groups that the fit has not seen.

Windows of one patient, speaker or device share a level that tells nothing of what they are: validation on windows alone
finds it useful, and the next patient is not found. So whole groups are left out in turn, and the fixed kernels, which
are fitted in seconds, are judged by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from geopatch.config import ModelConfig, TrainConfig
from geopatch.model.encoder import Encoder
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.train.closed_form import fit_kernels
from geopatch.train.fit import fitting_config
from geopatch.train.folds import Fold, class_mean, group_folds

TREATMENTS = ("keep", "zscore")
VIEWS = 4_000  # of a fit: it only has to compare

Report = Callable[[int], None]


@dataclass(frozen=True)
class AmplitudeChoice:
    """A treatment of amplitude, and the R@1 (mean over classes) that each had for groups that were left out."""

    chosen: str
    groups: int
    folds: int
    queries: int
    across_groups: bool  # whether candidates were of other groups than the query
    recall: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """As a model card has it."""
        named = "leave-groups-out, R@1 by the fixed kernels, mean over classes"
        recall = {name: round(value, 4) for name, value in self.recall.items()}
        counts = {"groups": self.groups, "folds": self.folds, "queries": self.queries}
        return {"chosen": self.chosen, "by": named, **counts, "across_groups": self.across_groups, "recall@1": recall}


def choose_amplitude(
    windows: WindowBatch | LazyWindows,
    labels: Tensor,
    groups: Tensor,
    model: ModelConfig,
    train: TrainConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> AmplitudeChoice | None:
    """The treatment of amplitude under which windows of groups that were left out find their like most often.

    Where labels occur in several groups, windows are looked for in other groups than their own; where each group has
    labels of its own, among those that were left out together.

    Parameters
    ----------
    windows : WindowBatch or LazyWindows
        The training windows.
    labels : Tensor of shape (N,)
        Class numbers.
    groups : Tensor of shape (N,)
        Group numbers.
    model : ModelConfig
        What the encoder is.
    train : TrainConfig
        What views do.
    seed : int, default=0
        Seed of folds, samples and views.
    device : torch.device or str, default="cpu"
        Where to compute.
    report : callable, optional
        Called with the number of windows that fits have seen so far.

    Returns
    -------
    AmplitudeChoice or None
        None where there is nothing to judge by: fewer than two groups, or no query with a right candidate.
    """
    folds = list(group_folds(labels, groups, seed))
    hits: dict[str, list[Tensor]] = {treatment: [] for treatment in TREATMENTS}
    classes, seen = [], 0
    for fold in folds:
        classes.append(labels[fold.queries])
        for treatment in TREATMENTS:
            config = replace(model, amplitude=treatment, halves=("kernels",))
            hits[treatment].append(_hits(windows, labels, fold, config, train, seed, device))
            seen += len(fold.train)
            if report is not None:
                report(seen)
    if not classes:
        return None
    query_labels = torch.cat(classes)
    recall = {name: class_mean(torch.cat(part), query_labels) for name, part in hits.items()}
    chosen = max(TREATMENTS, key=lambda name: recall[name])  # of equal ones the first
    count = len(groups.unique())
    return AmplitudeChoice(chosen, count, len(folds), len(query_labels), folds[0].across, recall)


@torch.inference_mode()
def _hits(
    windows: WindowBatch | LazyWindows,
    labels: Tensor,
    fold: Fold,
    config: ModelConfig,
    train: TrainConfig,
    seed: int,
    device: torch.device | str,
) -> Tensor:
    """Whether the first candidate of each query is right (Q,)."""
    seen = windows.rows(fold.train)
    encoder = Encoder(fitting_config(config, seen)).eval()
    encoder.learn_scale(seen)
    numbers = labels[fold.train].unique(return_inverse=True)[1]
    fit_kernels(encoder, seen, numbers, train, seed=seed, device=device, view_count=VIEWS)
    assert encoder.kernels is not None
    half = encoder.kernels
    queries, candidates = (
        half.embed(encoder.treated(encoder.scale(windows.rows(part)))) for part in (fold.queries, fold.candidates)
    )
    best = (queries @ candidates.mT).masked_fill(~fold.allowed, -torch.inf).argmax(1)
    return fold.right.gather(1, best[:, None]).squeeze(1)
