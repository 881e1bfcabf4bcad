"""Tables of numbers: CSV and Parquet through polars, and NumPy's `.npz`.

A CSV or Parquet file with an `id` column is long: the rows of one id are one signal, in the order of `time` if there is
such a column. Without `id` each row is one signal of one channel. A `label` column holds the classes in both.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from geopatch.data.collection import Collection
from geopatch.data.source import at_line, check_file, decoded, raw_lines, shown
from geopatch.errors import DataError, MissingExtraError, SignalError
from geopatch.inputs import ID_COLUMN, LABEL_COLUMN, TIME_COLUMN, frame_labels, from_frame

SPECIAL = (ID_COLUMN, TIME_COLUMN, LABEL_COLUMN)
NOT_MEASURED = ["", "?", "na", "n/a", "nan", "null", "none"]  # in any case of letters

Place = Callable[[int], str]  # where row n of a frame stands in its file


def read_csv(path: str | Path, rate_hz: float | None = None) -> Collection:
    """Signals and labels of a CSV file with a header line."""
    polars = _polars("reading a CSV file")
    path = check_file(path)
    names = _header(path)
    try:
        frame = polars.read_csv(path, infer_schema_length=0, new_columns=names)  # all as text: id 007 stays 007
    except polars.exceptions.PolarsError as error:
        raise _csv_error(path, len(names), error) from error
    return _collection(path, _without_blank_end(frame), lambda row: f"line {_csv_line(path, row)}", rate_hz)


def read_parquet(path: str | Path, rate_hz: float | None = None) -> Collection:
    """Signals and labels of a Parquet file."""
    polars = _polars("reading a Parquet file")
    path = check_file(path)
    try:
        frame = polars.read_parquet(path)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as Parquet: {_first_line(error)}; write it again") from error
    return _collection(path, frame, lambda row: f"row {row + 1}", rate_hz)


def _polars(purpose: str) -> Any:
    try:
        import polars
    except ImportError as error:
        raise MissingExtraError("polars", "frames", purpose) from error
    return polars


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record of a CSV file, with the line it ends in: quoted fields may span lines."""
    reader = csv.reader(decoded(path, line, raw) for line, raw in raw_lines(path))
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error as error:
        raise at_line(path, reader.line_num, f"{error}; write the file again") from error


def _header(path: Path) -> list[str]:
    """The column names of a CSV file; numbers that do not increase are a first row where a header should be."""
    line, record = next((found for found in _records(path) if found[1]), (1, []))
    names = [name.strip() for name in record]
    if not all(names):
        column = names.index("") + 1
        raise at_line(path, line, f"column {column} of the header has no name; name it or write without an index")
    twice = [name for name in names if names.count(name) > 1]
    if twice or _is_data([name for name in names if name != LABEL_COLUMN]):
        found = f"{shown(twice[0])} twice" if twice else "numbers"
        raise at_line(path, line, f"expected a header with different column names, got {found}; add a header line")
    return names


def _is_data(names: list[str]) -> bool:
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return any(after <= before for before, after in pairwise(numbers))


def _csv_error(path: Path, n_columns: int, error: Exception) -> DataError:
    """What polars stumbled over, with its line."""
    for line, record in _records(path):  # raises where the text is not UTF-8
        if len(record) > n_columns:
            return at_line(
                path, line, f"expected {n_columns} fields, as in the header, got {len(record)}; mend the line"
            )
    return DataError(f"{path.name} cannot be read as CSV: {_first_line(error)}; write it again")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _csv_line(path: Path, row: int) -> int:
    line, _ = next(islice(_records(path), row + 1, None))  # the header is record 0
    return line


def _without_blank_end(frame: Any) -> Any:
    """polars reads the blank lines that end many files as rows of nulls."""
    n_blank = 0
    while n_blank < frame.height and all(value is None for value in frame.row(-1 - n_blank)):
        n_blank += 1
    return frame.head(frame.height - n_blank)


def _collection(path: Path, frame: Any, place: Place, rate_hz: float | None) -> Collection:
    _check_rows(path, frame, place)
    values = [_numbers(path, frame[name], place) for name in frame.columns if name not in SPECIAL]
    times = [_times(path, frame[name], place) for name in frame.columns if name == TIME_COLUMN]
    frame = frame.with_columns(values + times)
    try:
        return Collection(path.stem, tuple(from_frame(frame, rate_hz)), frame_labels(frame))
    except SignalError as error:
        raise DataError(f"{path.name}: {error}") from error


def _check_rows(path: Path, frame: Any, place: Place) -> None:
    if not frame.height:
        raise DataError(f"{path.name} has column names but no rows; expected at least one signal")
    if TIME_COLUMN in frame.columns and ID_COLUMN not in frame.columns:
        raise DataError(f"{path.name} has a column 'time' but no 'id'; add an id, the same in all rows of one signal")
    for name in SPECIAL:
        if name in frame.columns and frame[name].null_count():
            row = int(frame[name].is_null().arg_max())
            raise DataError(f"{path.name} {place(row)}: column {name!r} is empty; give every row its {name}")


def _numbers(path: Path, column: Any, place: Place) -> Any:
    """The column as numbers, null where it was not measured."""
    polars = _polars("reading a table")
    if column.dtype.is_numeric():
        return column
    if column.dtype not in (polars.String, polars.Null):
        raise DataError(f"{path.name}: expected numbers in column {column.name!r}, got {column.dtype}; leave it out")
    text = column.cast(polars.String).str.strip_chars()
    numbers = text.cast(polars.Float64, strict=False)
    bad = numbers.is_null() & text.is_not_null() & ~text.str.to_lowercase().is_in(NOT_MEASURED)
    if bad.any():
        row = int(bad.arg_max())
        came = f"expected a number in column {column.name!r}, got {shown(column[row])}"
        raise DataError(f"{path.name} {place(row)}: {came}; leave the field empty where nothing was measured")
    return numbers


def _times(path: Path, column: Any, place: Place) -> Any:
    """The column as numbers or as dates."""
    polars = _polars("reading a table")
    if column.dtype != polars.String:
        return column
    numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
    if not numbers.null_count():
        return numbers
    try:
        return column.str.to_datetime()
    except polars.exceptions.PolarsError as error:
        row = int(numbers.is_null().arg_max())
        came = f"expected a number or an ISO date in column {column.name!r}, got {shown(column[row])}"
        raise DataError(f"{path.name} {place(row)}: {came}; give every row its time") from error
