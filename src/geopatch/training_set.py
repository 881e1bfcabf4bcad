"""What an estimator is fitted on: windows of one rate with their channels in one order, and a class number each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from geopatch.config import ModelConfig, TrainConfig
from geopatch.errors import SignalError
from geopatch.inputs import as_signals
from geopatch.patches import LazyWindows, WindowBatch, stack
from geopatch.signal import LazySignals, Signal, are_bands
from geopatch.train.amplitude import Report, choose_amplitude
from geopatch.train.rhythm_choice import choose_rhythm

SERIES_UNIT = 1024  # samples that `max_patches` do for, the most that fixed kernels look at
SOUND_UNIT_S = 2 / 3  # of sound: a patch is about as long as a sound of speech
ANCHORED = 64  # windows that say whether a set has anchors
IN_MEMORY_BYTES = 2**30  # windows on disk that take more stay there while an encoder is trained on them


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Windows to train on, and what a model remembers of them."""

    windows: WindowBatch | LazyWindows
    rate_hz: float | None
    channels: tuple[str, ...]  # () where the signals have no channel names
    classes: npt.NDArray[Any] | None  # None without labels
    labels: npt.NDArray[np.int64] | None  # (N,) index into classes
    groups: npt.NDArray[np.int64] | None = None  # (N,) the number of each window's speaker, patient or device
    records: npt.NDArray[np.int64] | None = None  # (N,) that of its record; None where there are no anchors

    @classmethod
    def of(
        cls, X: Any, y: Any, groups: Any = None, *, clock: bool, surroundings: int = 0, lazy: bool = False
    ) -> TrainingSet:
        """From what `fit` takes; `clock` reads the anchors of the signals, `lazy` stacks windows when they are used.

        With `surroundings`, windows that have anchors have their relative tempo against so many intervals.
        """
        signals = signals_of(X)
        surroundings = surroundings if has_anchors(signals) else 0
        classes, labels = _classes(y, len(signals))
        rate_hz = _common_rate(signals)
        _, numbers = _classes(groups, len(signals), "group")
        signals, channels = _in_one_order(signals)
        records = (
            _classes([signal.record or signal.id for signal in signals], len(signals))[1] if surroundings else None
        )
        windows = _windows(signals, clock=clock, surroundings=surroundings, lazy=lazy)
        return cls(windows, rate_hz, channels, classes, labels, numbers, records)

    def adapted(self, model: ModelConfig) -> ModelConfig:
        """The config with what the windows say: whether channels are bands, and the patches of windows so long."""
        bands = are_bands(self.channels)
        unit = SOUND_UNIT_S * self.rate_hz if bands and self.rate_hz else SERIES_UNIT
        count = model.patches_for(float(self.windows.lengths.float().median()), unit)
        return replace(model, bands=bands or model.bands, patch_count=count if count > model.max_patches else None)

    def has_choice(self, model: ModelConfig) -> bool:
        """Whether labels and groups can say what is to be kept of level and scale; of bands, none is left to keep."""
        known = self.labels is not None and self.groups is not None
        return known and model.amplitude == ModelConfig.amplitude and not model.bands

    def chosen_amplitude(
        self, model: ModelConfig, train: TrainConfig, *, seed: int, device: torch.device, report: Report | None
    ) -> tuple[ModelConfig, dict[str, Any]]:
        """The config with the treatment of amplitude that groups choose, and the evidence for the model card."""
        assert self.labels is not None
        assert self.groups is not None
        numbers = torch.from_numpy(self.labels), torch.from_numpy(self.groups)
        choice = choose_amplitude(self.windows, *numbers, model, train, seed=seed, device=device, report=report)
        if choice is None:
            return model, {}
        return replace(model, amplitude=choice.chosen), {"amplitude": choice.as_dict()}

    def chosen_rhythm(
        self, model: ModelConfig, train: TrainConfig, *, seed: int, device: torch.device, report: Report | None
    ) -> tuple[ModelConfig, dict[str, Any]]:
        """The config with the weight of relative tempo that windows of other groups choose, and the evidence."""
        groups = self.records if self.groups is None else self.groups
        assert groups is not None
        labels = None if self.labels is None else torch.from_numpy(self.labels)
        numbers = labels, torch.from_numpy(groups)
        choice = choose_rhythm(self.windows, *numbers, model, train, seed=seed, device=device, report=report)
        if choice is None:
            return model, {}
        return choice.applied(model), {"rhythm": choice.as_dict()}

    def description(self) -> dict[str, Any]:
        """For the model card, as JSON has it."""
        return {
            "windows": len(self.windows),
            "classes": 0 if self.classes is None else len(self.classes),
            "labels": None if self.classes is None else _plain(self.classes),
            **({} if self.groups is None else {"groups": int(self.groups.max()) + 1}),
            "lengths": [int(self.windows.lengths.min()), int(self.windows.lengths.max())],
            "rate_hz": self.rate_hz,
            "channels": list(self.channels),
            "digest": self._digest(),
        }

    def added_to(self, known: dict[str, Any]) -> dict[str, Any]:
        """The description of the windows that were there with these added."""
        own = self.description()
        lengths = known["lengths"] + own["lengths"]
        digest = hashlib.sha256(f"{known['digest']} {own['digest']}".encode()).hexdigest()[:16]
        added = {"windows": known["windows"] + own["windows"], "lengths": [min(lengths), max(lengths)]}
        return {**known, **added, "digest": digest}

    def _digest(self) -> str:
        sha = hashlib.sha256()
        for part in self.windows.parts():
            sha.update(part.values.numpy().tobytes())
        sha.update(self.windows.lengths.numpy().tobytes())
        sha.update(b"" if self.labels is None else self.labels.tobytes())
        return sha.hexdigest()[:16]


