"""Tables as text: encoding, separator, decimal mark and header are made out first, then polars reads the numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from geopatch.errors import DataError, MissingExtraError
from geopatch.frames import ID_NAMES, LABEL, MANY_COLUMNS, NOT_MEASURED, name_step

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
HEAD_LINES = 60
NAMES_OF_ROWS = ID_NAMES | {LABEL, "class"}
MISSING = sorted(
    {form for word in NOT_MEASURED if word for form in (word, word.upper(), word.title())} | {"NaN", "N/a"}
)
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
BLANKS = re.compile(rb"[ \t]+")
MAX_COLUMNS = 100_000
SPLIT_NAME = re.compile(r".*_(TRAIN|TEST)", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How a table is written."""

    separator: str
    decimal_comma: bool
    header: bool
    columns: int
    skipped: int  # lines before the first of the table: comments and blank ones
    names: tuple[str, ...]
    first_is_text: bool  # without a header: the first field of a row is a word, as the class in archive files

    def rows_are_signals(self, stem: str) -> bool:
        """Whether a table without a header is of the archive's form: a signal a row, its class first."""
        return not self.header and (
            self.first_is_text or self.columns > MANY_COLUMNS or SPLIT_NAME.fullmatch(stem) is not None
        )


@dataclass(frozen=True, eq=False)
class TextTable:
    """A frame of what stands in a text file, and what was made out of how it is written."""

    frame: Any  # of polars
    dialect: Dialect
    notes: tuple[str, ...]
    lines: tuple[int, ...] | None = None


def as_utf8(path: Path) -> tuple[bytes, list[str]]:
    """The bytes of a text file as UTF-8 without a byte order mark, and a note where they were something else."""
    data = path.read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16").encode(), ["the text is UTF-16"]
        except UnicodeDecodeError as error:
            raise DataError(f"{path.name} starts as UTF-16 text but is none; save it as UTF-8") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if b"\0" in data[:4096]:
        raise DataError(f"{path.name} holds binary data, expected a table as text; check its suffix")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:0])
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1").encode(), ["the text is Latin-1"]
    return data, []


def read_delimited(path: Path) -> TextTable:
    """The table of a text file."""
    polars = load_polars("reading a table as text")
    data, notes = as_utf8(path)
    if b"\r" in data and b"\r\n" not in data[:100_000] and b"\n" not in data[:100_000]:
        data = data.replace(b"\r", b"\n")
    dialect = sniff(data, path)
    separator = dialect.separator
    if dialect.rows_are_signals(path.stem):
        return TextTable(None, dialect, tuple(notes))
    data = _plain(data, dialect)
    try:
        frame = polars.read_csv(
            io.BytesIO(data),
            has_header=False,
            new_columns=list(dialect.names),
            separator="\t" if separator == " " else separator,
            decimal_comma=dialect.decimal_comma,
            null_values=MISSING,
            skip_rows=0,
            infer_schema_length=1000,
            raise_if_empty=True,
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
        frame = _as_text(polars, path, data, dialect)
    notes.append(_note(dialect))
    return TextTable(_without_blank_end(frame), dialect, tuple(notes))


def _as_text(polars: Any, path: Path, data: bytes, dialect: Dialect) -> Any:
    """All columns as text: a word stands where the first thousand rows had numbers, which the reader of them names."""
    try:
        return polars.read_csv(
            io.BytesIO(data),
            has_header=False,
            new_columns=list(dialect.names),
            separator="\t" if dialect.separator == " " else dialect.separator,
            infer_schema_length=0,
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        for line, fields in _records(data, dialect):
            if len(fields) > dialect.columns:
                raise DataError(
                    f"{path.name} line {line + dialect.skipped + dialect.header}: expected {dialect.columns} fields, "
                    f"as in the first line, got {len(fields)}; mend the line"
                ) from error
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path.name} cannot be read as a table: {reason}; write it again") from error


def _records(data: bytes, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    separator = "\t" if dialect.separator == " " else dialect.separator
    reader = csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline=""), delimiter=separator)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error:
        return


def line_of(path: Path, table: TextTable, row: int) -> int:
    """The line of a file at which a row of its table ends; quoted fields may span lines."""
    data = _plain(as_utf8(path)[0], table.dialect)
    rows = (line for line, fields in _records(data, table.dialect) if fields)
    before = table.dialect.skipped + table.dialect.header
    return next(islice(rows, row, None), row + 1) + before


