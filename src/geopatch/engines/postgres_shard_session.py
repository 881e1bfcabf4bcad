"""Reading from shards through their coordinator: all at one moment, or those that answer where that is allowed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from geopatch.engines.packing import Row
from geopatch.engines.partial import notes_on_missing
from geopatch.engines.postgres_session import PostgresSession, in_transaction
from geopatch.engines.postgres_shard_sql import ALL_ROWS, ENTRY, Shard, ShardedConnection, connection_text, read_shards
from geopatch.engines.postgres_sql import enter, one_line_errors
from geopatch.engines.postgres_tokens import PostgresTokens
from geopatch.errors import StorageError

ATTEMPTS = 3  # a shard may be lost, and another one during the next attempt
REPLICA_WAIT_S = 60.0
LOST_S = 10.0  # for how long a shard that did not answer is left out before it is tried again
# Of a server that went away or is about to start; beside class 08, connection exceptions.
LOST_STATES = ("57P01", "57P02", "57P03")
T = TypeVar("T")


class ShardedSession(PostgresSession):
    """What one process says to a coordinator."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._lost: dict[str, float] = {}  # shards that did not answer, and until when they are left out
        self._answering: tuple[str, ...] = ()
        self._settled: Any = None  # the connection whose settings are made
        super().__init__(url, read_only=read_only)

    def shards(self) -> list[Shard]:
        """The shards, in the order of their names."""
        with self._looking() as connection:
            return read_shards(connection)

    @contextmanager
    def direct(self, name: str) -> Iterator[Any]:
        """A connection to the server of a shard that takes writes, for what cannot go through the coordinator."""
        import psycopg

        with self._looking() as connection:
            text = connection_text(connection, self.place, name)
        with psycopg.connect(text, autocommit=True) as connection:
            enter(connection, self.place)
            yield connection

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Other threads of this process wait."""
        with self._lock:
            yield

    @contextmanager
    def changing(self) -> Iterator[Any]:
        """A change, as those of entries are."""
        with self._writing() as connection:
            yield connection

    def wait_for_replicas(self) -> None:
        """Until the coordinator's replicas have what it has: who reads there sees the same shards."""
        query = "SELECT pg_current_wal_lsn()::text"
        written, until = self._rows(query)[0][0], time.monotonic() + REPLICA_WAIT_S
        behind = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn IS NULL OR replay_lsn < %s::pg_lsn"
        while self._rows(behind, [written]):
            if time.monotonic() > until:
                raise StorageError(
                    f"a replica of {self.place} lags behind; call again when it has caught up, or end it"
                )
            time.sleep(0.02)

    def _ready(self) -> Any:
        connection = super()._ready()
        if connection is not self._settled:
            connection.execute("SET jit = off")  # the work is the shards'
            self._settled = connection
        return connection

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        if not ENTRY.search(query):
            return super()._rows(query, values)
        return self._read(lambda connection: connection.execute(query, values, binary=True).fetchall())

    def _read(self, work: Callable[[Any], T]) -> T:
        """What `work` makes of one moment; done again where a shard was lost, without it if that is allowed."""
        for attempt in range(1, ATTEMPTS + 1):
            with self._lock:
                with one_line_errors(self.place):
                    within = in_transaction(self._ready())
                try:
                    with self._looking() as connection:
                        if not within:
                            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                        return work(self._reached(connection))
                except StorageError as error:
                    if within or attempt == ATTEMPTS or not self._is_lost(error):
                        raise
                self._look_for_lost()
        raise AssertionError("the last attempt returns or raises")

    def _each(self, query: str, values: Sequence[Any] = (), then: str = ALL_ROWS) -> list[Row]:
        rows: list[Row] = self._read(lambda connection: connection.each(query, values, then))
        return rows

    def _reached(self, connection: Any) -> ShardedConnection:
        """The shards that answer, as far as is known; all of them where none may be left out."""
        shards = [shard for shard in read_shards(connection) if shard.buckets]
        if (notes := notes_on_missing()) is not None:
            lost = [shard for shard in shards if self._lost.get(shard.name, 0.0) > time.monotonic()]
            notes.update(_missing(shard) for shard in lost)
            shards = [shard for shard in shards if shard not in lost]
        if not shards:
            raise StorageError(
                f"gallery {self.place}: none of its shards answers; see whether they run, then call again"
            )
        names = tuple(shard.name for shard in shards)
        if names != self._answering:  # tokens of a lost shard count as removed ones, and come back only when read anew
            self._answering, self._tokens = names, PostgresTokens()
        return ShardedConnection(connection, shards, writing=not self._read_only)

    def _is_lost(self, error: StorageError) -> bool:
        """Whether a shard caused this, while the coordinator is there."""
        state = getattr(error.__cause__, "sqlstate", None) or ""
        here = self._connection is not None and not self._connection.closed
        return here and (state.startswith("08") or state in LOST_STATES)

    def _look_for_lost(self) -> None:
        for shard in self.shards():
            try:
                with self._looking() as connection:
                    connection.execute(f"SELECT 1 FROM {shard.table(writing=not self._read_only)} LIMIT 1")
            except StorageError as error:
                if not self._is_lost(error):
                    raise
                self._lost[shard.name] = time.monotonic() + LOST_S
            else:
                self._lost.pop(shard.name, None)


def _missing(shard: Shard) -> str:
    return (
        f"shard {shard.name} at {shard.place} does not answer: about {shard.share:.0%} of the windows were not searched"
    )
