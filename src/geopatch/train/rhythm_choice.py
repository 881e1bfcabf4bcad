"""What relative tempo counts for, chosen by searches inside the training windows.

With labels, windows of groups (patients, devices, or else records) that trained nothing must find their like among
others that trained nothing; relative tempo counts for what finds most of them, by its columns or by the directions of
these that tell labels apart. Of shares that find as many, the least: a query on another clock is then found too.
Without labels, a view of a window must find that window, its anchors moved as the view moves it: relative tempo counts
for little where such searches bear it, so that a search can weigh it more. Where it only costs, it is left out, and the
encoder is the one that there would be without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geopatch.arrays import Anchors
from geopatch.config import RHYTHM, ModelConfig, TrainConfig
from geopatch.kernels.fitting import Views, evened, from_prior
from geopatch.model.encoder import Encoder
from geopatch.model.rhythm_columns import RhythmColumns, direction_count
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.rhythm import LEVEL, rhythm
from geopatch.train.closed_form import fit_kernels
from geopatch.train.fit import fitting_config
from geopatch.train.folds import CANDIDATES, LEAST_QUERIES, QUERIES, TRAIN_WINDOWS, class_mean, unseen_folds
from geopatch.views import MildClock

COLUMNS = {
    "relative": tuple(name for name in RHYTHM if name not in LEVEL),
    "all": RHYTHM,
    "tempo": ("tempo",),
}
DIRECTIONS = "directions of "  # before the name of columns
SHARES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
NONE = "none"
LEAST_GAIN = 0.01  # in R@1, for relative tempo to count where there are labels
AS_MANY = 0.02  # in R@1: what such searches cannot tell apart
LARGEST_LOSS = 0.01  # in R@1, that it may cost where there are none
VIEWS = 4_000  # of a fit: it only has to compare

Report = Callable[[int], None]


@dataclass(frozen=True)
class RhythmChoice:
    """The columns of relative tempo and their share, and the R@1 that each had in searches inside the training."""

    columns: tuple[str, ...]  # () where it does not help
    share: float
    directions: int  # of the columns; 0 for these themselves
    groups: int
    queries: int
    labelled: bool
    across_groups: bool
    recall: dict[str, float]

    def applied(self, model: ModelConfig) -> ModelConfig:
        """The config with what was chosen; the same where relative tempo does not help."""
        if not self.columns:
            return model
        return replace(model, clock_share=self.share, rhythm=self.columns, rhythm_directions=self.directions)

    def as_dict(self) -> dict[str, Any]:
        """As a model card has it."""
        by = "searches among groups that trained nothing, R@1 with the fixed kernels, mean over classes"
        turned = f"{self.directions} directions of " if self.directions else ""
        recall = {name: round(value, 4) for name, value in self.recall.items()}
        return {
            "chosen": f"{self.share:g} of {turned}{', '.join(self.columns)}" if self.columns else NONE,
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
    rhythm: Tensor  # (M, W) of windows that the groups of these searches have no part in
    rhythm_labels: Tensor | None  # (M,)
    query_rhythm: Tensor  # (Q, W)
    candidate_rhythm: Tensor  # (N, W)
    right: Tensor  # (Q, N)
    labels: Tensor  # (Q,)
    across: bool

    def hits(self, name: str, shares: Sequence[float]) -> list[Tensor]:
        """Whether the first candidate of each query is right (Q,), with each share of these columns."""
        rhythm = self._rhythm_cosine(name)
        scores = [(1 - share) * self.cosine + share * rhythm for share in shares]
        return [self.right.gather(1, score.argmax(1, keepdim=True)).squeeze(1) for score in scores]

    def _rhythm_cosine(self, name: str) -> Tensor:
        columns, turned = COLUMNS.get(name.removeprefix(DIRECTIONS), ()), name.startswith(DIRECTIONS)
        if not columns:
            return torch.zeros(())
        count = _directions(self.rhythm_labels, columns) if turned else 0
        own = RhythmColumns(ModelConfig(rhythm=columns, clock_share=0.5, rhythm_directions=count))
        own.learn([self.rhythm], self.rhythm_labels)
        return own(self.query_rhythm) @ own(self.candidate_rhythm).mT


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
    recall = {NONE: _recalls(done, NONE, (0.0,))[0]}
    turned = [name for name in COLUMNS if len(COLUMNS[name]) > 1 and _directions(labels, COLUMNS[name])]
    names = [*COLUMNS, *(DIRECTIONS + name for name in turned)]
    for name in names:
        recall |= {f"{share:g} {name}": one for share, one in zip(SHARES, _recalls(done, name, SHARES), strict=True)}
    best = _helpful(recall) if labels is not None else _harmless(recall)
    share, _, name = best.partition(" ")
    columns, weight = ((), 0.0) if best == NONE else (COLUMNS[name.removeprefix(DIRECTIONS)], float(share))
    searched = {"queries": sum(len(search.labels) for search in done), "across_groups": done[0].across}
    return RhythmChoice(
        columns,
        weight,
        _directions(labels, columns) if name.startswith(DIRECTIONS) else 0,
        len(groups.unique()),
        labelled=labels is not None,
        recall=recall,
        **searched,
    )


def _directions(labels: Tensor | None, columns: tuple[str, ...]) -> int:
    return 0 if labels is None else min(direction_count(labels), len(columns))


def _helpful(recall: dict[str, float]) -> str:
    """What finds most, or as many with a lesser share, where that is clearly more than without relative tempo."""
    best = max(recall.values())
    if best < recall[NONE] + LEAST_GAIN:
        return NONE
    enough = [name for name in recall if name != NONE and recall[name] >= best - AS_MANY]
    return min(enough, key=lambda name: (float(name.partition(" ")[0]), -recall[name]))


def _harmless(recall: dict[str, float]) -> str:
    """The least share of all columns, where it costs next to nothing: a search can say that it counts for more."""
    least = f"{SHARES[0]:g} all"
    return least if recall[least] >= recall[NONE] - LARGEST_LOSS else NONE


def _recalls(searches: Sequence[_Search], name: str, shares: Sequence[float]) -> list[float]:
    labels = torch.cat([search.labels for search in searches])
    hits = zip(*(search.hits(name, shares) for search in searches), strict=True)
    return [class_mean(torch.cat(of_share), labels, LEAST_QUERIES) for of_share in hits]


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
    every = torch.cat([_rhythm(part) for part in windows.parts()])
    for fold in unseen_folds(labels, groups, seed):
        seen = windows.rows(fold.train)
        encoder = _fitted(seen, labels[fold.train].unique(return_inverse=True)[1], config, train, seed, device)
        queries, candidates = windows.rows(fold.queries), windows.rows(fold.candidates)
        cosine = (_embedded(encoder, queries) @ _embedded(encoder, candidates).mT).masked_fill(
            ~fold.allowed, -torch.inf
        )
        known = every[fold.fitting], labels[fold.fitting], every[fold.queries], every[fold.candidates]
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
    yield _Search(cosine, _rhythm(seen), None, own, _rhythm(among), right, torch.zeros(len(asking)), across=False)


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
