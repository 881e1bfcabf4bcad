"""The `.ts` format of the UEA/UCR archive: a header of @tags, then one signal a line, `dim:dim:label`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from geopatch.data.collection import Collection
from geopatch.data.source import Row, at_line, check_file, collect, numbers, shown, text_lines

Lines = Iterator[tuple[int, str]]
Tags = dict[str, tuple[int, list[str]]]  # @tag in lower case -> its line and the words after it


@dataclass(frozen=True)
class Header:
    dimensions: int | None  # None: as many as the first row has
    equal_length: bool
    labelled: bool
    classes: tuple[str, ...] | None  # None: any label will do


def read_ts(path: str | Path) -> Collection:
    """Signals and labels of a `.ts` file. Its lengths are its own, so NaN at the end of a signal is kept."""
    path = check_file(path)
    lines = text_lines(path, comment="#")
    return collect(path, _rows(path, _header(path, _tags(path, lines)), lines))


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


def _header(path: Path, tags: Tags) -> Header:
    if _flag(path, tags, "@timestamps"):
        raise at_line(path, tags["@timestamps"][0], "timestamps are not read; give the values alone, evenly sampled")
    labelled, classes = _classes(path, tags)
    return Header(
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


def _rows(path: Path, header: Header, lines: Lines) -> Iterator[Row]:
    n_dimensions, length = header.dimensions, 0
    for line, text in lines:
        dimensions, label = _split(path, header, line, text, n_dimensions)
        values = numbers(path, line, dimensions)
        if header.equal_length and length and values.shape[1] != length:
            came = f"expected {length} samples, as in the first row, got {values.shape[1]}"
            raise at_line(path, line, f"{came}; mend the row or set @equalLength false")
        n_dimensions, length = values.shape
        yield Row(line, label, values)


def _split(path: Path, header: Header, line: int, text: str, expected: int | None) -> tuple[list[str], str | None]:
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
