"""GeoPatch for scikit-learn users: fit, transform, encode, save, load."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from geopatch.encoding import ENCODE_BATCH, Between, Encoding, encode_batches, joined
from geopatch.errors import CheckpointError, ConfigError, GeoPatchError, SignalError, at_least, one_of
from geopatch.inputs import as_signals
from geopatch.model.checkpoint import Card, load_checkpoint, save_checkpoint
from geopatch.model.encoder import PRESETS, Encoder, ModelConfig
from geopatch.patches import LazyWindows, WindowBatch, stack
from geopatch.progress import training_bar
from geopatch.signal import LazySignals, Signal
from geopatch.train.fit import fit
from geopatch.train.launch import launch
from geopatch.train.objective import TrainConfig

IN_MEMORY_BYTES = 2**30  # windows on disk that take more stay there while an encoder is trained on them
LARGEST_SEED = 2**63 - 1


class GeoPatch(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Time series -> unit vectors in which the same shape at another tempo is near.

    X is an array (N, T) or (N, T, C), a list of arrays of unequal lengths, a pandas or polars frame, or signals;
    NaN means not measured. With labels y, windows of one label are drawn together; without, the views of a window.
    """

    def __init__(
        self,
        preset: str = "default",
        *,
        model: ModelConfig | None = None,
        train: TrainConfig | None = None,
        seed: int = 0,
        device: str = "auto",
        devices: int = 1,
        progress: bool = False,
    ) -> None:
        self.preset = preset
        self.model = model
        self.train = train
        self.seed = seed
        self.device = device
        self.devices = devices
        self.progress = progress

    def fit(self, X: Any, y: Any = None, *, resume: str | Path | None = None) -> GeoPatch:
        """Train on X. `resume` names a file that keeps an interrupted training until the model is saved."""
        at_least("devices", self.devices, 1)
        signals = _signals(X)
        classes, labels = _classes(y, len(signals))
        rate_hz = _common_rate(signals)
        model = self._model_config()
        windows = _windows(signals, clock=model.geometry_source == "clock")
        train, device = self.train_config, _device(self.device)
        team = launch(self.devices, device) if self.devices > 1 else None
        with self._report() as report:
            fitted = fit(
                windows,
                None if labels is None else torch.from_numpy(labels),
                model,
                train,
                device=device,
                team=team,
                resume=None if resume is None else Path(resume),
                report=report,
            )
        data = {
            "windows": len(signals),
            "classes": 0 if classes is None else len(classes),
            "lengths": [int(windows.lengths.min()), int(windows.lengths.max())],
            "rate_hz": rate_hz,
            "digest": _digest(windows, labels),
        }
        loss = None if math.isnan(fitted.loss) else fitted.loss  # JSON has no NaN
        scores = {"loss": loss, "validation_loss": fitted.validation, "step": fitted.step, "steps": fitted.steps}
        self.encoder_: Encoder = fitted.encoder
        self.leads_ = team is None or team.leads  # of several processes, the one that should save
        self.resume_ = resume
        self.card_ = Card(train=dataclasses.asdict(train), data=data, scores=scores)
        self.classes_ = classes  # None without labels
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """One unit vector a window (N, D)."""
        return self.encode(X).embedding

    def encode(self, X: Any, *, batch_size: int = ENCODE_BATCH, between: Between | None = None) -> Encoding:
        """Embedding and tokens of every window. `between` steps in after patching, where stress can touch geometry."""
        return joined(list(self.encode_batches(X, batch_size=batch_size, between=between)))

    def encode_batches(
        self, X: Any, *, batch_size: int = ENCODE_BATCH, between: Between | None = None
    ) -> Iterator[Encoding]:
        """The same in batches, one after the other, for more windows than memory holds."""
        check_is_fitted(self)
        at_least("batch_size", batch_size, 1)
        signals = _signals(X)
        _check_rate(signals, self.rate_hz_)
        device = _device(self.device)
        if self.encoder_.level.device != device:  # looking through its parts takes a tenth of a search
            self.encoder_.to(device)
        return encode_batches(self.encoder_, signals, device, batch_size, between)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write config, weights and model card into a folder."""
        check_is_fitted(self)
        save_checkpoint(self.encoder_, self.card_, folder, overwrite=overwrite)
        if self.resume_ is not None:
            Path(self.resume_).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> GeoPatch:
        """A fitted GeoPatch from a folder that `save` wrote."""
        encoder, card = load_checkpoint(folder)
        train = _train_settings(card, folder)
        loaded = cls(model=encoder.config, train=train, seed=train.seed, device=device)
        loaded.encoder_, loaded.card_, loaded.leads_, loaded.resume_ = encoder, card, True, None
        return loaded

    @property
    def train_config(self) -> TrainConfig:
        """The training settings in use, with the seed in them."""
        return dataclasses.replace(self.train or TrainConfig(), seed=_seed(self.seed))

    @property
    def rate_hz_(self) -> float | None:
        """Samples a second of the training windows; None where it was not known."""
        rate_hz = self.card_.data["rate_hz"]
        return None if rate_hz is None else float(rate_hz)

    @property
    def n_features_in_(self) -> int:
        """Samples in a training window, where all had as many. Windows of any other length can be encoded, too."""
        shortest, longest = self.card_.data["lengths"]
        if shortest != longest:
            raise AttributeError(f"no n_features_in_: the training windows have {shortest} to {longest} samples")
        return int(shortest)

    @property
    def _n_features_out(self) -> int:
        return int(self.encoder_.config.embedding)

    def _model_config(self) -> ModelConfig:
        one_of("preset", self.preset, tuple(PRESETS))
        return self.model or PRESETS[self.preset]

    def _report(self) -> Any:
        return training_bar("training") if self.progress else nullcontext(None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _classes(y: Any, count: int) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.int64] | None]:
    """Classes in order and the index of each label among them."""
    if y is None:
        return None, None
    labels = _column(y, count)
    try:
        missing = any(label is None or label != label for label in labels.tolist())  # NaN is not itself
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise SignalError(
            f"labels must be of one kind, text or numbers, and none missing ({error}); leave unlabelled signals out"
        ) from error
    if missing or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise SignalError("labels contain NaN or inf, or are missing; leave those signals out, or fit without labels")
    return classes, index.astype(np.int64)


def _column(y: Any, count: int) -> npt.NDArray[Any]:
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise SignalError(f"expected one label for each of {count} signals, got lists of unequal lengths") from error
    if labels.shape not in ((count,), (count, 1)):
        raise SignalError(f"expected one label for each of {count} signals, got labels of shape {labels.shape}")
    return labels.reshape(count)


def _signals(X: Any) -> Sequence[Signal]:
    if issparse(X):
        raise SignalError("sparse input is not supported: a 0 that is not stored is still a measurement; X.toarray()")
    return as_signals(X)


def _windows(signals: Sequence[Signal], *, clock: bool) -> WindowBatch | LazyWindows:
    """All windows at once where they fit into memory."""
    if not isinstance(signals, LazySignals):
        return stack(signals, clock=clock)
    size = signals.lengths.max() * len(signals) * signals[0].values[0].nbytes
    if size > IN_MEMORY_BYTES:
        return LazyWindows(signals, signals.lengths.tolist(), clock=clock)
    return stack(signals, clock=clock)


def _seed(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError as error:
        raise ConfigError(f"seed must be a whole number, got {value!r}") from error
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"seed must lie within 0 and {LARGEST_SEED}, got {seed}")
    return seed


def _train_settings(card: Card, folder: str | Path) -> TrainConfig:
    """The settings a model was trained with; what else encoding needs of the card is checked with them."""
    try:
        float(card.data["rate_hz"] or 1)
        return TrainConfig(**card.train)
    except (GeoPatchError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{folder}: the model card is not one of this version ({error}); save it again"
        ) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= usable:
        raise ConfigError(f"device {name!r} was asked for, but this machine has {usable} usable CUDA GPU(s); use auto")
    return device


def _common_rate(signals: Sequence[Signal]) -> float | None:
    if isinstance(signals, LazySignals):
        return signals.rate_hz
    rates = {signal.rate_hz for signal in signals}
    if len(rates) > 1:
        raise SignalError(f"signals have rates {sorted(rates, key=str)} Hz; resample them to one before training")
    return rates.pop()


def _check_rate(signals: Sequence[Signal], rate_hz: float | None) -> None:
    """Signals without a rate are taken to have the model's."""
    for signal in signals[:1] if isinstance(signals, LazySignals) else signals:
        if signal.rate_hz not in (None, rate_hz) and rate_hz is not None:
            raise SignalError(
                f"signal {signal.id!r} has {signal.rate_hz:g} Hz, the model was trained at {rate_hz:g} Hz; resample it"
            )


def _digest(windows: WindowBatch | LazyWindows, labels: npt.NDArray[np.int64] | None) -> str:
    sha = hashlib.sha256()
    for part in windows.parts():
        sha.update(part.values.numpy().tobytes())
    sha.update(windows.lengths.numpy().tobytes())
    sha.update(b"" if labels is None else labels.tobytes())
    return sha.hexdigest()[:16]
