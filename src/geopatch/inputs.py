"""Signals from what people have: arrays, lists of unequal arrays, frames of pandas and polars, xarray.

Signals stand in the order in which they, or their ids, first appear; labels and metadata in that order fit them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.arrays import as_array
from geopatch.columns import find_roles
from geopatch.dataframes import as_tables, is_frame
from geopatch.errors import SignalError
from geopatch.frames import LEFT_OUT, TableReading, read_table
from geopatch.read_options import ReadOptions
from geopatch.signal import LazySignals, Signal


def as_signals(X: Any) -> Sequence[Signal]:
    """Signals from (N, T) or (N, T, C) arrays, lists of unequal arrays, frames, signals."""
    if isinstance(X, Signal):
        return [X]
    if isinstance(X, LazySignals):
        return X
    if is_frame(X):
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
    """Signals from a frame of pandas or polars or an xarray object, in the order in which their ids first appear.

    With a column of times, or an index of them, rows are samples and the times give the rate; rows of one `id` are one
    signal. Without both, each row is a signal of one channel, as scikit-learn has it.
    """
    readings = _readings(frame, ReadOptions(rate_hz=rate_hz))
    return [signal for reading in readings for signal in reading.signals]


def frame_labels(frame: Any) -> npt.NDArray[np.str_] | None:
    """The label of each signal that `from_frame` gives, in the same order; None without a `label` column."""
    labels = [reading.labels for reading in _readings(frame, ReadOptions())]
    return None if any(own is None for own in labels) else np.concatenate([own for own in labels if own is not None])


def has_ids(X: Any) -> bool:
    """Whether what is given is a frame that names its signals, by a column, an index or over its columns."""
    if not is_frame(X):
        return False
    tables = as_tables(X)
    return None not in tables or find_roles(tables[None], ReadOptions(), counters=False).id is not None


def read_frame(frame: Any, name: str, options: ReadOptions) -> list[TableReading]:
    """The recordings of a frame as those of a file: without times, ids and numbered columns it is one recording."""
    tables = as_tables(frame)
    return [read_table(table, record or name, options) for record, table in tables.items()]


def _readings(frame: Any, options: ReadOptions) -> list[TableReading]:
    """Those of every table in a frame; nobody reads their notes here, so that nothing may be left out."""
    readings = []
    for record, table in as_tables(frame).items():
        if not len(table):
            raise SignalError("expected at least one signal, got a frame without rows")
        reading = read_table(table, record or "0", options, rows="signals")
        words = list(dict.fromkeys(name for row in reading.metadata for name in row))
        left_out = [note for note in reading.notes if note.startswith(LEFT_OUT)]
        if words or left_out:
            named = f"column {words[0]!r} holds text" if words else left_out[0]
            raise SignalError(f"expected numbers in every column of the frame, but {named}; leave it out")
        readings.append(reading)
    return readings


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
