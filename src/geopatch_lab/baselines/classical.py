"""What a user would try first: Euclidean distance, and the features of catch22, which come from aeon."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from geopatch.errors import MissingExtraError
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch_lab.baselines.method import (
    Embedder,
    Floats,
    Scale,
    check_amplitude,
    fitted,
    median_length,
    resampled,
    unit,
)

SHORTEST = 10  # samples: what catch22 needs to compute all its features


class Euclidean:
    """Minus the Euclidean distance over all samples and channels. Other lengths are resampled to the train median."""

    name = "euclidean"

    def __init__(self, *, amplitude: str = "keep") -> None:
        self.amplitude = check_amplitude(amplitude)
        self.scale: Scale | None = None
        self.length = 0

    def fit(self, signals: Sequence[Signal], labels: Any = None, seed: int = 0) -> None:
        self.scale, self.length = Scale.learn(self.amplitude, stack(signals)), median_length(signals)

    def scores(self, queries: Sequence[Signal], gallery: Sequence[Signal]) -> Floats:
        query_rows, gallery_rows = self._rows(queries), self._rows(gallery)
        squared = (query_rows**2).sum(1)[:, None] - 2 * query_rows @ gallery_rows.T + (gallery_rows**2).sum(1)
        return np.asarray(-np.sqrt(np.maximum(squared, 0)), dtype=np.float32)

    def _rows(self, signals: Sequence[Signal]) -> npt.NDArray[np.float64]:
        series = fitted(self.name, self.scale).apply(signals)
        return np.stack([resampled(values, self.length).ravel() for values in series]).astype(np.float64)


class Catch22(Embedder):
    """22 named features of each channel, standardised by the training data, compared by their cosine.

    The cosine asks for the same departures from the average series, and one wild feature cannot outweigh the rest
    as it does in a distance.
    """

    name = "catch22"

    def __init__(self, *, amplitude: str = "keep") -> None:
        self.amplitude = check_amplitude(amplitude)
        self.scale: Scale | None = None
        self.level = self.spread = np.zeros(0)

    def fit(self, signals: Sequence[Signal], labels: Any = None, seed: int = 0) -> None:
        self.scale = Scale.learn(self.amplitude, stack(signals))
        self.level, self.spread = standard(self._features(signals))

    def embed(self, signals: Sequence[Signal]) -> Floats:
        return unit((self._features(signals) - self.level) / self.spread)

    def _features(self, signals: Sequence[Signal]) -> npt.NDArray[np.float64]:
        series = fitted(self.name, self.scale).apply(signals)
        long = [resampled(values, max(len(values), SHORTEST)).T.astype(np.float64) for values in series]
        with aeon("transformations.collection.feature_based", "catch22") as features:
            vectors = features.Catch22(replace_nans=True, n_jobs=1).fit_transform(long)
        return np.asarray(vectors, dtype=np.float64)


def standard(features: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Level and spread of each column; a column that does not vary has spread 1."""
    spread = features.std(0)
    level = features.mean(0)
    return level, np.where(spread > 1e-8 * (1 + np.abs(level)), spread, 1.0)


@contextmanager
def aeon(module: str, purpose: str) -> Iterator[ModuleType]:
    """A module of aeon, loaded when it is used and held to one thread; torch keeps the threads it had.

    numba's warnings about aeon's own number types are not the caller's.
    """
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=Warning, message=".*(unsafe cast|deprecat|TBB).*")
            yield _load(module, purpose)
    finally:
        torch.set_num_threads(threads)


def _load(module: str, purpose: str) -> ModuleType:
    try:
        return import_module(f"aeon.{module}")
    except ImportError as error:
        raise MissingExtraError("aeon", "archive", purpose) from error
