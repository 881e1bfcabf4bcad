"""Windows kept aside from training that say which step was best."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from geopatch.patches import WindowBatch
from geopatch.train.objective import Trainable

MIN_WINDOWS = 100  # fewer cannot choose
MAX_WINDOWS = 1024  # more make a choice no better, and they are held in memory


class Validation:
    """The best step so far: the one with the least loss on the windows kept aside."""

    def __init__(self, objective: Trainable, windows: WindowBatch | None, labels: Tensor) -> None:
        self.objective, self.windows, self.labels = objective, windows, labels
        self.best: float | None = None
        self.step = 0
        self.weights: dict[str, Tensor] = {}

    def __bool__(self) -> bool:
        return self.windows is not None and len(self.windows) > 0

    def choose(self, step: int) -> float:
        """Keep the weights if they are the best so far; the loss on the validation windows."""
        loss = self._loss()
        if self.best is None or loss < self.best:
            self.best, self.step = loss, step
            self.weights = {name: value.clone() for name, value in self.objective.encoder.state_dict().items()}
        return loss

    def keep(self) -> int:
        """Take the best weights back, and say from which step they are."""
        self.objective.encoder.load_state_dict(self.weights)
        return self.step

    @torch.no_grad()
    def _loss(self) -> float:
        """On the same views every time, so that two steps compare."""
        assert self.windows is not None
        device = self.labels.device
        self.objective.eval()
        with seeded(0, device):
            loss = float(self.objective(self.windows, self.labels))
        self.objective.train()
        return loss


def split_validation(labels: Tensor, share: float, seed: int, *, labelled: bool) -> tuple[Tensor, Tensor]:
    """Indices to train on and to choose by: the same share of every class, or nothing where too few would remain."""
    share = min(share, MAX_WINDOWS / len(labels))
    count = round(len(labels) * share)
    everything = torch.arange(len(labels))
    if count < MIN_WINDOWS:
        return everything, everything[:0]
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(labels), generator=generator)
    if not labelled:
        return shuffled[count:].sort().values, shuffled[:count].sort().values
    held = []
    for label in labels.unique():
        members = shuffled[labels[shuffled] == label]
        held.append(members[: round(len(members) * share)])
    held_out = torch.cat(held).sort().values
    mask = torch.ones(len(labels), dtype=torch.bool)
    mask[held_out] = False
    return everything[mask], held_out


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch inside the block; the caller's random state is restored after it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
