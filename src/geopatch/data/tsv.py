"""The `.tsv` format of the UCR archive: one signal of one channel a line, its class first, then its samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geopatch.data.collection import Collection
from geopatch.data.source import Row, at_line, check_file, collect, cut_padding, numbers, shown, text_lines


def read_tsv(path: str | Path) -> Collection:
    """Signals and labels of a `.tsv` or `.txt` file between tabs, or between spaces in lines without a tab.

    NaN at the end pads shorter signals and is cut off; NaN within is what was not measured and stays.
    """
    path = check_file(path)
    return collect(path, _rows(path))


def _rows(path: Path) -> Iterator[Row]:
    expected = 0
    for line, text in text_lines(path):
        label, _, samples = (text if "\t" in text else "\t".join(text.split())).replace("\t", ",").partition(",")
        if not label or not samples or "," in text:  # 0,5 is not two samples
            raise at_line(path, line, f"expected a label, a tab and numbers between tabs, got {shown(text)}")
        values = numbers(path, line, [samples])
        if expected and values.shape[1] != expected:
            came = f"expected {expected} samples, as in the first row, got {values.shape[1]}"
            raise at_line(path, line, f"{came}; pad shorter signals with NaN")
        expected = values.shape[1]
        yield Row(line, label, cut_padding(values))
