"""A connection to the server of a gallery, made anew where it broke: reads of one moment, changes, and documents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from geopatch.engines.engine import CHANGED, OF_GALLERY, now
from geopatch.engines.packing import Row
from geopatch.engines.postgres_sql import Address, connect, enter, one_line_errors, take_lock, write_document
from geopatch.errors import GalleryError

IDLE = 0  # libpq's number for a connection outside a transaction
T = TypeVar("T")


class PostgresSession:
    """What one process says to the server. Threads take turns: a connection holds one transaction."""

    def __init__(self, url: str, *, read_only: bool) -> None:
        self.place = Address.from_url(url)
        self._read_only = read_only
        self._connection: Any = None
        self._lock = threading.RLock()

    def documents(self, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
        if not self._has_table("document"):
            return {}
        query = "SELECT name, content FROM document WHERE kind = %s"
        if names is None:
            return dict(self._rows(f"{query} ORDER BY name", [kind]))
        return dict(self._rows(f"{query} AND name = ANY(%s)", [kind, list(names)]))

    def write_documents(self, kind: str, texts: Mapping[str, str | None]) -> None:
        with self._writing() as connection:
            for name, content in texts.items():
                write_document(connection, kind, name, content)

    def _has_table(self, name: str) -> bool:
        """Galleries of earlier versions lack those that came later."""
        return bool(self._rows("SELECT to_regclass(%s) IS NOT NULL", [f"{self.place.schema}.{name}"])[0][0])

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # it may be broken already
                self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, one_line_errors(self.place):
            rows: list[Row] = self._ready().execute(query, tuple(values), binary=True).fetchall()
            return rows

    def _read(self, work: Callable[[Any], T]) -> T:
        """What `work` makes of one moment of the gallery."""
        with self._looking() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return work(connection)

    @contextmanager
    def _looking(self) -> Iterator[Any]:
        with self._lock, one_line_errors(self.place):
            connection = self._ready()
            within = in_transaction(connection)
            try:
                with connection.transaction():
                    yield connection
            finally:
                if not within and in_transaction(connection):  # its commit failed: a shard was lost before it
                    connection.rollback()

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """A change that happens whole or not at all, and stands in the server's log when the block is left."""
        if self._read_only:
            raise GalleryError(f"gallery {self.place} was opened read-only; open it for writing")
        with self._looking() as connection:
            yield connection
            write_document(connection, OF_GALLERY, CHANGED, now())

    def _ready(self) -> Any:
        """A connection that works, for a writer with the lock."""
        if self._connection is None or self._connection.closed:
            connection = connect(self.place, self._read_only)
            try:
                enter(connection, self.place)
                if not self._read_only:
                    connection.execute("SET synchronous_commit = on")
                    take_lock(connection, self.place)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def in_transaction(connection: Any) -> bool:
    return not connection.closed and connection.info.transaction_status != IDLE
