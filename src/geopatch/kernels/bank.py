"""The kernels of the fixed half: which there are at a window length, which channels each reads, and its bias.

84 kernels of nine taps (MiniRocket's: -1, three of them 2), at 16 dilations, on three copies of a window: as it is, and
its moving means over 2 % and 5 %. One feature each: the share of places at which a kernel's response exceeds its bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TAPS = 9
TRIPLES = np.asarray(list(combinations(range(TAPS), 3)), dtype=np.int64)  # (84, 3) the taps of weight 2
SMOOTHING = (0.0, 0.02, 0.05)  # moving means, as shares of the window
DILATIONS = 16
GROUPS = len(SMOOTHING) * DILATIONS  # a copy at a dilation
FEATURES = GROUPS * len(TRIPLES)
TOKEN_GROUPS = tuple(range(2, GROUPS, 4))  # groups whose responses are counted in spans, for tokens
TOKEN_FEATURES = len(TOKEN_GROUPS) * len(TRIPLES)
MIXES = 6  # sums of channels in a group; kernels take turns
MOST_CHANNELS = 9  # in a sum
MIN_LENGTH, MAX_LENGTH = TAPS, 1024  # samples that windows are resampled to
SPAN = 1 / 4  # of the window, round the centre of a token
BIAS_WINDOWS = 32
GOLDEN = (math.sqrt(5) - 1) / 2

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """What the kernels of a window length are."""

    length: int  # T
    widths: Ints  # (copies,) samples of the moving means
    copy: Ints  # (GROUPS,) which copy a group reads
    dilation: Ints  # (GROUPS,)
    inner: npt.NDArray[np.bool_]  # (GROUPS, 84) whether only places whose nine taps all lie in the window count

    @classmethod
    def of(cls, length: int) -> Layout:
        """For windows of `length` samples."""
        widths = np.asarray([2 * (max(round(share * length), 1) // 2) + 1 for share in SMOOTHING], dtype=np.int64)
        reach = math.log2(max((length - 1) / (TAPS - 1), 1))
        dilation = np.floor(2 ** np.linspace(0, reach, DILATIONS) + 1e-9).astype(np.int64)
        dilation = np.tile(dilation, len(SMOOTHING))
        turn = (np.arange(GROUPS)[:, None] + np.arange(len(TRIPLES))) % 2 == 0
        fits = length > (TAPS - 1) * dilation + 2
        return cls(length, widths, np.repeat(np.arange(len(SMOOTHING)), DILATIONS), dilation, turn & fits[:, None])


def mix_count(channels: int) -> int:
    """How many sums of channels a group has."""
    return 1 if channels == 1 else MIXES


def draw_mixes(channels: int, seed: int, *, neighbours: bool = False) -> Tensor:
    """Sums of channels (GROUPS, mixes, C): of random subsets, small ones more often, at equal power.

    With `neighbours` each is a run of channels: bands of a spectrum that lie side by side.
    """
    rng = np.random.default_rng(seed)
    mixes = np.zeros((GROUPS, mix_count(channels), channels), dtype=np.float32)
    for row in mixes.reshape(-1, channels):
        count = max(int(2 ** rng.uniform(0, math.log2(min(channels, MOST_CHANNELS) + 1))), 1)
        first = rng.integers(channels - count + 1) if neighbours else 0
        chosen = slice(first, first + count) if neighbours else rng.choice(channels, count, replace=False)
        row[chosen] = 1 / math.sqrt(count)
    return torch.from_numpy(mixes)


def quantile_levels() -> Tensor:
    """The quantile of the training responses that is the bias of each kernel (GROUPS, 84): spread evenly over all."""
    turn = (np.arange(1, FEATURES + 1) * GOLDEN) % 1
    return torch.from_numpy(turn.astype(np.float32).reshape(GROUPS, len(TRIPLES)))


def copies(windows: Tensor, layout: Layout) -> Tensor:
    """The copies (B, copies, C, T) of windows (B, C, T): moving means with the ends held."""
    return torch.stack([_moving_mean(windows, width) if width > 1 else windows for width in layout.widths.tolist()], 1)


def _moving_mean(windows: Tensor, width: int) -> Tensor:
    """By running sums: the cost does not grow with the width."""
    side = width // 2
    held = torch.nn.functional.pad(windows, (side + 1, side), mode="replicate").double()
    held[..., 0] = 0
    total = held.cumsum(-1)
    return ((total[..., width:] - total[..., :-width]) / width).to(windows.dtype)
