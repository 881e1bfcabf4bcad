"""The engine for a server: PostgreSQL with the pgvector extension. The server's log and its replicas do the rest.

A place looks like postgresql://user@host:5432/database/gallery. With several hosts, host:5432,other:5432, a writer
finds the one that takes writes, so that a gallery goes on where a replica has been promoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About, check_encoder
from geopatch.engines.engine import (
    CHANGED,
    CREATED,
    DISTINCT_CHANNELS,
    OF_GALLERY,
    RECORDS,
    Contents,
    Embeddings,
    Info,
    Record,
    Shortlist,
    check_queries,
    check_rewritten,
    contents_from,
    embeddings_from,
    now,
    records_from,
    spread_numbers,
    unknown_id,
)
from geopatch.engines.entry import Channels, Entries, Metadata
from geopatch.engines.filters import Filter
from geopatch.engines.packing import Row, as_entries, dump, load_channels
from geopatch.engines.postgres_rows import (
    insert_row,
    replicas_from,
    rewrite_entries,
    scores_of,
    unpack_embedding,
    upgrade_rows,
)
from geopatch.engines.postgres_session import PostgresSession
from geopatch.engines.postgres_sql import (
    ANY_WIDTH,
    COLUMNS,
    INDEX,
    INSERT,
    NEXT_TO,
    REPLICAS,
    Address,
    condition,
    connect,
    create_tables,
    enter,
    json_path,
    one_line_errors,
    take_lock,
    write_document,
    write_model,
)
from geopatch.engines.postgres_tokens import PostgresTokens
from geopatch.engines.tokens import check_token_queries
from geopatch.errors import GalleryError

INDEX_FROM = 100_000  # below, comparing all entries is quick and exact
CANDIDATES_SEARCHING, MOST_CANDIDATES = 512, 1000
T = TypeVar("T")


class Postgres(PostgresSession):
    """Engine over a server. A connection that breaks is made anew by the next call."""

    name = "postgresql"

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, read_only=read_only)
        self._tokens = PostgresTokens()
        try:
            self._about = self.refresh()
        except GalleryError:
            self.close()
            raise

    @staticmethod
    def create(url: str, about: About, model: bytes | None = None) -> None:
        """A new, empty gallery in a database that is there."""
        place = Address.from_url(url)
        with one_line_errors(place):
            connection = connect(place, read_only=False)
            try:
                with connection.transaction():
                    create_tables(connection, place)
                    connection.execute("INSERT INTO about VALUES (%s)", (json.dumps(about.as_dict()),))
                    write_model(connection, model)
                    write_document(connection, OF_GALLERY, CREATED, now())
            finally:
                connection.close()

    @staticmethod
    def upgrade(url: str) -> bool:
        """Bring an older gallery to the present format in one transaction; false where it has that already."""
        place = Address.from_url(url)
        with one_line_errors(place):
            connection = connect(place, read_only=False)
            try:
                enter(connection, place)
                take_lock(connection, place)
                with connection.transaction():
                    return upgrade_rows(connection)
            finally:
                connection.close()

    @property
    def about(self) -> About:
        return self._about

    def refresh(self) -> About:
        self._about = About.from_dict(json.loads(self._rows("SELECT told FROM about")[0][0]), self.place)
        return self._about

    def model(self) -> bytes | None:
        rows = self._rows("SELECT checkpoint FROM model") if self._has_table("model") else []
        return bytes(rows[0][0]) if rows else None

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        """The index goes first, in a change of its own: within the other one, readers would have to wait for its end.

        Until the next `optimize`, queries are compared with all entries.
        """
        with self._writing() as connection:
            connection.execute("DROP INDEX IF EXISTS entry_embedding")
            connection.execute(ANY_WIDTH)
        with self._writing() as connection:
            rewritten = sum(rewrite_entries(connection, batch, about) for batch in batches)
            check_rewritten(rewritten, self.count(), self.place)
            connection.execute("UPDATE about SET told = %s", (json.dumps(about.as_dict()),))
            write_model(connection, model)
        self.refresh()

    def put(self, entries: Entries) -> None:
        rows = [insert_row(entries, n) for n in range(len(entries))]
        with self._writing() as connection:
            check_encoder(self.refresh(), entries.encoder, "these entries")
            connection.execute("DELETE FROM entry WHERE id = ANY(%s)", (list(entries.ids),))
            connection.cursor().executemany(INSERT, rows)

    def remove(self, ids: Sequence[str]) -> int:
        with self._writing() as connection:
            return int(connection.execute("DELETE FROM entry WHERE id = ANY(%s)", (list(ids),)).rowcount)

    def update(self, rows: Mapping[str, Metadata]) -> None:
        change = "UPDATE entry SET metadata = %s, tags = %s::jsonb WHERE id = %s"
        with self._writing() as connection:
            for id, metadata in rows.items():
                text = dump(metadata)
                if not connection.execute(change, (text, text, id)).rowcount:
                    raise unknown_id(self.place, id)

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        columns = COLUMNS if with_windows else COLUMNS.replace("kept_window", "NULL")
        rows = {row[1]: row for row in self._by_id(columns, ids)}
        missing = next((id for id in ids if id not in rows), None)
        if missing is not None:
            raise unknown_id(self.place, missing)
        return self._entries([rows[id] for id in ids])

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        rows = self._by_id("id, record, start_s, stop_s", ids)
        return {id: (record, start_s, stop_s) for id, record, start_s, stop_s in rows}

    def known(self, ids: Sequence[str]) -> set[str]:
        return {id for (id,) in self._by_id("id", ids)}

    def _by_id(self, columns: str, ids: Sequence[str]) -> list[Row]:
        return self._rows(f"SELECT {columns} FROM entry WHERE id = ANY(%s)", [list(ids)])

    def known_fields(self, names: Sequence[str]) -> set[str]:
        """Stops at the first entry that has the name."""
        query = "SELECT 1 FROM entry WHERE tags @? %s::jsonpath LIMIT 1"
        return {name for name in names if self._rows(query, [json_path(name)])}

    def layouts(self) -> tuple[Channels, ...]:
        return tuple(load_channels(text) for (text,) in self._rows(DISTINCT_CHANNELS) if text)

    def next_number(self) -> int:
        last, called = self._rows("SELECT last_value, is_called FROM entry_n_seq")[0]
        return int(last) if called else 0

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        sql, values = condition(where)
        distance = f"(embedding::vector({embedding.shape[1]})) <#> %s"
        query = f"SELECT id, {distance} AS distance FROM entry WHERE {sql} ORDER BY distance LIMIT %s"

        def work(connection: Any) -> list[list[Row]]:
            check_queries(embedding, self.refresh())
            return self._nearest(connection, query, [(vector, *values, k) for vector in embedding])

        hits = self._read(work)
        return [Shortlist(tuple(row[0] for row in rows), -scores_of(rows)) for rows in hits]

    def _nearest(self, connection: Any, query: str, values: list[tuple[Any, ...]]) -> list[list[Row]]:
        """Ids and distances, nearest first, for each tuple of values; the last of these says how many."""
        k = values[0][-1] if values else 1
        connection.execute(f"SET LOCAL hnsw.ef_search = {min(max(k, CANDIDATES_SEARCHING), MOST_CANDIDATES)}")
        connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")  # until k pass the filter
        return [connection.execute(query, one).fetchall() for one in values]

    def token_shortlist(
        self,
        tokens: npt.NDArray[np.float32],
        valid: npt.NDArray[np.bool_],
        k: int,
        where: Filter | None = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        def work(connection: Any) -> list[Shortlist]:
            check_token_queries(tokens, valid, self.refresh())
            return self._tokens.shortlists(connection, self.about, tokens, valid, k, where, ordered)

        return self._read(work)

    def count(self, where: Filter | None = None) -> int:
        sql, values = condition(where)
        return int(self._rows(f"SELECT count(*) FROM entry WHERE {sql}", values)[0][0])

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        sql, values = condition(where)
        query, last = f"SELECT {COLUMNS} FROM entry WHERE n > %s AND ({sql}) ORDER BY n LIMIT %s", 0
        while rows := self._rows(query, [last, *values, batch_size]):
            last = rows[-1][0]
            yield self._entries(rows)

    def embeddings(self, where: Filter | None = None) -> Embeddings:
        sql, values = condition(where)
        query = f"SELECT id, record, start_s, stop_s, vector_send(embedding) FROM entry WHERE {sql} ORDER BY n"
        about, rows = self._read(
            lambda connection: (self.refresh(), connection.execute(query, tuple(values), binary=True).fetchall())
        )
        return embeddings_from([(*row[:4], unpack_embedding(row[4])) for row in rows], about)

    def sample(self, count: int) -> tuple[str, ...]:
        first, last, held = self._rows("SELECT min(n), max(n), count(*) FROM entry")[0]
        if held <= count:
            return tuple(id for (id,) in self._rows("SELECT id FROM entry ORDER BY n"))
        rows = self._rows(NEXT_TO, [spread_numbers(first, last, count)])
        return tuple(dict.fromkeys(id for (id,) in rows))

    def records(self) -> tuple[Record, ...]:
        return records_from(self._record_rows())

    def _record_rows(self) -> list[Row]:
        return self._rows(RECORDS)

    def contents(self) -> Contents:
        records = self._record_rows()
        values = self._rows("SELECT key, value, count(*) FROM entry, jsonb_each(tags) GROUP BY key, value")
        return contents_from(records, values)

    def optimize(self) -> None:
        with self._lock, one_line_errors(self.place):
            connection = self._ready()
            connection.execute("VACUUM (ANALYZE) entry")
            if self.count() >= INDEX_FROM:
                connection.execute("SET maintenance_work_mem = '512MB'")
                connection.execute(INDEX.format(width=self.refresh().widths.embedding))

    def info(self) -> Info:
        query = "SELECT pg_total_relation_size('entry'), to_regclass('entry_embedding') IS NOT NULL"
        size, indexed = self._rows(query)[0]
        windows = self.count()
        when = self.documents(OF_GALLERY)
        times = when.get(CREATED, ""), when.get(CHANGED, "")
        covered, replicas = windows if indexed else 0, replicas_from(self._rows(REPLICAS))
        return Info(self.name, str(self.place), self.refresh(), windows, covered, int(size), *times, replicas)

    def _entries(self, rows: list[Row]) -> Entries:
        plain = [(*row[:7], unpack_embedding(row[7]), *row[8:-1]) for row in rows]
        about = self.about
        if rows and rows[0][-1] != about.encoder:
            about = self.refresh()
            check_encoder(about, rows[0][-1], "these entries")
        return as_entries(plain, about)
