"""The arrays of one signal: numbers as float32 (T, C), gaps bridged by lines, anchors in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError

Values = npt.NDArray[np.float32]  # (T, C)
Anchors = npt.NDArray[np.float64]  # (A,)
SURROUNDINGS = 16  # anchors that a window keeps from before its start and from after its end


def as_array(values: npt.ArrayLike, id: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise SignalError(f"signal {id!r}: expected (T,) or (T, C) numbers, got rows of unequal length") from error


def as_values(values: npt.ArrayLike, id: str) -> Values:
    """Any array of real numbers as contiguous float32, (T,) as (T, 1)."""
    raw = as_array(values, id)
    if raw.ndim == 1:
        raw = raw[:, None]
    if raw.dtype == np.float32:
        return np.ascontiguousarray(raw)
    if raw.dtype.kind == "c":
        raise SignalError(f"signal {id!r}: expected real numbers, got complex. Complex data not supported")
    if raw.dtype.kind in "OUS":
        try:
            raw = raw.astype(np.float64)
        except (TypeError, ValueError) as error:
            detail = f"argument must be a string or a number; {error}" if isinstance(error, TypeError) else str(error)
            raise SignalError(f"signal {id!r}: expected numbers, got {detail}; NaN marks what is missing") from error
    if raw.dtype.kind not in "biuf":
        raise SignalError(f"signal {id!r}: expected numbers, got {raw.dtype}; a time column is called 'time'")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf and is refused as such
        return np.ascontiguousarray(raw, dtype=np.float32)


def sorted_anchors(anchors: npt.ArrayLike, id: str) -> Anchors:
    """Each anchor once, in order."""
    unique = np.unique(np.asarray(anchors, dtype=np.float64).ravel())
    if not np.isfinite(unique).all():
        raise SignalError(f"signal {id!r} has an anchor that is no finite number; leave out anchors that are missing")
    return unique


def anchors_around(anchors: Anchors, start: int, stop: int, surroundings: int = SURROUNDINGS) -> Anchors:
    """Those within start..stop and so many more on either side: with one, a clock need not guess beyond the last."""
    first, last = np.searchsorted(anchors, [start, stop])
    around: Anchors = anchors[max(first - surroundings, 0) : last + surroundings] - start
    return around


def bridge(column: Values) -> Values:
    """A channel (T,) with its gaps bridged by straight lines; 0 where nothing was measured."""
    known = np.flatnonzero(~np.isnan(column))
    if len(known) == 0:
        return np.zeros_like(column)
    bridged: npt.NDArray[np.float64] = np.interp(np.arange(len(column)), known, column[known])
    return bridged.astype(np.float32)
