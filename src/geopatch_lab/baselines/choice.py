"""Which treatment of amplitude suits a method, found inside the train split: no test split comes here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.config import TrainConfig
from geopatch.data.collection import Collection
from geopatch.errors import SignalError, at_least
from geopatch_lab.baselines.method import AMPLITUDES, Floats
from geopatch_lab.baselines.registry import make

FOLDS = 2


@dataclass(frozen=True)
class Choice:
    """The better treatment, with the mean R@1 of each over the folds (NaN: no query had a right candidate)."""

    amplitude: str
    recall: dict[str, float]


def better_amplitude(
    name: str,
    train: Collection,
    *,
    budget: TrainConfig | None = None,
    device: str = "cpu",
    seed: int = 0,
    most: int = 1000,
) -> Choice:
    """Compare keep and zscore by stratified two-fold cross-validation of R@1 inside `train`; a tie goes to keep.

    A method is fitted on one half and every window of the other is a query against that other half. Of more than
    `most` windows a stratified part is taken. `budget` is that of the trainings of a learned method.
    """
    if train.labels is None:
        raise SignalError(f"{train.name} has no labels, so no treatment can be called better; give a labelled one")
    at_least("most", most, 2 * FOLDS)
    recall = {}
    for amplitude in AMPLITUDES:
        recalls = []
        for kept, queries in folds(train, most):
            method = make(name, amplitude=amplitude, train=budget, device=device)
            method.fit(kept.signals, kept.labels, seed)
            recalls.append(recall_at_1(method.scores(queries.signals, queries.signals), queries.labels))
        recall[amplitude] = float(np.mean(recalls))
    best = max(AMPLITUDES, key=lambda amplitude: (np.nan_to_num(recall[amplitude], nan=-1.0), amplitude == "keep"))
    return Choice(best, recall)


def folds(train: Collection, most: int) -> Iterator[tuple[Collection, Collection]]:
    """Halves with the same share of every class; the second fold is the first with its sides exchanged.

    Where no class is large enough to have a pair in both halves, whole classes go to one half or the other.
    """
    assert train.labels is not None
    draw = np.random.default_rng(0)
    side = np.full(len(train), -1)
    classes, counts = np.unique(train.labels, return_counts=True)
    if counts.max() < 2 * FOLDS:
        kept = draw.permutation(classes)[: max(int(most / counts.max()), 2 * FOLDS)]
        for place, label in enumerate(kept):
            side[train.labels == label] = place % FOLDS
        classes = classes[:0]
    for label in classes:
        members = draw.permutation(np.flatnonzero(train.labels == label))
        members = members[: max(round(len(members) * min(1.0, most / len(train))), FOLDS)]
        side[members] = np.arange(len(members)) % FOLDS
    for fold in range(FOLDS):
        yield train.subset((side != fold) & (side >= 0)), train.subset(side == fold)


def recall_at_1(scores: Floats, labels: npt.NDArray[np.str_] | None) -> float:
    """Share of windows whose best candidate other than itself has their label; a tie with a wrong one is no find."""
    assert labels is not None
    right = labels[:, None] == labels
    itself = np.eye(len(labels), dtype=bool)
    best_right = np.where(right & ~itself, scores, -np.inf).max(1)
    best_wrong = np.where(~right, scores, -np.inf).max(1)
    counted = (right & ~itself).any(1)
    return float((best_right > best_wrong)[counted].mean()) if counted.any() else float("nan")
