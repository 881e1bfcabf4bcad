"""The way of a descriptor into the embedding, factor by factor, and how steep each factor is.

    g_k --gamma--> c_k --Fuse, f--> z_k --times a_k--> z~_k --A--> head --normalise--> embedding

Scaffold, valid set, content h_k and gate a_k stand still: in this encoder the gate looks at the evidence xi, not at the
descriptors, so noise on g_k leaves a_k alone, as the theorem assumes. The steepness of a factor at a point is the
spectral norm of its Jacobian there:

- L_gamma: of g_k -> c_k.
- L_f: of c_k -> z_k. The proof takes the patch encoder with its Fuse in front, as a map of the modulation input.
- L_A: of (z~_k) -> head, from the mean over valid patches of |z~_k| to |head|: |M| times the largest norm of a block.
- L_N: of head -> head / |head|: 1 / |head|, and on a region 1 / the least |head| there (Dunkl and Williams).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from geopatch.errors import ConfigError
from geopatch.model.encoder import Encoder
from geopatch.model.learned import LearnedHalf
from geopatch.patches import PatchBatch, WindowBatch, stack
from geopatch.signal import Signal

FACTORS = ("gamma", "f", "A", "N")

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Pathway:
    """B windows of which only the descriptors may still change."""

    descriptors: Tensor  # (B, K, G)
    opening: Tensor  # (B, K) a_k
    valid: Tensor  # (B, K) bool
    condition: Map  # gamma: (B, K, G) -> (B, K, d)
    token: Map  # f with Fuse: (B, K, d) -> (B, K, d)
    head: Map  # A, with what else the head adds: (B, K, d) -> (B, D)

    def tokens(self, g: Tensor) -> Tensor:
        """Gated tokens z~_k (B, K, d)."""
        return self.token(self.condition(g)) * self.opening[..., None]

    def embedding(self, g: Tensor) -> Tensor:
        """T((g_k)): unit vectors (B, D)."""
        return F.normalize(self.head(self.tokens(g)), dim=-1)


def pathway(encoder: Encoder, signals: Sequence[Signal]) -> Pathway:
    """The pathway of these windows through the learned half of an encoder, with dropout off.

    A copy of the encoder counts in float64: float32 rounds an embedding by as much as small noise moves it.
    """
    if encoder.learned is None:
        raise ConfigError("this encoder has fixed kernels alone, which take no geometry; fit one with a learned half")
    if encoder.learned.geometry is None or encoder.config.fuse == "none":
        raise ConfigError("this encoder takes no geometry (fuse none), so no descriptor can move it; fit one with fuse")
    windows = stack(signals, clock=encoder.config.geometry_source == "clock")
    device = encoder.level.device
    exact = deepcopy(encoder).double().eval()
    assert exact.learned is not None
    with torch.no_grad():
        return _pathway(exact.learned, exact.patch(exact.scale(_double(windows.to(device)))))


def _double(windows: WindowBatch) -> WindowBatch:
    clock = None if windows.clock is None else windows.clock.double()
    return replace(windows, values=windows.values.double(), confidence=windows.confidence.double(), clock=clock)


def _pathway(half: LearnedHalf, batch: PatchBatch) -> Pathway:
    h, mask, *window = half.stem(batch)
    valid = batch.valid
    opening = valid.to(h.dtype) if half.gate is None else half.gate(batch.geometry.evidence, valid)
    constant = 0.0 if half.overview is None else half.overview(*window)
    assert half.geometry is not None
    return Pathway(
        batch.geometry.descriptors,
        opening,
        valid,
        half.geometry,
        lambda c: half.token(half.fuse(h, c), mask),
        lambda gated: half.aggregate(gated, valid) + constant,
    )


@dataclass(frozen=True, eq=False)
class Steepness:
    """The factors of each window at its descriptors; for each patch where a patch has its own."""

    gamma: Tensor  # (B, K)
    f: Tensor  # (B, K)
    A: Tensor  # (B,)
    N: Tensor  # (B,)
    whole: Tensor  # (B, K) of T itself in units of a_k / |M|: no constant below its maximum can do


def steepness(path: Pathway, g: Tensor | None = None) -> Steepness:
    """Of every factor at the windows' own descriptors, or at others; 0 where a patch is not valid."""
    g = path.descriptors if g is None else g
    with torch.no_grad():
        c = path.condition(g)
        gated = path.token(c) * path.opening[..., None]
        head = path.head(gated)
    gamma, f, blocks = jacobians(path.condition, g), jacobians(path.token, c), jacobians(path.head, gated)
    whole = _normaliser(head)[:, None] @ (blocks @ (f @ gamma))  # (B, K, D, G), but for a_k
    count, valid = path.valid.sum(1), path.valid
    return Steepness(
        norms(gamma) * valid,
        norms(f) * valid,
        (norms(blocks) * valid).amax(1) * count,
        1 / head.norm(dim=1),
        norms(whole) * valid * count[:, None],
    )


def jacobians(map: Map, x: Tensor) -> Tensor:
    """Of each output (B, D), or (B, K, D), by each patch of x (B, K, d): (B, K, D, d).

    One backward pass an output: no row of the output depends on another window, nor, where there is a K, on another
    patch, so the sum over rows has every row's own gradient.
    """
    x = x.detach().requires_grad_(True)
    with torch.enable_grad():
        sums = map(x).flatten(0, -2).sum(0)  # (D,)
        rows = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in sums]
    return torch.stack(rows, dim=2)


def norms(matrices: Tensor) -> Tensor:
    """Spectral norm of each: the root of the largest eigenvalue of J'J or JJ', whichever is smaller."""
    tall = matrices.shape[-2] >= matrices.shape[-1]
    gram = matrices.mT @ matrices if tall else matrices @ matrices.mT
    largest: Tensor = torch.linalg.eigvalsh(gram)[..., -1]
    return largest.clamp(min=0).sqrt()


def _normaliser(head: Tensor) -> Tensor:
    """The Jacobian (B, D, D) of head -> head / |head|."""
    length = head.norm(dim=1)[:, None, None]
    unit = head[..., None] / length
    onto: Tensor = (torch.eye(head.shape[1]).to(head) - unit @ unit.mT) / length
    return onto
