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
    """N encoded windows: one unit vector each, and one unit token a patch with its place in the window.

    Parameters
    ----------
    ids : tuple of str
        The ids of the windows.
    embedding : array of shape (N, D)
        One unit vector a window.
    tokens : array of shape (N, K, d)
        One unit vector a patch; 0 where `valid` is false.
    valid : bool array of shape (N, K)
        Which patches a window has.
    starts : int array of shape (N, K)
        First sample of each patch.

    Examples
    --------
    >>> import numpy as np
    >>> from geopatch import GeoPatch
    >>> X = np.random.default_rng(0).normal(size=(8, 40))
    >>> encoding = GeoPatch().fit(X).encode(X)
    >>> encoding.embedding.shape, encoding.tokens.shape
    ((8, 128), (8, 16, 64))
    """

    ids: tuple[str, ...]
    embedding: npt.NDArray[np.float32]  # (N, D)
    tokens: npt.NDArray[np.float32]  # (N, K, d), 0 where not valid
    valid: npt.NDArray[np.bool_]  # (N, K)
    starts: npt.NDArray[np.int64]  # (N, K) first sample of each patch

    def __len__(self) -> int:
        return len(self.ids)


def encode_batches(
    encoder: Encoder,
    signals: Sequence[Signal],
    device: torch.device,
    batch_size: int = ENCODE_BATCH,
    between: Between | None = None,
    channels: Sequence[str] = (),
) -> Iterator[Encoding]:
    """Encodings of so many windows at a time, their channels in this order.

    `between` changes a batch of patches before it is encoded, which is where stress perturbs geometry.
    """
    for first in range(0, len(signals), batch_size):
        batch = [signal.arranged(channels) for signal in signals[first : first + batch_size]]
        yield _encode(encoder, batch, device, first, between)


def joined(parts: Sequence[Encoding]) -> Encoding:
    """Several encodings as one."""
    columns = ((part.embedding, part.tokens, part.valid, part.starts) for part in parts)
    embedding, tokens, valid, starts = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Encoding(tuple(id for part in parts for id in part.ids), embedding, tokens, valid, starts)


@torch.inference_mode()
def _encode(
    encoder: Encoder, signals: Sequence[Signal], device: torch.device, first: int, between: Between | None
) -> Encoding:
    config = encoder.config
    track = "tempo" in config.descriptors
    surroundings = config.surroundings if config.rhythm or track else 0
    windows = stack(signals, clock=config.geometry_source == "clock", surroundings=surroundings, track=track)
    batch = encoder.patch(encoder.scale(windows.to(device)))
    if between is not None:
        batch = between(batch, first)
    output = encoder(batch)
    arrays = (output.embedding, output.tokens, output.valid, batch.scaffold.starts)
    return Encoding(tuple(signal.id for signal in signals), *(array.cpu().numpy() for array in arrays))
