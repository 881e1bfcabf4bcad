"""What an encoder makes of windows: one unit vector each, and one unit token a patch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from geopatch.model.encoder import Encoder
from geopatch.patches import PatchBatch, stack
from geopatch.signal import Signal

ENCODE_BATCH = 256
Between = Callable[[PatchBatch, int], PatchBatch]  # a batch, and the place of its first window among all


@dataclass(frozen=True, eq=False)
class Encoding:
    """N windows, encoded: one unit vector each, and one unit token a patch with its place in the window."""

    ids: tuple[str, ...]
    embedding: npt.NDArray[np.float32]  # (N, D)
    tokens: npt.NDArray[np.float32]  # (N, K, d), 0 where not valid
    valid: npt.NDArray[np.bool_]  # (N, K)
    starts: npt.NDArray[np.int64]  # (N, K) first sample of each patch


def encode_batches(
    encoder: Encoder,
    signals: Sequence[Signal],
    device: torch.device,
    batch_size: int = ENCODE_BATCH,
    between: Between | None = None,
) -> Iterator[Encoding]:
    """Encodings of so many windows at a time. `between` steps in after patching, where stress can touch geometry."""
    for first in range(0, len(signals), batch_size):
        yield _encode(encoder, signals[first : first + batch_size], device, first, between)


def joined(parts: Sequence[Encoding]) -> Encoding:
    """Several encodings as one."""
    columns = ((part.embedding, part.tokens, part.valid, part.starts) for part in parts)
    embedding, tokens, valid, starts = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Encoding(tuple(id for part in parts for id in part.ids), embedding, tokens, valid, starts)


@torch.inference_mode()
def _encode(
    encoder: Encoder, signals: Sequence[Signal], device: torch.device, first: int, between: Between | None
) -> Encoding:
    windows = stack(signals, clock=encoder.config.geometry_source == "clock")
    batch = encoder.patch(encoder.scale(windows.to(device)))
    if between is not None:
        batch = between(batch, first)
    encoded = encoder(batch)
    arrays = (encoded.embedding, encoded.tokens, encoded.valid, batch.scaffold.starts)
    return Encoding(tuple(signal.id for signal in signals), *(array.cpu().numpy() for array in arrays))
