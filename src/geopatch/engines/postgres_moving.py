"""Shards of a gallery added and removed, and their entries spread evenly while others search.

Buckets move a few together: their rows are copied while they are hidden in the new place, then the coordinator says in
one change that they belong there, and then they are removed from the old place. That change waits for all who read by
the old map. Where it is interrupted, what is hidden stays so, and the next call removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from geopatch.engines.postgres import CANDIDATES_SEARCHING
from geopatch.engines.postgres_shard_sql import (
    BUCKETS,
    COORDINATOR,
    FOREIGN,
    NAMES,
    SHARD_INDEX,
    Shard,
    create_shard_tables,
    declare_shard,
    read_shards,
    server_name,
    shard_fields,
    shown_place,
)
from geopatch.engines.postgres_shards import Sharded
from geopatch.engines.postgres_sql import Address, connect, has_shards, one_line_errors, take_lock
from geopatch.errors import ExistsError, GalleryError, NotFoundError

OLDEST = 180000  # an older one has no function that says how large a foreign table is
MOVED_TOGETHER = 5_000  # windows, about; more than one bucket only where these are small
Moving = Callable[[int, int], None]  # buckets moved so far, of how many
Owners = Mapping[str, Sequence[int]]  # by the name of a shard, its buckets


def add_shards(url: str, shards: Sequence[str], report: Moving | None = None) -> int:
    """Give a gallery further servers, or the first ones to a place where none is yet.

    Parameters
    ----------
    url : str
        The place of the gallery.
    shards : sequence of str
        Addresses of databases, postgresql://user@host:5432/database, each with its replicas as further hosts.
    report : callable, optional
        Called with the buckets moved so far, and how many there are to move.

    Returns
    -------
    int
        How many buckets, of 1024, moved.

    Raises
    ------
    GalleryError
        When the gallery has its entries on one server, or an address cannot be used.
    """
    fields = [shard_fields(text) for text in shards]
    place = Address.from_url(url)
    if not _exists(place):
        _prepare(place, fields)
        return 0
    with _opened(url) as engine:
        for one in fields:
            _add(engine, one)
        return spread(engine, [shard.name for shard in engine.shards()], report)


def remove_shard(url: str, name: str, report: Moving | None = None) -> int:
    """Move all entries of a shard to the others, and forget it.

    Parameters
    ----------
    url : str
        The place of the gallery.
    name : str
        The name of the shard.
    report : callable, optional
        Called with the buckets moved so far, and how many there are to move.

    Returns
    -------
    int
        How many buckets, of 1024, moved.

    Raises
    ------
    NotFoundError
        When there is no such shard.
    GalleryError
        When it is the only one.
    """
    with _opened(url) as engine:
        names = [shard.name for shard in engine.shards()]
        if name not in names:
            raise NotFoundError(f"gallery {engine.place} has no shard {name!r}; it has {', '.join(names)}")
        if len(names) == 1:
            raise GalleryError(f"{name} is the only shard of {engine.place}; add another one first")
        moved = spread(engine, [one for one in names if one != name], report)
        _forget(engine, name)
        return moved


def balanced(owners: Owners, names: Sequence[str]) -> list[tuple[str, str, int]]:
    """The fewest moves (from, to, bucket) after which these shards have the same number of buckets, or one more."""
    total = sum(len(buckets) for buckets in owners.values())
    ranked = sorted(names, key=lambda name: -len(owners[name]))
    wanted = {name: total // len(names) + (n < total % len(names)) for n, name in enumerate(ranked)}
    spare = [(name, bucket) for name in owners for bucket in owners[name][wanted.get(name, 0) :]]
    gaps = [name for name in names for _ in range(wanted[name] - len(owners[name]))]
    return [(source, target, bucket) for (source, bucket), target in zip(spare, gaps, strict=True)]


def spread(engine: Sharded, names: Sequence[str], report: Moving | None = None) -> int:
    """Move buckets until these shards have the same number of them; other calls of the engine come between."""
    _sweep(engine)
    moves = balanced({shard.name: shard.buckets for shard in engine.shards()}, names)
    together = max(1, round(MOVED_TOGETHER * BUCKETS / max(engine.count(), 1)))
    done = 0
    for (source, target), buckets in _grouped(moves, together):
        _move(engine, source, target, buckets)
        done += len(buckets)
        if report is not None:
            report(done, len(moves))
    return done


def _grouped(moves: Sequence[tuple[str, str, int]], together: int) -> Iterator[tuple[tuple[str, str], list[int]]]:
    pairs: dict[tuple[str, str], list[int]] = {}
    for source, target, bucket in moves:
        pairs.setdefault((source, target), []).append(bucket)
    for pair, buckets in pairs.items():
        for start in range(0, len(buckets), together):
            yield pair, buckets[start : start + together]


def _move(engine: Sharded, source: str, target: str, buckets: list[int]) -> None:
    """The engine's lock is held: a write of this process waits until the buckets have moved."""
    with engine.exclusive():
        _remap(engine, target, hide=buckets)
        with engine.changing() as connection:
            shards = {shard.name: shard for shard in read_shards(connection)}
            old, new = (shards[name].table(writing=True) for name in (source, target))
            query = f"INSERT INTO {new} ({NAMES}) SELECT {NAMES} FROM {old} WHERE bucket = ANY(%s) AND generation = %s"
            connection.execute(query, (buckets, shards[source].generation))
        with _alone(engine) as connection:
            _change(connection, source, disown=buckets, hide=buckets)
            _change(connection, target, own=buckets, show=buckets)
        _sweep(engine)


