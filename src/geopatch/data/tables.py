"""Tables of numbers: CSV and Parquet through polars, NumPy's `.npz` through numpy.

A CSV or Parquet file with an `id` column is long: the rows of one id are one signal, in the order of `time` if there is
such a column; signals stand in the order in which their ids first appear. Without `id` each row is one signal of one
channel. A `label` column holds the classes in both. An `.npz` file has arrays (N, T) or (N, T, C), padded with NaN to
one length; nothing in it is executed.
"""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.data.source import at_line, check_file, cut_padding, decoded, raw_lines, shown
from geopatch.errors import DataError, MissingExtraError, SignalError
from geopatch.inputs import ID_COLUMN, LABEL_COLUMN, TIME_COLUMN, frame_labels, from_frame
from geopatch.signal import Signal

Arrays = dict[str, npt.NDArray[Any]]

SPECIAL = (ID_COLUMN, TIME_COLUMN, LABEL_COLUMN)
NOT_MEASURED = ["", "?", "na", "n/a", "nan", "null", "none"]  # in any case of letters
SPLIT = ("X_train", "y_train", "X_test", "y_test")
DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)

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
    line, record = next((item for item in _records(path) if item[1]), (1, []))
    names = [name.strip() for name in record]
    if not all(names):
        column = names.index("") + 1
        raise at_line(path, line, f"column {column} of the header has no name; name it or write without an index")
    twice = [name for name in names if names.count(name) > 1]
    if twice or _is_data([name for name in names if name != LABEL_COLUMN]):
        came = f"{shown(twice[0])} twice" if twice else "numbers"
        raise at_line(path, line, f"expected a header with different column names, got {came}; add a header line")
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


def read_npz(path: str | Path) -> Collection:
    """Signals of array `X`, with the arrays `y` (labels), `ids` and `rate_hz` if the file has them."""
    path = check_file(path)
    arrays = read_arrays(path)
    if "X" not in arrays:
        hint = "; this is a train/test split, use load_split" if "X_train" in arrays else ""
        raise DataError(f"{path.name}: expected an array X, got {', '.join(arrays) or 'none'}{hint}")
    return _npz_collection(path, path.stem, arrays)


def holds_split(path: Path) -> bool:
    """Whether a file has the arrays of a train/test split; its values are not read."""
    try:
        with zipfile.ZipFile(path) as file:
            return {f"{name}.npy" for name in SPLIT} <= set(file.namelist())
    except DAMAGED:
        return False


def read_npz_split(path: str | Path) -> tuple[Collection, Collection]:
    """Train and test of a file with `X_train`, `y_train`, `X_test` and `y_test`."""
    path = check_file(path)
    arrays = read_arrays(path)
    missing = [name for name in SPLIT if name not in arrays]
    if missing:
        raise DataError(f"{path.name}: expected arrays X_train, y_train, X_test, y_test, got no {', '.join(missing)}")
    train, test = ({"X": arrays[f"X_{part}"], "y": arrays[f"y_{part}"]} for part in ("train", "test"))
    return _npz_collection(path, f"{path.stem}_TRAIN", train), _npz_collection(path, f"{path.stem}_TEST", test)


def read_arrays(path: Path) -> Arrays:
    """All arrays of the file, without pickle: an object array could run code when it is read."""
    with path.open("rb") as file:  # given a path, np.load leaves broken files open
        try:
            loaded = np.load(file, allow_pickle=False)
        except DAMAGED as error:
            raise DataError(f"{path.name} is no .npz archive or is cut off; write it again with numpy.savez") from error
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name} is one .npy array, expected .npz; save it with numpy.savez(path, X=...)")
        return {name: _npz_array(path, loaded, name) for name in loaded.files}


def _npz_array(path: Path, loaded: np.lib.npyio.NpzFile, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(loaded[name])
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path.name}: array {name!r} holds Python objects, which could run code and are refused; "
                "save numbers, and pad signals of unequal lengths with NaN"
            ) from error
        raise DataError(f"{path.name}: array {name!r} is damaged ({error}); write the file again") from error


def _npz_collection(path: Path, name: str, arrays: Arrays) -> Collection:
    """The signals of `X` with what `y`, `ids` and `rate_hz` say of them."""
    stack = _npz_stack(path, arrays["X"])
    ids = arrays.get("ids", np.arange(len(stack))).astype(str)
    if ids.shape != (len(stack),):
        raise DataError(f"{path.name}: expected {len(stack)} ids, one for each signal, got shape {ids.shape}")
    rate_hz = _npz_rate_hz(path, arrays["rate_hz"]) if "rate_hz" in arrays else None
    try:
        signals = [
            Signal.from_array(cut_padding(values.T).T, id=str(id), rate_hz=rate_hz)
            for id, values in zip(ids, stack, strict=True)
        ]
        return Collection(name, tuple(signals), arrays.get("y"))
    except SignalError as error:
        raise DataError(f"{path.name}: {error}") from error


def _npz_stack(path: Path, stack: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stack.ndim not in (2, 3) or stack.dtype.kind not in "fiub":
        raise DataError(
            f"{path.name}: expected X as numbers (N, T) or (N, T, C), got {stack.dtype} of shape {stack.shape}"
        )
    stack = stack if stack.ndim == 3 else stack[:, :, None]
    return stack if stack.dtype.kind == "f" else stack.astype(np.float64)


def _npz_rate_hz(path: Path, rate_hz: npt.NDArray[Any]) -> float:
    if rate_hz.size != 1 or rate_hz.dtype.kind not in "fiu":
        raise DataError(f"{path.name}: expected rate_hz as one number, got {rate_hz.dtype} of shape {rate_hz.shape}")
    return float(rate_hz.reshape(()))
