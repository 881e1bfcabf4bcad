"""JSON: one signal with its values, and what is known of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.file_reading import FileReading, from_signal
from geopatch.errors import DataError
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal


def read_json(path: Path, id: str, options: ReadOptions) -> FileReading:
    """`{"values": [[1, 2], ...], "rate_hz": 50, "channels": ["x", "y"]}`, or the values alone."""
    return from_signal(json_signal(path.read_bytes(), id), options, ["one recording"])


def json_signal(data: bytes, id: str) -> Signal:
    """The signal of a JSON text; null marks what was not measured."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError("the file is no JSON, or nested too deeply; write it again") from error
    fields = content if isinstance(content, dict) else {"values": content}
    rate_hz, channels, anchors = fields.get("rate_hz"), fields.get("channels") or [], fields.get("anchors")
    plain = isinstance(rate_hz, (int, float)) and not isinstance(rate_hz, bool)
    if rate_hz is not None and not (plain and math.isfinite(rate_hz)):
        raise DataError("expected rate_hz as one number")
    if not isinstance(channels, list) or not all(isinstance(channel, str) for channel in channels):
        raise DataError("expected channels as a list of names")
    marks = None if anchors is None else json_numbers(anchors, "anchors")
    return Signal.from_array(json_values(fields.get("values")), str(fields.get("id") or id), rate_hz, channels, marks)


def json_values(values: Any) -> npt.NDArray[np.float32]:
    """Numbers (T,) or (T, C) from lists, null where nothing was measured."""
    numbers = json_numbers(values, "values")
    if numbers.ndim not in (1, 2):
        raise DataError(f"expected `values` as (T,) or (T, C) numbers, got {numbers.ndim} dimensions")
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def json_numbers(values: Any, name: str) -> npt.NDArray[np.float64]:
    """Numbers from lists of them."""
    if not isinstance(values, list):
        raise DataError(f"expected `{name}` as a list of numbers or of rows of numbers, got {type(values).__name__}")
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"expected `{name}` as numbers or rows of as many numbers each, null for gaps") from error
