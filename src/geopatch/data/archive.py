"""The text formats of the UEA/UCR archive: `.ts`, `.arff` and `.tsv`.

They are read here and not by aeon's loaders. On 24 `.ts` and 16 `.tsv` files of 20 sets the values are equal, but
aeon writes labels in lower case (2 sets; `A` and `a` become one class) and leaves the padding of unequal lengths in
the signals (3 sets). Its import takes 25 to 50 times the time and 6 times the memory; reading (also of `.arff` files
made of 11 of these sets) takes 0.8 to 1.6 times as long. Of 13 damaged files it reads 10 without a word (text in a
column, a file cut off before its data, labels that are not declared); these readers refuse all 13 and name the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from geopatch.data.collection import Collection
from geopatch.data.source import TextRow, at_line, check_file, collect, cut_padding, numbers, shown, text_lines

Lines = Iterator[tuple[int, str]]
Tags = dict[str, tuple[int, list[str]]]  # @tag in lower case -> its line and the words after it

ATTRIBUTE = re.compile(r"""@attribute\s+(?:'[^']*'|"[^"]*"|\S+)\s+(.+)""", re.IGNORECASE)
NOMINAL = re.compile(r"""'[^']*'|"[^"]*"|[^,]+""")
DIMENSION_BREAK = "\\n"


@dataclass(frozen=True)
class TsHeader:
    dimensions: int | None  # None: as many as the first row has
    equal_length: bool
    labelled: bool
    classes: tuple[str, ...] | None  # None: any label will do


def read_ts(path: str | Path) -> Collection:
    """Signals and labels of a `.ts` file: a header of @tags, then one signal a line, `dim:dim:label`.

    Its lengths are its own, so NaN at the end of a signal is kept.
    """
    path = check_file(path)
    lines = text_lines(path, comment="#")
    return collect(path, _ts_rows(path, _ts_header(path, _tags(path, lines)), lines))


def _tags(path: Path, lines: Lines) -> Tags:
    """The tags up to @data; `lines` then stands at the first row."""
    tags: Tags = {}
    line = 0
    for line, text in lines:
        if not text.startswith("@"):
            raise at_line(path, line, f"expected a header line with @, got {shown(text)}; rows follow after @data")
        tag, *words = text.split()
        tags[tag.lower()] = (line, words)
        if tag.lower() == "@data":
            return tags
    raise at_line(path, line, "expected @data and rows after it, got the end of the file; it may be cut off")


def _ts_header(path: Path, tags: Tags) -> TsHeader:
    if _flag(path, tags, "@timestamps"):
        raise at_line(path, tags["@timestamps"][0], "timestamps are not read; give the values alone, evenly sampled")
    labelled, classes = _classes(path, tags)
    return TsHeader(
        dimensions=_dimensions(path, tags),
        equal_length=_flag(path, tags, "@equallength"),
        labelled=labelled,
        classes=classes,
    )


def _flag(path: Path, tags: Tags, tag: str) -> bool:
    """A tag that is absent is false."""
    line, words = tags.get(tag, (0, ["false"]))
    word = words[0].lower() if words else ""
    if word not in ("true", "false"):
        raise at_line(path, line, f"expected {tag} true or {tag} false, got {shown(word)}")
    return word == "true"


def _dimensions(path: Path, tags: Tags) -> int | None:
    line, words = tags.get("@dimensions") or tags.get("@dimension") or (0, [])
    if not line:
        return 1 if _flag(path, tags, "@univariate") else None
    if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
        raise at_line(path, line, f"expected @dimensions and a number from 1, got {shown(' '.join(words))}")
    return int(words[0])


def _classes(path: Path, tags: Tags) -> tuple[bool, tuple[str, ...] | None]:
    """Whether rows end with a label, and which labels there are."""
    if _flag(path, tags, "@targetlabel"):
        return True, None
    if "@classlabel" not in tags:
        raise at_line(
            path, tags["@data"][0], "expected @classLabel before @data; add '@classLabel false' or true and the labels"
        )
    if not _flag(path, tags, "@classlabel"):
        return False, None
    line, (_, *classes) = tags["@classlabel"]
    if not classes:
        raise at_line(path, line, "expected the labels after '@classLabel true', got none; name every class")
    return True, tuple(classes)


