"""Tables as text: polars reads the numbers once the dialect is known; a word among them is named with its line."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from geopatch.columns import ID_NAMES, LABEL, NOT_MEASURED, no_number
from geopatch.data.dialect import SEPARATORS, Dialect, sniff
from geopatch.errors import DataError, MissingExtraError

MISSING = sorted({form for word in NOT_MEASURED if word for form in (word, word.upper(), word.title())} | {"NaN"})
HEAD_BYTES = 1 << 20
SCHEMA_ROWS = 1000


@dataclass(frozen=True, eq=False)
class TextTable:
    """A frame of polars with what stands in a text file, and what was made out of how it is written."""

    path: Path
    dialect: Dialect
    frame: Any
    notes: tuple[str, ...]

    def place(self, row: int) -> str:
        """Where a row of the frame stands in the file; quoted fields may span lines."""
        return f"line {line_of(self.path, self.dialect, row)}"


def read_delimited(path: Path, texts: tuple[str, ...] = ()) -> TextTable:
    """The table of a text file, columns of ids and labels and those named as text, all others of numbers as numbers."""
    polars = load_polars("reading a table as text")
    data, notes = as_utf8(path)
    dialect = sniff(data, path)
    rows = _rows(data, dialect)
    del data
    kept = ID_NAMES | {LABEL} | {name.lower() for name in texts}
    schema = _schema(polars, rows, dialect, kept)
    frame = _parsed(polars, rows, dialect, schema)
    if frame is None:
        frame = _mended(polars, path, rows, dialect, kept)
    notes.append(_note(dialect))
    frame = _without_blank_end(frame)
    if b'"' not in rows and rows.count(_mark(dialect)) != frame.height * (dialect.columns - 1):
        frame = _without_cut_line(path, rows, dialect, frame, notes)
    return TextTable(path, dialect, frame, tuple(notes))


def read_dialect(path: Path) -> Dialect:
    """How a text file is written, by its first megabyte."""
    data, _ = as_utf8(path, HEAD_BYTES)
    return sniff(data, path)


def as_utf8(path: Path, most: int | None = None) -> tuple[bytes, list[str]]:
    """The bytes of a text file as UTF-8 without a byte order mark, and a note where they were something else."""
    with path.open("rb") as file:
        data = file.read() if most is None else file.read(most)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16").encode(), ["the text is UTF-16"]
        except UnicodeDecodeError as error:
            raise DataError(f"{path.name} starts as UTF-16 text but is none; save it as UTF-8") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data:
        raise DataError(f"{path.name} holds binary data, expected a table as text; check its suffix")
    if b"\r" in data and b"\n" not in data:
        data = data.replace(b"\r", b"\n")  # of old Macintoshes
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if most is not None and error.start > len(data) - 4:
            return data[: error.start], []  # cut within a letter
        return data.decode("latin-1").encode(), ["the text is Latin-1"]
    return data, []


def _rows(data: bytes, dialect: Dialect) -> bytes:
    """The rows alone: without the lines before them and the header; runs of blanks as one tab."""
    start = 0
    for _ in range(dialect.first_row):
        start = data.find(b"\n", start) + 1 or len(data)
    if dialect.separator != " ":
        return data[start:] if start else data
    return b"\n".join(b"\t".join(line.split()) for line in data[start:].splitlines())


def _schema(polars: Any, rows: bytes, dialect: Dialect, texts: set[str]) -> dict[str, Any]:
    """Columns as text or numbers, by the first rows; all whole numbers as floats, as fractions may come later."""
    end = rows.rfind(b"\n", 0, HEAD_BYTES) + 1 or len(rows)
    head = _parsed(polars, rows[:end] if end < len(rows) else rows, dialect, None)
    types = {} if head is None else dict(zip(dialect.names, head.head(SCHEMA_ROWS).dtypes, strict=False))
    return {
        name: polars.Float64
        if name.lower() not in texts and name in types and types[name].is_numeric()
        else polars.String
        for name in dialect.names
    }


def _parsed(polars: Any, rows: bytes, dialect: Dialect, schema: dict[str, Any] | None) -> Any:
    """The frame; None where polars cannot read it so. Without a schema the types are made out of the first rows."""
    try:
        return polars.read_csv(
            io.BytesIO(rows),
            has_header=False,
            separator=_mark(dialect).decode(),
            decimal_comma=dialect.decimal_comma,
            null_values=MISSING,
            comment_prefix="#",
            infer_schema_length=SCHEMA_ROWS,
            **({"new_columns": list(dialect.names)} if schema is None else {"schema": schema}),
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
        return None


def _mended(polars: Any, path: Path, rows: bytes, dialect: Dialect, texts: set[str]) -> Any:
    """All columns as text, then those of numbers as numbers; what is wrong is said with its line."""
    frame = _parsed(polars, rows, dialect, dict.fromkeys(dialect.names, polars.String))
    if frame is None:
        for line, fields in _records(rows, dialect):
            if len(fields) > dialect.columns:
                came = f"expected {dialect.columns} fields, as in the first line, got {len(fields)}"
                raise DataError(f"{path.name} line {line + dialect.first_row}: {came}; mend the line")
        raise DataError(f"{path.name} cannot be read as a table by {SEPARATORS[dialect.separator]}; write it again")
    columns = [
        frame[name] if name.lower() in texts else _as_numbers(polars, path, frame[name], dialect)
        for name in frame.columns
    ]
    return polars.DataFrame(columns)


def _as_numbers(polars: Any, path: Path, column: Any, dialect: Dialect) -> Any:
    """A column of text as numbers where most of it is that."""
    text = column.str.strip_chars()
    plain = text.str.replace(",", ".", literal=True) if dialect.decimal_comma else text
    numbers = plain.cast(polars.Float64, strict=False)
    missing = text.is_null() | text.str.to_lowercase().is_in(list(NOT_MEASURED))
    bad = numbers.is_null() & ~missing
    if 2 * int(bad.sum()) > len(column) - int(missing.sum()):
        return column
    if bad.any():
        row = int(bad.arg_max())
        where = f"{path.name} line {line_of(path, dialect, row)}"
        raise no_number(column.name, where, str(column[row]))
    return numbers


def _mark(dialect: Dialect) -> bytes:
    return b"\t" if dialect.separator == " " else dialect.separator.encode()


def _without_cut_line(path: Path, rows: bytes, dialect: Dialect, frame: Any, notes: list[str]) -> Any:
    """Refuse a line with fewer fields than the others; the last one may be cut off and is left out."""
    short = [(line, len(fields)) for line, fields in _records(rows, dialect) if len(fields) < dialect.columns]
    short = [(line, count) for line, count in short if count > 0]
    if not short:
        return frame
    line, count = short[0]
    if len(short) > 1 or line < rows.rstrip().count(b"\n") + 1:
        came = f"expected {dialect.columns} fields, as in the first line, got {count}"
        raise DataError(f"{path.name} line {line + dialect.first_row}: {came}; mend the line")
    notes.append("the last line is cut off and left out")
    return frame.head(frame.height - 1)


def _records(rows: bytes, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row that is no comment, and the line at which it ends."""
    text = io.StringIO(rows.decode("utf-8", "replace"), newline="")
    reader = csv.reader(text, delimiter=_mark(dialect).decode())
    try:
        for fields in reader:
            if any(fields) and not fields[0].startswith("#"):
                yield reader.line_num, fields
    except csv.Error:
        return


