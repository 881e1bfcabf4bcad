"""TS-TCC (Eldele et al. 2021): a weak and a strong view that predict each other's future and agree as a whole.

No label is used. Its published classifier reads the flattened features of windows of one length; here they are averaged
over eight equal parts of the window, so that a place in time stays known and any length gives one vector.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import TrainConfig
from geopatch.patches import WindowBatch
from geopatch.train.objective import Trainable
from geopatch_lab.baselines.layers import Norm, SameConv, everywhere, halved
from geopatch_lab.baselines.learned import Network
from geopatch_lab.baselines.transformer import attention_layer

WIDTHS, KERNEL, DROPOUT = (32, 64, 128), 8, 0.35
CONTEXT, HEADS, LAYERS, HIDDEN = 64, 4, 4, 64
AHEAD = 0.4  # share of the features that is predicted
SEGMENTS, JITTER, GAIN, GAIN_SPREAD = 8, 0.8, 2.0, 1.1  # the published settings for human activity
TEMPORAL, CONTEXTUAL, TEMPERATURE = 1.0, 0.7, 0.2
PARTS = 8


class TSTCC(nn.Module):
    """Three convolutions, each with batch norm, ReLU and a max pool that halves the length."""

    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        sizes = (channels, *WIDTHS)
        self.convolutions = nn.ModuleList(SameConv(sizes[n], sizes[n + 1], KERNEL) for n in range(len(WIDTHS)))
        self.norms = nn.ModuleList(Norm(width) for width in WIDTHS)
        self.drop = nn.Dropout(DROPOUT)
        self.places = -(-longest // 2 ** len(WIDTHS))  # features of the longest window

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        inside = everywhere(x) if inside is None else inside
        features, valid = self.features(x, inside)
        place = torch.arange(valid.shape[1], device=x.device)
        part = place * PARTS // valid.sum(1, keepdim=True).clamp(min=1)  # (B, S)
        member = (part[:, None] == torch.arange(PARTS, device=x.device)[:, None]) & valid[:, None]  # (B, 8, S)
        mean = (member.to(features.dtype) @ features) / member.sum(2, keepdim=True).clamp(min=1)
        return mean.flatten(1)  # (B, 8 x 128)

    def features(self, x: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, 128) and which of them count, S an eighth of T."""
        z = (x * inside[..., None]).mT
        for n, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            z, inside = halved(F.relu(norm(convolution(z), inside)), inside)
            z = self.drop(z) if n == 0 else z
        return z.mT, inside


