"""The rows of a gallery in one SQLite file: a change is on disk when its call returns, or did not happen at all.

Readers in other processes see every change that was made before they look, also while a writer is at work.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from geopatch.engines.about import About
from geopatch.engines.contents import Contents, contents_from
from geopatch.engines.entry import Entries, Metadata, Value
from geopatch.engines.packing import Row, as_entries, detail_row, dump, entry_row
from geopatch.errors import GalleryError, NotFoundError

FILE = "gallery.sqlite"
PAGE_BYTES = 32768  # tokens of one entry take about 4 kB: several fit into a page with little left over
AT_ONCE = 500  # ids in one statement
MAPPED_BYTES = 2**31 - 2**16  # as much as SQLite maps
BUSY_MS = 10_000
FREE_SHARE = 0.1
PAGE_COUNTS = ("freelist_count", "page_count")

# `n` grows with every write and is never used again, so that what is new since a moment is what has a larger n; `gone`
# tells what is no longer there since the index was built. `tag` has a row for every metadata value, record and time in
# its own type (flags as blobs, so that true is not 1): filters are answered from it.
SCHEMA = """
CREATE TABLE about (engine TEXT NOT NULL, told TEXT NOT NULL);
CREATE TABLE entry (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL,
    start_s REAL NOT NULL, stop_s REAL NOT NULL, metadata TEXT NOT NULL, embedding BLOB NOT NULL);
CREATE TABLE detail (n INTEGER PRIMARY KEY, tokens BLOB NOT NULL, valid BLOB NOT NULL, patch_s BLOB NOT NULL,
    window BLOB);
CREATE TABLE tag (name TEXT NOT NULL, value NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (name, value, n)) WITHOUT ROWID;
CREATE TABLE gone (at INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER NOT NULL);
CREATE TABLE indexed (generation INTEGER NOT NULL, last INTEGER NOT NULL, windows INTEGER NOT NULL);
INSERT INTO indexed VALUES (0, 0, 0);
"""
ENTRY = "id, record, start_s, stop_s, metadata, embedding"
COLUMNS = f"n, {ENTRY}, tokens, valid, patch_s, window"
NO_PLACE = "name NOT IN ('record', 'start_s', 'stop_s')"
INSERT_DETAIL = "INSERT INTO detail (n, tokens, valid, patch_s, window) VALUES (?, ?, ?, ?, ?)"

T = TypeVar("T")


class Rows:
    """Entries in a file. All calls of one process share a connection, one at a time."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        with _one_line_errors(folder):
            self._connection = _connect(folder, read_only)
            told = self._connection.execute("SELECT told FROM about").fetchone()[0]
        self.about = About.from_dict(json.loads(told), folder)

    @staticmethod
    def create(folder: Path, about: About, engine: str) -> None:
        """An empty file in an existing folder, for the engine of that name."""
        with _one_line_errors(folder):
            connection = sqlite3.connect(folder / FILE, isolation_level=None)
            try:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {SCHEMA}")
                connection.execute("INSERT INTO about VALUES (?, ?)", (engine, json.dumps(about.as_dict())))
                connection.execute("COMMIT")
            finally:
                connection.close()

    def put(self, entries: Entries) -> None:
        with self.writing() as connection:
            _delete(connection, entries.ids)
            for n in range(len(entries)):
                place = _insert(connection, entry_row(entries, n))
                connection.execute(INSERT_DETAIL, (place, *detail_row(entries, n)))

    def remove(self, ids: Sequence[str]) -> int:
        with self.writing() as connection:
            return _delete(connection, ids)

    def update(self, id: str, metadata: Metadata) -> None:
        """The entry moves to a new n: whoever remembers the old one sees that it is gone."""
        with self.writing() as connection:
            found = connection.execute(f"SELECT n, {ENTRY} FROM entry WHERE id = ?", (id,)).fetchone()
            if found is None:
                raise unknown_id(self.folder, id)
            old, *row = found
            _delete_entry(connection, old, row)
            place = _insert(connection, (*row[:4], dump(metadata), row[5]))
            connection.execute("UPDATE detail SET n = ? WHERE n = ?", (place, old))

    def fetch(self, ids: Sequence[str], with_windows: bool = True) -> Entries:
        found: dict[str, Row] = {}
        columns = COLUMNS if with_windows else COLUMNS.replace("window", "NULL")
        for chunk in chunks(ids):
            query = f"SELECT {columns} FROM entry JOIN detail USING (n) WHERE id IN ({marks(chunk)})"
            found |= {row[1]: row for row in self.read(query, chunk)}
        missing = next((id for id in ids if id not in found), None)
        if missing is not None:
            raise unknown_id(self.folder, missing)
        return as_entries([found[id] for id in ids], self.about)

    def known(self, ids: Sequence[str]) -> set[str]:
        parts = (self.read(f"SELECT id FROM entry WHERE id IN ({marks(chunk)})", chunk) for chunk in chunks(ids))
        return {row[0] for part in parts for row in part}

    def count(self) -> int:
        return int(self.read("SELECT count(*) FROM entry")[0][0])

    def scan(self, batch_size: int) -> Iterator[Entries]:
        """All entries in the order they were written."""
        query, last = f"SELECT {COLUMNS} FROM entry JOIN detail USING (n) WHERE n > ? ORDER BY n LIMIT ?", 0
        while rows := self.read(query, (last, batch_size)):
            last = rows[-1][0]
            yield as_entries(rows, self.about)

    def pick(self, numbers: Sequence[int], batch_size: int) -> Iterator[Entries]:
        """The entries with these n that are there still, in order."""
        for chunk in chunks(numbers, min(batch_size, AT_ONCE)):
            query = f"SELECT {COLUMNS} FROM entry JOIN detail USING (n) WHERE n IN ({marks(chunk)}) ORDER BY n"
            if rows := self.read(query, chunk):
                yield as_entries(rows, self.about)

    def contents(self) -> Contents:
        with self.looking():
            records = self.read("SELECT record, count(*), min(start_s), max(stop_s) FROM entry GROUP BY record")
            counted = self.read(f"SELECT name, value, count(*) FROM tag WHERE {NO_PLACE} GROUP BY name, value")
        values = ((name, value == b"\1" if isinstance(value, bytes) else value, n) for name, value, n in counted)
        return contents_from(records, values)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Every read in this block sees the gallery at one moment."""
        with self._lock, _one_line_errors(self.folder):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, _one_line_errors(self.folder):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A change that happens whole or not at all."""
        with self._lock, _one_line_errors(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def vacuum(self) -> None:
        """Give the space of what was removed back, where it is worth copying the rest."""
        with self._lock, _one_line_errors(self.folder):
            free, pages = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PAGE_COUNTS)
            if free > FREE_SHARE * pages:
                self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()