def line_of(path: Path, dialect: Dialect, row: int) -> int:
    """The line of a file at which a row of its table ends."""
    lines = (line for line, _ in _records(_rows(as_utf8(path)[0], dialect), dialect))
    return next(islice(lines, row, None), row + 1) + dialect.first_row


def _note(dialect: Dialect) -> str:
    decimal = ", decimal commas" if dialect.decimal_comma else ""
    header = "a header" if dialect.header else "no header"
    before = f", {dialect.skipped} lines before it are left out" if dialect.skipped else ""
    columns = f"{dialect.columns} column{'s' * (dialect.columns > 1)}"
    between = f" between {SEPARATORS[dialect.separator]}" if dialect.columns > 1 else ""
    return f"{columns}{between}{decimal}, {header}{before}"


def _without_blank_end(frame: Any) -> Any:
    """polars reads the blank lines that end many files as rows of nulls."""
    n_blank = 0
    while n_blank < frame.height and all(value is None for value in frame.row(-1 - n_blank)):
        n_blank += 1
    return frame.head(frame.height - n_blank) if n_blank else frame


def load_polars(purpose: str) -> Any:
    """The library, or a line that says how to get it."""
    try:
        import polars
    except ImportError as error:
        raise MissingExtraError("polars", "frames", purpose) from error
    return polars
