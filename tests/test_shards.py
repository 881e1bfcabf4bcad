"""A gallery over several servers: lost shards, replicas, shards added and taken away while others search."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adding import ids_of
from commands import Run, runner
from galleries import ABOUT, agrees, entries_of, naive_shortlist, same
from servers import Cluster, PostgresServer, running_cluster, running_server

from geopatch.engines import Entries, as_filter, postgres_shard_session, postgres_shards
from geopatch.engines.packing import Row
from geopatch.engines.postgres_moving import add_shards, balanced, remove_shard
from geopatch.engines.postgres_shard_sql import BUCKETS, NAMES, ShardedConnection, bucket_of, shard_fields
from geopatch.engines.postgres_shards import Sharded
from geopatch.errors import ExistsError, GalleryError, NotFoundError, StorageError
from geopatch.gallery import Gallery

IDS = [f"w {n}" for n in range(300)]
QUERIES = entries_of(["q0", "q1", "q2"], seed=4).embedding


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(3, "fsync=off") as running:
        yield running


@pytest.fixture
def place(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    place = cluster.url(f"g{abs(hash(request.node.nodeid))}")
    add_shards(place, cluster.shard_urls)
    yield place
    for server in cluster.shards:
        if server.process is None or server.process.poll() is not None:
            server.start()


@pytest.fixture
def filled(place: str) -> Iterator[tuple[Gallery, Entries]]:
    entries = entries_of(IDS)
    with Gallery.create(place, ABOUT) as gallery:
        gallery.add(entries)
        yield gallery, entries


def engine_of(gallery: Gallery) -> Sharded:
    assert isinstance(gallery.engine, Sharded)
    return gallery.engine


def of_shard(gallery: Gallery, name: str) -> set[str]:
    owned = next(set(shard.buckets) for shard in engine_of(gallery).shards() if shard.name == name)
    return {id for id in IDS if bucket_of(id) in owned}


def test_every_shard_has_its_share(filled: tuple[Gallery, Entries]) -> None:
    info = filled[0].info()
    assert [shard.name for shard in info.shards] == ["s1", "s2", "s3"]
    assert sum(shard.windows for shard in info.shards) == len(IDS) == info.windows
    assert all(shard.answers and 60 < shard.windows < 140 and shard.bytes > 0 for shard in info.shards)
    assert sum(shard.bytes for shard in info.shards) == info.bytes


@pytest.mark.parametrize("where", [None, "sex == 'F' and age >= 30", "record == 'rec 1'"], ids=str)
def test_shards_filter_sort_and_cut_by_themselves(
    filled: tuple[Gallery, Entries], where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the coordinator sends: all of the filter, the order and the limit, to all shards at the same time."""
    gallery, _ = filled
    plans = list[str]()
    each = ShardedConnection.each

    def explained(self: ShardedConnection, query: str, values: Sequence[Any] = (), *then: str) -> list[Row]:
        each(ShardedConnection(Explaining(self.connection, plans), self.shards, writing=True), query, values, *then)
        return each(self, query, values, *then)

    monkeypatch.setattr(ShardedConnection, "each", explained)
    gallery.shortlist(QUERIES[:1], 7, where)
    plan = next(text for text in reversed(plans) if "<#>" in text)
    remote = [line for line in plan.splitlines() if "Remote SQL" in line]
    assert len(remote) == plan.count("Async Foreign Scan") == 3
    assert all("ORDER BY" in line and "LIMIT 7" in line for line in remote)
    assert "Filter:" not in plan


class Explaining:
    """A connection that gives the plans of statements instead of their rows."""

    def __init__(self, connection: Any, plans: list[str]) -> None:
        self.connection, self.plans = connection, plans

    def execute(self, text: str, values: tuple[Any, ...], binary: bool) -> Any:
        cursor = self.connection.execute(f"EXPLAIN (VERBOSE, COSTS OFF) {text}", values)
        self.plans.append("\n".join(line for (line,) in cursor.fetchall()))
        return cursor


