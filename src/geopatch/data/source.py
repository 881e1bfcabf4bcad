"""A source: a file of data that is there, its numbered lines, the numbers in them, and what to say when it is wrong."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.errors import DataError, SignalError
from geopatch.signal import Signal

Channels = npt.NDArray[np.float64]  # (C, T), as the archive's rows are written
Report = Callable[[str, int, int], None]  # what is being read, how many are done, of how many
Item = TypeVar("Item")

MISSING = "?"
LIBRARY_ERRORS = (  # what libraries of formats make of damaged files
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, NameError, OSError),
    *(RuntimeError, StopIteration, TypeError, ValueError),
)
# Compressed files may hold more than their size. What claims more than so many times that, and more than so many bytes,
# is taken for damaged.
MAX_EXPANSION, FREE_BYTES = 20, 1 << 28


@dataclass(frozen=True, eq=False)
class TextRow:
    """One signal as a line of a text file gives it."""

    line: int
    label: str | None
    values: Channels  # (C, T)


def check_file(path: str | Path) -> Path:
    """The path, if it is a file that can be opened and holds something."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder, expected a file; give the files in it")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be opened: {error}; check its permissions") from error
    if empty:
        raise DataError(f"{path} is empty (0 bytes); expected data, so fetch or write it again")
    return path


def check_claim(path: Path, claimed: int, expansion: int = MAX_EXPANSION) -> None:
    """Refuse a file that claims to unpack to far more bytes than it has."""
    size = path.stat().st_size
    if claimed > max(FREE_BYTES, expansion * size):
        raise DataError(f"{path.name} claims {claimed} bytes of values in {size}; it is damaged, or write it in parts")


def reported(items: Sequence[Item], what: str, report: Report | None) -> Iterator[Item]:
    """The items, with a word after each: reading many files takes a while."""
    for done, item in enumerate(items, start=1):
        yield item
        if report is not None:
            report(what, done, len(items))


def at_line(path: Path, line: int, message: str) -> DataError:
    return DataError(f"{path.name} line {line}: {message}")


def text_lines(path: Path, comment: str | None = None) -> Iterator[tuple[int, str]]:
    """Numbered lines from 1, without blank ones and comments. Comments may be in any encoding: nobody reads them."""
    mark = comment.encode() if comment else None
    for line, raw in raw_lines(path):
        if not raw.strip() or (mark and raw.lstrip().startswith(mark)):
            continue
        yield line, decoded(path, line, raw).strip(" \r\n")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, without the byte order mark."""
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            yield line, raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw


def decoded(path: Path, line: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"0x{raw[error.start]:02x}"
        raise at_line(
            path, line, f"expected UTF-8 text, got byte {byte} at column {error.start + 1}; save the file as UTF-8"
        ) from error


def numbers(path: Path, line: int, dimensions: Sequence[str]) -> Channels:
    """The dimensions of one row, each `1.5,?,NaN,...`, as (C, T) with NaN for what was not measured."""
    fields = [dimension.replace(MISSING, "nan") for dimension in dimensions]
    if not all(fields):
        empty = fields.index("") + 1
        raise at_line(path, line, f"dimension {empty} is empty; write {MISSING} or NaN for what was not measured")
    try:
        return np.loadtxt(fields, delimiter=",", comments=None, ndmin=2, dtype=np.float64)
    except ValueError as error:
        _check_equal_lengths(path, line, dimensions)
        raise at_line(path, line, _first_text(dimensions) or str(error)) from error


def _check_equal_lengths(path: Path, line: int, dimensions: Sequence[str]) -> None:
    expected = dimensions[0].count(",") + 1
    for number, dimension in enumerate(dimensions, start=1):
        length = dimension.count(",") + 1
        if length != expected:
            raise at_line(
                path,
                line,
                f"expected {expected} samples in every dimension, as in the first, got {length} in dimension {number}; "
                f"write {MISSING} or NaN for what was not measured",
            )


def _first_text(dimensions: Sequence[str]) -> str:
    for number, dimension in enumerate(dimensions, start=1):
        for sample, field in enumerate(dimension.split(",")):
            if not _is_number(field):
                return (
                    f"expected a number, got {shown(field)} in dimension {number}, sample {sample}; "
                    f"write {MISSING} or NaN for what was not measured"
                )
    return ""


def _is_number(field: str) -> bool:
    try:
        float(field.replace(MISSING, "nan"))
    except ValueError:
        return False
    return field.isascii() and "_" not in field  # float() alone takes 1_000


def shown(text: str) -> str:
    """Text from a file, short enough for an error line."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def cut_padding(values: Channels) -> Channels:
    """Without the samples at the end that no channel measured: so formats of equal length store unequal ones."""
    if not np.isnan(values[:, -1:]).all():
        return values
    measured = np.flatnonzero(~np.isnan(values).all(axis=0))
    return values[:, : measured[-1] + 1] if measured.size else values


def collect(path: Path, rows: Iterable[TextRow]) -> Collection:
    """The rows as signals "0", "1", ... in the order of the file."""
    signals: list[Signal] = []
    labels: list[str] = []
    for row in rows:
        signals.append(_signal(path, row, str(len(signals))))
        if row.label is not None:
            labels.append(row.label)
    if not signals:
        raise DataError(f"{path.name}: expected at least one row of data, got none; the file may be cut off")
    return Collection(path.stem, tuple(signals), np.asarray(labels, dtype=str) if labels else None)


def _signal(path: Path, row: TextRow, id: str) -> Signal:
    try:
        with np.errstate(over="ignore"):  # beyond float32 is inf, which Signal refuses
            return Signal.from_array(row.values.T, id=id)
    except SignalError as error:
        raise at_line(path, row.line, str(error)) from error
