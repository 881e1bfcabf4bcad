"""The `.arff` format of the UEA/UCR archive: one channel, or several as a relation quoted within the row.

`0.1,0.2,0.3,walking` is a row of one channel, a number for each attribute and the class last. A row of two channels is
`'0.1,0.2,0.3\\n1.1,1.2,1.3',walking`, where `\\n` is a backslash and an n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from geopatch.data.collection import Collection
from geopatch.data.source import Row, at_line, check_file, collect, cut_padding, numbers, shown, text_lines

Lines = Iterator[tuple[int, str]]

ATTRIBUTE = re.compile(r"""@attribute\s+(?:'[^']*'|"[^"]*"|\S+)\s+(.+)""", re.IGNORECASE)
NOMINAL = re.compile(r"""'[^']*'|"[^"]*"|[^,]+""")
DIMENSION_BREAK = "\\n"


@dataclass(frozen=True)
class Header:
    length: int  # samples in each dimension, as declared
    relational: bool
    classes: tuple[str, ...]


def read_arff(path: str | Path) -> Collection:
    """Signals and labels of an `.arff` file. Samples at its end that no channel measured are padding and cut off."""
    path = check_file(path)
    lines = text_lines(path, comment="%")
    return collect(path, _rows(path, _header(path, lines), lines))


def _header(path: Path, lines: Lines) -> Header:
    """The attributes up to @data; `lines` then stands at the first row."""
    kinds: list[str] = []
    relational, line = False, 0
    for line, text in lines:
        tag = text.split()[0].lower()
        if tag == "@data":
            return _checked_header(path, line, kinds, relational)
        if tag == "@attribute":
            kind = _attribute_kind(path, line, text)
            if kind.lower() == "relational":
                relational = True
            else:
                kinds.append(kind)
        elif tag not in ("@relation", "@end"):
            raise at_line(path, line, f"expected @relation, @attribute or @end, got {shown(text)}; rows follow @data")
    raise at_line(path, line, "expected @data and rows after it, got the end of the file; it may be cut off")


def _attribute_kind(path: Path, line: int, text: str) -> str:
    found = ATTRIBUTE.match(text)
    if not found:
        raise at_line(path, line, f"expected '@attribute name type', got {shown(text)}")
    return found[1].strip()


def _checked_header(path: Path, line: int, kinds: list[str], relational: bool) -> Header:
    if len(kinds) < 2 or not kinds[-1].startswith("{"):
        raise at_line(path, line, "expected numeric attributes and then the class; declare it last, as {one,two}")
    classes = tuple(_unquoted(name) for name in NOMINAL.findall(kinds[-1].strip("{}")))
    return Header(length=len(kinds) - 1, relational=relational, classes=classes)


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")


def _rows(path: Path, header: Header, lines: Lines) -> Iterator[Row]:
    n_dimensions = 0
    for line, text in lines:
        body, label = _relational(path, line, text) if header.relational else text.rpartition(",")[::2]
        if _unquoted(label) not in header.classes:
            declared = shown(",".join(header.classes))
            raise at_line(
                path, line, f"label {shown(_unquoted(label))} is not declared; the class attribute has {declared}"
            )
        dimensions = body.split(DIMENSION_BREAK)
        _check_shape(path, line, dimensions, n_dimensions or len(dimensions), header.length)
        n_dimensions = len(dimensions)
        yield Row(line, _unquoted(label), cut_padding(numbers(path, line, dimensions)))


def _relational(path: Path, line: int, text: str) -> tuple[str, str]:
    body, quote, rest = text[1:].partition(text[0])
    if text[0] not in "'\"" or not quote or not rest.lstrip().startswith(","):
        raise at_line(path, line, f"expected dimensions in quotes, a comma and the label, got {shown(text)}")
    return body, rest.lstrip()[1:]


def _check_shape(path: Path, line: int, dimensions: list[str], n_dimensions: int, length: int) -> None:
    if len(dimensions) != n_dimensions:
        came = f"expected {n_dimensions} dimensions, as in the first row, got {len(dimensions)}"
        raise at_line(path, line, rf"{came}; '\n' stands between dimensions")
    for number, dimension in enumerate(dimensions, start=1):
        if dimension.count(",") + 1 != length:
            came = f"expected {length} samples, as declared, got {dimension.count(',') + 1} in dimension {number}"
            raise at_line(path, line, f"{came}; pad shorter signals with ?")
