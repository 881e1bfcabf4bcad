"""Signals from the bytes of a CSV table or of a WFDB record, without opening any file.

Neither polars nor the wfdb library will do here: polars has to know header, separator and decimal mark beforehand and
turns a word among numbers into null, and wfdb opens the files that a header names, which a client must not choose.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from geopatch.data.physionet import lead_order
from geopatch.errors import DataError
from geopatch.signal import Signal

Table = npt.NDArray[np.float64]
Samples = npt.NDArray[np.int64]
SECONDS = {"time": 1.0, "time_s": 1.0, "t": 1.0, "seconds": 1.0, "sec": 1.0, "time_ms": 1e-3, "ms": 1e-3}
NOT_CHANNELS = {"", "id", "index", "label", "sample", "sample #", "n"}
GAPS = {"", "?", "-", "na", "n/a", "nan", "null", "none"}
CLOSE = 1e-5  # relative: so near a rate of two decimals is that rate
UNEVEN = 0.5  # of a step: how far times may lie from an even clock
# Bytes of one sample, and what marks one that was not measured.
FORMATS = {"16": (2.0, -(2**15)), "61": (2.0, -(2**15)), "80": (1.0, -128), "212": (1.5, -2048), "24": (3.0, -(2**23))}
FORMATS |= {"32": (4.0, -(2**31))}
GAIN = re.compile(r"(?P<gain>[-+.\deE]+)(\((?P<baseline>-?\d+)\))?(/(?P<units>\S+))?")
DEFAULT_GAIN, DEFAULT_HZ = 200.0, 250.0
MAX_CHANNELS = 512


def read_csv_bytes(data: bytes, stem: str, most: int) -> Signal:
    """Commas, semicolons, tabs or blanks between numbers; a column called `time` gives the rate."""
    text = _text(data)
    rows = _rows(text)
    first = next(rows, None)
    if first is None:
        raise DataError("the table is empty; expected a row of numbers for each sample")
    named = not all(_is_number(field) for field in first)
    names = [field.strip().strip("'\"").strip() for field in first] if named else [""] * len(first)
    table = _table(rows if named else chain([first], rows), len(first), 2 if named else 1, most)
    return _signal(names, table, stem, named)


def _signal(names: Sequence[str], table: Table, stem: str, named: bool) -> Signal:
    times = next((n for n, name in enumerate(names) if name.lower() in SECONDS), None)
    kept = [n for n, name in enumerate(names) if n != times and not (named and name.lower() in NOT_CHANNELS)]
    kept = [n for n in kept if not np.isnan(table[:, n]).all()] or kept
    if not kept:
        raise DataError(f"the table has no column of a signal, only {', '.join(names)}; add one")
    rate_hz = None if times is None else _rate_hz(table[:, times] * SECONDS[names[times].lower()])
    with np.errstate(over="ignore"):
        values = table[:, kept].astype(np.float32)
    return Signal.from_array(values, stem, rate_hz, [names[n] for n in kept] if named else ())


def _rate_hz(times_s: Table) -> float:
    """The rate of times that are even to within half a step."""
    if len(times_s) < 2 or not np.isfinite(times_s).all():
        raise DataError("the column of times needs a number in every row, and two rows; mend it or leave it out")
    step_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
    even_s = times_s[0] + step_s * np.arange(len(times_s))
    if not step_s > 0 or np.abs(times_s - even_s).max() > UNEVEN * step_s:
        raise DataError("the times do not grow evenly; resample the signal, or leave the column out and give rate_hz")
    rate_hz = float(1 / step_s)
    plain = float(round(rate_hz, 2))  # times are written with few digits
    return plain if abs(plain - rate_hz) < CLOSE * rate_hz else rate_hz


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"expected a table as UTF-8 text, got byte 0x{data[error.start]:02x}; save it again") from error


def _rows(text: str) -> Iterator[list[str]]:
    """The fields of each line that is neither blank nor a comment."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    head = list(islice(lines, 2))
    between = next((mark for mark in "\t;," if any(mark in line for line in head)), " ")
    every = chain(head, lines)
    if between == " ":
        yield from (line.split() for line in every)
        return
    try:
        for row in csv.reader(every, delimiter=between):
            yield [field.replace(",", ".") for field in row] if between == ";" else row
    except csv.Error as error:
        raise DataError(f"the table cannot be read: {error}; write it again") from error


def _table(rows: Iterator[list[str]], columns: int, first: int, most: int) -> Table:
    values = np.fromiter(_numbers(rows, columns, first, most), dtype=np.float64)
    if not len(values):
        raise DataError("the table has names but no rows; expected a row of numbers for each sample")
    return values.reshape(-1, columns)


def _numbers(rows: Iterator[list[str]], columns: int, first: int, most: int) -> Iterator[float]:
    for line, row in enumerate(rows, start=first):
        if len(row) != columns:
            raise DataError(f"line {line}: expected {columns} fields, as in the first line, got {len(row)}")
        if (line - first + 1) * columns > most:
            raise DataError(f"the table has more than {most} values; send a part of it")
        yield from (_number(field, line) for field in row)


def _number(field: str, line: int) -> float:
    try:
        return float(field)
    except ValueError:
        if field.strip().lower() in GAPS or not any(mark.isdigit() for mark in field):
            return float("nan")  # a gap, or a word in a column of labels
        raise DataError(f"line {line}: expected a number, got {field[:40]!r}; leave it empty for a gap") from None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return field.strip().lower() in GAPS - {""}
    return True


