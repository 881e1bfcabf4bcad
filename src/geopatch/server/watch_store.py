"""What the server must not forget of its watches: the watches, their events, and how far each stream was looked at.

All in one SQLite file; what a call has returned from is on disk. Events of one happening are kept once: after a restart
a stream is sent again from where it is safe, and what is seen again overlaps what is there.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geopatch.errors import StorageError

Json = dict[str, Any]

SCHEMA = """
CREATE TABLE IF NOT EXISTS watch (id TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stream (name TEXT PRIMARY KEY, run INTEGER NOT NULL, safe INTEGER NOT NULL,
    rate_hz REAL NOT NULL, width INTEGER NOT NULL, channels TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS run (number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS event (n INTEGER PRIMARY KEY AUTOINCREMENT, watch TEXT NOT NULL, stream TEXT NOT NULL,
    run INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS event_of_watch ON event (watch, n);
CREATE INDEX IF NOT EXISTS event_of_stream ON event (stream, run, watch, stop);
CREATE TABLE IF NOT EXISTS level (stream TEXT NOT NULL, watch TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (stream, watch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS delivered (watch TEXT PRIMARY KEY, n INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class StreamState:
    """How far a stream was looked at: from `safe` on it is sent again. A stream begun anew has another `run`."""

    name: str
    run: int
    safe: int
    rate_hz: float
    width: int
    channels: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewEvent:
    """An event before it has a number; start and stop in samples at the gallery's rate."""

    watch: str
    stream: str
    run: int
    start: int
    stop: int
    body: Json


class WatchStore:
    """One file, one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._errors():
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(SCHEMA)

    def watches(self) -> dict[str, Json]:
        """All watches by their ids."""
        return {id: json.loads(body) for id, body in self._read("SELECT id, body FROM watch ORDER BY rowid")}

    def put_watch(self, id: str, body: Json) -> None:
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO watch VALUES (?, ?)", (id, json.dumps(body)))

    def remove_watch(self, id: str) -> None:
        """The watch with all its events."""
        with self._writing() as connection:
            for table, column in (("watch", "id"), ("event", "watch"), ("delivered", "watch"), ("level", "watch")):
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (id,))

    def streams(self) -> dict[str, StreamState]:
        rows = self._read("SELECT name, run, safe, rate_hz, width, channels FROM stream ORDER BY name")
        return {row[0]: StreamState(row[0], row[1], row[2], row[3], row[4], tuple(json.loads(row[5]))) for row in rows}

    def begin_stream(self, name: str, safe: int, rate_hz: float, width: int, channels: Sequence[str]) -> StreamState:
        with self._writing() as connection:
            run = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM run").fetchone()[0]
            connection.execute("DELETE FROM run")
            connection.execute("INSERT INTO run VALUES (?)", (run,))
            connection.execute("DELETE FROM level WHERE stream = ?", (name,))
            state = StreamState(name, run, safe, rate_hz, width, tuple(channels))
            values = (name, run, safe, rate_hz, width, json.dumps(list(channels)))
            connection.execute("INSERT OR REPLACE INTO stream VALUES (?, ?, ?, ?, ?, ?)", values)
            return state

    def end_stream(self, name: str) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM stream WHERE name = ?", (name,))
            connection.execute("DELETE FROM level WHERE stream = ?", (name,))

    def last_matches(self, stream: str, run: int) -> dict[str, int]:
        """By watch, where its last event in a stream stopped."""
        query = "SELECT watch, max(stop) FROM event WHERE stream = ? AND run = ? GROUP BY watch"
        return dict(self._read(query, (stream, run)))

    def levels(self, stream: str) -> dict[str, Json]:
        """By watch, the level of a stream when it was last kept how far it is safe."""
        query = "SELECT watch, body FROM level WHERE stream = ?"
        return {watch: json.loads(body) for watch, body in self._read(query, (stream,))}

    def write(
        self,
        events: Sequence[NewEvent],
        safe: Mapping[str, int] | None = None,
        levels: Mapping[tuple[str, str], Json] | None = None,
    ) -> list[tuple[int, Json]]:
        """Keep events, how far streams are safe and levels by stream and watch, in one change.

        The events that were new, with their numbers.
        """
        written = []
        with self._writing() as connection:
            for event in events:
                place = (event.stream, event.run, event.watch)
                seen = "SELECT 1 FROM event WHERE stream = ? AND run = ? AND watch = ? AND stop > ? AND start < ?"
                if connection.execute(seen, (*place, event.start, event.stop)).fetchone():
                    continue
                row = (event.watch, event.stream, event.run, event.start, event.stop, json.dumps(event.body))
                insert = "INSERT INTO event (watch, stream, run, start, stop, body) VALUES (?, ?, ?, ?, ?, ?)"
                written.append((int(connection.execute(insert, row).lastrowid or 0), event.body))
            connection.executemany(
                "UPDATE stream SET safe = ? WHERE name = ?", [(at, name) for name, at in (safe or {}).items()]
            )
            rows = [(*place, json.dumps(body)) for place, body in (levels or {}).items()]
            connection.executemany("INSERT OR REPLACE INTO level VALUES (?, ?, ?)", rows)
        return written

    def events(self, watch: str, after: int, limit: int) -> list[tuple[int, Json]]:
        """Events of a watch with larger numbers, in order."""
        query = "SELECT n, body FROM event WHERE watch = ? AND n > ? ORDER BY n LIMIT ?"
        return [(n, json.loads(body)) for n, body in self._read(query, (watch, after, limit))]

    def count(self, watch: str) -> int:
        return int(self._read("SELECT count(*) FROM event WHERE watch = ?", (watch,))[0][0])

    def delivered(self, watch: str) -> int:
        """The number of the last event that its webhook took."""
        rows = self._read("SELECT n FROM delivered WHERE watch = ?", (watch,))
        return int(rows[0][0]) if rows else 0

    def set_delivered(self, watch: str, n: int) -> None:
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO delivered VALUES (?, ?)", (watch, n))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._errors():
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"the file of watches {self.path} cannot be used ({error}); is the disk full?"
            ) from error
