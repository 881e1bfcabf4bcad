"""Connections to a PostgreSQL server: addresses, the writer's lock, and the server's errors as one line."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from geopatch.errors import GalleryError, MissingExtraError

LOCK_WAIT_S = 3.0  # how long the server may take to notice that a writer died
CONNECT_WAIT_S = 10
NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


@dataclass(frozen=True)
class Address:
    """A database and the gallery in it; the gallery's tables stand in a schema of their own."""

    database: str
    gallery: str

    @classmethod
    def from_url(cls, url: str) -> Address:
        parts = urlsplit(url)
        database, _, gallery = parts.path.strip("/").partition("/")
        if not database or not NAME.fullmatch(gallery):
            raise GalleryError(
                f"expected postgresql://user@host:5432/database/gallery with a gallery name of small letters, "
                f"digits and _, got {_without_password(url)!r}"
            )
        return cls(parts._replace(path=f"/{database}").geturl(), gallery)

    @property
    def schema(self) -> str:
        return f"geopatch_{self.gallery}"

    @property
    def lock(self) -> int:
        """What stands for "is writing this gallery" among the server's locks."""
        return int.from_bytes(sha256(self.schema.encode()).digest()[:8], "big", signed=True)

    def __str__(self) -> str:
        return f"{_without_password(self.database)}/{self.gallery}"


def check_schema(connection: Any, place: Address) -> None:
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.schema,)).fetchall():
        raise GalleryError(f"there is no gallery {place}; create it first, or give another name")


def take_lock(connection: Any, place: Address) -> None:
    """Become the writer. The server lets go of the lock when the connection ends, however it ends."""
    until = time.monotonic() + LOCK_WAIT_S
    while not connection.execute("SELECT pg_try_advisory_lock(%s)", (place.lock,)).fetchone()[0]:
        if time.monotonic() > until:
            raise GalleryError(
                f"gallery {place} is being written by {_holder(connection, place)}; "
                "wait until it is done, or open the gallery read-only"
            )
        time.sleep(0.1)


def _holder(connection: Any, place: Address) -> str:
    query = (
        "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND granted AND ((classid::bigint << 32) | objid::bigint) = %s"
    )
    rows = connection.execute(query, (place.lock,)).fetchall()
    return str(rows[0][0]) if rows else "another process"


def connect(place: Address, read_only: bool) -> Any:
    return _psycopg().connect(
        place.database,
        autocommit=True,
        connect_timeout=CONNECT_WAIT_S,
        application_name=f"process {os.getpid()} on {socket.gethostname()}"[:63],
        target_session_attrs="any" if read_only else "read-write",
    )


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a gallery on a PostgreSQL server") from error
    return psycopg


CURES = {
    "42P06": "it exists already; open it, or give another name",
    "53100": "the server's disk is full; free some space there, what was added before is safe",
    "25006": "the server takes no writes (a replica, or read-only); name the one that does",
    "42501": "the server does not permit that; ask its administrator",
    "58P01": "the server lacks the pgvector extension; install it there",
    "0A000": "the server lacks the pgvector extension; install it there",
    "3D000": "there is no such database; create it first",
}


@contextmanager
def one_line_errors(place: Address) -> Iterator[None]:
    psycopg = _psycopg()
    try:
        yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        lost = "the server cannot be reached or went away; see whether it runs, then call again"
        cure = CURES.get(error.sqlstate or "", lost if isinstance(error, psycopg.OperationalError) else "")
        raise GalleryError(f"gallery {place}: {cure or 'the server refused'} ({reason})") from error


def _without_password(url: str) -> str:
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1@", url)
