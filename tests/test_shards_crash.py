"""Shards killed as by a power cut, while one thread writes and one searches: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from adding import ids_of
from galleries import ABOUT, entries_of, same
from servers import Cluster, running_cluster

from geopatch.engines import postgres_shard_session
from geopatch.engines.postgres_moving import add_shards
from geopatch.engines.postgres_shard_sql import bucket_of
from geopatch.engines.postgres_shards import Sharded
from geopatch.errors import StorageError
from geopatch.gallery import Gallery

KILLS = int(os.environ.get("GEOPATCH_KILLS", "2"))
QUERY = ids_of(0)[1]
LONGEST_S = 0.6  # from the first batch after a restart to the next kill


@dataclass
class Load:
    """What a writer and a searcher saw."""

    place: str
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[int] = field(default_factory=list)
    refused: int = 0
    whole: int = 0
    partial: int = 0
    wrong: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {"acknowledged": len(self.acknowledged), "refused": self.refused, "partial": self.partial}

    def write(self) -> None:
        """A batch that was not acknowledged is added again until it is."""
        with Gallery.open(self.place) as gallery:
            batch = 1
            while not self.stop.is_set():
                try:
                    gallery.add(entries_of(ids_of(batch), seed=batch), existing="replace")
                except StorageError:
                    self.refused += 1
                    time.sleep(0.02)
                    continue
                self.acknowledged.append(batch)
                batch += 1

    def search(self) -> None:
        """Five hits, or a note on what is missing."""
        with Gallery.open(self.place, read_only=True) as reader:
            while not self.stop.is_set():
                hits = reader.search(QUERY, 5)
                self.partial, self.whole = self.partial + bool(hits.notes), self.whole + (not hits.notes)
                if not hits.notes and len(hits) != 5:
                    self.wrong.append(f"{len(hits)} hits")
                if any("does not answer" not in note for note in hits.notes):
                    self.wrong.append(str(hits.notes))


def test_killed_shards_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard of the query stays, so that every search can be answered; the others are killed in turn."""
    monkeypatch.setattr(postgres_shard_session, "LOST_S", 0.2)
    with running_cluster(3) as cluster:
        place = cluster.url("crash")
        add_shards(place, cluster.shard_urls)
        with Gallery.create(place, ABOUT) as gallery:
            gallery.add(entries_of(ids_of(0), seed=0))
        load = Load(place)
        threads = [threading.Thread(target=work) for work in (load.write, load.search)]
        for thread in threads:
            thread.start()
        try:
            kill_in_turn(cluster, load)
        finally:
            load.stop.set()
            for thread in threads:
                thread.join()
        assert not load.wrong
        assert load.refused >= KILLS
        assert load.partial >= KILLS
        with Gallery.open(place, read_only=True) as reader:
            for batch in (0, *load.acknowledged):
                assert same(reader.fetch(ids_of(batch)), entries_of(ids_of(batch), seed=batch))
            ids = [id for part in reader.scan(512) for id in part.ids]
            assert len(ids) == len(set(ids)) == len(reader)
            after = load.acknowledged[-1] + 1
            assert set(ids) <= {id for batch in range(after + 1) for id in ids_of(batch)}
        print(KILLS, "kills:", load.counts(), load.whole, "searches were whole")


def kill_in_turn(cluster: Cluster, load: Load) -> None:
    draw = random.Random(2)
    with closing(Sharded(load.place, read_only=True)) as engine:
        home = next(n for n, one in enumerate(engine.shards()) if bucket_of(QUERY) in one.buckets)
    others = [server for n, server in enumerate(cluster.shards) if n != home]
    for kill in range(KILLS):
        wait_for_more(load, "acknowledged")
        time.sleep(draw.uniform(0, LONGEST_S))
        server = others[kill % 2]
        server.kill()
        wait_for_more(load, "refused", "partial")
        server.start()


def wait_for_more(load: Load, *names: str) -> None:
    before, until = load.counts(), time.monotonic() + 15
    while any(load.counts()[name] <= before[name] for name in names):
        assert time.monotonic() < until, load.counts()
        time.sleep(0.01)
