"""Signals from what people have: arrays, lists of unequal arrays, pandas and polars frames.

Signals stand in the order in which they, or their ids, first appear; labels and metadata in that order fit them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.arrays import as_array
from geopatch.errors import MissingExtraError, SignalError
from geopatch.signal import LazySignals, Signal

ID_COLUMN, TIME_COLUMN, LABEL_COLUMN = "id", "time", "label"


def as_signals(X: Any) -> Sequence[Signal]:
    """Signals from (N, T) or (N, T, C) arrays, lists of unequal arrays, frames, signals."""
    if isinstance(X, Signal):
        return [X]
    if isinstance(X, LazySignals):
        return X
    if hasattr(X, "columns") and hasattr(X, "shape"):
        return from_frame(X)
    if hasattr(X, "__array__") and not isinstance(X, (list, tuple)):
        return _from_stack(np.asarray(X))
    if not isinstance(X, Iterable) or isinstance(X, (str, bytes)):
        raise SignalError(f"expected an array, a list of arrays, a frame or signals, got {type(X).__name__}")
    items = [item if isinstance(item, Signal) else as_array(item, str(n)) for n, item in enumerate(X)]
    if not items:
        raise SignalError("expected at least one signal, got none")
    if all(not isinstance(item, Signal) and item.ndim == 0 for item in items):
        return _from_stack(np.asarray(items))
    return [item if isinstance(item, Signal) else Signal.from_array(item, id=str(n)) for n, item in enumerate(items)]


def from_frame(frame: Any, rate_hz: float | None = None) -> list[Signal]:
    """Signals from a pandas or polars frame, in the order in which their ids first appear.

    With an `id` column the frame is long: rows of one id are one signal, ordered by `time` if there is one, and every
    other column but `label` is a channel of numbers. Without it the frame is wide: each row is a signal of one channel.
    """
    table = _narwhal(frame)
    if ID_COLUMN not in table.columns:
        numbers = table.drop(LABEL_COLUMN, strict=False) if LABEL_COLUMN in table.columns else table
        return _from_stack(numbers.to_numpy(), rate_hz)
    if table.is_empty():
        raise SignalError("expected at least one signal, got a frame without rows")
    channels = [name for name in table.columns if name not in (ID_COLUMN, TIME_COLUMN, LABEL_COLUMN)]
    rows: dict[str, list[int]] = {id: [] for id in _ids(table)}
    if TIME_COLUMN in table.columns:
        _check_no_nulls(table, TIME_COLUMN)
        table = table.with_row_index("__row").sort(TIME_COLUMN, "__row")  # equal times keep their order
    for row, id in enumerate(_ids(table)):
        rows[id].append(row)
    values = table.select(channels).to_numpy() if channels else np.zeros((len(table), 0))
    return [Signal.from_array(values[places], id, rate_hz, channels) for id, places in rows.items()]


def frame_labels(frame: Any) -> npt.NDArray[np.str_] | None:
    """The label of each signal that `from_frame` gives, in the same order; None without a `label` column."""
    table = _narwhal(frame)
    if LABEL_COLUMN not in table.columns:
        return None
    _check_no_nulls(table, LABEL_COLUMN)
    labels = table[LABEL_COLUMN].to_list()
    if ID_COLUMN not in table.columns:
        return np.asarray(labels, dtype=str)
    by_id: dict[str, str] = {}
    for id, label in zip(_ids(table), map(str, labels), strict=True):
        if by_id.setdefault(id, label) != label:
            raise SignalError(f"signal {id!r} has two labels, {by_id[id]!r} and {label!r}; give it one")
    return np.asarray(list(by_id.values()), dtype=str)


def _ids(table: Any) -> list[str]:
    """The id of each row, as text."""
    _check_no_nulls(table, ID_COLUMN)
    ids: list[str] = table[ID_COLUMN].cast(_narwhals().String).to_list()
    return ids


def _check_no_nulls(table: Any, column: str) -> None:
    missing = table[column].is_null() | table[column].cast(_narwhals().String).is_in(["nan", "NaN"])
    if missing.any():
        row = missing.to_list().index(True)
        raise SignalError(f"row {row} of the frame has no {column}; give it one, or leave the column out")


def _narwhals() -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise MissingExtraError("narwhals", "frames", "reading a pandas or polars frame") from error
    return narwhals


def _narwhal(frame: Any) -> Any:
    return _narwhals().from_native(frame, eager_only=True)


def _from_stack(stack: npt.NDArray[Any], rate_hz: float | None = None) -> list[Signal]:
    if stack.ndim not in (2, 3):
        raise SignalError(
            f"expected an array (N, T) or (N, T, C), got {stack.ndim}D with shape {stack.shape}. "
            "Reshape your data: one window is X[None, :] and one feature is X.reshape(-1, 1)"
        )
    if 0 in stack.shape:
        raise SignalError(
            f"expected at least one signal of one sample, got 0 feature(s) (shape={stack.shape}) "
            "while a minimum of 1 is required."
        )
    return [Signal.from_array(values, id=str(n), rate_hz=rate_hz) for n, values in enumerate(stack)]
