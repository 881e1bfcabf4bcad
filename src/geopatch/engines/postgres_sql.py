"""Talking to a PostgreSQL server: addresses, the writer's lock, errors as one line, tables, and filters as conditions.

Vectors travel by pgvector's own adapter for psycopg.
"""

from __future__ import annotations

import json
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

from geopatch.engines.entry import PLACE_FIELDS
from geopatch.engines.filters import All, Either, Equal, Filter, Not, Order, kind
from geopatch.errors import ExistsError, GalleryError, LockedError, MissingExtraError, NotFoundError, StorageError

LOCK_WAIT_S = 3.0  # how long the server may take to notice that a writer died
CONNECT_WAIT_S = 10
NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
Condition = tuple[str, list[Any]]  # SQL with a mark for each value, and the values

KINDS = {"id": "text", "record": "text", "start_s": "number", "stop_s": "number"}
# Embeddings are read as the bytes that pgvector sends, and the encoder of all of them with each row: one statement sees
# one moment.
ENCODER = "(SELECT told::jsonb ->> 'encoder' FROM about)"
COLUMNS = (
    "n, id, record, start_s, stop_s, metadata, channels, vector_send(embedding), tokens, valid, patch_s, kept_window, "
    f"{ENCODER}"
)
INSERT = (
    "INSERT INTO entry (id, record, start_s, stop_s, metadata, channels, tags, embedding, tokens, valid, patch_s, "
    "kept_window) VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s)"
)
REPLICAS = """
SELECT coalesce(host(client_addr), 'local') AS address, state::text AS state,
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END
    AS lag_bytes, extract(epoch FROM replay_lag)::float8 AS lag_s FROM pg_stat_replication
"""
# The entry next to each of several numbers.
NEXT_TO = """
SELECT near.id FROM unnest(%s::bigint[]) AS wanted(n)
CROSS JOIN LATERAL (SELECT id FROM entry WHERE entry.n >= wanted.n ORDER BY entry.n LIMIT 1) AS near
"""
REWRITE = "UPDATE entry SET embedding = %s, tokens = %s, valid = %s, patch_s = %s WHERE id = %s"
# `tags` repeats the metadata in the form that is filtered; `metadata` is the text as it came, to the last digit.
# `channels` are the channel names as JSON. The column `told` keeps its name of format 1: any version looks there first.
# Tokens and windows do not compress: EXTERNAL spares the server the attempt. `embedding` has no width of its own, so
# that a rewrite can give it another; the index has one, and queries name it.
ADD_CHANNELS = "ALTER TABLE entry ADD COLUMN channels TEXT NOT NULL DEFAULT ''"
INDEX_CHANNELS = "CREATE INDEX entry_channels ON entry (channels)"
DOCUMENT_TABLE = (
    "CREATE TABLE IF NOT EXISTS document (kind TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL, "
    "PRIMARY KEY (kind, name))"
)
MODEL_TABLE = "CREATE TABLE IF NOT EXISTS model (checkpoint BYTEA NOT NULL)"
ABOUT_TABLES = f"""
CREATE TABLE about (told TEXT NOT NULL);
{MODEL_TABLE};
{DOCUMENT_TABLE};
"""
SCHEMA = f"""
{ABOUT_TABLES}
CREATE TABLE entry (n BIGSERIAL PRIMARY KEY, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL, start_s FLOAT8 NOT NULL,
    stop_s FLOAT8 NOT NULL, metadata TEXT NOT NULL, tags JSONB NOT NULL, embedding vector NOT NULL,
    tokens BYTEA NOT NULL, valid BYTEA NOT NULL, patch_s BYTEA NOT NULL, kept_window BYTEA);
ALTER TABLE entry ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE entry ALTER COLUMN tokens SET STORAGE EXTERNAL;
ALTER TABLE entry ALTER COLUMN kept_window SET STORAGE EXTERNAL;
CREATE INDEX entry_tags ON entry USING gin (tags jsonb_path_ops);
{ADD_CHANNELS};
{INDEX_CHANNELS};
"""
INDEX = "CREATE INDEX IF NOT EXISTS entry_embedding ON entry USING hnsw ((embedding::vector({width})) vector_ip_ops)"
# Galleries made before have a width there. No row is touched.
ANY_WIDTH = """
ALTER TABLE entry ALTER COLUMN embedding TYPE vector;
ALTER TABLE entry ALTER COLUMN embedding SET STORAGE PLAIN
"""


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
    def prepared(self) -> str:
        """Where the tables stand between the giving of shards and the making of the gallery."""
        return f"prepared_{self.gallery}"

    @property
    def lock(self) -> int:
        """What stands for "is writing this gallery" among the server's locks."""
        return int.from_bytes(sha256(self.schema.encode()).digest()[:8], "big", signed=True)

    def __str__(self) -> str:
        return f"{_without_password(self.database)}/{self.gallery}"