def _plain(data: bytes, dialect: Dialect) -> bytes:
    """The rows alone: without the lines before them and the header; runs of blanks as one tab."""
    start = 0
    for _ in range(dialect.skipped + dialect.header):
        start = data.find(b"\n", start) + 1
    data = data[start:]
    if dialect.separator != " ":
        return data
    return b"\n".join(BLANKS.sub(b"\t", line.strip()) for line in data.splitlines())


def sniff(data: bytes, path: Path) -> Dialect:
    """How a table is written, from its first lines."""
    lines, skipped = _head(data)
    if not lines:
        raise DataError(f"{path.name} holds no table: it has no line of text")
    separator, decimal_comma = _separator(lines)
    rows = [_fields(line, separator) for line in lines]
    first, others = rows[0], rows[1:]
    if len(first) > MAX_COLUMNS:
        raise DataError(f"{path.name} has {len(first)} columns, more than the {MAX_COLUMNS} that a table may have")
    header = _is_header(first, others, decimal_comma)
    columns = len(first)
    if header and others and len(others[0]) == columns + 1 and not others[0][-1].strip():
        columns += 1  # rows end with a separator that the header lacks
        first = [*first, ""]
    names = (
        tuple(_distinct(path, [name.strip() for name in first])) if header else tuple(map(str, range(1, columns + 1)))
    )
    text = bool(others or first) and not _is_number(first[0], decimal_comma) and not header
    return Dialect(separator, decimal_comma, header, columns, skipped, names, text)


def _head(data: bytes) -> tuple[list[str], int]:
    """The first lines of the table, and how many before it are comments or blank."""
    lines: list[str] = []
    skipped = 0
    for raw in islice(io.BytesIO(data), 10_000):
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not lines and (not text.strip() or text.lstrip().startswith("#")):
            skipped += 1
        elif text.strip():
            lines.append(text)
        if len(lines) == HEAD_LINES:
            break
    return lines, skipped


def _separator(lines: list[str]) -> tuple[str, bool]:
    """The separator that cuts every line into as many fields, and whether commas are decimal marks."""
    best, best_key = " ", (0, 0)
    for mark in SEPARATORS:
        counts = [len(_fields(line, mark)) for line in lines]
        width = counts[-1] if len(counts) < 3 else sorted(counts[1:])[len(counts) // 2]
        alike = sum(count == width for count in counts)
        key = (alike * (width > 1), {";": 3, "\t": 3, "|": 2, ",": 2, " ": 1}[mark])
        if width > 1 and key > best_key:
            best, best_key = mark, key
    if best_key[0] == 0:
        best = ","
    fields = [field.strip() for line in lines[1:] or lines for field in _fields(line, best)]
    commas = best != "," and any("," in field for field in fields)
    decimal = commas and all(DECIMAL_COMMA.fullmatch(field) for field in fields if "," in field and ":" not in field)
    return best, decimal


def _fields(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def _is_header(first: list[str], others: list[list[str]], decimal_comma: bool) -> bool:
    """Whether the first line holds names: words over numbers, or 0, 1, 2, ... as pandas numbers columns."""
    numbers = [_is_number(field, decimal_comma) for field in first]
    if all(numbers):
        return len(first) > 2 and [field.strip() for field in first] == [str(n) for n in range(len(first))]
    if _is_archive_row(numbers):
        return first[0].strip().lower() in NAMES_OF_ROWS or name_step(first[1:]) is not None
    if not others:
        return True
    below = [any(_is_number(row[n], decimal_comma) for row in others if n < len(row)) for n in range(len(first))]
    words_over_numbers = any(is_below and not number for number, is_below in zip(numbers, below, strict=True))
    return words_over_numbers or not any(below)


def _is_archive_row(numbers: list[bool]) -> bool:
    """A word and then numbers: a class and a signal."""
    return len(numbers) > 1 and not numbers[0] and all(numbers[1:])


def _is_number(field: str, decimal_comma: bool) -> bool:
    text = field.strip().strip("\"'")
    try:
        float(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        return text.lower() in NOT_MEASURED and bool(text)
    return "_" not in text


def _distinct(path: Path, names: list[str]) -> list[str]:
    names = [name.strip("\"'").strip() for name in names]
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen and name:
            raise DataError(
                f"{path.name}: expected a header with different column names, got {name!r} twice; rename one"
            )
        seen.add(name)
        names[n] = name or ("" if n == 0 else f"column {n + 1}")
    return names


def _note(dialect: Dialect) -> str:
    decimal = ", decimal commas" if dialect.decimal_comma else ""
    return f"{dialect.columns} columns by {SEPARATORS[dialect.separator]}{decimal}, {'with' if dialect.header else 'no'} header"


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
