"""Fit the fixed half of an encoder: no gradient step, a stream of windows and their views."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geopatch.config import TrainConfig
from geopatch.kernels.fitting import KernelFit, Views, start
from geopatch.model.encoder import Encoder
from geopatch.patches import LazyWindows, WindowBatch
from geopatch.views import MildClock

CountSoFar = Callable[[int], None]


@torch.inference_mode()
def fit_kernels(
    encoder: Encoder,
    windows: WindowBatch | LazyWindows,
    labels: Tensor | None,
    train: TrainConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    state: KernelFit | None = None,
    report: CountSoFar | None = None,
    view_count: int | None = None,
) -> KernelFit:
    """Solve the fixed half on windows, or on these and those that `state` has seen; the encoder comes back on the CPU.

    Parameters
    ----------
    encoder : Encoder
        An encoder whose scale is learned.
    windows : WindowBatch or LazyWindows
        The windows; a batch of them is in memory at a time.
    labels : Tensor of shape (N,) or None
        Class numbers from 0.
    train : TrainConfig
        What views do.
    seed : int, default=0
        Seed of kernels' channels and of the views.
    device : torch.device or str, default="cpu"
        Where to compute.
    state : KernelFit, optional
        What an earlier call returned, to add windows to.
    report : callable, optional
        Called with the number of windows seen so far.
    view_count : int, optional
        Views of all windows together, about; by default 48,000.

    Returns
    -------
    KernelFit
        What further windows can be added to.
    """
    encoder.to(device)
    half = encoder.kernels
    assert half is not None, "the encoder has a fixed half"
    seen = 0 if state is None else state.moments.windows
    generator = torch.Generator(device=device).manual_seed(seed + seen)
    mild = MildClock(train.warp, train.shift, train.amplitude, train.noise)
    views = Views(train.robust_to, mild, generator, view_count)

    def treat(batch: WindowBatch) -> WindowBatch:
        return encoder.treated(encoder.scale(batch.to(device)))

    if state is None:
        classes = 0 if labels is None else int(labels.max()) + 1
        state = start(half, windows, treat, views, classes, seed)
    else:
        state = state.to(device)
    state.add(half, windows, treat, views, labels, report)
    state.solve(half)
    encoder.cpu()
    return state.to("cpu")
