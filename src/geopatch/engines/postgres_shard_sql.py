"""What a coordinator and its shards have in common: tables, foreign servers, buckets, and statements over all shards.

An id belongs to one of 1024 buckets, and a bucket to one shard. The table `shard` of the coordinator says to which, and
is the only truth: a shard may hold rows of further buckets, on their way there or from there, which are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from geopatch.engines.engine import DISTINCT_CHANNELS
from geopatch.engines.packing import Row
from geopatch.engines.postgres_sql import ABOUT_TABLES, REPLICAS, Address
from geopatch.errors import GalleryError

BUCKETS = 1024
ALL_ROWS = "SELECT * FROM each_shard"
ENTRY = re.compile(r"\bentry\b")
OF_WRAPPER = ("extensions", "async_capable", "parallel_commit", "parallel_abort", "batch_size", "fetch_size", "options")
PASSWORDS = ("user", "password")  # of a user mapping; all else describes the server
NAMES = (
    "bucket, generation, n, id, record, start_s, stop_s, metadata, tags, embedding, tokens, valid, patch_s, "
    "kept_window, channels"
)
COLUMN_TYPES = """bucket INT NOT NULL, generation INT NOT NULL, n BIGINT NOT NULL, id TEXT NOT NULL,
    record TEXT NOT NULL, start_s FLOAT8 NOT NULL, stop_s FLOAT8 NOT NULL, metadata TEXT NOT NULL, tags JSONB NOT NULL,
    embedding vector NOT NULL, tokens BYTEA NOT NULL, valid BYTEA NOT NULL, patch_s BYTEA NOT NULL, kept_window BYTEA,
    channels TEXT NOT NULL"""
# `generation` counts the rewrites: rows of the next one are written beside those that are read, and count all at once
# when the coordinator says so.
COORDINATOR = f"""
{ABOUT_TABLES}
CREATE SEQUENCE entry_n_seq;
CREATE TABLE shard (name TEXT PRIMARY KEY, place TEXT NOT NULL, buckets INT[] NOT NULL, hidden INT[] NOT NULL,
    generation INT NOT NULL);
"""
SHARD = f"""
CREATE TABLE entry ({COLUMN_TYPES}, PRIMARY KEY (id, generation));
ALTER TABLE entry ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE entry ALTER COLUMN tokens SET STORAGE EXTERNAL;
ALTER TABLE entry ALTER COLUMN kept_window SET STORAGE EXTERNAL;
CREATE INDEX entry_n ON entry (n);
CREATE INDEX entry_bucket ON entry (bucket);
CREATE INDEX entry_tags ON entry USING gin (tags jsonb_path_ops);
CREATE INDEX entry_channels ON entry (channels);
CREATE VIEW layout AS {DISTINCT_CHANNELS};
CREATE VIEW state AS SELECT pg_total_relation_size('entry'::regclass) AS bytes,
    ARRAY(SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'entry'::regclass) AS indexes;
"""
FOREIGN = {
    "entry_{name}": (COLUMN_TYPES, "entry", ""),
    "entry_{name}_w": (COLUMN_TYPES, "entry", "_w"),
    "layout_{name}": ("channels TEXT", "layout", ""),
    "state_{name}": ("bytes BIGINT, indexes TEXT[]", "state", ""),
    "replica_{name}": ("address TEXT, state TEXT, lag_bytes BIGINT, lag_s FLOAT8", "replica", ""),
}
# A lost machine is noticed within seconds. The index of a shard is searched as one server's is.
SERVER_OPTIONS = {
    "extensions": "vector",
    "async_capable": "true",
    "parallel_commit": "true",
    "parallel_abort": "true",
    "batch_size": "256",
    "fetch_size": "500",
    "connect_timeout": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
SEARCHING = "-c hnsw.ef_search={candidates} -c hnsw.iterative_scan=strict_order -c synchronous_commit=on"
# An index covers one generation, so that vectors of another width can be written beside it.
SHARD_INDEX = (
    "CREATE INDEX IF NOT EXISTS entry_embedding_{generation} ON entry USING hnsw "
    "((embedding::vector({width})) vector_ip_ops) WHERE generation = {generation}"
)


def bucket_of(id: str) -> int:
    """The bucket of an id, always the same one."""
    return int.from_bytes(md5(id.encode(), usedforsecurity=False).digest()[:4], "big") % BUCKETS


@dataclass(frozen=True)
class Shard:
    """One shard as the coordinator knows it at one moment."""

    name: str
    place: str  # without the password
    buckets: tuple[int, ...]
    hidden: tuple[int, ...]
    generation: int

    def table(self, *, writing: bool) -> str:
        """The foreign table; a writer's goes to the server of the shard that takes writes, a reader's to any."""
        return f"entry_{self.name}{'_w' if writing else ''}"

    def source(self, *, writing: bool) -> str:
        """Its rows that count."""
        hidden = f" AND bucket <> ALL ('{{{','.join(map(str, self.hidden))}}}')" if self.hidden else ""
        return f"SELECT {NAMES} FROM {self.table(writing=writing)} WHERE generation = {self.generation}{hidden}"

    @property
    def share(self) -> float:
        """Of all ids, how many are here."""
        return len(self.buckets) / BUCKETS


def read_shards(connection: Any) -> list[Shard]:
    """The shards, which stay so until the end of the transaction: a change of them waits for all who read."""
    connection.execute("LOCK TABLE shard IN ACCESS SHARE MODE")
    query = "SELECT name, place, buckets, hidden, generation FROM shard ORDER BY length(name), name"
    rows = connection.execute(query).fetchall()
    return [Shard(name, place, tuple(buckets), tuple(hidden), count) for name, place, buckets, hidden, count in rows]


class ShardedConnection:
    """A connection whose statements see the rows of several shards as the table `entry`."""

    def __init__(self, connection: Any, shards: Sequence[Shard], *, writing: bool) -> None:
        self.connection, self.shards, self.writing = connection, shards, writing

    def execute(self, query: str, values: Sequence[Any] = (), *, binary: bool | None = None) -> Any:
        """One statement over the rows of all."""
        rows = " UNION ALL ".join(shard.source(writing=self.writing) for shard in self.shards)
        text = f"WITH entry AS NOT MATERIALIZED ({rows}) {query}" if ENTRY.search(query) else query
        return self.connection.execute(text, tuple(values), binary=binary)

    def each(self, query: str, values: Sequence[Any] = (), then: str = ALL_ROWS) -> list[Row]:
        """A query that every shard answers for itself, limits and counts too, and what is made of all answers.

        These are collected before they are sorted: a sorted merge would ask one shard after the other.
        """
        parts = [
            f"(WITH entry AS NOT MATERIALIZED ({shard.source(writing=self.writing)}) {query})" for shard in self.shards
        ]
        text = f"WITH each_shard AS MATERIALIZED ({' UNION ALL '.join(parts)}) {then}"
        rows: list[Row] = self.connection.execute(text, tuple(values) * len(self.shards), binary=True).fetchall()
        return rows


def server_name(place: Address, name: str, suffix: str = "") -> str:
    """The foreign server of a shard; these names are the whole database's."""
    return f"{place.schema}_{name}{suffix}"


