"""The engine for a gallery over several servers: a coordinator, and shards that it reaches through postgres_fdw.

Model, documents and the map of shards are the coordinator's; entries are the shards'. Each statement goes to the
coordinator, whose planner sends filters, order and limits on to all shards at the same time.

There is no commit over several shards in one step: a call that returns has been committed on all of them, and one that
fails may have been on some. Adding and removing are by id, so that the same call again completes it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from geopatch.engines.about import About, check_encoder
from geopatch.engines.engine import (
    CHANGED,
    CREATED,
    OF_GALLERY,
    RECORDS,
    Info,
    ShardInfo,
    check_rewritten,
    spread_numbers,
    unknown_id,
)
from geopatch.engines.entry import Channels, Entries, Metadata
from geopatch.engines.filters import Filter
from geopatch.engines.packing import Row, dump, load_channels, token_row
from geopatch.engines.partial import notes_on_missing
from geopatch.engines.postgres import INDEX_FROM, Postgres
from geopatch.engines.postgres_rows import insert_row, replicas_from
from geopatch.engines.postgres_shard_session import ShardedSession
from geopatch.engines.postgres_shard_sql import (
    NAMES,
    SHARD_INDEX,
    Shard,
    ShardedConnection,
    bucket_of,
    read_shards,
)
from geopatch.engines.postgres_sql import COLUMNS, REPLICAS, condition, one_line_errors, write_model
from geopatch.errors import NotFoundError, StorageError

INSERT_BATCH = 256
INSERTED = (
    "bucket, generation, n, id, record, start_s, stop_s, metadata, channels, tags, embedding, tokens, valid, patch_s, "
    "kept_window"
)
ONE_ROW = "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s)"
ONE_VECTOR = "(%s, %s::vector, %s::bytea, %s::bytea, %s::bytea)"
SAMPLE_TRIES = (1, 8, 64)  # numbers drawn for each entry of a sample: those of removed entries stay unused
STALE_INDEXES = (
    "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname LIKE 'entry_embedding%%' "
    "AND indexname <> %s"
)


class Sharded(ShardedSession, Postgres):
    """Engine over a coordinator and its shards."""

    name = "postgresql with shards"

    def put(self, entries: Entries) -> None:
        with self._writing() as connection:
            check_encoder(self.refresh(), entries.encoder, "these entries")
            query = "SELECT nextval('entry_n_seq') FROM generate_series(1, %s)"
            numbers = [n for (n,) in connection.execute(query, (len(entries),)).fetchall()]
            for shard, members in self._by_shard(connection, entries.ids):
                table, ids = shard.table(writing=True), [entries.ids[n] for n in members]
                connection.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", (ids,))
                rows = [
                    (bucket_of(entries.ids[n]), shard.generation, numbers[n], *insert_row(entries, n)) for n in members
                ]
                insert_rows(connection, f"INSERT INTO {table} ({INSERTED}) VALUES", ONE_ROW, rows)

    def remove(self, ids: Sequence[str]) -> int:
        removed = 0
        with self._writing() as connection:
            for shard, members in self._by_shard(connection, ids):
                query = f"DELETE FROM {shard.table(writing=True)} WHERE id = ANY(%s)"
                removed += int(connection.execute(query, ([ids[n] for n in members],)).rowcount)
        return removed

    def update(self, rows: Mapping[str, Metadata]) -> None:
        ids = list(rows)
        with self._writing() as connection:
            for shard, members in self._by_shard(connection, ids):
                change = f"UPDATE {shard.table(writing=True)} SET metadata = %s, tags = %s::jsonb WHERE id = %s"
                for id in (ids[n] for n in members):
                    text = dump(rows[id])
                    if not connection.execute(change, (text, text, id)).rowcount:
                        raise unknown_id(self.place, id)

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        """New rows are written beside the old ones, which are removed when nobody reads them any more."""
        self._remove_other_generations()
        with self._writing() as connection:
            rewritten = sum(self._rewrite_batch(connection, batch, about) for batch in batches)
            check_rewritten(rewritten, self.count(), self.place)
            connection.execute("UPDATE shard SET generation = generation + 1")
            connection.execute("UPDATE about SET told = %s", (json.dumps(about.as_dict()),))
            write_model(connection, model)
        self.refresh()
        with self._writing() as connection:
            connection.execute("LOCK TABLE shard IN ACCESS EXCLUSIVE MODE")  # waits for those who read the old ones
        self._remove_other_generations()

    def _rewrite_batch(self, connection: Any, entries: Entries, about: About) -> int:
        check_encoder(about, entries.encoder, "these entries")
        written = 0
        for shard, members in self._by_shard(connection, entries.ids):
            table, vectors = shard.table(writing=True), ("embedding", "tokens", "valid", "patch_s")
            columns = [f"{'v' if name in vectors else 'e'}.{name}" for name in NAMES.split(", ")[2:]]
            values = ", ".join([ONE_VECTOR] * len(members))
            rows = [(entries.ids[n], entries.embedding[n], *token_row(entries, n)) for n in members]
            query = (
                f"INSERT INTO {table} ({NAMES}) SELECT e.bucket, {shard.generation + 1}, {', '.join(columns)} "
                f"FROM {table} e JOIN (VALUES {values}) v(id, {', '.join(vectors)}) ON v.id = e.id "
                f"WHERE e.generation = {shard.generation} AND e.id = ANY(%s)"
            )
            ids = [entries.ids[n] for n in members]
            written += int(connection.execute(query, (*(value for row in rows for value in row), ids)).rowcount)
        return written

    def _remove_other_generations(self) -> None:
        with self._writing() as connection:
            for shard in read_shards(connection):
                query = f"DELETE FROM {shard.table(writing=True)} WHERE generation <> %s"
                connection.execute(query, (shard.generation,))

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        try:
            return super().fetch(ids, with_windows=with_windows)
        except NotFoundError as error:
            if notes := notes_on_missing():
                raise NotFoundError(
                    f"{error}, or it is in a part that cannot be reached: {sorted(notes)[0]}"
                ) from error
            raise

    def _by_id(self, columns: str, ids: Sequence[str]) -> list[Row]:
        query = f"SELECT {columns} FROM entry WHERE id = ANY(%s)"
        return self._each(query, [list(ids)])

    def known_fields(self, names: Sequence[str]) -> set[str]:
        known = super().known_fields(names)
        return set(names) if notes_on_missing() else known  # it may be known where nobody answers

    def layouts(self) -> tuple[Channels, ...]:
        def work(connection: ShardedConnection) -> list[Row]:
            query = " UNION ".join(f"SELECT channels FROM layout_{shard.name}" for shard in connection.shards)
            rows: list[Row] = connection.connection.execute(query).fetchall()
            return rows

        return tuple(load_channels(text) for (text,) in self._read(work) if text)

    def _nearest(self, connection: Any, query: str, values: list[tuple[Any, ...]]) -> list[list[Row]]:
        return [
            connection.each(query, one, f"SELECT * FROM each_shard ORDER BY distance LIMIT {one[-1]}") for one in values
        ]

    def count(self, where: Filter | None = None) -> int:
        sql, values = condition(where)
        rows = self._each(f"SELECT count(*) FROM entry WHERE {sql}", values)
        return int(sum(count for (count,) in rows))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        sql, values = condition(where)
        query = f"SELECT {COLUMNS} FROM entry WHERE n > %s AND ({sql}) ORDER BY n LIMIT {batch_size}"
        then, last = f"SELECT * FROM each_shard ORDER BY 1 LIMIT {batch_size}", 0
        while rows := self._each(query, [last, *values], then):
            last = rows[-1][0]
            yield self._entries(rows)

    def sample(self, count: int) -> tuple[str, ...]:
        bounds = self._each("SELECT min(n), max(n), count(*) FROM entry")
        known = [row for row in bounds if row[2]]
        if sum(row[2] for row in known) <= count:
            return tuple(id for (id,) in self._rows("SELECT id FROM entry ORDER BY n"))
        first, last = min(row[0] for row in known), max(row[1] for row in known)
        ids = list[str]()
        for tries in SAMPLE_TRIES:
            numbers = spread_numbers(first, last, tries * count)
            ids = [id for (id,) in self._rows("SELECT id FROM entry WHERE n = ANY(%s) ORDER BY n", [numbers])]
            if len(ids) >= count // 2:
                break
        return tuple(ids[n] for n in spread_numbers(0, len(ids) - 1, count)) if len(ids) > count else tuple(ids)

    def _record_rows(self) -> list[Row]:
        query = RECORDS.replace("count(*), min(start_s), max(stop_s)", "count(*) c, min(start_s) a, max(stop_s) b")
        then = "SELECT record, sum(c)::bigint, min(a), max(b) FROM each_shard GROUP BY record"
        return self._each(query, (), then)

    def optimize(self) -> None:
        """On every shard by itself, one after the other: each may need all of its machine."""
        about, windows = self.refresh(), self.count()
        for shard in self.shards():
            with one_line_errors(self.place), self.direct(shard.name) as connection:
                for (name,) in connection.execute(STALE_INDEXES, (f"entry_embedding_{shard.generation}",)).fetchall():
                    connection.execute(f"DROP INDEX {name}")
                connection.execute("VACUUM (ANALYZE) entry")
                if windows >= INDEX_FROM:
                    connection.execute("SET maintenance_work_mem = '512MB'")
                    connection.execute(SHARD_INDEX.format(generation=shard.generation, width=about.widths.embedding))

    def info(self) -> Info:
        shards = tuple(self._shard_info(shard) for shard in self.shards())
        when = self.documents(OF_GALLERY)
        times = when.get(CREATED, ""), when.get(CHANGED, "")
        windows, indexed, size = (sum(getattr(one, name) for one in shards) for name in ("windows", "indexed", "bytes"))
        replicas, about = replicas_from(self._rows(REPLICAS)), self.refresh()
        return Info(self.name, str(self.place), about, windows, indexed, size, *times, replicas, shards)

    def _shard_info(self, shard: Shard) -> ShardInfo:
        state = shard.name, shard.place, shard.share
        writing = not self._read_only
        try:
            with self._looking() as connection:
                query = f"SELECT bytes, indexes FROM state_{shard.name}"
                size, indexes = connection.execute(query).fetchone()
                query = f"SELECT count(*) FROM ({shard.source(writing=writing)}) AS entry"
                windows = int(connection.execute(query).fetchone()[0])
                replicas = replicas_from(connection.execute(f"SELECT * FROM replica_{shard.name}").fetchall())
        except StorageError as error:
            if not self._is_lost(error):
                raise
            return ShardInfo(*state, answers=False)
        indexed = any(name.endswith(f"entry_embedding_{shard.generation}") for name in indexes)
        return ShardInfo(*state, True, windows, windows if indexed else 0, int(size), replicas)

    def _by_shard(self, connection: Any, ids: Sequence[str]) -> list[tuple[Shard, list[int]]]:
        """Of each shard that one of the ids belongs to, the positions of all that do."""
        owners = {bucket: shard for shard in read_shards(connection) for bucket in shard.buckets}
        members: dict[Shard, list[int]] = defaultdict(list)
        for n, id in enumerate(ids):
            members[owners[bucket_of(id)]].append(n)
        return list(members.items())


def insert_rows(connection: Any, statement: str, one: str, rows: Sequence[Row]) -> None:
    """Many rows in a statement: they go to a shard together."""
    for start in range(0, len(rows), INSERT_BATCH):
        part = rows[start : start + INSERT_BATCH]
        values = tuple(value for row in part for value in row)
        connection.execute(f"{statement} {', '.join([one] * len(part))}", values)