def engine_of(folder: Path) -> str:
    """The name of the engine that a folder belongs to."""
    with _one_line_errors(folder):
        connection = _connect(folder, read_only=True)
        try:
            return str(connection.execute("SELECT engine FROM about").fetchone()[0])
        finally:
            connection.close()


def chunks(values: Sequence[T], size: int = AT_ONCE) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def unknown_id(place: object, id: str) -> NotFoundError:
    return NotFoundError(f"gallery {place} has no entry {id!r}")


def _insert(connection: sqlite3.Connection, row: Sequence[Any]) -> int | None:
    place = connection.execute(f"INSERT INTO entry ({ENTRY}) VALUES (?, ?, ?, ?, ?, ?)", tuple(row)).lastrowid
    connection.executemany("INSERT INTO tag VALUES (?, ?, ?)", _tags(place, row))
    return place


def _delete(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    removed = 0
    for chunk in chunks(ids):
        found = connection.execute(
            f"SELECT n, {ENTRY} FROM entry WHERE id IN ({marks(chunk)})", tuple(chunk)
        ).fetchall()
        for n, *row in found:
            _delete_entry(connection, n, row)
            connection.execute("DELETE FROM detail WHERE n = ?", (n,))
        removed += len(found)
    return removed


def _delete_entry(connection: sqlite3.Connection, n: int, row: Sequence[Any]) -> None:
    connection.execute("DELETE FROM entry WHERE n = ?", (n,))
    connection.execute("INSERT INTO gone (n) VALUES (?)", (n,))
    connection.executemany("DELETE FROM tag WHERE name = ? AND value = ? AND n = ?", _tags(n, row))


def _tags(n: int | None, row: Sequence[Any]) -> list[Row]:
    """Record, times and metadata of an entry, as they are filtered."""
    _, record, start_s, stop_s, metadata, _ = row
    fields = {"record": record, "start_s": start_s, "stop_s": stop_s, **json.loads(metadata)}
    return [(name, tag_value(value), n) for name, value in fields.items()]


def tag_value(value: Value) -> str | int | float | bytes:
    return bytes([value]) if isinstance(value, bool) else value


def _connect(folder: Path, read_only: bool) -> sqlite3.Connection:
    if not (folder / FILE).is_file():
        raise GalleryError(f"{folder} is no gallery: it has no {FILE}; create one first, or give another path")
    place = (folder / FILE).absolute().as_uri()
    connection = _opened(f"{place}?mode={'ro' if read_only else 'rw'}")
    try:
        connection.execute("SELECT count(*) FROM about").fetchone()
    except sqlite3.OperationalError:
        if not read_only:
            raise
        connection.close()  # a disk that cannot be written: nobody can be writing there, and nothing waits in the log
        connection = _opened(f"{place}?immutable=1")
    connection.execute("PRAGMA synchronous = FULL")
    if read_only:  # a page is then read without a call of the system; who writes wants an error of the disk as an error
        connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection


def _opened(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


CURES = (
    ("full", "the disk is full; free some space, what was added before is safe"),
    ("readonly", "it cannot be written; open it read-only, or give a path you may write to"),
    ("read-only", "it cannot be written; open it read-only, or give a path you may write to"),
    ("disk i/o", "the disk refused (full, over its quota or broken); free some space, what was added before is safe"),
    ("unable to open", "its file cannot be opened; see whether you may read and write there"),
    ("locked", "another process is changing it; try again when that is done"),
    ("not a database", "its file is damaged or none of a gallery; restore it from a copy"),
    ("malformed", "its file is damaged; restore it from a copy"),
    ("no such table", "its file is none of a gallery; give another path"),
    ("closed database", "it is closed; open it again"),
)


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        cure = next((cure for word, cure in CURES if word in str(error).lower()), "see whether its disk is well")
        raise GalleryError(f"gallery {folder}: {cure} ({error})") from error