def create_tables(connection: Any, place: Address) -> None:
    """The empty tables of a gallery; where this place has shards, they are there already."""
    prepared = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.prepared,)).fetchall()
    if prepared:
        connection.execute(f"ALTER SCHEMA {place.prepared} RENAME TO {place.schema}")
    else:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE SCHEMA {place.schema}")
    connection.execute(f"SET LOCAL search_path = {place.schema}, public")
    if not prepared:
        connection.execute(SCHEMA)


def has_shards(url: str) -> bool:
    """Whether the gallery at this address is spread over several servers."""
    place = Address.from_url(url)
    with one_line_errors(place), connect(place, read_only=True) as connection:
        return bool(connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{place.schema}.shard",)).fetchone()[0])


def take_lock(connection: Any, place: Address) -> None:
    """Become the writer. The server lets go of the lock when the connection ends, however it ends."""
    until = time.monotonic() + LOCK_WAIT_S
    while not connection.execute("SELECT pg_try_advisory_lock(%s)", (place.lock,)).fetchone()[0]:
        if time.monotonic() > until:
            raise LockedError(
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
    """A connection to the database, which need not hold a gallery yet."""
    return _psycopg().connect(
        place.database,
        autocommit=True,
        connect_timeout=CONNECT_WAIT_S,
        application_name=f"process {os.getpid()} on {socket.gethostname()}"[:63],
        target_session_attrs="any" if read_only else "read-write",
    )


def enter(connection: Any, place: Address) -> None:
    """Look at the tables of one gallery from here on, with its vectors as numpy arrays."""
    if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.schema,)).fetchall():
        raise NotFoundError(f"there is no gallery {place}; create it first, or give another name")
    connection.execute(f"SET search_path = {place.schema}, public")
    _pgvector().register_vector(connection)


def _pgvector() -> Any:
    try:
        import pgvector.psycopg
    except ImportError as error:
        raise MissingExtraError("pgvector", "postgres", "a gallery on a PostgreSQL server") from error
    return pgvector.psycopg


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


KINDS_OF_ERROR: dict[str, type[GalleryError]] = {"42P06": ExistsError, "3D000": NotFoundError}


@contextmanager
def one_line_errors(place: Address) -> Iterator[None]:
    psycopg = _psycopg()
    try:
        yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        lost = "the server cannot be reached or went away; see whether it runs, then call again"
        cure = CURES.get(error.sqlstate or "", lost if isinstance(error, psycopg.OperationalError) else "")
        raise KINDS_OF_ERROR.get(error.sqlstate or "", StorageError)(
            f"gallery {place}: {cure or 'the server refused'} ({reason})"
        ) from error


def _without_password(url: str) -> str:
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1@", url)


def write_model(connection: Any, model: bytes | None) -> None:
    """Put a packed checkpoint in the place of the one that is there."""
    connection.execute(MODEL_TABLE)
    connection.execute("DELETE FROM model")
    if model is not None:
        connection.execute("INSERT INTO model VALUES (%s)", (model,))


def write_document(connection: Any, kind: str, name: str, content: str | None) -> None:
    """Put a text in the place of the one of that name; None takes it away."""
    connection.execute(DOCUMENT_TABLE)
    connection.execute("DELETE FROM document WHERE kind = %s AND name = %s", (kind, name))
    if content is not None:
        connection.execute("INSERT INTO document VALUES (%s, %s, %s)", (kind, name, content))


def condition(where: Filter | None) -> Condition:
    """What an entry must meet to pass a filter; never NULL, so that NOT turns it round."""
    if where is None:
        return "TRUE", []
    if isinstance(where, Not):
        inner, values = condition(where.part)
        return f"NOT ({inner})", values
    if isinstance(where, (All, Either)):
        return _joined(where)
    if where.name in PLACE_FIELDS:
        return _on_place(where)
    if isinstance(where, Equal):
        tests = [json.dumps({where.name: value}) for value in where.values]
        return " OR ".join(["tags @> %s::jsonb"] * len(tests)) or "FALSE", list(tests)
    return "tags @? %s::jsonpath", [f"{json_path(where.name)} ? (@ {where.sign} {float(where.value)!r})"]


def json_path(name: str) -> str:
    """A name of the metadata as a path: postgres_fdw ships conditions on paths, and none on text but columns."""
    return f"$.{json.dumps(name, ensure_ascii=False)}"


def _joined(where: All | Either) -> Condition:
    parts = [condition(part) for part in where.parts]
    word, empty = (" AND ", "TRUE") if isinstance(where, All) else (" OR ", "FALSE")
    return word.join(f"({sql})" for sql, _ in parts) or empty, [value for _, values in parts for value in values]


def _on_place(where: Equal | Order) -> Condition:
    """Place fields are columns of one kind; a value of another kind never meets them."""
    if isinstance(where, Order):
        fits = KINDS[where.name] == "number"
        return (f"{where.name} {where.sign} %s", [float(where.value)]) if fits else ("FALSE", [])
    wanted = KINDS[where.name]
    values: list[Any] = [value for value in where.values if kind(value) == wanted]
    if wanted == "text":
        return f"{where.name} = ANY(%s::text[])", [values]
    return f"{where.name} = ANY(%s::float8[])", [[float(value) for value in values]]
