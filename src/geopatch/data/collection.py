"""Collections: signals of one kind with a label each (Collection) or with several targets (WindowSet), and splits."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError, SignalError, one_of
from geopatch.notebook import table
from geopatch.signal import Signal, Values, at_hz, channel_text, signal_row

Labels = npt.NDArray[np.str_]

UNKNOWN = "unknown"  # the label of windows for which a target is not known
ROWS_SHOWN = 5  # signals drawn in a notebook


@dataclass(frozen=True, eq=False)
class Collection:
    """Signals with the same channels and different ids, with a label each or without labels.

    Parameters
    ----------
    name : str
        What errors and results call the collection.
    signals : sequence of Signal
        At least one. Signals with the same channel names in another order are arranged to that of the first signal
        with names; signals without names are taken as they stand.
    labels : array of shape (N,), optional
        The class of each signal, kept as text.
    metadata : sequence of mapping, optional
        What is known of each signal, such as what a header or a sidecar table says; empty where nothing is.
    notes : sequence of str, optional
        What was understood of the files that were read, as sentences.

    Raises
    ------
    SignalError
        If there is no signal, an id stands twice, the labels do not fit, or the channels differ.

    Examples
    --------
    >>> walk = Signal.from_array([[1.0, 2.0]], id="a", channels=("left", "right"))
    >>> turned = Signal.from_array([[3.0, 4.0]], id="b", channels=("right", "left"))
    >>> walks = Collection("walks", (walk, turned), ["slow", "fast"])
    >>> walks
    Collection('walks', 2 signals of 1 samples, 2 channels (left, right), 2 classes)
    >>> walks.signals[1].values.tolist()
    [[4.0, 3.0]]
    """

    name: str
    signals: tuple[Signal, ...]
    labels: Labels | None = None
    metadata: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.signals:
            raise SignalError(f"collection {self.name!r}: expected at least one signal, got none")
        object.__setattr__(self, "signals", _alike(self.name, tuple(self.signals)))
        if self.labels is not None:
            object.__setattr__(self, "labels", np.asarray(self.labels, dtype=str))
        object.__setattr__(self, "metadata", tuple(self.metadata))
        _check_labels(self)
        _check_ids(self)

    def __len__(self) -> int:
        return len(self.signals)

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", {len(np.unique(self.labels))} classes"
        return f"Collection({self.name!r}, {_described(self.signals)}{classes})"

    def _repr_html_(self) -> str:
        labels = [None] * len(self) if self.labels is None else self.labels.tolist()
        rows = [
            {**signal_row(signal), "label": label}
            for signal, label in zip(self.signals[:ROWS_SHOWN], labels, strict=False)
        ]
        return table(rows, repr(self))

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Collection:
        """Take some of the signals with their labels.

        Parameters
        ----------
        indices : sequence of int or array of bool
            The positions to take, in this order, or a mask that marks them.

        Returns
        -------
        Collection
            The chosen signals under the same name.

        Raises
        ------
        SignalError
            If a position does not exist, or none is left.
        """
        try:
            chosen = np.arange(len(self))[np.asarray(indices, dtype=None if len(indices) else np.intp)]
        except IndexError as error:
            raise SignalError(f"collection {self.name!r} has {len(self)} signals: {error}") from error
        labels = None if self.labels is None else self.labels[chosen]
        metadata = tuple(self.metadata[n] for n in chosen) if self.metadata else ()
        return Collection(self.name, tuple(self.signals[n] for n in chosen), labels, metadata, self.notes)

    def digest(self) -> str:
        """Hash ids, rates, shapes, values and labels.

        Returns
        -------
        str
            SHA-256 in hexadecimal: equal content has an equal digest on every machine. A rate that is not known counts
            as 1 Hz, so that digests of earlier versions stay.
        """
        sha = hashlib.sha256()
        for signal in self.signals:
            sha.update(repr((signal.id, signal.clock_hz, signal.values.shape)).encode())
            sha.update(_canonical(signal.values).tobytes())
        sha.update(repr(None if self.labels is None else self.labels.tolist()).encode())
        return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class WindowSet:
    """Windows with every target that they have a label for."""

    name: str
    signals: tuple[Signal, ...]
    targets: Mapping[str, Labels]

    def __len__(self) -> int:
        return len(self.signals)

    def __repr__(self) -> str:
        described = _described(self.signals) if self.signals else "empty"
        return f"WindowSet({self.name!r}, {described}, targets: {', '.join(self.targets) or 'none'})"

    def _repr_html_(self) -> str:
        shown = self.signals[:ROWS_SHOWN]
        rows = [
            {**signal_row(signal), **{target: labels[n] for target, labels in self.targets.items()}}
            for n, signal in enumerate(shown)
        ]
        return table(rows, repr(self))

    def subset(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> WindowSet:
        """The windows that a mask marks, or those at these positions in this order, with their targets."""
        places = np.arange(len(self))[chosen]
        signals = tuple(self.signals[place] for place in places)
        return replace(self, signals=signals, targets={name: labels[places] for name, labels in self.targets.items()})

    def side(self, mask: npt.NDArray[np.bool_], name: str) -> WindowSet:
        """The windows that a mask marks, as one side of a split with its own name."""
        if not mask.any():
            raise DataError(
                f"{name}: no window is left on this side of the split; give longer records or shorter windows"
            )
        return replace(self.subset(mask), name=name)

    def collection(self, target: str) -> Collection:
        """The windows with the labels of one target; windows for which it is unknown are left out."""
        one_of("target", target, tuple(self.targets))
        labels = self.targets[target]
        return Collection(self.name, self.signals, labels).subset(labels != UNKNOWN)


@dataclass(frozen=True, eq=False)
class WindowSplit:
    """The windows that train and those that test; a data set made for tests alone has no train side."""

    test: WindowSet
    train: WindowSet | None = None

    def parts(self) -> dict[str, WindowSet]:
        return {"test": self.test} if self.train is None else {"train": self.train, "test": self.test}


@dataclass(frozen=True)
class Inventory:
    """Counts of one side of a split; a window without a record of its own is its own record."""

    windows: int
    records: tuple[str, ...]
    recorded_s: float  # from the first window of each record to the end of its last
    rate_hz: float | None
    channels: int
    shortest: int  # samples of a window
    longest: int
    targets: Mapping[str, Mapping[str, int]]  # windows of each class, the largest first


def take_inventory(windows: WindowSet) -> Inventory:
    """Count what a set of windows holds."""
    spans: dict[str, tuple[float, float]] = {}
    for signal in windows.signals:
        record, stop_s = signal.record or signal.id, signal.start_s + signal.duration_s
        first_s, last_s = spans.get(record, (signal.start_s, stop_s))
        spans[record] = min(first_s, signal.start_s), max(last_s, stop_s)
    lengths = [signal.length for signal in windows.signals]
    return Inventory(
        windows=len(windows),
        records=tuple(spans),
        recorded_s=float(np.sum([last_s - first_s for first_s, last_s in spans.values()])),
        rate_hz=windows.signals[0].rate_hz,
        channels=windows.signals[0].values.shape[1],
        shortest=min(lengths),
        longest=max(lengths),
        targets={target: dict(Counter(labels.tolist()).most_common()) for target, labels in windows.targets.items()},
    )


def _described(signals: Sequence[Signal]) -> str:
    """`40 signals of 100 samples at 10 Hz, 6 channels`."""
    lengths = {signal.length for signal in signals}
    span = f"{min(lengths)} to {max(lengths)}" if len(lengths) > 1 else f"{min(lengths)}"
    return f"{len(signals)} signals of {span} samples{at_hz(signals[0].rate_hz)}, {channel_text(signals[0])}"


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
    if collection.metadata and len(collection.metadata) != n_signals:
        raise SignalError(
            f"collection {collection.name!r} has {n_signals} signals but metadata of {len(collection.metadata)}; "
            "give one mapping for each signal, or none at all"
        )


def _check_ids(collection: Collection) -> None:
    seen: set[str] = set()
    for signal in collection.signals:
        if signal.id in seen:
            raise SignalError(f"collection {collection.name!r} has id {signal.id!r} twice; give each signal its own")
        seen.add(signal.id)


def _alike(name: str, signals: tuple[Signal, ...]) -> tuple[Signal, ...]:
    """The signals with their channels in one order, if they have the same ones."""
    first, names = signals[0], next((signal.channels for signal in signals if signal.channels), ())
    for signal in signals:
        if signal.values.shape[1] != first.values.shape[1]:
            raise SignalError(
                f"collection {name!r}: signal {signal.id!r} has {channel_text(signal)}, "
                f"signal {first.id!r} has {channel_text(first)}; give all signals the same channels"
            )
    return tuple(signal.arranged(names) for signal in signals)