def signals_of(X: Any) -> Sequence[Signal]:
    """Signals from what people have; see `GeoPatch.fit`."""
    from scipy.sparse import issparse

    if issparse(X):
        raise SignalError("sparse input is not supported: a 0 that is not stored is still a measurement; X.toarray()")
    return as_signals(X)


def check_rate(signals: Sequence[Signal], rate_hz: float | None) -> None:
    """Refuse signals of another rate than the model's; those without a rate are taken to have it."""
    for signal in signals[:1] if isinstance(signals, LazySignals) else signals:
        if signal.rate_hz not in (None, rate_hz) and rate_hz is not None:
            raise SignalError(
                f"signal {signal.id!r} has {signal.rate_hz:g} Hz, the model was trained at {rate_hz:g} Hz; resample it"
            )


def _classes(y: Any, count: int, what: str = "label") -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.int64] | None]:
    """Classes in order and the index of each label among them; or groups."""
    if y is None:
        return None, None
    labels = _column(y, count, what)
    try:
        missing = any(label is None or label != label for label in labels.tolist())  # NaN is not itself
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise SignalError(
            f"{what}s must be of one kind, text or numbers, and none missing ({error}); leave signals without one out"
        ) from error
    if missing or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise SignalError(
            f"{what}s contain NaN or inf, or are missing; leave those signals out, or fit without {what}s"
        )
    return classes, index.astype(np.int64)


def _column(y: Any, count: int, what: str) -> npt.NDArray[Any]:
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise SignalError(f"expected one {what} for each of {count} signals, got lists of unequal lengths") from error
    if labels.shape not in ((count,), (count, 1)):
        raise SignalError(f"expected one {what} for each of {count} signals, got {what}s of shape {labels.shape}")
    return labels.reshape(count)


def _plain(classes: npt.NDArray[Any]) -> list[Any]:
    """Text, numbers and booleans as they are, anything else as text."""
    values = classes.tolist()
    return values if all(isinstance(value, (str, int, float)) for value in values) else [str(value) for value in values]


def _common_rate(signals: Sequence[Signal]) -> float | None:
    if isinstance(signals, LazySignals):
        return signals.rate_hz
    rates = {signal.rate_hz for signal in signals}
    if len(rates) > 1:
        raise SignalError(f"signals have rates {sorted(rates, key=str)} Hz; resample them to one before training")
    return rates.pop()


def _in_one_order(signals: Sequence[Signal]) -> tuple[Sequence[Signal], tuple[str, ...]]:
    """The signals with their channels in the order of the first that names them, and that order."""
    if isinstance(signals, LazySignals):
        return signals, signals[0].channels  # one order for all of them
    first = next((signal for signal in signals if signal.channels), signals[0])
    for signal in signals:
        if signal.channels and set(signal.channels) != set(first.channels):
            raise SignalError(
                f"signal {signal.id!r} has the channels {', '.join(signal.channels)}, signal {first.id!r} has "
                f"{', '.join(first.channels)}; train on signals with the same channels, or leave their names out"
            )
    return [signal.arranged(first.channels) for signal in signals], first.channels


def has_anchors(signals: Sequence[Signal]) -> bool:
    """Whether windows have intervals to tell a tempo by; of many, the first say so."""
    return any(signal.anchors is not None and len(signal.anchors) > 1 for signal in signals[:ANCHORED])


def _windows(signals: Sequence[Signal], *, clock: bool, surroundings: int, lazy: bool) -> WindowBatch | LazyWindows:
    """All windows in memory where they fit into it."""
    if lazy:
        lengths = signals.lengths.tolist() if isinstance(signals, LazySignals) else [one.length for one in signals]
        return LazyWindows(signals, lengths, clock=clock, surroundings=surroundings, track=False)
    if isinstance(signals, LazySignals):
        size = signals.lengths.max() * len(signals) * signals[0].values[0].nbytes
        if size > IN_MEMORY_BYTES:
            return LazyWindows(signals, signals.lengths.tolist(), clock=clock, surroundings=surroundings)
    return stack(signals, clock=clock, surroundings=surroundings)
