"""TS2Vec (Yue et al. 2022): hierarchical contrast of two overlapping, masked crops. No label is used.

Every random choice is a number on the device and every shape is fixed, so that a step can be a CUDA graph: crops lie in
buffers of one size with a mask that says how much of them counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import TrainConfig
from geopatch.patches import WindowBatch
from geopatch.train.objective import Trainable
from geopatch_lab.baselines.layers import SameConv, everywhere, max_over_time
from geopatch_lab.baselines.learned import Network

HIDDEN, OUTPUT, DEPTH, KERNEL = 64, 320, 10, 3
MASKED, DROPOUT = 0.5, 0.1
BATCH = 8  # the paper's
LONGEST_CROP = 512  # samples: the temporal contrast is quadratic in it
NEVER = -1e9


class TS2Vec(nn.Module):
    """Projection, masked while training, and eleven residual blocks of dilated convolutions; max over time."""

    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        self.lift = nn.Linear(channels, HIDDEN)
        widths = [HIDDEN] * (DEPTH + 1) + [OUTPUT]
        self.blocks = nn.ModuleList(DilatedBlock(widths[n], widths[n + 1], 2**n) for n in range(DEPTH + 1))
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        inside = everywhere(x) if inside is None else inside
        return max_over_time(self.timestamps(x, inside).mT, inside)

    def timestamps(self, x: Tensor, inside: Tensor) -> Tensor:
        """One vector a sample, (B, T, D)."""
        seen = inside & (torch.rand(x.shape[:2], device=x.device) >= MASKED) if self.training else inside
        z = (self.lift(x) * seen[..., None]).mT
        for block in self.blocks:
            z = block(z, inside[:, None])
        out: Tensor = self.drop(z.mT)
        return out


class DilatedBlock(nn.Module):
    def __init__(self, channels: int, width: int, dilation: int) -> None:
        super().__init__()
        self.first = SameConv(channels, width, KERNEL, dilation=dilation, bias=True)
        self.second = SameConv(width, width, KERNEL, dilation=dilation, bias=True)
        self.skip = SameConv(channels, width, 1, bias=True) if channels != width else nn.Identity()

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        z = self.second(F.gelu(self.first(F.gelu(x) * inside)) * inside)
        out: Tensor = (z + self.skip(x)) * inside
        return out


class HierarchicalContrast(Trainable):
    """The same sample of the same window, seen in two contexts, against other samples and other windows."""

    encoder: Network

    def __init__(self, network: Network, config: TrainConfig) -> None:
        super().__init__()
        self.encoder = network

    def forward(self, scaled: WindowBatch, labels: Tensor) -> Tensor:
        windows = self.encoder.shaped(scaled)
        crops = draw_crops(windows.lengths, min(windows.values.shape[1], LONGEST_CROP))
        body = self.encoder.body
        assert isinstance(body, TS2Vec)
        room = min(windows.values.shape[1], LONGEST_CROP)
        first, first_inside = taken(windows.values, crops.first_start, crops.first_length, room)
        second, second_inside = taken(windows.values, crops.second_start, crops.second_length, room)
        both = body.timestamps(torch.cat([first, second]), torch.cat([first_inside, second_inside]))
        one, other = both.float().chunk(2)
        one, valid = taken(one, crops.second_start - crops.first_start, crops.overlap, room)
        other, _ = taken(other, torch.zeros_like(crops.overlap), crops.overlap, room)
        with torch.autocast(one.device.type, enabled=False):
            return hierarchical_loss(one, other, valid)


@dataclass(frozen=True, eq=False)
class Crops:
    """For each window two spans that overlap: the second starts inside the first and ends after it."""

    first_start: Tensor  # (B,)
    first_length: Tensor
    second_start: Tensor
    second_length: Tensor
    overlap: Tensor


def draw_crops(lengths: Tensor, room: int) -> Crops:
    """The same shares of every window of a batch, at a place of its own."""
    share = torch.rand(4, device=lengths.device)
    usable = lengths.clamp(max=room)
    overlap = torch.minimum(2 + (share[0] * (usable - 1)).long(), usable)
    left = (share[1] * (usable - overlap + 1)).long()
    right = left + overlap
    first_left = (share[2] * (left + 1)).long()
    last_right = right + (share[3] * (usable - right + 1)).long()
    slack = lengths - (last_right - first_left)
    offset = (torch.rand(len(lengths), device=lengths.device) * (slack + 1)).long() - first_left
    return Crops(offset + first_left, right - first_left, offset + left, last_right - left, overlap)


def taken(x: Tensor, start: Tensor, length: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """`length` samples of each row from its `start` on, at the beginning of (B, room, C), and which of them count."""
    place = torch.arange(room, device=x.device)
    inside = place < length[:, None]
    index = (start[:, None] + place).clamp(max=x.shape[1] - 1)
    values = x.gather(1, index[..., None].expand(-1, -1, x.shape[2]))
    return values * inside[..., None], inside


def hierarchical_loss(one: Tensor, other: Tensor, valid: Tensor) -> Tensor:
    """Mean over scales, each half as long as the one before, of the instance and the temporal contrast."""
    total, levels = one.new_zeros(()), one.new_zeros(())
    while True:
        across, along = torch.cat([one, other]), torch.cat([one, other], dim=1)
        instance = contrast(across.transpose(0, 1), torch.cat([valid, valid]).mT)
        temporal = contrast(along, torch.cat([valid, valid], dim=1))
        total = total + 0.5 * (instance + temporal)
        levels = levels + valid.any()
        if one.shape[1] == 1:
            return total / levels.clamp(min=1)
        one, other, valid = _coarser(one, valid), _coarser(other, valid), _pairs(valid).all(2)


def contrast(z: Tensor, valid: Tensor) -> Tensor:
    """Groups (G, 2n, D) in which row i and row i + n belong together; the mean of -log p over valid rows."""
    count = z.shape[1] // 2
    scores = z @ z.mT
    own = torch.eye(2 * count, dtype=torch.bool, device=z.device)
    log_share = scores.masked_fill(own | ~valid[:, None], NEVER).log_softmax(2)
    partner = torch.arange(2 * count, device=z.device).roll(count)
    matched = log_share.gather(2, partner.expand(len(z), -1)[..., None]).squeeze(2)  # (G, 2n)
    loss: Tensor = -torch.where(valid, matched, 0.0).sum() / valid.sum().clamp(min=1)
    return loss


def _pairs(x: Tensor) -> Tensor:
    pairs: Tensor = x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2))
    return pairs


def _coarser(z: Tensor, valid: Tensor) -> Tensor:
    most: Tensor = _pairs(z).amax(2) * _pairs(valid).all(2)[..., None]
    return most
