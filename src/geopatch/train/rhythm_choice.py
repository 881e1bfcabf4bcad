"""What relative tempo counts for, chosen by searches inside the training windows.

With labels, windows of groups (patients, devices, or else records) that were left out must find their like; relative
tempo counts for what finds most of them. Without labels, a view of a window must find that window, its anchors moved as
the view moves it: relative tempo counts for little where such searches bear it, so that a search can weigh it more.
Where it only costs, it is left out, and the encoder is the one that there would be without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geopatch.arrays import Anchors
from geopatch.config import DESCRIPTORS, RHYTHM, ModelConfig, TrainConfig
from geopatch.kernels.fitting import Views, evened, from_prior
from geopatch.model.encoder import Encoder
from geopatch.model.rhythm_columns import RhythmColumns
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.rhythm import LEVEL, rhythm
from geopatch.train.closed_form import fit_kernels
from geopatch.train.fit import fitting_config
from geopatch.train.folds import CANDIDATES, QUERIES, TRAIN_WINDOWS, class_mean, group_folds
from geopatch.views import MildClock

COLUMNS = {
    "relative": tuple(name for name in RHYTHM if name not in LEVEL),
    "all": RHYTHM,
    "tempo": ("tempo",),
}
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)
NONE = "none"
LEAST_GAIN = 0.01  # in R@1, for relative tempo to count where there are labels
LARGEST_LOSS = 0.01  # in R@1, that it may cost where there are none
VIEWS = 4_000  # of a fit: it only has to compare

Report = Callable[[int], None]


@dataclass(frozen=True)
class RhythmChoice:
    """The columns of relative tempo and their share, and the R@1 that each had in searches inside the training."""

    columns: tuple[str, ...]  # () where it does not help
    share: float
    groups: int
    queries: int
    labelled: bool
    across_groups: bool
    recall: dict[str, float]

    def applied(self, model: ModelConfig) -> ModelConfig:
        """The config with what was chosen, and a descriptor of it; the same where relative tempo does not help."""
        if not self.columns:
            return model
        conditioned = model.is_trained and model.fuse != "none" and model.descriptors == tuple(DESCRIPTORS)
        descriptors = (*model.descriptors, "tempo") if conditioned else model.descriptors
        return replace(model, clock_share=self.share, rhythm=self.columns, descriptors=descriptors)

    def as_dict(self) -> dict[str, Any]:
        """As a model card has it."""
        by = "leave-groups-out, R@1 with the fixed kernels, mean over classes"
        recall = {name: round(value, 4) for name, value in self.recall.items()}
        return {
            "chosen": f"{self.share:g} of {', '.join(self.columns)}" if self.columns else NONE,
            "by": by
            if self.labelled
            else "instance retrieval by kernels that were not fitted: R@1 of the window that a view was made of",
            "groups": self.groups,
            "queries": self.queries,
            "across_groups": self.across_groups,
            "recall@1": recall,
        }


@dataclass(frozen=True, eq=False)
class _Search:
    """Queries and candidates of one fit: cosines by kernels (Q, N), relative tempo, and which are right."""

    cosine: Tensor  # (Q, N) -inf where a candidate does not count
    rhythm: Tensor  # (M, W) of the windows that fitted
    query_rhythm: Tensor  # (Q, W)
    candidate_rhythm: Tensor  # (N, W)
    right: Tensor  # (Q, N)
    labels: Tensor  # (Q,)
    across: bool

    def hits(self, columns: tuple[str, ...], share: float) -> Tensor:
        """Whether the first candidate of each query is right (Q,)."""
        score = self.cosine
        if columns:
            own = RhythmColumns(ModelConfig(rhythm=columns, clock_share=share))
            own.learn([self.rhythm])
            score = (1 - share) * score + share * own(self.query_rhythm) @ own(self.candidate_rhythm).mT
        return self.right.gather(1, score.argmax(1, keepdim=True)).squeeze(1)


def choose_rhythm(
    windows: WindowBatch | LazyWindows,
    labels: Tensor | None,
    groups: Tensor,
    model: ModelConfig,
    train: TrainConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    report: Report | None = None,
) -> RhythmChoice | None:
    """The columns and the share of relative tempo under which most searches inside the training windows are right.

    Parameters
    ----------
    windows : WindowBatch or LazyWindows
        The training windows, with their relative tempo.
    labels : Tensor of shape (N,) or None
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
    RhythmChoice or None
        None where there is nothing to judge by.
    """
    config = replace(model, halves=("kernels",))
    if labels is None:
        searches = _by_views(windows, config, train, seed)
    else:
        searches = _by_groups(windows, labels, groups, config, train, seed, device)
    done, seen = list[_Search](), 0
    for search in searches:
        done.append(search)
        seen += len(search.rhythm)
        if report is not None:
            report(seen)
    if not done:
        return None
    recall = {NONE: _recall(done, (), 0.0)}
    recall |= {f"{share:g} {name}": _recall(done, COLUMNS[name], share) for share in SHARES for name in COLUMNS}
    best = _helpful(recall) if labels is not None else _harmless(recall)
    share, _, name = best.partition(" ")
    queries = sum(len(search.labels) for search in done)
    columns, weight = ((), 0.0) if best == NONE else (COLUMNS[name], float(share))
    return RhythmChoice(columns, weight, len(groups.unique()), queries, labels is not None, done[0].across, recall)


def _helpful(recall: dict[str, float]) -> str:
    """What finds most, where that is clearly more than without relative tempo."""
    best = max(recall, key=lambda name: recall[name])  # of equal ones the first
    return best if recall[best] >= recall[NONE] + LEAST_GAIN else NONE


def _harmless(recall: dict[str, float]) -> str:
    """The least share of all columns, where it costs next to nothing: a search can say that it counts for more."""
    least = f"{SHARES[0]:g} all"
    return least if recall[least] >= recall[NONE] - LARGEST_LOSS else NONE


def _recall(searches: Sequence[_Search], columns: tuple[str, ...], share: float) -> float:
    hits = torch.cat([search.hits(columns, share) for search in searches])
    return class_mean(hits, torch.cat([search.labels for search in searches]))


@torch.inference_mode()
def _by_groups(
    windows: WindowBatch | LazyWindows,
    labels: Tensor,
    groups: Tensor,
    config: ModelConfig,
    train: TrainConfig,
    seed: int,
    device: torch.device | str,
) -> Iterator[_Search]:
    for fold in group_folds(labels, groups, seed, balanced=True):
        seen = windows.rows(fold.train)
        encoder = _fitted(seen, labels[fold.train].unique(return_inverse=True)[1], config, train, seed, device)
        queries, candidates = windows.rows(fold.queries), windows.rows(fold.candidates)
        cosine = (_embedded(encoder, queries) @ _embedded(encoder, candidates).mT).masked_fill(
            ~fold.allowed, -torch.inf
        )
        known = _rhythm(seen), _rhythm(queries), _rhythm(candidates)
        yield _Search(cosine, *known, fold.right, labels[fold.queries], fold.across)


@torch.inference_mode()
def _by_views(
    windows: WindowBatch | LazyWindows, config: ModelConfig, train: TrainConfig, seed: int
) -> Iterator[_Search]:
    """One search: views of some windows among all that were drawn."""
    if not isinstance(windows, LazyWindows):
        return
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.randperm(len(windows), generator=generator)[:CANDIDATES]
    asking = candidates[:QUERIES]
    seen = windows.rows(candidates[:TRAIN_WINDOWS])
    encoder = _unfitted(seen, config)
    half = encoder.kernels
    assert half is not None
    mild = MildClock(train.warp, train.shift, train.amplitude, train.noise)
    scaled = evened(half, encoder.treated(encoder.scale(windows.rows(asking))))
    drawn = Views(train.robust_to, mild, generator).draw(scaled, 1)
    among = windows.rows(candidates)
    cosine = half.embed(drawn.windows) @ _embedded(encoder, among).mT
    signals = [windows.signals[n] for n in asking.tolist()]
    lengths = [signal.length for signal in signals]
    moved = [
        None if signal.anchors is None else _moved(signal.anchors, times, signal.length)
        for signal, times in zip(signals, drawn.times.double().numpy(), strict=True)
    ]
    own = torch.from_numpy(rhythm(moved, lengths, windows.surroundings)).float()
    right = torch.arange(len(asking))[:, None] == torch.arange(len(candidates))
    yield _Search(cosine, _rhythm(seen), own, _rhythm(among), right, torch.zeros(len(asking)), across=False)


def _moved(anchors: Anchors, times: Anchors, length: int) -> Anchors:
    """Anchors where a view has them: its sample t was read at `times`[t] of a window that has as many."""
    scale = (length - 1) / max(len(times) - 1, 1)
    inside = (anchors >= 0) & (anchors <= length - 1)
    return np.sort(np.where(inside, np.interp(anchors, times * scale, np.arange(len(times)) * scale), anchors))


def _fitted(
    windows: WindowBatch,
    labels: Tensor,
    config: ModelConfig,
    train: TrainConfig,
    seed: int,
    device: torch.device | str,
) -> Encoder:
    encoder = Encoder(fitting_config(config, windows)).eval()
    encoder.learn_scale(windows)
    fit_kernels(encoder, windows, labels, train, seed=seed, device=device, view_count=VIEWS)
    return encoder


def _unfitted(windows: WindowBatch, config: ModelConfig) -> Encoder:
    """Kernels with the map that is known before any window is seen: they only have to compare."""
    encoder = Encoder(fitting_config(replace(config, amplitude="zscore"), windows)).eval()
    encoder.learn_scale(windows)
    assert encoder.kernels is not None
    from_prior(encoder.kernels)
    return encoder


def _embedded(encoder: Encoder, windows: WindowBatch) -> Tensor:
    assert encoder.kernels is not None
    return encoder.kernels.embed(encoder.treated(encoder.scale(windows)))


def _rhythm(windows: WindowBatch) -> Tensor:
    assert windows.rhythm is not None, "the training windows have anchors"
    return windows.rhythm