def test_a_search_goes_on_without_a_lost_shard_and_says_so(
    filled: tuple[Gallery, Entries], cluster: Cluster, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery, _ = filled
    lost = of_shard(gallery, "s2")
    kept = [id for id in IDS if id not in lost]
    query = kept[0]
    monkeypatch.setattr(postgres_shard_session, "LOST_S", 0.0)
    with Gallery.open(place, read_only=True) as reader:
        before = reader.search(query, 20)
        assert before.notes == ()
        cluster.shards[1].kill()
        monkeypatch.setattr(postgres_shard_session, "LOST_S", 600.0)
        hits = reader.search(query, 20)
        assert len(hits.notes) == 1
        assert f"shard s2 at 127.0.0.1:{cluster.shards[1].port}/postgres does not answer" in hits.notes[0]
        assert "about 33% of the windows were not searched" in hits.notes[0]
        assert {hit.id for hit in before} - {hit.id for hit in hits} == {hit.id for hit in before} & lost
        assert not {hit.id for hit in hits} & lost
        tokens = reader.search(query, 20, shortlist="tokens:50")
        assert tokens.notes == hits.notes
        assert not {hit.id for hit in tokens} & lost
        with pytest.raises(StorageError, match="cannot be reached or went away"):
            reader.search(query, 20, whole=True)
        with pytest.raises(NotFoundError, match="or it is in a part that cannot be reached: shard s2"):
            reader.search(min(lost), 3)
        for call in (reader.count, reader.records, lambda: list(reader.scan()), lambda: reader.fetch([query])):
            with pytest.raises(StorageError):  # what is not a search is whole or fails
                call()
        states = {shard.name: shard.answers for shard in reader.info().shards}
        assert states == {"s1": True, "s2": False, "s3": True}
        cluster.shards[1].start()
        monkeypatch.setattr(postgres_shard_session, "LOST_S", 0.0)
        reader.engine._lost.clear()  # type: ignore[attr-defined]
        again = reader.search(query, 20)
        assert ([hit.id for hit in again], again.notes) == ([hit.id for hit in before], ())
        assert {hit.id for hit in reader.search(query, 20, shortlist="tokens:50")} & lost


def test_a_lost_shard_refuses_writes_and_loses_nothing(filled: tuple[Gallery, Entries], cluster: Cluster) -> None:
    gallery, entries = filled
    new = entries_of(ids_of(1), seed=1)
    cluster.shards[2].kill()
    with pytest.raises(StorageError, match="cannot be reached or went away"):
        gallery.add(new)
    with pytest.raises(StorageError):
        gallery.remove(IDS)
    cluster.shards[2].start()
    assert same(gallery.fetch(IDS), entries)
    assert gallery.add(new, existing="replace") == len(new)
    assert same(gallery.fetch(list(new.ids)), new)


def test_a_replica_answers_for_its_shard(cluster: Cluster) -> None:
    """The place of a shard names its replica; when the first server is lost, a search is whole all the same."""
    with running_server() as first:
        second = first.replica()
        try:
            hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
            place = cluster.url("replicated")
            add_shards(place, [*cluster.shard_urls[:1], f"postgresql://geopatch@{hosts}/postgres"])
            with Gallery.create(place, ABOUT) as gallery:
                gallery.add(entries_of(IDS))
                caught_up(first)
                replica = gallery.info().shards[1].replicas[0]
                assert (replica.address, replica.state, replica.lag_bytes) == ("127.0.0.1", "streaming", 0)
            with Gallery.open(place, read_only=True) as reader:
                before = reader.search(IDS[0], 20)
                first.kill()
                after = reader.search(IDS[0], 20)
                assert ([hit.id for hit in after], after.notes) == ([hit.id for hit in before], ())
                assert len(reader) == len(IDS)
            second.ask("SELECT pg_promote()")
            with Gallery.open(place) as gallery:
                gallery.add(entries_of(ids_of(0)))
                assert len(gallery) == len(IDS) + len(ids_of(0))
        finally:
            second.stop()


def caught_up(server: PostgresServer) -> None:
    while server.ask("SELECT 1 FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"):
        pass


@contextmanager
def searching(place: str, entries: Entries) -> Iterator[list[str]]:
    """Searches all the time; a list of what went wrong."""
    wrong, stop, count = list[str](), threading.Event(), [0]
    expected = [naive_shortlist(entries, query, 30, None) for query in QUERIES]

    def work() -> None:
        with Gallery.open(place, read_only=True) as reader:
            while not stop.is_set() or not count[0]:
                for near, naive in zip(reader.shortlist(QUERIES, 30), expected, strict=True):
                    if not agrees(near, naive) or len(set(near.ids)) != len(near.ids):
                        wrong.append(f"{near.ids} instead of {naive}")
                held = [id for batch in reader.scan(64) for id in batch.ids]
                if held != list(entries.ids):
                    wrong.append(f"scanned {len(held)}, of them {len(set(held))} different ones")
                count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join()


def test_shards_come_and_go_while_others_search(
    filled: tuple[Gallery, Entries], cluster: Cluster, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hit wrong, twice or missing meanwhile."""
    gallery, entries = filled
    gallery.close()
    monkeypatch.setattr("geopatch.engines.postgres_moving.MOVED_TOGETHER", 10)
    with running_server("fsync=off") as fourth, searching(place, entries) as wrong:
        steps = list[tuple[int, int]]()
        assert add_shards(place, [fourth.database], lambda done, total: steps.append((done, total))) == BUCKETS // 4
        assert steps[-1] == (BUCKETS // 4, BUCKETS // 4)
        assert len(steps) > 5
        with Gallery.open(place, read_only=True) as reader:
            windows = [shard.windows for shard in reader.info().shards]
            assert (sum(windows), min(windows) > 40) == (len(IDS), True)
        assert remove_shard(place, "s2") == BUCKETS // 4
    assert not wrong
    with Gallery.open(place) as gallery:
        assert [shard.name for shard in gallery.info().shards] == ["s1", "s3", "s4"]
        schema = f"geopatch_{place.rpartition('/')[2]}"
        assert cluster.shards[1].ask(f"SELECT to_regnamespace('{schema}')") == [(None,)]


def test_writes_come_between_the_steps_of_a_move(
    filled: tuple[Gallery, Entries], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geopatch.engines.postgres_moving import spread

    gallery, entries = filled
    monkeypatch.setattr("geopatch.engines.postgres_moving.MOVED_TOGETHER", 10)
    added = list[Entries]()

    def add(done: int, total: int) -> None:
        more = entries_of(ids_of(len(added)), seed=len(added))
        gallery.add(more)
        gallery.remove(IDS[len(added)])
        added.append(more)

    spread(engine_of(gallery), ["s1", "s3"], add)
    assert len(added) > 5
    assert len(gallery) == len(IDS) - len(added) + sum(len(one) for one in added)
    for one in added:
        assert same(gallery.fetch(list(one.ids)), one)
    assert same(gallery.fetch(IDS[len(added) :]), entries.take(range(len(added), len(IDS))))
    assert engine_of(gallery).shards()[1].buckets == ()


def test_a_move_that_stops_half_way_is_taken_up(filled: tuple[Gallery, Entries], cluster: Cluster) -> None:
    """Copied rows are hidden until they count, and removed by the next move where that never came."""
    from geopatch.engines import postgres_moving as moving

    gallery, entries = filled
    engine = engine_of(gallery)
    buckets = list(engine.shards()[0].buckets[:50])
    with moving._alone(engine) as connection:
        moving._change(connection, "s2", hide=buckets)
    with engine.changing() as connection:
        query = f"INSERT INTO entry_s2_w ({NAMES}) SELECT {NAMES} FROM entry_s1_w WHERE bucket = ANY(%s)"
        assert connection.execute(query, (buckets,)).rowcount > 3
    assert len(gallery) == len(IDS)
    assert agrees(gallery.shortlist(QUERIES[:1], 300)[0], naive_shortlist(entries, QUERIES[0], 300, None))
    assert moving.spread(engine, ["s1", "s2", "s3"]) == 0
    assert [shard.hidden for shard in engine.shards()] == [(), (), ()]
    assert len(gallery) == len(IDS)
    with engine.changing() as connection:
        assert connection.execute("SELECT count(*) FROM entry_s2_w").fetchone()[0] == len(of_shard(gallery, "s2"))


@pytest.mark.parametrize(
    ("owners", "names"),
    [({"a": 9, "b": 0}, "ab"), ({"a": 4, "b": 3, "c": 3}, "ab"), ({"a": 1, "b": 1, "c": 8}, "abc"), ({"a": 5}, "a")],
    ids=str,
)
def test_the_fewest_buckets_move(owners: dict[str, int], names: str) -> None:
    held = {name: [100 * n + count for count in range(size)] for n, (name, size) in enumerate(owners.items())}
    moves = balanced(held, list(names))
    after = {name: set(buckets) for name, buckets in held.items()}
    for source, target, bucket in moves:
        after[source].remove(bucket)
        after[target].add(bucket)
    sizes = [len(after[name]) for name in names]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == sum(owners.values())
    assert len(moves) == sum(max(0, owners[name] - (len(after[name]) if name in names else 0)) for name in owners)


def test_an_index_on_shards_finds_what_comparing_finds(
    place: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_shards, "INDEX_FROM", 1000)
    entries = entries_of([f"w{n}" for n in range(3000)], keep_windows=False)
    with Gallery.create(place, ABOUT) as gallery:
        gallery.add(entries)
        gallery.optimize()
        info = gallery.info()
        assert (info.indexed, [shard.indexed > 800 for shard in info.shards]) == (3000, [True] * 3)
        for where in (None, "sex == 'F'", "age < 23"):
            for near, query in zip(gallery.shortlist(QUERIES, 20, where), QUERIES, strict=True):
                naive = {id for id, _ in naive_shortlist(entries, query, 20, as_filter(where))}
                assert len(naive & set(near.ids)) >= 0.95 * len(naive)
        schema = f"geopatch_{place.rpartition('/')[2]}"
        vector = f"'{QUERIES[0].tolist()}'"
        order = f"(embedding::vector({ABOUT.widths.embedding})) <#> {vector}"
        plan = cluster.shards[0].ask(
            f"EXPLAIN SELECT id, embedding FROM {schema}.entry WHERE generation = 0 ORDER BY {order} LIMIT 20"
        )
        assert "entry_embedding_0" in str(plan)


@pytest.fixture
def geopatch_gallery(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "gallery")


def test_shards_by_the_command_line(place: str, tmp_path: Path, geopatch_gallery: Run) -> None:
    folder, back = tmp_path / "folder", tmp_path / "back"
    with Gallery.create(folder, ABOUT) as gallery:
        gallery.add(entries_of(IDS))
    assert "copied 300 windows" in geopatch_gallery("copy", folder, place).out
    text = geopatch_gallery("shards", place).out
    assert [line.split()[0] for line in text.splitlines()] == ["s1", "s2", "s3"]
    assert "33%" in text
    shown = geopatch_gallery("info", place).out
    assert "postgresql with shards" in shown
    assert text.splitlines()[1] in shown
    removed = json.loads(geopatch_gallery("shards", place, "--remove", "s1", "--json").out)
    assert removed["moved_buckets"] == 342
    assert geopatch_gallery("shards", folder).code == 2
    state = json.loads(geopatch_gallery("info", place, "--json").out)
    assert [shard["name"] for shard in state["shards"]] == ["s2", "s3"]
    geopatch_gallery("copy", place, back)
    with Gallery.open(back, read_only=True) as gallery:
        assert same(gallery.fetch(IDS), entries_of(IDS))


def test_what_cannot_be_is_said_in_one_line(cluster: Cluster, place: str) -> None:
    with pytest.raises(ExistsError, match="has its shards already"):
        add_shards(place, cluster.shard_urls)
    with pytest.raises(NotFoundError, match="there is no gallery"):
        Gallery.open(place)
    plain = cluster.url("plain")
    Gallery.create(plain, ABOUT).close()
    with pytest.raises(GalleryError, match=r"has its windows on one server; .* geopatch gallery copy"):
        add_shards(plain, cluster.shard_urls)
    with pytest.raises(GalleryError, match=r"expected the address of a shard, .* got 'host'"):
        shard_fields("host")
    Gallery.create(place, ABOUT).close()
    with pytest.raises(NotFoundError, match="has no shard 's9'; it has s1, s2, s3"):
        remove_shard(place, "s9")
    with pytest.raises(StorageError, match="cannot be reached"):
        add_shards(place, ["postgresql://geopatch@127.0.0.1:1/postgres"])


def test_the_metrics_of_a_server_name_each_shard(filled: tuple[Gallery, Entries], cluster: Cluster, place: str) -> None:
    pytest.importorskip("prometheus_client")
    from geopatch.server.metrics import Metrics

    metrics = Metrics()
    with Gallery.open(place, read_only=True) as reader:
        metrics.watch_shards(lambda: reader.info().shards)
        windows = [shard.windows for shard in reader.info().shards]
        text = metrics.text().decode()
        for n, count in enumerate(windows, start=1):
            assert f'geopatch_shard_windows{{shard="s{n}"}} {count:.1f}' in text
            assert f'geopatch_shard_answers{{shard="s{n}"}} 1.0' in text
        cluster.shards[0].kill()
        text = metrics.text().decode()
        assert 'geopatch_shard_answers{shard="s1"} 0.0' in text
        assert 'geopatch_shard_answers{shard="s2"} 1.0' in text