def _ts_rows(path: Path, header: TsHeader, lines: Lines) -> Iterator[TextRow]:
    n_dimensions, length = header.dimensions, 0
    for line, text in lines:
        dimensions, label = _ts_fields(path, header, line, text, n_dimensions)
        values = numbers(path, line, dimensions)
        if header.equal_length and length and values.shape[1] != length:
            came = f"expected {length} samples, as in the first row, got {values.shape[1]}"
            raise at_line(path, line, f"{came}; mend the row or set @equalLength false")
        n_dimensions, length = values.shape
        yield TextRow(line, label, values)


def _ts_fields(
    path: Path, header: TsHeader, line: int, text: str, expected: int | None
) -> tuple[list[str], str | None]:
    dimensions = text.split(":")
    label = dimensions.pop().strip() if header.labelled else None
    if len(dimensions) != (expected or len(dimensions)) or not dimensions:
        ending = " and then the label" if header.labelled else ""
        raise at_line(
            path,
            line,
            f"expected {expected or 'some'} dimensions{ending}, got {len(dimensions)}; "
            "':' stands between dimensions and before the label",
        )
    if header.classes is not None and label not in header.classes:
        declared = shown(" ".join(header.classes))
        raise at_line(path, line, f"label {shown(label or '')} is not declared; @classLabel has {declared}")
    return dimensions, label


@dataclass(frozen=True)
class ArffHeader:
    length: int  # samples in each dimension, as declared
    relational: bool
    classes: tuple[str, ...]


def read_arff(path: str | Path) -> Collection:
    """Signals and labels of an `.arff` file. Samples at its end that no channel measured are padding and cut off.

    `0.1,0.2,0.3,walking` is a row of one channel, a number for each attribute and the class last. A row of two channels
    is `'0.1,0.2,0.3\\n1.1,1.2,1.3',walking`, where `\\n` is a backslash and an n.
    """
    path = check_file(path)
    lines = text_lines(path, comment="%")
    return collect(path, _arff_rows(path, _arff_header(path, lines), lines))


def _arff_header(path: Path, lines: Lines) -> ArffHeader:
    """The attributes up to @data; `lines` then stands at the first row."""
    kinds: list[str] = []
    relational, line = False, 0
    for line, text in lines:
        tag = text.split()[0].lower()
        if tag == "@data":
            return _arff_attributes(path, line, kinds, relational)
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
    match = ATTRIBUTE.match(text)
    if not match:
        raise at_line(path, line, f"expected '@attribute name type', got {shown(text)}")
    return match[1].strip()


def _arff_attributes(path: Path, line: int, kinds: list[str], relational: bool) -> ArffHeader:
    if len(kinds) < 2 or not kinds[-1].startswith("{"):
        raise at_line(path, line, "expected numeric attributes and then the class; declare it last, as {one,two}")
    classes = tuple(_unquoted(name) for name in NOMINAL.findall(kinds[-1].strip("{}")))
    return ArffHeader(length=len(kinds) - 1, relational=relational, classes=classes)


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")


def _arff_rows(path: Path, header: ArffHeader, lines: Lines) -> Iterator[TextRow]:
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
        yield TextRow(line, _unquoted(label), cut_padding(numbers(path, line, dimensions)))


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


def read_tsv(path: str | Path, separator: str | None = None) -> Collection:
    """Signals and labels of a text file: one signal of one channel a line, its class first.

    Tabs stand between the numbers, or blanks in lines without a tab, unless another separator is named.

    NaN at the end pads shorter signals and is cut off; NaN within is what was not measured and stays.
    """
    path = check_file(path)
    return collect(path, _tsv_rows(path, separator))


def _tsv_rows(path: Path, separator: str | None) -> Iterator[TextRow]:
    expected = 0
    for line, text in text_lines(path):
        label, samples = _class_first(text, separator)
        if not label or not samples:
            raise at_line(path, line, f"expected a label, a tab and numbers between tabs, got {shown(text)}")
        values = numbers(path, line, [samples])
        if expected and values.shape[1] != expected:
            came = f"expected {expected} samples, as in the first row, got {values.shape[1]}"
            raise at_line(path, line, f"{came}; pad shorter signals with NaN")
        expected = values.shape[1]
        yield TextRow(line, label, cut_padding(values))


def _class_first(text: str, separator: str | None) -> tuple[str, str]:
    """The label, and the numbers with commas between them; nothing where a comma is a decimal mark."""
    if separator not in (None, "\t", " "):
        fields = text.split(separator)
    elif "," in text:  # 0,5 is not two samples
        return "", ""
    else:
        fields = text.split("\t") if "\t" in text else text.split()
    return fields[0].strip(), ",".join(fields[1:])
