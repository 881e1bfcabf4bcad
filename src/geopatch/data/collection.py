"""A collection: named signals of one kind, with a label each or with none."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError
from geopatch.signal import Signal, Values

Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Collection:
    """Signals with the same channels and different ids; `labels[n]` is the class of `signals[n]`."""

    name: str
    signals: tuple[Signal, ...]
    labels: Labels | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "signals", tuple(self.signals))
        if self.labels is not None:
            object.__setattr__(self, "labels", np.asarray(self.labels, dtype=str))
        if not self.signals:
            raise SignalError(f"collection {self.name!r}: expected at least one signal, got none")
        _check_labels(self)
        _check_ids(self)
        _check_channels(self)

    def __len__(self) -> int:
        return len(self.signals)

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Collection:
        """The signals at these positions, in this order, or those a boolean mask marks."""
        try:
            chosen = np.arange(len(self))[np.asarray(indices, dtype=None if len(indices) else np.intp)]
        except IndexError as error:
            raise SignalError(f"collection {self.name!r} has {len(self)} signals: {error}") from error
        labels = None if self.labels is None else self.labels[chosen]
        return Collection(self.name, tuple(self.signals[n] for n in chosen), labels)

    def digest(self) -> str:
        """SHA-256 over ids, rates, shapes, values and labels: equal content, equal digest, on every machine."""
        sha = hashlib.sha256()
        for signal in self.signals:
            sha.update(repr((signal.id, signal.clock_hz, signal.values.shape)).encode())
            sha.update(_canonical(signal.values).tobytes())
        sha.update(repr(None if self.labels is None else self.labels.tolist()).encode())
        return sha.hexdigest()


def _canonical(values: Values) -> npt.NDArray[np.float32]:
    """Little-endian, and one bit pattern for NaN."""
    return np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4")


def _check_labels(collection: Collection) -> None:
    labels, n_signals = collection.labels, len(collection)
    if labels is not None and labels.shape != (n_signals,):
        raise SignalError(
            f"collection {collection.name!r} has {n_signals} signals but labels of shape {labels.shape}; "
            "give one label for each signal, or none at all"
        )


def _check_ids(collection: Collection) -> None:
    seen: set[str] = set()
    for signal in collection.signals:
        if signal.id in seen:
            raise SignalError(f"collection {collection.name!r} has id {signal.id!r} twice; give each signal its own")
        seen.add(signal.id)


def _check_channels(collection: Collection) -> None:
    first = collection.signals[0]
    expected = first.values.shape[1]
    for signal in collection.signals:
        if signal.values.shape[1] != expected:
            raise SignalError(
                f"collection {collection.name!r}: signal {signal.id!r} has {signal.values.shape[1]} channels, "
                f"signal {first.id!r} has {expected}; give all signals the same channels"
            )
