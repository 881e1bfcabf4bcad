"""Frames of pandas and polars, also lazy ones, and xarray objects as tables with their times and ids in columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from geopatch.columns import ID_NAMES, TIME_NAMES, narwhals
from geopatch.errors import SignalError

ID, TIME = "id", "time"


def is_frame(X: Any) -> bool:
    """Whether an object is a frame, lazy or not, or of xarray."""
    return hasattr(X, "collect_schema") or (hasattr(X, "columns") and hasattr(X, "shape")) or is_xarray(X)


def is_xarray(X: Any) -> bool:
    return hasattr(X, "dims") and hasattr(X, "coords")


def as_tables(frame: Any) -> dict[str | None, Any]:
    """The narwhals frames of an object, by the name of the recording that its columns name; None: they name none."""
    if is_xarray(frame):
        frame = _from_xarray(frame)
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    if not hasattr(frame, "index"):
        return {None: _narwhal(frame)}
    frame = _with_index(frame)
    if getattr(frame.columns, "nlevels", 1) == 1:
        return {None: _narwhal(frame.rename(columns=str))}
    return _by_record(frame)


def _narwhal(frame: Any) -> Any:
    return narwhals().from_native(frame, eager_only=True)


def _with_index(frame: Any) -> Any:
    """A pandas frame with what its index says as columns; an index that only counts is dropped."""
    index = frame.index
    if index.nlevels > 1:
        names = [
            name if name is not None else default for name, default in zip(index.names, _levels(index), strict=True)
        ]
        return frame.reset_index(names=names)
    kind, name = index.dtype.kind, index.name
    named = name is not None and str(name).lower() in ID_NAMES | TIME_NAMES
    times = kind in "Mm" or hasattr(index, "tz") or (kind == "f" and index.is_monotonic_increasing)
    if named or times:
        return frame.reset_index(names=[str(name) if named else TIME])
    return frame.reset_index(names=[ID]) if kind in "OUST" and ID not in frame.columns else frame.reset_index(drop=True)


def _levels(index: Any) -> list[str]:
    """Names for the levels of an index that has none: ids, then times."""
    return [ID, TIME] if index.nlevels == 2 else [f"level_{n}" for n in range(index.nlevels)]


def _by_record(frame: Any) -> dict[str | None, Any]:
    """A frame with (record, channel) over its columns, as one table for each record on the same times."""
    top = [str(pair[0]) for pair in frame.columns]
    shared = [n for n, name in enumerate(top) if name.lower() in TIME_NAMES]
    tables: dict[str | None, Any] = {}
    for record in dict.fromkeys(name for n, name in enumerate(top) if n not in shared):
        places = [n for n, name in enumerate(top) if name == record]
        part = frame.iloc[:, [*shared, *places]].copy()
        part.columns = [top[n] for n in shared] + ["/".join(map(str, frame.columns[n][1:])) for n in places]
        tables[record] = _narwhal(part)
    return tables


def _from_xarray(data: Any) -> Any:
    """A data set or array as a frame of pandas: dimensions time and channel, and a third that names recordings."""
    if hasattr(data, "data_vars"):
        frame = data.to_dataframe().reset_index()
        return frame[[name for name in frame.columns if name in data.dims or name in data.data_vars]]
    dims = list(data.dims)
    time = next((dim for dim in dims if _is_time(data, dim)), None)
    if time is None:
        raise SignalError(f"expected a dimension of times among {', '.join(map(str, dims))}; name it time")
    rest = [dim for dim in dims if dim != time]
    channel = rest[-1] if rest and (len(rest) > 1 or str(rest[-1]).lower() not in ID_NAMES) else None
    if len(rest) > 2:
        raise SignalError(f"expected dimensions id, time and channel, got {', '.join(map(str, dims))}")
    frame = data.rename(data.name or "value").to_dataframe()[data.name or "value"]
    frame = frame.to_frame() if channel is None else frame.unstack(channel)
    frame.columns = [str(name) for name in frame.columns]
    frame = frame.reset_index()
    ids = [dim for dim in rest if dim != channel]
    return frame.rename(columns=dict.fromkeys(ids, ID) | {time: TIME})


def _is_time(data: Any, dim: Any) -> bool:
    if str(dim).lower() in TIME_NAMES:
        return True
    return dim in data.coords and np.asarray(data.coords[dim]).dtype.kind in "Mm"
