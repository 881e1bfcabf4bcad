"""A table of one signal: a row for each sample, a column for each channel, names and times where there are any."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError
from geopatch.signal import Signal

Table = npt.NDArray[np.float64]
SECONDS = {"time": 1.0, "time_s": 1.0, "t": 1.0, "seconds": 1.0, "sec": 1.0, "time_ms": 1e-3, "ms": 1e-3}
SKIPPED = {"", "id", "index", "label", "sample", "sample #", "n"}  # columns that are no channel
GAPS = {"", "?", "-", "na", "n/a", "nan", "null", "none"}
CLOSE = 1e-5
UNEVEN = 0.5  # share of a step by which times may miss an even clock


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
    kept = [n for n, name in enumerate(names) if n != times and not (named and name.lower() in SKIPPED)]
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