class Context(nn.Module):
    """What has been seen so far, in one vector: a Transformer with [cls]."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(WIDTHS[-1], CONTEXT)
        self.cls = nn.Parameter(torch.randn(CONTEXT))
        self.layers = nn.ModuleList(attention_layer(CONTEXT, HEADS, HIDDEN, 0.1) for _ in range(LAYERS))

    def forward(self, features: Tensor, seen: Tensor) -> Tensor:
        z = torch.cat([self.cls.expand(len(features), 1, -1), self.lift(features)], dim=1)
        hidden = torch.cat([seen.new_zeros(len(seen), 1), ~seen], dim=1)
        for layer in self.layers:
            z = layer(z, src_key_padding_mask=hidden)
        return z[:, 0]


class TemporalContextual(Trainable):
    """Each view's past predicts the other's future among all windows, and the two contexts of a window agree."""

    encoder: Network

    def __init__(self, network: Network, config: TrainConfig) -> None:
        super().__init__()
        self.encoder = network
        body = network.body
        assert isinstance(body, TSTCC)
        self.ahead = max(int(AHEAD * body.places), 1)
        self.context = Context()
        self.predict = nn.Linear(CONTEXT, self.ahead * WIDTHS[-1])  # one map for each step ahead
        half = WIDTHS[-1] // 2
        self.head = nn.Sequential(nn.Linear(CONTEXT, half), nn.BatchNorm1d(half), nn.ReLU(), nn.Linear(half, half // 2))

    def forward(self, scaled: WindowBatch, labels: Tensor) -> Tensor:
        windows = self.encoder.shaped(scaled)
        body = self.encoder.body
        assert isinstance(body, TSTCC)
        inside = windows.inside
        weak, valid = body.features(weak_view(windows.values), inside)
        strong, _ = body.features(strong_view(windows.values, inside), inside)
        weak, strong = F.normalize(weak.float(), dim=2), F.normalize(strong.float(), dim=2)
        now = self._now(valid)
        seen = valid & (torch.arange(valid.shape[1], device=now.device) <= now[:, None])
        contexts = self.context(weak, seen), self.context(strong, seen)
        ahead = self._future_loss(contexts[0], strong, valid, now) + self._future_loss(contexts[1], weak, valid, now)
        agree = agreement(self.head(contexts[0]).float(), self.head(contexts[1]).float())
        return TEMPORAL * ahead + CONTEXTUAL * agree

    def _now(self, valid: Tensor) -> Tensor:
        """A random last feature of the past, at the same share of every window, with the steps ahead left over."""
        room = (valid.sum(1) - self.ahead).clamp(min=1)
        return (torch.rand((), device=valid.device) * room).long()  # (B,)

    def _future_loss(self, context: Tensor, other: Tensor, valid: Tensor, now: Tensor) -> Tensor:
        steps = now[:, None] + 1 + torch.arange(self.ahead, device=now.device)  # (B, ahead)
        index = steps.clamp(max=other.shape[1] - 1)
        there = (steps < other.shape[1]) & valid.gather(1, index)
        future = other.gather(1, index[..., None].expand(-1, -1, other.shape[2]))  # (B, ahead, d)
        predicted = self.predict(context).float().unflatten(1, (self.ahead, -1))
        log_share = (future.transpose(0, 1) @ predicted.permute(1, 2, 0)).log_softmax(2)  # (ahead, B, B)
        right = log_share.diagonal(dim1=1, dim2=2).mT  # (B, ahead)
        return -torch.where(there, right, 0.0).sum() / there.sum().clamp(min=1)


def agreement(one: Tensor, other: Tensor) -> Tensor:
    """NT-Xent: the two vectors of a window against those of all others."""
    z = F.normalize(torch.cat([one, other]), dim=1)
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    scores = (z @ z.mT / TEMPERATURE).masked_fill(own, -1e9)
    return F.cross_entropy(scores, torch.arange(len(z), device=z.device).roll(len(one)))


def weak_view(x: Tensor) -> Tensor:
    """Louder and softer: one gain for each sample, the same for all channels, as in the published code."""
    return x * (GAIN + GAIN_SPREAD * torch.randn(len(x), x.shape[1], 1, device=x.device))


def strong_view(x: Tensor, inside: Tensor) -> Tensor:
    """Up to seven segments of each window in another order, then noise."""
    shuffled = x.gather(1, segment_order(inside)[..., None].expand_as(x))
    return (shuffled + JITTER * torch.randn_like(x)) * inside[..., None]


def segment_order(inside: Tensor) -> Tensor:
    """Sample indices (B, T) with segments shuffled; what lies past the end of a window stays there."""
    rows, samples = inside.shape
    cuts = torch.rand(rows, SEGMENTS - 1, device=inside.device)
    count = torch.randint(SEGMENTS - 1, (rows, 1), device=inside.device)  # cuts in use: 0 to 6
    used = torch.arange(SEGMENTS - 1, device=inside.device) < count
    edge = torch.where(used, cuts * inside.sum(1, keepdim=True), samples + 1.0)
    place = torch.arange(samples, device=inside.device)
    segment = (place[:, None] >= edge[:, None]).sum(2)  # (B, T)
    rank = torch.rand(rows, SEGMENTS, device=inside.device).argsort(1).gather(1, segment)
    rank = torch.where(inside, rank, SEGMENTS)
    return (rank * samples + place).argsort(1)
