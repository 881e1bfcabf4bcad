"""PatchTST (Nie et al. 2023), its supervised form: each channel alone through one Transformer over patches.

Its instance norm is left out, because amplitude is treated outside. The patches of a channel are averaged before the
channels meet in one linear layer: a flattened head would need windows of one length.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch_lab.baselines.layers import EMBEDDING, mean_over_time
from geopatch_lab.baselines.transformer import attention_layer

PATCH, STRIDE = 16, 8
WIDTH, HEADS, LAYERS, HIDDEN, DROPOUT = 128, 16, 3, 256, 0.2


class PatchTST(nn.Module):
    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        self.lift = nn.Linear(PATCH, WIDTH)
        self.position = nn.Parameter(torch.randn(patch_count(longest), WIDTH) * 0.02)
        self.layers = nn.ModuleList(attention_layer(WIDTH, HEADS, HIDDEN, DROPOUT) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(channels * WIDTH, EMBEDDING)

    def forward(self, x: Tensor, inside: Tensor | None) -> Tensor:
        patches, valid = overlapping(x, inside)  # (B, C, N, L), (B, N)
        place = torch.arange(patches.shape[2], device=x.device).clamp(max=len(self.position) - 1)
        z = (self.lift(patches) + self.position[place]).flatten(0, 1)  # (B C, N, d)
        seen = None if valid is None else valid.repeat_interleave(x.shape[2], dim=0)
        for layer in self.layers:
            z = layer(z, src_key_padding_mask=None if seen is None else ~seen)
        pooled = mean_over_time(self.norm(z).mT, seen)  # (B C, d)
        out: Tensor = self.out(pooled.unflatten(0, (len(x), -1)).flatten(1))
        return out


def patch_count(samples: int) -> int:
    return -(-max(samples - PATCH, 0) // STRIDE) + 1


def overlapping(x: Tensor, inside: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Patches every 8 samples; the last holds the window's last value to its end, as the paper pads.

    A patch counts if it starts a stretch of the window that no patch before it has covered.
    """
    count = patch_count(x.shape[1])
    lengths = x.new_full((len(x),), x.shape[1], dtype=torch.long) if inside is None else inside.sum(1)
    short = (count - 1) * STRIDE + PATCH - x.shape[1]
    place = torch.arange(x.shape[1] + max(short, 0), device=x.device)
    index = torch.minimum(place, lengths[:, None] - 1)[..., None].expand(-1, -1, x.shape[2])
    patches = F.pad(x, (0, 0, 0, max(short, 0))).gather(1, index).unfold(1, PATCH, STRIDE)  # (B, N, C, L)
    if inside is None:
        return patches.transpose(1, 2), None
    start = torch.arange(count, device=x.device) * STRIDE
    needed = (lengths[:, None] > start + PATCH - STRIDE) | (start == 0)
    return patches.transpose(1, 2), needed
