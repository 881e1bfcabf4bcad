"""The rows of a gallery in one SQLite file: a change is on disk when its call returns, or did not happen at all.

Readers in other processes see every change that was made before they look, also while a writer is at work.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from geopatch.engines.about import About, check_encoder
from geopatch.engines.engine import (
    CHANGED,
    DISTINCT_CHANNELS,
    OF_GALLERY,
    RECORDS,
    Contents,
    Embeddings,
    Record,
    check_rewritten,
    contents_from,
    embeddings_from,
    now,
    records_from,
    spread_numbers,
    unknown_id,
)
from geopatch.engines.entry import Channels, Entries, Metadata, Value
from geopatch.engines.folder import about_text, connect, one_line_errors, write_document, write_model
from geopatch.engines.packing import (
    Row,
    as_entries,
    detail_row,
    dump,
    entry_row,
    load_channels,
    pack_embedding,
    token_row,
)
from geopatch.errors import GalleryError

SQL_BATCH = 500  # ids in one statement
FREE_SHARE = 0.1
PAGE_COUNTS = ("freelist_count", "page_count")

ENTRY = "id, record, start_s, stop_s, metadata, channels, embedding"
COLUMNS = f"n, {ENTRY}, tokens, valid, patch_s, window"
NO_PLACE = "name NOT IN ('record', 'start_s', 'stop_s')"
INSERT_DETAIL = "INSERT INTO detail (n, tokens, valid, patch_s, window) VALUES (?, ?, ?, ?, ?)"

T = TypeVar("T")


class Rows:
    """Entries in a file. All calls of one process share a connection, one at a time."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        with one_line_errors(folder):
            self._connection = connect(folder, read_only)
        self._about_text = ""
        try:
            self.about = self.refresh()
        except GalleryError:
            self._connection.close()
            raise

    def refresh(self) -> About:
        """The encoder as it is now; it is read by every block of `looking`."""
        with self._lock:
            text = self.read("SELECT told FROM about")[0][0]
            if text != self._about_text:
                self.about, self._about_text = About.from_dict(json.loads(text), self.folder), text
            return self.about

    def model(self) -> bytes | None:
        with self.looking():
            rows = self.read("SELECT checkpoint FROM model") if self._has_table("model") else []
        return bytes(rows[0][0]) if rows else None

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        """Every row keeps its n: by the new generation of the index, readers see that all vectors are others."""
        with self.writing() as connection:
            rewritten = sum(_rewrite(connection, batch, about) for batch in batches)
            check_rewritten(rewritten, self.count(), self.folder)
            connection.execute("UPDATE about SET told = ?", (about_text(about),))
            write_model(connection, model)
            connection.execute("UPDATE indexed SET generation = generation + 1, last = 0, windows = 0")
            connection.execute("DELETE FROM gone")
        self.refresh()

    def put(self, entries: Entries) -> None:
        packed = [(entry_row(entries, n), detail_row(entries, n)) for n in range(len(entries))]  # others may go on
        with self.writing() as connection:
            check_encoder(self.refresh(), entries.encoder, "these entries")
            _delete(connection, entries.ids)
            for entry, detail in packed:
                connection.execute(INSERT_DETAIL, (_insert(connection, entry), *detail))

    def remove(self, ids: Sequence[str]) -> int:
        with self.writing() as connection:
            return _delete(connection, ids)

    def update(self, rows: Mapping[str, Metadata]) -> None:
        """The entries move to a new n: whoever remembers the old one sees that it is gone."""
        with self.writing() as connection:
            for id, metadata in rows.items():
                stored = connection.execute(f"SELECT n, {ENTRY} FROM entry WHERE id = ?", (id,)).fetchone()
                if stored is None:
                    raise unknown_id(self.folder, id)
                old, *row = stored
                _delete_entry(connection, old, row)
                place = _insert(connection, (*row[:4], dump(metadata), *row[5:]))
                connection.execute("UPDATE detail SET n = ? WHERE n = ?", (place, old))

    def documents(self, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
        with self.looking():
            if not self._has_table("document"):
                return {}
            if names is None:
                return dict(self.read("SELECT name, content FROM document WHERE kind = ? ORDER BY name", (kind,)))
            query = "SELECT name, content FROM document WHERE kind = ? AND name IN"
            parts = (self.read(f"{query} ({marks(chunk)})", (kind, *chunk)) for chunk in chunks(names))
            return {name: content for part in parts for name, content in part}

    def write_documents(self, kind: str, texts: Mapping[str, str | None]) -> None:
        with self.writing() as connection:
            for name, content in texts.items():
                write_document(connection, kind, name, content)

    def _has_table(self, name: str) -> bool:
        """Galleries of earlier versions lack those that came later."""
        return bool(self.read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def fetch(self, ids: Sequence[str], with_windows: bool = True) -> Entries:
        rows: dict[str, Row] = {}
        columns = COLUMNS if with_windows else COLUMNS.replace("window", "NULL")
        with self.looking():
            about = self.about
            for chunk in chunks(ids):
                query = f"SELECT {columns} FROM entry JOIN detail USING (n) WHERE id IN ({marks(chunk)})"
                rows |= {row[1]: row for row in self.read(query, chunk)}
        missing = next((id for id in ids if id not in rows), None)
        if missing is not None:
            raise unknown_id(self.folder, missing)
        return as_entries([rows[id] for id in ids], about)

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        query = "SELECT id, record, start_s, stop_s FROM entry WHERE id IN"
        parts = (self.read(f"{query} ({marks(chunk)})", chunk) for chunk in chunks(ids))
        return {id: (record, start_s, stop_s) for part in parts for id, record, start_s, stop_s in part}

    def known(self, ids: Sequence[str]) -> set[str]:
        parts = (self.read(f"SELECT id FROM entry WHERE id IN ({marks(chunk)})", chunk) for chunk in chunks(ids))
        return {row[0] for part in parts for row in part}

    def known_fields(self, names: Sequence[str]) -> set[str]:
        return {name for name in names if self.read("SELECT 1 FROM tag WHERE name = ? LIMIT 1", (name,))}

    def layouts(self) -> tuple[Channels, ...]:
        return tuple(load_channels(text) for (text,) in self.read(DISTINCT_CHANNELS) if text)

    def next_number(self) -> int:
        """The n of the last entry that was ever written."""
        last = self.read("SELECT seq FROM sqlite_sequence WHERE name = 'entry'")
        return int(last[0][0]) if last else 0

    def count(self) -> int:
        return int(self.read("SELECT count(*) FROM entry")[0][0])

    def scan(self, batch_size: int) -> Iterator[Entries]:
        """All entries in the order they were written."""
        query, last = f"SELECT {COLUMNS} FROM entry JOIN detail USING (n) WHERE n > ? ORDER BY n LIMIT ?", 0
        while batch := self._batch(query, (last, batch_size)):
            rows, about = batch
            last = rows[-1][0]
            yield as_entries(rows, about)

    def pick(self, numbers: Sequence[int], batch_size: int) -> Iterator[Entries]:
        """The entries with these n that are there still, in order."""
        for chunk in chunks(numbers, min(batch_size, SQL_BATCH)):
            query = f"SELECT {COLUMNS} FROM entry JOIN detail USING (n) WHERE n IN ({marks(chunk)}) ORDER BY n"
            if batch := self._batch(query, chunk):
                yield as_entries(*batch)

    def _batch(self, query: str, values: Sequence[Any]) -> tuple[list[Row], About] | None:
        """Rows and the encoder of their vectors; None where there are no rows."""
        with self.looking():
            rows = self.read(query, values)
            return (rows, self.about) if rows else None

    def embeddings(self, numbers: Sequence[int] | None = None) -> Embeddings:
        """Of all entries, or of those with these n, in order."""
        query = "SELECT id, record, start_s, stop_s, embedding FROM entry"
        with self.looking():
            if numbers is None:
                return embeddings_from(self.read(f"{query} ORDER BY n"), self.about)
            parts = (self.read(f"{query} WHERE n IN ({marks(chunk)}) ORDER BY n", chunk) for chunk in chunks(numbers))
            return embeddings_from([row for part in parts for row in part], self.about)

    def sample(self, count: int) -> tuple[str, ...]:
        """The entries next to numbers from all over the range of n."""
        with self.looking():
            first, last, held = self.read("SELECT min(n), max(n), count(*) FROM entry")[0]
            if held <= count:
                return tuple(id for (id,) in self.read("SELECT id FROM entry ORDER BY n"))
            query = "SELECT id FROM entry WHERE n >= ? ORDER BY n LIMIT 1"
            return tuple(dict.fromkeys(self.read(query, (n,))[0][0] for n in spread_numbers(first, last, count)))

    def records(self) -> tuple[Record, ...]:
        return records_from(self.read(RECORDS))

    def contents(self) -> Contents:
        with self.looking():
            records = self.read(RECORDS)
            counted = self.read(f"SELECT name, value, count(*) FROM tag WHERE {NO_PLACE} GROUP BY name, value")
        values = ((name, value == b"\1" if isinstance(value, bytes) else value, n) for name, value, n in counted)
        return contents_from(records, values)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Every read in this block sees the gallery at one moment, with the encoder of that moment as `about`."""
        with self._lock, one_line_errors(self.folder):
            if self._connection.in_transaction:  # within another such block, or within a change
                yield
                return
            self._connection.execute("BEGIN")
            try:
                self.refresh()
                yield
            finally:
                self._connection.execute("COMMIT")

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, one_line_errors(self.folder):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A change that happens whole or not at all."""
        with self._lock, one_line_errors(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                write_document(self._connection, OF_GALLERY, CHANGED, now())
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def vacuum(self) -> None:
        """Give the space of what was removed back, where it is worth copying the rest."""
        with self._lock, one_line_errors(self.folder):
            free, pages = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PAGE_COUNTS)
            if free > FREE_SHARE * pages:
                self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()


def chunks(values: Sequence[T], size: int = SQL_BATCH) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _rewrite(connection: sqlite3.Connection, entries: Entries, about: About) -> int:
    """Give entries that are there other vectors; how many are there."""
    check_encoder(about, entries.encoder, "these entries")
    rewritten = 0
    for place, id in enumerate(entries.ids):
        row = connection.execute("SELECT n FROM entry WHERE id = ?", (id,)).fetchone()
        if row is not None:
            values = pack_embedding(entries, place), *token_row(entries, place)
            connection.execute("UPDATE entry SET embedding = ? WHERE n = ?", (values[0], *row))
            connection.execute("UPDATE detail SET tokens = ?, valid = ?, patch_s = ? WHERE n = ?", (*values[1:], *row))
            rewritten += 1
    return rewritten


def _insert(connection: sqlite3.Connection, row: Sequence[Any]) -> int | None:
    place = connection.execute(f"INSERT INTO entry ({ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(row)).lastrowid
    connection.executemany("INSERT INTO tag VALUES (?, ?, ?)", _tags(place, row))
    return place


def _delete(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    removed = 0
    for chunk in chunks(ids):
        query = f"SELECT n, {ENTRY} FROM entry WHERE id IN ({marks(chunk)})"
        for n, *row in connection.execute(query, tuple(chunk)).fetchall():
            _delete_entry(connection, n, row)
            connection.execute("DELETE FROM detail WHERE n = ?", (n,))
            removed += 1
    return removed


def _delete_entry(connection: sqlite3.Connection, n: int, row: Sequence[Any]) -> None:
    connection.execute("DELETE FROM entry WHERE n = ?", (n,))
    connection.execute("INSERT INTO gone (n) VALUES (?)", (n,))
    connection.executemany("DELETE FROM tag WHERE name = ? AND value = ? AND n = ?", _tags(n, row))


def _tags(n: int | None, row: Sequence[Any]) -> list[Row]:
    """Record, times and metadata of an entry, as they are filtered."""
    _, record, start_s, stop_s, metadata, *_ = row
    fields = {"record": record, "start_s": start_s, "stop_s": stop_s, **json.loads(metadata)}
    return [(name, tag_value(value), n) for name, value in fields.items()]


def tag_value(value: Value) -> str | int | float | bytes:
    return bytes([value]) if isinstance(value, bool) else value
