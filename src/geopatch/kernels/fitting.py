"""The closed form: kernels, biases and moments from windows and their views, and the map that follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geopatch.kernels.band_tokens import band_features, leading_directions
from geopatch.kernels.bank import TOKEN_FEATURES, copies, draw_mixes
from geopatch.kernels.half import KernelHalf, resampled, spans_round, token_features, token_spans
from geopatch.kernels.labelled import labelled_directions
from geopatch.kernels.moments import Moments, directions, leading_basis, streamed_basis
from geopatch.kernels.prior import FeaturePrior, general_prior, known_share
from geopatch.kernels.transform import features, learn_bias, span_features
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.views import MildClock, View, view

RANK = 1024  # leading directions of the features in which moments are kept
VIEWS = 48_000  # of all windows together; fewer leave the covariance of drift badly known
MIN_VIEWS, MAX_VIEWS = 2, 256  # of a window
SAMPLE_WINDOWS, SAMPLE_VIEWS = 1024, 8192  # that scales, biases and the leading directions come from
TOKEN_WINDOWS = 256  # of the sample, that scales of tokens come from
TOKEN_VIEWS = 2_000
BATCH_VIEWS = 1024  # in memory at a time
ON_GPU = 4  # times as many: it waits between small batches
LEAST_SPREAD = 1e-3  # of a feature: a hundredth of a place in ten windows

Treat = Callable[[WindowBatch], WindowBatch]  # scaling and amplitude, as the encoder does it


@dataclass(frozen=True, eq=False)
class Views:
    """What views do, and the random numbers for them."""

    robust_to: Sequence[str]
    mild: MildClock
    generator: torch.Generator
    total: int | None = None  # of all windows together, where not `VIEWS`

    def draw(self, batch: WindowBatch, count: int) -> View:
        """`count` views of each window, one after the other (B * count)."""
        rows = torch.arange(len(batch), device=batch.values.device).repeat_interleave(count)
        return view(batch.rows(rows), self.robust_to, self.mild, generator=self.generator)


@dataclass(eq=False)
class KernelFit:
    """What the closed form is solved from. Kept with the model, so that windows can be added later."""

    mean: Tensor  # (FEATURES,) of the sample's features
    scale: Tensor  # (FEATURES,)
    basis: Tensor  # (FEATURES, r)
    moments: Moments
    token_mean: Tensor  # (TOKEN_FEATURES,)
    token_scale: Tensor  # (TOKEN_FEATURES,)
    token_moments: Moments

    def add(
        self,
        half: KernelHalf,
        windows: WindowBatch | LazyWindows,
        treat: Treat,
        views: Views,
        labels: Tensor | None = None,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Add windows by their views, a batch at a time."""
        count = min(max((views.total or VIEWS) // len(windows), MIN_VIEWS), MAX_VIEWS)
        size = max(batch_views(half) // count, 1)
        done = 0
        for index in torch.arange(len(windows)).split(size):
            batch = evened(half, treat(windows.rows(index)))
            seen = views.draw(batch, count)
            values = copies(seen.windows.values.transpose(1, 2).contiguous(), half.layout)
            shares = features(values, half.mixes, half.bias, half.layout)
            placed = shares.sub_(self.mean).div_(self.scale) @ self.basis
            own = None if labels is None else labels[index].to(placed.device)
            self.moments.add(placed.unflatten(0, (len(batch), count)), own)
            self.add_tokens(half, batch, seen, values, count, min(TOKEN_VIEWS / (count * len(windows)), 1.0))
            if report is not None:
                done += len(index)
                report(done)

    def add_tokens(
        self, half: KernelHalf, batch: WindowBatch, seen: View, values: Tensor, count: int, share: float
    ) -> None:
        """The tokens of a share of the views, less those of their window at the places that they came from."""
        if half.config.bands:
            scaffold = half.scaffold(batch.lengths)
            clean = batch.values.transpose(1, 2).contiguous()
            self.token_moments.add_means(band_features(clean, scaffold.valid)[scaffold.valid])
            return
        used = math.ceil(share * count)  # views of a window
        batch = batch.rows(slice(0, math.ceil(share * count * len(batch) / used)))
        window = torch.arange(len(batch), device=values.device)[:, None]
        rows = (window * count + torch.arange(used, device=values.device)).flatten()
        scaffold = half.scaffold(batch.lengths)
        centre = scaffold.centres
        clean = copies(batch.values.transpose(1, 2).contiguous(), half.layout)
        own = self._tokens(half, clean, centre)
        many = centre.repeat_interleave(used, 0)
        source = seen.times[rows].gather(1, many.round().long())
        moved = self._tokens(half, values[rows], many)
        still = self._tokens(half, clean.repeat_interleave(used, 0), source)
        valid = scaffold.valid
        self.token_moments.add_pairs((moved - still)[valid.repeat_interleave(used, 0)], own[valid])

    def _tokens(self, half: KernelHalf, values: Tensor, centre: Tensor) -> Tensor:
        spans = spans_round(centre, half.layout.length)
        shares = span_features(values, half.mixes, half.bias, half.layout, *spans)
        return (shares - self.token_mean) / self.token_scale

    def tensors(self) -> dict[str, Tensor]:
        """By name, as a file holds them; the leading directions in 16 bits, which is all they have."""
        own = {name: getattr(self, name) for name in ("mean", "scale", "token_mean", "token_scale")}
        moments = {f"moments.{name}": value for name, value in self.moments.tensors().items()}
        tokens = {f"token_moments.{name}": value for name, value in self.token_moments.tensors().items()}
        parts = {**own, **moments, **tokens, "basis": self.basis.half()}
        return {name: value.cpu().contiguous() for name, value in parts.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> KernelFit:
        """Read what `tensors` returns."""
        moments, tokens = (
            Moments.from_tensors({name.removeprefix(prefix): value for name, value in tensors.items()})
            for prefix in ("moments.", "token_moments.")
        )
        return cls(
            tensors["mean"],
            tensors["scale"],
            tensors["basis"].float(),
            moments,
            tensors["token_mean"],
            tensors["token_scale"],
            tokens,
        )

    def to(self, device: torch.device | str) -> KernelFit:
        """The same on a device."""
        moved = {name: value.to(device) for name, value in self.tensors().items()}
        return KernelFit.from_tensors(moved)

    def solve(self, half: KernelHalf) -> None:
        """Put the map into the half."""
        prior, known = general_prior(), known_share(self.moments.windows, half.config.prior_windows)
        drift, between = blend(self.moments, prior.features, self.basis, self.scale, known)
        if len(self.moments.class_windows):
            turned = labelled_directions(
                drift, self.moments.between(), self.moments.between_classes(), half.map.shape[1]
            )
        else:
            turned = directions(drift, between, half.map.shape[1])
        half.map.copy_((self.basis.double() @ turned) / self.scale[:, None])
        half.origin.copy_(self.mean.double() @ half.map.double() + self.moments.mean @ turned)
        tokens = self.token_moments
        if half.config.bands:
            half.token_map.copy_(leading_directions(tokens.outer, half.token_map.shape[1]))
            half.token_origin.zero_()
            return
        drift, between = blend(tokens, prior.tokens, None, self.token_scale, known)
        turned = directions(drift, between, half.token_map.shape[1])
        half.token_map.copy_(turned / self.token_scale[:, None])
        half.token_origin.copy_(self.token_mean.double() @ half.token_map.double() + tokens.mean @ turned)


def start(
    half: KernelHalf,
    windows: WindowBatch | LazyWindows,
    treat: Treat,
    views: Views,
    classes: int = 0,
    seed: int = 0,
) -> KernelFit:
    """Choose channels and biases, and learn scales and leading directions, from a sample of the windows."""
    batch = evened(half, treat(windows.rows(shuffled(len(windows), seed)[:SAMPLE_WINDOWS])))
    clean = copies(batch.values.transpose(1, 2).contiguous(), half.layout)
    half.mixes.copy_(draw_mixes(half.config.channels, seed, neighbours=half.config.bands))
    half.bias.copy_(learn_bias(clean, half.mixes, half.layout))
    shares = features(clean, half.mixes, half.bias, half.layout)
    prior, known = general_prior(), known_share(len(windows), half.config.prior_windows)
    mean, scale = prior.features.blended(*centre_and_scale(shares), known)
    count = min(max(min(SAMPLE_VIEWS, views.total or VIEWS) // len(batch), MIN_VIEWS), MAX_VIEWS // 2)
    del shares
    parts = (views.draw(rows, count).windows for rows in _batches(batch, max(batch_views(half) // count, 1)))
    samples = (half_features(half, part).sub_(mean).div_(scale) for part in parts)
    if known:
        basis = leading_basis(_with_prior(torch.cat(list(samples)), prior.features, scale, known), RANK)
    else:
        basis = streamed_basis(samples, len(batch) * count, RANK)
    token_mean, token_scale = _token_scale(half, batch.lengths[:TOKEN_WINDOWS], clean[:TOKEN_WINDOWS], known)
    return KernelFit(
        mean,
        scale,
        basis,
        Moments.empty(basis.shape[1], classes, basis.device),
        token_mean,
        token_scale,
        Moments.empty(token_features(half.config), 0, basis.device),
    )


def _token_scale(half: KernelHalf, lengths: Tensor, clean: Tensor, known: float) -> tuple[Tensor, Tensor]:
    """Mean and scale of the features of tokens, from copies of windows; those of sound keep their own."""
    if half.config.bands:
        nothing = clean.new_zeros(token_features(half.config))
        return nothing, nothing + 1
    scaffold = half.scaffold(lengths)
    spans = token_spans(scaffold, lengths, half.layout.length)
    tokens = span_features(clean, half.mixes, half.bias, half.layout, *spans)[scaffold.valid]
    return general_prior().tokens.blended(*centre_and_scale(tokens), known)


def from_prior(half: KernelHalf, seed: int = 0) -> KernelFit:
    """A half that no window was seen for, and what windows can be added to."""
    prior = general_prior()
    half.mixes.copy_(draw_mixes(half.config.channels, seed))
    half.bias.copy_(prior.bias)
    known, tokens = prior.features, prior.tokens
    basis = leading_basis(torch.cat([part.factor.float().mT for part in (known.drift, known.between)]), RANK)
    own, own_tokens = Moments.empty(basis.shape[1]), Moments.empty(TOKEN_FEATURES)
    half.map.copy_(known.map)
    half.origin.copy_(known.mean @ half.map)
    half.token_map.copy_(tokens.map)
    half.token_origin.copy_(tokens.mean @ half.token_map)
    return KernelFit(known.mean, known.scale, basis, own, tokens.mean, tokens.scale, own_tokens)


def blend(
    moments: Moments, prior: FeaturePrior, basis: Tensor | None, scale: Tensor, known: float
) -> tuple[Tensor, Tensor]:
    """Drift and differences of windows, shrunk towards those known before."""
    if not known:
        return moments.drift(), moments.between()
    ratio = prior.scale.to(scale) / scale
    drift = (1 - known) * moments.drift() + known * prior.drift.within(basis, ratio)
    return drift, (1 - known) * moments.between() + known * prior.between.within(basis, ratio)


def _with_prior(samples: Tensor, prior: FeaturePrior, scale: Tensor, known: float) -> Tensor:
    """Samples (M, F), changed in place, and beside them the directions of the prior, each as strong as in the blend."""
    if not known:
        return samples
    ratio = prior.scale.to(scale) / scale
    factors = [part.factor.to(scale) * ratio[:, None] for part in (prior.drift, prior.between)]
    own = samples.mul_(((1 - known) / len(samples)) ** 0.5)
    return torch.cat([own, *((known**0.5 * factor).mT for factor in factors)])


def batch_views(half: KernelHalf) -> int:
    """Views in memory at a time, where the half is."""
    return BATCH_VIEWS * (ON_GPU if half.bias.is_cuda else 1)


def _batches(batch: WindowBatch, size: int) -> Iterator[WindowBatch]:
    for first in range(0, len(batch), size):
        yield batch.rows(slice(first, first + size))


def half_features(half: KernelHalf, windows: WindowBatch) -> Tensor:
    """The features (B, FEATURES) of windows at the length of the kernels."""
    return features(
        copies(windows.values.transpose(1, 2).contiguous(), half.layout), half.mixes, half.bias, half.layout
    )


def shuffled(count: int, seed: int) -> Tensor:
    """The numbers of the windows in a random order: windows are often sorted by what they are."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def centre_and_scale(shares: Tensor) -> tuple[Tensor, Tensor]:
    """Of each feature."""
    spread = shares.std(0, correction=0)
    return shares.mean(0), spread.clamp(min=LEAST_SPREAD)


def evened(half: KernelHalf, windows: WindowBatch) -> WindowBatch:
    """Windows at the length of the kernels, all of it measured."""
    values = resampled(windows, half.layout.length, half.config.channels).transpose(1, 2)
    lengths = torch.full((len(values),), half.layout.length, device=values.device)
    return WindowBatch(values, torch.ones(values.shape[:2], device=values.device), lengths, padded=False)