def shard_fields(url: str) -> dict[str, str]:
    """The parts of the address of a shard, as libpq names them."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        fields = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.ProgrammingError:
        fields = {}
    if not fields.get("host") or not fields.get("dbname") or "/" in fields["dbname"]:
        raise GalleryError(f"expected the address of a shard, postgresql://user@host:5432/database, got {url!r}")
    return fields


def shown_place(fields: dict[str, str]) -> str:
    """host:port/database, without user and password."""
    hosts, ports = fields["host"].split(","), fields.get("port", "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return f"{','.join(f'{host}:{port or 5432}' for host, port in zip(hosts, ports, strict=True))}/{fields['dbname']}"


def create_shard_tables(connection: Any, place: Address) -> None:
    """On the shard itself: its table, and what it says of itself."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute(f"CREATE SCHEMA {place.schema}")
    connection.execute(f"SET LOCAL search_path = {place.schema}, public")
    connection.execute(SHARD)
    connection.execute(f"CREATE VIEW replica AS {REPLICAS}")


def declare_shard(connection: Any, place: Address, name: str, fields: dict[str, str], candidates: int) -> None:
    """On the coordinator: the servers, for readers and for the writer, and the foreign tables."""
    user = {key: value for key, value in fields.items() if key in PASSWORDS}
    about = {key: value for key, value in fields.items() if key not in PASSWORDS}
    options = {**SERVER_OPTIONS, "options": SEARCHING.format(candidates=candidates), **about}
    for suffix, target in (("", "any"), ("_w", "read-write")):
        server = server_name(place, name, suffix)
        shown = _options({**options, "target_session_attrs": target})
        connection.execute(f"CREATE SERVER {server} FOREIGN DATA WRAPPER postgres_fdw {shown}")
        connection.execute(f"CREATE USER MAPPING FOR PUBLIC SERVER {server} {_options(user)}")
    for table, (columns, remote, suffix) in FOREIGN.items():
        connection.execute(
            f"CREATE FOREIGN TABLE {table.format(name=name)} ({columns}) SERVER {server_name(place, name, suffix)} "
            + _options({"schema_name": place.schema, "table_name": remote})
        )
        if remote == "entry":
            _plan_as_large(connection, table.format(name=name))


def _plan_as_large(connection: Any, table: str) -> None:
    """Without statistics, the planner takes a foreign table for a small one, and fetches all of it to sort it here."""
    relation = "'schemaname', current_schema()::text, 'relname', %s::text"
    connection.execute(
        f"SELECT pg_restore_relation_stats({relation}, 'relpages', 100000000, 'reltuples', 1e9::real)", (table,)
    )
    connection.execute(
        f"SELECT pg_restore_attribute_stats({relation}, 'attname', 'generation', 'inherited', false, "
        "'null_frac', 0::real, 'avg_width', 4, 'n_distinct', 1::real)",
        (table,),
    )


def _options(values: dict[str, str]) -> str:
    from psycopg.sql import Literal

    if not values:
        return ""
    return f"OPTIONS ({', '.join(f'{key} {Literal(value).as_string()}' for key, value in values.items())})"


def connection_text(connection: Any, place: Address, name: str) -> str:
    """How to reach a shard's server that takes writes, as the coordinator's catalogs have it."""
    from psycopg.conninfo import make_conninfo

    query = (
        "SELECT srvoptions, umoptions FROM pg_foreign_server JOIN pg_user_mappings USING (srvname) WHERE srvname = %s"
    )
    server, user = connection.execute(query, (server_name(place, name, "_w"),)).fetchone()
    fields = dict(text.split("=", 1) for text in (*server, *(user or ())))
    return make_conninfo("", **{key: value for key, value in fields.items() if key not in OF_WRAPPER})
