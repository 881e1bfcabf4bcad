"""The engine for a server: PostgreSQL with the pgvector extension. The server's log and its replicas do the rest.

A place looks like postgresql://user@host:5432/database/gallery. With several hosts, host:5432,other:5432, a writer
finds the one that takes writes, so that a gallery goes on where a replica has been promoted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.connection import Address, check_schema, connect, one_line_errors, take_lock
from geopatch.engines.contents import Contents, contents_from
from geopatch.engines.engine import Info, Shortlist
from geopatch.engines.entry import Entries, Metadata
from geopatch.engines.filters import Filter
from geopatch.engines.packing import Row, as_entries, detail_row, dump, entry_row
from geopatch.engines.postgres_sql import COLUMNS, INDEX, INSERT, condition, schema
from geopatch.engines.rows import unknown_id
from geopatch.errors import GalleryError

INDEX_FROM = 100_000  # below, comparing all entries is quick and exact
CANDIDATES_SEARCHING, MOST_CANDIDATES = 512, 1000


class Postgres:
    """Engine over a server. A connection that breaks is made anew by the next call."""

    name = "postgresql"

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.place = Address.from_url(url)
        self._read_only = read_only
        self._connection: Any = None
        self._lock = threading.RLock()  # threads take turns: a connection holds one transaction
        try:
            found = self._rows("SELECT told FROM about")
        except GalleryError:
            self.close()
            raise
        self._about = About.from_dict(json.loads(found[0][0]), self.place)

    @staticmethod
    def create(url: str, about: About) -> None:
        """A new, empty gallery in a database that is there."""
        place = Address.from_url(url)
        with one_line_errors(place):
            connection = connect(place, read_only=False)
            try:
                with connection.transaction():
                    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                    connection.execute(f"CREATE SCHEMA {place.schema}")
                    connection.execute(f"SET LOCAL search_path = {place.schema}, public")
                    connection.execute(schema(about))
                    connection.execute("INSERT INTO about VALUES (%s)", (json.dumps(about.as_dict()),))
            finally:
                connection.close()

    @property
    def about(self) -> About:
        return self._about

    def put(self, entries: Entries) -> None:
        rows = [_row(entries, n) for n in range(len(entries))]
        with self._writing() as connection:
            connection.execute("DELETE FROM entry WHERE id = ANY(%s)", (list(entries.ids),))
            connection.cursor().executemany(INSERT, rows)

    def remove(self, ids: Sequence[str]) -> int:
        with self._writing() as connection:
            return int(connection.execute("DELETE FROM entry WHERE id = ANY(%s)", (list(ids),)).rowcount)

    def update(self, id: str, metadata: Metadata) -> None:
        with self._writing() as connection:
            told = dump(metadata)
            change = "UPDATE entry SET metadata = %s, tags = %s::jsonb WHERE id = %s"
            if not connection.execute(change, (told, told, id)).rowcount:
                raise unknown_id(self.place, id)

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        columns = COLUMNS if with_windows else COLUMNS.replace("kept_window", "NULL")
        found = {row[1]: row for row in self._rows(f"SELECT {columns} FROM entry WHERE id = ANY(%s)", [list(ids)])}
        missing = next((id for id in ids if id not in found), None)
        if missing is not None:
            raise unknown_id(self.place, missing)
        return self._entries([found[id] for id in ids])

    def known(self, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._rows("SELECT id FROM entry WHERE id = ANY(%s)", [list(ids)])}

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        sql, values = condition(where)
        query = (
            f"SELECT id, -(embedding <#> %s::vector) AS score FROM entry WHERE {sql} "
            "ORDER BY embedding <#> %s::vector LIMIT %s"
        )
        with self._looking() as connection:
            connection.execute(f"SET LOCAL hnsw.ef_search = {min(max(k, CANDIDATES_SEARCHING), MOST_CANDIDATES)}")
            connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")  # until k pass the filter
            found = [
                connection.execute(query, (text, *values, text, k)).fetchall() for text in map(_vector_text, embedding)
            ]
        return [Shortlist(tuple(row[0] for row in rows), _scores(rows)) for rows in found]

    def count(self, where: Filter | None = None) -> int:
        sql, values = condition(where)
        return int(self._rows(f"SELECT count(*) FROM entry WHERE {sql}", values)[0][0])

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        sql, values = condition(where)
        query, last = f"SELECT {COLUMNS} FROM entry WHERE n > %s AND ({sql}) ORDER BY n LIMIT %s", 0
        while rows := self._rows(query, [last, *values, batch_size]):
            last = rows[-1][0]
            yield self._entries(rows)

    def contents(self) -> Contents:
        records = self._rows("SELECT record, count(*), min(start_s), max(stop_s) FROM entry GROUP BY record")
        values = self._rows("SELECT key, value, count(*) FROM entry, jsonb_each(tags) GROUP BY key, value")
        return contents_from(records, values)

    def optimize(self) -> None:
        with self._lock, one_line_errors(self.place):
            connection = self._ready()
            connection.execute("VACUUM (ANALYZE) entry")
            if self.count() >= INDEX_FROM:
                connection.execute("SET maintenance_work_mem = '512MB'")
                connection.execute(INDEX)

    def info(self) -> Info:
        query = "SELECT pg_total_relation_size('entry'), to_regclass('entry_embedding') IS NOT NULL"
        size, indexed = self._rows(query)[0]
        windows = self.count()
        return Info(self.name, str(self.place), self.about, windows, windows if indexed else 0, int(size))

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # it may be broken already
                self._connection.close()
            self._connection = None

    def _entries(self, rows: list[Row]) -> Entries:
        """pgvector sends a vector as two short numbers and big-endian floats."""
        plain = [(*row[:6], np.frombuffer(row[6], ">f4", offset=4).astype("<f4").tobytes(), *row[7:]) for row in rows]
        return as_entries(plain, self.about)

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, one_line_errors(self.place):
            found: list[Row] = self._ready().execute(query, tuple(values), binary=True).fetchall()
            return found

    @contextmanager
    def _looking(self) -> Iterator[Any]:
        with self._lock, one_line_errors(self.place):
            connection = self._ready()
            with connection.transaction():
                yield connection

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """A change that happens whole or not at all, and stands in the server's log when the block is left."""
        if self._read_only:
            raise GalleryError(f"gallery {self.place} was opened read-only; open it for writing")
        with self._looking() as connection:
            yield connection

    def _ready(self) -> Any:
        """A connection that works, for a writer with the lock."""
        if self._connection is None or self._connection.closed:
            connection = connect(self.place, self._read_only)
            try:
                check_schema(connection, self.place)
                connection.execute(f"SET search_path = {self.place.schema}, public")
                if not self._read_only:
                    connection.execute("SET synchronous_commit = on")
                    take_lock(connection, self.place)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _row(entries: Entries, n: int) -> Row:
    *place, metadata, _ = entry_row(entries, n)
    return (*place, metadata, metadata, _vector_text(entries.embedding[n]), *detail_row(entries, n))


def _vector_text(vector: npt.NDArray[np.float32]) -> str:
    """Nine digits say a float32 exactly."""
    return "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"


def _scores(rows: list[Row]) -> npt.NDArray[np.float32]:
    return np.asarray([row[1] for row in rows], dtype=np.float32)
