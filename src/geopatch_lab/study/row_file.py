"""The rows of a study in one packed file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from geopatch.evaluate.rows import Row, read_rows
from geopatch.storage import atomic_file
from geopatch_lab.study.classification import PROTOCOL
from geopatch_lab.study.journal import Journal

DIGITS = 5  # of a score


def compact(rows: Sequence[Row]) -> list[Row]:
    """Rows without what tables do not need: classes one by one, and more digits than matter."""
    compacted: list[Row] = []
    for row in rows:
        scores = {name: round(value, DIGITS) for name, value in row.scores.items()}
        short = replace(row, per_class={}, scores=scores, peak_memory_mb=None)
        compacted.append(replace(short, fit_s=round(row.fit_s, 2), encode_s=round(row.encode_s, 3)))
    return compacted


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Packed: the same rows are the same bytes."""
    text = "".join(_line(row) + "\n" for row in rows)
    with atomic_file(path) as partial:
        partial.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def added(path: Path, folders: Sequence[Path]) -> None:
    """Put the rows of more jobs into a file of rows, in the place of those of the same method, set, target and seed."""
    ended = [entry for folder in folders for entry in Journal(folder).entries().values() if not entry.reason]
    more = compact([row for entry in ended for row in entry.rows])
    replaced = {_fit_of(row) for row in more}
    write_rows(path, [*(row for row in read_rows(path) if _fit_of(row) not in replaced), *more])


def _fit_of(row: Row) -> tuple[object, ...]:
    return row.data, row.target, row.preset, row.seed, row.protocol == PROTOCOL


def _line(row: Row) -> str:
    payload = {name: value for name, value in row.as_dict().items() if name not in ("per_class", "failures") or value}
    return json.dumps(payload, separators=(",", ":"))