def _remap(engine: Sharded, name: str, *, hide: Sequence[int]) -> None:
    with _alone(engine) as connection:
        _change(connection, name, hide=hide)


@contextmanager
def _alone(engine: Sharded) -> Iterator[Any]:
    """A change of the map, when nobody reads by the old one; who comes meanwhile waits for the new one."""
    with engine.changing() as connection:
        connection.execute("LOCK TABLE shard IN ACCESS EXCLUSIVE MODE")
        yield connection
    engine.wait_for_replicas()


def _change(
    connection: Any,
    name: str,
    *,
    own: Sequence[int] = (),
    disown: Sequence[int] = (),
    hide: Sequence[int] = (),
    show: Sequence[int] = (),
) -> None:
    query = "SELECT buckets, hidden FROM shard WHERE name = %s"
    buckets, hidden = connection.execute(query, (name,)).fetchone()
    owned = sorted({*buckets, *own} - {*disown})
    covered = sorted({*hidden, *hide} - {*show})
    connection.execute("UPDATE shard SET buckets = %s, hidden = %s WHERE name = %s", (owned, covered, name))


def _sweep(engine: Sharded) -> None:
    """Remove hidden rows, and then hide nothing."""
    for shard in engine.shards():
        if shard.hidden:
            with engine.changing() as connection:
                query = f"DELETE FROM {shard.table(writing=True)} WHERE bucket = ANY(%s)"
                connection.execute(query, (list(shard.hidden),))
            with engine.changing() as connection:
                _change(connection, shard.name, show=shard.hidden)


def _add(engine: Sharded, fields: dict[str, str]) -> None:
    """A new shard without entries, indexed where the others are."""
    shards = engine.shards()
    name = f"s{1 + max(int(shard.name[1:]) for shard in shards)}"
    indexed = any(one.indexed for one in engine.info().shards)
    _make(engine.place, fields)
    with engine.changing() as connection:
        declare_shard(connection, engine.place, name, fields, CANDIDATES_SEARCHING)
        _write(connection, Shard(name, shown_place(fields), (), (), shards[0].generation))
    if indexed:
        with one_line_errors(engine.place), engine.direct(name) as connection:
            width = engine.about.widths.embedding
            connection.execute(SHARD_INDEX.format(generation=shards[0].generation, width=width))


def _write(connection: Any, shard: Shard) -> None:
    row = (shard.name, shard.place, list(shard.buckets), list(shard.hidden), shard.generation)
    connection.execute("INSERT INTO shard VALUES (%s, %s, %s, %s, %s)", row)


def _forget(engine: Sharded, name: str) -> None:
    """The rows are elsewhere by now; what is left of the gallery on the shard goes too."""
    with one_line_errors(engine.place), engine.direct(name) as shard:
        with _alone(engine) as connection:
            connection.execute("DELETE FROM shard WHERE name = %s", (name,))
            for table in FOREIGN:
                connection.execute(f"DROP FOREIGN TABLE {table.format(name=name)}")
            for suffix in ("", "_w"):
                connection.execute(f"DROP SERVER {server_name(engine.place, name, suffix)} CASCADE")
        shard.execute(f"DROP SCHEMA {engine.place.schema} CASCADE")


def _make(place: Address, fields: dict[str, str]) -> None:
    """The tables on a new shard."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    shard = Address(shown_place(fields), place.gallery)
    text = make_conninfo("", **{"connect_timeout": "10", **fields, "target_session_attrs": "read-write"})
    with one_line_errors(shard), psycopg.connect(text) as connection:
        create_shard_tables(connection, place)


def _prepare(place: Address, fields: Sequence[dict[str, str]]) -> None:
    """A place with shards, where a gallery can be made."""
    with one_line_errors(place), connect(place, read_only=False) as connection:
        take_lock(connection, place)
        if connection.info.server_version < OLDEST:
            version = connection.execute("SHOW server_version").fetchone()[0]
            raise GalleryError(f"the coordinator of shards needs PostgreSQL 18 or newer, {place} has {version}")
        there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.prepared,)).fetchall()
        if there:
            raise ExistsError(f"{place} has its shards already; make the gallery, then further ones can be added")
        for one in fields:
            _make(place, one)
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("CREATE EXTENSION IF NOT EXISTS postgres_fdw")
            connection.execute(f"CREATE SCHEMA {place.prepared}")
            connection.execute(f"SET LOCAL search_path = {place.prepared}, public")
            connection.execute(COORDINATOR)
            for n, one in enumerate(fields):
                declare_shard(connection, place, f"s{n + 1}", one, CANDIDATES_SEARCHING)
                _write(connection, Shard(f"s{n + 1}", shown_place(one), tuple(range(n, BUCKETS, len(fields))), (), 0))


def _exists(place: Address) -> bool:
    with one_line_errors(place), connect(place, read_only=False) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.schema,)).fetchall())


@contextmanager
def _opened(url: str) -> Iterator[Sharded]:
    place = Address.from_url(url)
    if not has_shards(url):
        if not _exists(place):
            raise NotFoundError(f"there is no gallery {place}; create it first, or give another name")
        raise GalleryError(
            f"gallery {place} has its windows on one server; give shards to a new place, then copy it there: "
            "geopatch gallery copy"
        )
    engine = Sharded(url)
    try:
        yield engine
    finally:
        engine.close()
