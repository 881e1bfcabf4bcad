"""How a table is written as text: separator, decimal mark, header and units, made out of its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from geopatch.columns import ID_NAMES, LABEL, MANY_COLUMNS, NOT_MEASURED, TIME_NAMES, are_times, is_float, name_step
from geopatch.errors import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
PREFERENCE = {";": 3, "\t": 3, "|": 2, ",": 2, " ": 1}  # where two cut all lines alike
HEAD_LINES, MOST_SKIPPED = 100, 1000
MAX_COLUMNS = 100_000
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
SPLIT_NAME = re.compile(r".*_(TRAIN|TEST)", re.IGNORECASE)
KNOWN_NAMES = ID_NAMES | TIME_NAMES | {LABEL, "class"}


@dataclass(frozen=True)
class Dialect:
    """How a table is written.

    Without a header a table is of the archive's form, a signal a row and its class first, where rows start with a word,
    have more than 64 fields, or the file is called `..._TRAIN` or `..._TEST`.
    """

    separator: str
    decimal_comma: bool
    header: bool
    names: tuple[str, ...]
    skipped: int  # lines before the table that are no part of it
    first_row: int  # lines before the first row
    starts_with_word: bool  # the first row does

    @property
    def columns(self) -> int:
        return len(self.names)

    def rows_are_signals(self, stem: str) -> bool:
        many, named = self.columns > MANY_COLUMNS, SPLIT_NAME.fullmatch(stem) is not None
        return not self.header and self.columns > 1 and (self.starts_with_word or many or named)


def sniff(data: bytes, path: Path) -> Dialect:
    """How a table is written, from its first lines."""
    numbered = _head(data)
    if not numbered:
        raise DataError(f"{path.name} holds no table: it has no line of text")
    separator = _separator([line for _, line in numbered])
    rows = [(number, _fields(line, separator)) for number, line in numbered]
    rows = _without_preamble(rows)
    fields = [row for _, row in rows]
    if len(fields[0]) > MAX_COLUMNS:
        raise DataError(f"{path.name} has {len(fields[0])} columns, more than the {MAX_COLUMNS} that a table may have")
    decimal_comma = separator != "," and _has_decimal_commas(fields)
    header = _is_header(fields[0], fields[1:], decimal_comma)
    units = header and _is_unit_row(fields, decimal_comma)
    width = max(len(row) for row in fields[:3])
    names = _names(path, fields[0], fields[1] if units else None, width) if header else map(str, range(1, width + 1))
    first_row = rows[header + units][0] - 1 if len(rows) > header + units else rows[-1][0]
    word = not header and not _is_number(fields[0][0], decimal_comma) and not are_times(fields[0][:1])
    skipped = rows[0][0] - 1
    return Dialect(separator, decimal_comma, header, tuple(names), skipped, first_row, word)


def _head(data: bytes) -> list[tuple[int, str]]:
    """The first lines that are neither blank nor comments, numbered from 1."""
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(islice(io.BytesIO(data), MOST_SKIPPED + HEAD_LINES), start=1):
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if text.strip() and not text.lstrip().startswith("#"):
            lines.append((number, text))
        if len(lines) == HEAD_LINES:
            break
    return lines


def _separator(lines: Sequence[str]) -> str:
    """The one that cuts most lines into as many fields."""
    best, best_key = ",", (0, 0)
    for mark, preference in PREFERENCE.items():
        widths = Counter(len(_fields(line, mark)) for line in lines)
        width, alike = max(widths.items(), key=lambda item: (item[1], item[0]))
        key = (alike if width > 1 else 0, preference)
        if key[0] and key > best_key:
            best, best_key = mark, key
    return best


def _fields(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def _without_preamble(rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """From the first line on that has as many fields as most: loggers write what they are before the table."""
    width = Counter(len(row) for _, row in rows).most_common(1)[0][0]
    first = next(n for n, (_, row) in enumerate(rows) if len(row) == width)
    if first and len(rows[first - 1][1]) == width - 1 > 1 and not any(_is_number(f, False) for f in rows[first - 1][1]):
        number, names = rows[first - 1]
        return [(number, ["", *names]), *rows[first:]]  # R names no column for the names of its rows
    return rows[first:]


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    commas = [field.strip() for row in rows[1:] or rows for field in row if "," in field and ":" not in field]
    return bool(commas) and all(DECIMAL_COMMA.fullmatch(field) for field in commas)


def _is_header(first: Sequence[str], others: Sequence[Sequence[str]], decimal_comma: bool) -> bool:
    """Whether the first line holds names: words over numbers, or 0, 1, 2, ... as pandas numbers columns."""
    numbers = [_is_number(field, decimal_comma) for field in first]
    if all(numbers):
        return len(first) > 2 and [field.strip() for field in first] == [str(n) for n in range(len(first))]
    names = [field.strip().strip("\"'").lower() for field in first]
    if any(name in KNOWN_NAMES for name in names):
        return True
    if len(first) > 1 and not numbers[0] and all(numbers[1:]):  # a class and a signal, or names of samples
        return len(first) > 4 and name_step(names[1:]) is not None
    below = [any(_is_number(row[n], decimal_comma) for row in others if n < len(row)) for n in range(len(first))]
    return not any(below) or any(under and not own for own, under in zip(numbers, below, strict=True))


def _is_unit_row(rows: Sequence[Sequence[str]], decimal_comma: bool) -> bool:
    """Whether the second line holds units: words between the names and the numbers."""
    if len(rows) < 3 or len(rows[1]) != len(rows[0]):
        return False
    second = [_is_number(field, decimal_comma) for field in rows[1]]
    third = [_is_number(field, decimal_comma) for field in rows[2]]
    return not any(second) and any(field.strip() for field in rows[1]) and 2 * sum(third) > len(third)


def _is_number(field: str, decimal_comma: bool) -> bool:
    text = field.strip().strip("\"'")
    return is_float(text.replace(",", ".") if decimal_comma else text) or (text.lower() in NOT_MEASURED and bool(text))


def _names(path: Path, fields: Sequence[str], units: Sequence[str] | None, width: int) -> list[str]:
    """The names of the columns, with their units in brackets where a line below says them."""
    names = [name.strip().strip("\"'").strip() for name in fields] + [""] * (width - len(fields))
    if units is not None:
        plain = [unit.strip().strip("\"'()[] ") for unit in units]
        names = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, plain, strict=True)]
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name and name in seen:
            came = f"got {name[:40]!r} twice"
            raise DataError(f"{path.name}: expected a header with different column names, {came}; rename one")
        seen.add(name)
        names[n] = name or ("" if n == 0 else f"column {n + 1}")
    return names
