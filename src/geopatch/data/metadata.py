"""Metadata of recordings from a sidecar table and from the names of folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from geopatch.data.delimited import load_polars, read_delimited
from geopatch.data.reading import InputFile, RecordingFile, Value
from geopatch.errors import ConfigError, DataError

KEYS = ("id", "record", "record_id", "recording", "file", "filename", "file_name", "path", "name")
FIELD = re.compile(r"\{(\w+)\}|\*")


@dataclass(frozen=True)
class MetadataTable:
    """A table with a row for each recording, found by the recording's id or its file's name.

    Parameters
    ----------
    name : str
        The table's file, for notes and errors.
    rows : mapping of str to mapping
        The fields of each row by its key.
    """

    name: str
    rows: Mapping[str, Mapping[str, Value]]
    used: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def read(cls, path: str | Path) -> MetadataTable:
        """Read a CSV, TSV, Parquet or Feather table.

        Its key is the column `id`, `record`, `file`, `path` or `name`, whichever comes first, else the first column.
        """
        path = Path(path)
        frame = _frame(path)
        names = [str(column) for column in frame.columns]
        key = next((name for wanted in KEYS for name in names if name.lower() == wanted), names[0])
        rows: dict[str, Mapping[str, Value]] = {}
        for row in frame.iter_rows(named=True):
            id = "" if row[key] is None else str(row[key]).strip()
            if id in rows:
                raise DataError(f"{path.name} has two rows for {key} {id!r}; leave one")
            if id:
                rows[id] = {name: _plain(value) for name, value in row.items() if name != key and value is not None}
        return cls(path.name, rows)

    def of(self, id: str, file: InputFile) -> Mapping[str, Value]:
        """The fields of a recording: by its id, else by its file's id, name or stem; empty where there is no row."""
        for key in (id, file.id, file.path.name, file.path.stem):
            if key in self.rows:
                self.used.add(key)
                return self.rows[key]
        return {}

    def unused(self) -> list[str]:
        """The keys of rows that no recording asked for so far."""
        return [key for key in self.rows if key not in self.used]


class PathPattern:
    """Fields in the names of folders and files, such as `{site}/{subject}/*`.

    Parameters
    ----------
    pattern : str
        Parts between slashes; `{name}` takes a field, `*` anything. It is laid over the end of a path.
    """

    def __init__(self, pattern: str) -> None:
        names = [match[1] for match in FIELD.finditer(pattern) if match[1]]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a pattern of paths has fields like {{site}}/{{subject}}/*, each once; got {pattern!r}")
        self.pattern, self.parts = pattern, pattern.strip("/").count("/") + 1
        pieces, place = [], 0
        for match in FIELD.finditer(pattern.strip("/")):
            pieces.append(re.escape(pattern.strip("/")[place : match.start()]))
            pieces.append(f"(?P<{match[1]}>[^/]+?)" if match[1] else "[^/]*")
            place = match.end()
        self.form = re.compile("".join(pieces) + re.escape(pattern.strip("/")[place:]))

    def of(self, path: Path) -> Mapping[str, str] | None:
        """The fields of a path, with or without its suffix; None where the pattern does not fit."""
        parts = path.absolute().parts[-self.parts :]
        whole = "/".join(parts)
        match = self.form.fullmatch(whole.removesuffix(path.suffix)) or self.form.fullmatch(whole)
        return None if match is None else match.groupdict()


def with_metadata(
    reading: RecordingFile, table: MetadataTable | None = None, pattern: PathPattern | None = None
) -> RecordingFile:
    """A file's recordings with what a table and the path say of them besides; the table wins over path and header.

    Parameters
    ----------
    reading : RecordingFile
        What `read_file` gives.
    table : MetadataTable, optional
        A row for each recording.
    pattern : PathPattern, optional
        Fields in the path of the file.
    """
    notes = list(reading.notes)
    from_path = {} if pattern is None else pattern.of(reading.file.path)
    if from_path is None:
        notes.append(f"its path does not fit {pattern.pattern if pattern else ''!r}: no metadata from it")
    metadata = []
    for own, recording in zip(reading.metadata, reading.recordings, strict=True):
        row = {} if table is None else table.of(recording.signal.id, reading.file)
        if table is not None and not row:
            notes.append(f"{table.name} has no row for {recording.signal.id!r}")
        metadata.append({**own, **(from_path or {}), **row})
    recordings = tuple(
        replace(recording, subject=str(row.get("subject", recording.subject)))
        for recording, row in zip(reading.recordings, metadata, strict=True)
    )
    return replace(reading, recordings=recordings, metadata=tuple(metadata), notes=tuple(notes))


def _frame(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv", ".txt"):
        return read_delimited(path).frame
    polars = load_polars("reading a table of metadata")
    readers = {".parquet": polars.read_parquet, ".feather": polars.read_ipc, ".arrow": polars.read_ipc}
    if suffix not in readers:
        raise DataError(f"{path.name}: expected a table of metadata as .csv, .tsv, .parquet or .feather")
    try:
        return readers[suffix](path)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path.name} cannot be read: {str(error).partition(chr(10))[0]}") from error


def _plain(value: object) -> Value:
    if isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