@dataclass(frozen=True)
class WfdbChannel:
    """One channel, as its line in a header describes it."""

    file: str
    format: str
    gain: float
    baseline: int
    name: str


def read_wfdb_bytes(files: Mapping[str, bytes], most: int) -> Signal:
    """The signal of a header and the data files that it names, in physical units."""
    name = next((name for name in files if name.lower().endswith(".hea")), None)
    if name is None:
        raise DataError("expected a WFDB header, a file that ends in .hea, with its .dat beside it")
    record, rate_hz, length, channels = _header(files[name])
    data = {PurePosixPath(other).name: content for other, content in files.items()}
    columns: dict[int, npt.NDArray[np.float32]] = {}
    for file in dict.fromkeys(channel.file for channel in channels):
        places = [n for n, channel in enumerate(channels) if channel.file == file]
        content = data.get(PurePosixPath(file).name)
        if content is None:
            raise DataError(f"the header names {file[:60]!r}, which did not come with it; send both")
        columns |= zip(places, _columns(content, [channels[n] for n in places], length, most), strict=True)
    if len({len(column) for column in columns.values()}) != 1:
        raise DataError("the data files of the record have unequal lengths; send them again")
    order = lead_order([channel.name for channel in channels])  # as records are read from disk
    values = np.stack([columns[n] for n in order], axis=1)
    return Signal.from_array(values, record, rate_hz, [channels[n].name for n in order])


def _columns(content: bytes, channels: Sequence[WfdbChannel], length: int, most: int) -> list[npt.NDArray[np.float32]]:
    """The channels that stand in one file, a sample of each in turn."""
    kinds = {channel.format for channel in channels}
    if len(kinds) != 1 or not kinds <= set(FORMATS):
        raise DataError(f"expected one WFDB format of {', '.join(FORMATS)}, got {', '.join(sorted(kinds))[:60]}")
    size, gap = FORMATS[kinds.copy().pop()]
    length = length or int(len(content) / size / len(channels))
    count = length * len(channels)
    if count > most or math.ceil(count * size) > len(content):
        raise DataError(f"the header promises {length} samples of {len(channels)} channels, the data holds fewer")
    raw = _samples(content, kinds.pop(), count).reshape(length, len(channels))
    return [
        np.where(raw[:, n] == gap, np.nan, (raw[:, n] - channel.baseline) / channel.gain).astype(np.float32)
        for n, channel in enumerate(channels)
    ]


def _samples(content: bytes, format: str, count: int) -> Samples:
    if format in ("16", "61", "32"):
        kind = {"16": "<i2", "61": ">i2", "32": "<i4"}[format]
        return np.frombuffer(content, dtype=kind, count=count).astype(np.int64)
    if format == "80":
        return np.frombuffer(content, dtype=np.uint8, count=count).astype(np.int64) - 128
    if format == "24":
        parts = np.frombuffer(content, dtype=np.uint8, count=3 * count).reshape(-1, 3).astype(np.int64)
        return _signed(parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16, 24)
    pairs = math.ceil(count / 2)
    padded = content[: 3 * pairs].ljust(3 * pairs, b"\0")
    low, middle, high = np.frombuffer(padded, dtype=np.uint8).reshape(-1, 3).astype(np.int64).T
    both = np.stack([low | (middle & 0x0F) << 8, high | (middle & 0xF0) << 4], axis=1)
    return _signed(both.ravel()[:count], 12)


def _signed(values: Samples, bits: int) -> Samples:
    return np.where(values >= 1 << (bits - 1), values - (1 << bits), values)


def _header(content: bytes) -> tuple[str, float, int, list[WfdbChannel]]:
    """Record, rate, length (0: not in the header) and channels."""
    lines = [line.strip() for line in content[:1_000_000].decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    try:
        record, count, *rest = lines[0].split()
        rate_hz = float(re.split(r"[/(]", rest[0])[0]) if rest else DEFAULT_HZ
        length = int(rest[1]) if len(rest) > 1 else 0
        if "/" in record:
            raise DataError("the record has several segments; send one of them")
        if not 1 <= int(count) <= MAX_CHANNELS or len(lines) <= int(count) or length < 0 or not rate_hz > 0:
            raise ValueError("no such count, length or rate")
        return record, rate_hz, length, [_channel(line, n) for n, line in enumerate(lines[1 : int(count) + 1])]
    except (ValueError, IndexError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the .hea file is no WFDB header of one record; send it again") from error


def _channel(line: str, n: int) -> WfdbChannel:
    file, format, *rest = line.split(maxsplit=8)
    scale = GAIN.fullmatch(rest[0]) if rest else None
    gain = float(scale["gain"]) if scale else 0.0
    zero = int(rest[2]) if len(rest) > 2 else 0
    baseline = int(scale["baseline"]) if scale and scale["baseline"] else zero
    if not math.isfinite(gain) or abs(baseline) > 2**32:
        raise ValueError("no such gain or baseline")
    name = rest[6].strip() if len(rest) > 6 else f"channel {n}"
    return WfdbChannel(file, format, gain or DEFAULT_GAIN, baseline, name[:100])
