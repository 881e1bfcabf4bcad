"""One interface for every method, so that a study runs GeoPatch's rivals alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from geopatch.errors import GeoPatchError, SignalError, one_of
from geopatch.model.encoder import level_and_spread, zscore
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal

Floats = npt.NDArray[np.float32]

AMPLITUDES = ("keep", "zscore")


class Method(Protocol):
    """Something that ranks a gallery for a query. `fit` sees training signals only."""

    name: str
    amplitude: str

    def fit(self, signals: Sequence[Signal], labels: Any, seed: int) -> None:
        """Learn from training signals; methods without supervision take None for labels."""

    def scores(self, queries: Sequence[Signal], gallery: Sequence[Signal]) -> Floats:
        """(Q, N), bigger is better."""


class Embedder:
    """A method whose score is the cosine of two unit vectors."""

    name: str
    amplitude: str

    def embed(self, signals: Sequence[Signal]) -> Floats:
        """(N, D) unit vectors."""
        raise NotImplementedError

    def scores(self, queries: Sequence[Signal], gallery: Sequence[Signal]) -> Floats:
        gallery_vectors = self.embed(gallery)
        query_vectors = gallery_vectors if queries is gallery else self.embed(queries)
        return query_vectors @ gallery_vectors.T


@dataclass(frozen=True, eq=False)
class Scale:
    """What is done to amplitude. keep: units of the training data; zscore: then each channel of each window alone."""

    amplitude: str
    level: Tensor  # (C,)
    spread: Tensor  # (C,)

    @classmethod
    def learn(cls, amplitude: str, windows: WindowBatch) -> Scale:
        """Level and spread of each channel over all that was measured; a constant channel has spread 1."""
        level, spread = level_and_spread(windows)
        return cls(amplitude, level.float(), spread.float())

    def units(self, windows: WindowBatch) -> WindowBatch:
        """Windows in units of the training data, 0 past their end."""
        if windows.values.shape[2] != len(self.level):
            raise SignalError(
                f"this method was fitted on {len(self.level)} channel(s), these signals have "
                f"{windows.values.shape[2]}; give the same channels in the same order"
            )
        values = (windows.values - self.level) / self.spread * windows.inside[..., None]
        return WindowBatch(values, windows.confidence, windows.lengths, None, windows.padded)

    def apply(self, signals: Sequence[Signal]) -> list[Floats]:
        """Each signal (T, C) with its gaps bridged and its amplitude treated."""
        windows = self.units(stack(signals))
        if self.amplitude == "zscore":
            windows = zscore(windows)[0]
        values = windows.values.numpy()
        return [values[n, :length] for n, length in enumerate(windows.lengths.tolist())]


def check_amplitude(amplitude: str) -> str:
    one_of("amplitude", amplitude, AMPLITUDES)
    return amplitude


def fitted(name: str, part: Any) -> Any:
    """A part that `fit` makes, or one clear line."""
    if part is None:
        raise GeoPatchError(f"{name} was asked before it was fitted; call fit with training signals first")
    return part


def class_numbers(labels: Any, count: int, name: str) -> npt.NDArray[np.int64]:
    """The number of each signal's class, for methods that need one."""
    if labels is None:
        raise SignalError(f"{name} learns from labels, got none; give one for each of the {count} signals")
    names = np.asarray(labels)
    if names.shape != (count,):
        raise SignalError(f"expected one label for each of {count} signals, got labels of shape {names.shape}")
    classes, numbers = np.unique(names, return_inverse=True)
    if len(classes) < 2:
        raise SignalError(f"{name} needs two classes or more to tell apart, got {len(classes)}")
    return numbers.astype(np.int64)


def resampled(values: Floats, length: int) -> Floats:
    """A series (T, C) read at `length` even places from its first to its last sample, by straight lines."""
    if len(values) == length:
        return values
    places = np.linspace(0, len(values) - 1, length)
    columns = [np.interp(places, np.arange(len(values)), column) for column in values.T]
    return np.stack(columns, axis=1).astype(np.float32)


def median_length(signals: Sequence[Signal]) -> int:
    return int(np.median([signal.length for signal in signals]))


def unit(vectors: npt.NDArray[Any]) -> Floats:
    """Rows of length 1; a row of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1), dtype=np.float32)
