"""Random and fixed convolutions: MiniRocket features, and MiniRocket and MultiRocket-Hydra with a ridge classifier.

Unequal lengths are resampled to the median of the training series, for these transforms take one length. The embedding
of a ridge method is its score for each class, so it needs the training labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch_lab.baselines.classical import aeon, standard
from geopatch_lab.baselines.method import (
    Embedder,
    Floats,
    Scale,
    check_amplitude,
    class_numbers,
    fitted,
    median_length,
    resampled,
    unit,
)
from geopatch_lab.baselines.minirocket import TAPS, MiniRocket
from geopatch_lab.baselines.ridge import Ridge

ROCKETS = "transformations.collection.convolution_based"


class _EvenSeries(Embedder):
    """Holds the treatment of amplitude and length."""

    def __init__(self, *, amplitude: str = "keep", device: str = "cpu") -> None:
        self.amplitude, self.device = check_amplitude(amplitude), torch.device(device)
        self.scale: Scale | None = None
        self.length = 0

    def _learn(self, signals: Sequence[Signal]) -> Tensor:
        self.scale = Scale.learn(self.amplitude, stack(signals))
        self.length = max(median_length(signals), TAPS)
        return self._series(signals)

    def _series(self, signals: Sequence[Signal]) -> Tensor:
        series = fitted(self.name, self.scale).apply(signals)
        even = np.stack([resampled(values, self.length).T for values in series])
        return torch.from_numpy(np.ascontiguousarray(even)).to(self.device)  # (N, C, T)


class MiniRocketFeatures(_EvenSeries):
    """MiniRocket's features, standardised by the training data."""

    name = "minirocket"

    def fit(self, signals: Sequence[Signal], labels: Any = None, seed: int = 0) -> None:
        series = self._learn(signals)
        self.rocket = MiniRocket.fit(series, seed)
        self.level, self.spread = standard(self.rocket.transform(series).cpu().numpy())

    def embed(self, signals: Sequence[Signal]) -> Floats:
        series = self._series(signals)
        return unit((self.rocket.transform(series).cpu().numpy() - self.level) / self.spread)


class MiniRocketRidge(_EvenSeries):
    """MiniRocket's features through a ridge classifier."""

    name = "minirocket-ridge"

    def fit(self, signals: Sequence[Signal], labels: Any, seed: int = 0) -> None:
        classes = class_numbers(labels, len(signals), self.name)
        series = self._learn(signals)
        self.rocket = MiniRocket.fit(series, seed)
        features = self.rocket.transform(series)
        spread, level = torch.std_mean(features, 0, correction=0)
        self.level, self.spread = level, torch.where(spread > 0, spread, 1.0)
        self.ridge = Ridge.fit((features - level) / self.spread, torch.from_numpy(classes).to(self.device))

    def embed(self, signals: Sequence[Signal]) -> Floats:
        series = self._series(signals)
        features = self.rocket.transform(series)
        return class_vectors(self.ridge.scores((features - self.level) / self.spread))


class MultiRocketHydraRidge(_EvenSeries):
    """aeon's MultiRocket and Hydra features side by side through a ridge classifier."""

    name = "multirocket-hydra-ridge"

    def fit(self, signals: Sequence[Signal], labels: Any, seed: int = 0) -> None:
        classes = class_numbers(labels, len(signals), self.name)
        series = self._learn(signals).cpu().numpy()
        with aeon(ROCKETS, "MultiRocket-Hydra") as rockets:
            self.hydra = rockets.HydraTransformer(n_jobs=1, random_state=seed)
            self.rocket = rockets.MultiRocket(n_jobs=1, random_state=seed)
            counts = _counts(self.hydra.fit_transform(series))
            features = np.asarray(self.rocket.fit_transform(series))
        absent = (counts == 0).mean(0) ** 4 + 1e-8  # Hydra's own scaling: rare features count for less
        self.sparse = (counts.mean(0), counts.std(0, ddof=1) + absent)
        self.dense = standard(features)
        self.ridge = Ridge.fit(self._joined(counts, features), torch.from_numpy(classes).to(self.device))

    def embed(self, signals: Sequence[Signal]) -> Floats:
        series = self._series(signals).cpu().numpy()
        with aeon(ROCKETS, "MultiRocket-Hydra"):
            counts, features = _counts(self.hydra.transform(series)), np.asarray(self.rocket.transform(series))
        return class_vectors(self.ridge.scores(self._joined(counts, features)))

    def _joined(self, counts: npt.NDArray[Any], features: npt.NDArray[Any]) -> Tensor:
        sparse = (counts - self.sparse[0]) * (counts != 0) / self.sparse[1]
        dense = (features - self.dense[0]) / self.dense[1]
        return torch.from_numpy(np.concatenate([sparse, dense], axis=1).astype(np.float32)).to(self.device)


def _counts(features: Any) -> npt.NDArray[np.float32]:
    return np.asarray(np.sqrt(np.maximum(np.asarray(features), 0)), dtype=np.float32)


def class_vectors(scores: Tensor) -> Floats:
    """Class scores as unit vectors, shifted so that the ideal member of a class is one axis and no two axes agree.

    Left at -1 for "no", two classes would have one dimension between them and every cosine would be 1 or -1.
    """
    return unit(((scores + 1) / 2).cpu().numpy())
