"""One set of laws for every engine: the exact one, the embedded one and a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from galleries import (
    ABOUT,
    ENGINES,
    WIDTHS,
    Ground,
    agrees,
    entries_of,
    everything,
    naive_shortlist,
    naive_token_shortlist,
    same,
)
from memory_engine import joined
from servers import Cluster, PostgresServer, running_cluster, running_server

from geopatch.engines import About, Entries, Widths, as_filter, postgres
from geopatch.engines.filters import Where
from geopatch.engines.place import create_engine, open_engine
from geopatch.errors import ConfigError, ExistsError, GalleryError, LockedError, NotFoundError
from geopatch.gallery import Gallery
from geopatch.gallery.facts import FileFacts, RecordFacts

IDS = [f"w {n}" for n in range(60)]
FILTERS: list[Where] = [
    {"sex": "F"},
    {"sex": 1},
    {"paced": True},
    {"paced": 1},
    {"age": 25.0},
    {"age": {">=": 30, "<": 45}},
    {"noise": {">": 7.5}},
    {"noise": 11 / 7},
    {"sex": {"!=": "F"}},
    {"the lead": {"in": ["V1", "V3", 3, True]}},
    {"the lead": {"not in": ["V1"]}},
    {"the lead": {"in": []}},
    {"record": "rec 1"},
    {"record": 1},
    {"record": {"<": 5}},
    {"id": {"in": ["w 3", "w 4", "nowhere"]}},
    {"start_s": {">=": 50}, "stop_s": {"<=": 100.5}},
    {"start_s": {"in": [1, 2.5, 7]}},
    {"not": {"age": {"<": 40}}},
    {"not": {"not": {"paced": False}}},
    {"or": [{"sex": "F"}, {"age": {">": 60}}], "paced": False},
    {"and": []},
    {"or": []},
    {},
    "sex == 'M' and not (30 <= age < 50) or paced == true",
    "record in ('rec 0', 'rec 2') and 20 < start_s",
]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster(3, "fsync=off") as running:
        yield running


def ground_of(engine: str, folder: Path, request: pytest.FixtureRequest, prefix: str) -> Ground:
    name = f"{prefix}{abs(hash(request.node.nodeid))}"
    if engine == "postgresql":
        started: PostgresServer = request.getfixturevalue("server")
        return Ground(engine, folder, started.url(name))
    if engine == "postgresql with shards":
        running: Cluster = request.getfixturevalue("cluster")
        return Ground(engine, folder, running.url(name), running.shard_urls)
    return Ground(engine, folder)


@pytest.fixture(params=ENGINES)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ground_of(request.param, tmp_path, request, "t")


@pytest.fixture
def filled(ground: Ground) -> Iterator[tuple[Gallery, Entries]]:
    entries = entries_of(IDS)
    with ground.gallery() as gallery:
        gallery.add(entries)
        yield gallery, entries


def test_what_is_put_comes_back_to_the_last_bit(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    assert same(gallery.fetch(IDS), entries)
    backwards = IDS[::-1]
    assert gallery.fetch(backwards).ids == tuple(backwards)
    without = dataclasses.replace(entries, windows=(None,) * len(IDS))
    assert same(gallery.fetch(IDS, with_windows=False), without)
    assert len(gallery) == len(IDS)
    assert "w 3" in gallery
    assert "elsewhere" not in gallery


def test_vectors_and_places_are_read_without_the_rest(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    every = gallery.embeddings()
    assert (every.encoder, every.ids, every.records) == (entries.encoder, entries.ids, entries.records)
    for mine, stored in (("start_s", "start_s"), ("stop_s", "stop_s"), ("vectors", "embedding")):
        assert np.array_equal(getattr(every, mine), getattr(entries, stored))
    some = gallery.embeddings({"sex": "F"})
    kept = [n for n in range(len(entries)) if entries.metadata[n].get("sex") == "F"]
    assert some.ids == tuple(entries.ids[n] for n in kept)
    assert np.array_equal(some.vectors, entries.embedding[kept])


def test_a_gallery_outlives_its_process(ground: Ground) -> None:
    place, entries = ground.place(), entries_of(IDS)
    with Gallery.create(place, ABOUT) as gallery:
        gallery.add(entries)
    with Gallery.open(place) as gallery:
        assert same(gallery.fetch(IDS), entries)
        assert gallery.about == ABOUT
        info = gallery.info()
    assert (info.windows, info.engine) == (60, ground.engine)
    assert info.bytes > entries.embedding.nbytes + entries.tokens.nbytes


def test_put_again_replaces(filled: tuple[Gallery, Entries]) -> None:
    gallery, _ = filled
    other = entries_of(IDS[10:20], seed=5)
    assert gallery.add(other, existing="replace") == 10
    assert len(gallery) == len(IDS)
    assert same(gallery.fetch(IDS[10:20]), other)
    assert gallery.shortlist(other.embedding[:1], 1)[0].ids == (IDS[10],)


def test_an_id_that_is_there_is_refused_unless_told(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    mixed = entries_of(["new", *IDS[:5]], seed=9)
    with pytest.raises(ExistsError, match=r"'w 0', 'w 1', 'w 2' and 2 more already; .* existing='replace'"):
        gallery.add(mixed)
    assert "new" not in gallery
    assert same(gallery.fetch(IDS), entries)


def test_known_entries_can_be_skipped(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    mixed = entries_of([*IDS[:3], "new 1", "new 2"], seed=9)
    assert gallery.add(iter([mixed]), existing="skip") == 2
    assert same(gallery.fetch(IDS), entries)
    assert same(gallery.fetch(["new 2"]), mixed.take([4]))


def test_remove(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    assert gallery.remove([*IDS[:5], "nowhere"], missing="ignore") == 5
    assert gallery.remove(IDS[0], missing="ignore") == 0
    assert gallery.remove([]) == 0
    assert len(gallery) == 55
    with pytest.raises(NotFoundError, match="no entry 'w 0'"):
        gallery.get("w 0")
    found = gallery.shortlist(entries.embedding[:1], 60)[0]
    assert agrees(found, naive_shortlist(entries.take(range(5, 60)), entries.embedding[0], 60, None))


def test_ids_that_are_not_there_are_named_and_nothing_is_removed(filled: tuple[Gallery, Entries]) -> None:
    gallery, _ = filled
    with pytest.raises(NotFoundError, match="has no entry 'rec41'; nothing was removed"):
        gallery.remove([IDS[0], "rec41"])
    with pytest.raises(NotFoundError, match="'n0', 'n1', 'n2' and 7 more"):
        gallery.remove([f"n{n}" for n in range(10)])
    assert len(gallery) == len(IDS)


def test_entries_are_removed_by_a_filter(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    old = [id for n, id in enumerate(IDS) if int(entries.metadata[n].get("age", 0)) >= 40]
    assert gallery.remove(where="age >= 40") == len(old) > 0
    assert gallery.remove(where="age >= 40") == 0
    assert set(everything(gallery)) == set(IDS) - set(old)
    for ids, where in ((None, None), (IDS[:1], "age < 3")):
        with pytest.raises(ConfigError, match="either ids, record or where"):
            gallery.remove(ids, where=where)


@pytest.mark.parametrize("where", ["weight > 60", {"weight": {"!=": 3}}, "not (sex == 'F' and weight == 1)"], ids=str)
def test_a_field_that_no_entry_has_is_refused(filled: tuple[Gallery, Entries], where: Where, tmp_path: Path) -> None:
    gallery, entries = filled
    query = entries.embedding[:1]
    calls: list[Callable[[], object]] = [
        lambda: gallery.count(where),
        lambda: gallery.scan(where=where),
        lambda: gallery.shortlist(query, 3, where),
        lambda: gallery.search(IDS[0], where=where),
        lambda: gallery.remove(where=where),
        lambda: gallery.copy(tmp_path / "copy", where=where),
        lambda: gallery.export(tmp_path / "out.parquet", where=where),
    ]
    for call in calls:
        with pytest.raises(
            NotFoundError, match=r"no entry has a field 'weight'; fields are: id, record, .* age, noise"
        ):
            call()
    assert not (tmp_path / "copy").exists()
    gallery.update(IDS[0], {"weight": 70})
    assert gallery.count("weight > 60") == 1
    gallery.remove(list(IDS))
    assert gallery.count(where) == 0


def test_layouts_are_the_orders_of_channel_names(ground: Ground) -> None:
    names = [("V5", "MLII"), ("MLII", "V5"), (), ("é, ü",)]
    entries = dataclasses.replace(
        entries_of(IDS, keep_windows=False), channels=tuple(names[n % 4] for n in range(len(IDS)))
    )
    with ground.gallery() as gallery:
        assert gallery.layouts() == ()
        gallery.add(entries)
        assert sorted(gallery.layouts()) == sorted([names[0], names[1], names[3]])
        gallery.remove([id for n, id in enumerate(IDS) if n % 4 == 1])
        assert sorted(gallery.layouts()) == sorted([names[0], names[3]])


def test_update_changes_metadata_alone(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    before = gallery.get("w 7")
    gallery.update("w 7", {"age": None, "sex": "X", "mark": 0.1})
    expected = {**before.metadata[0], "sex": "X", "mark": 0.1}
    expected.pop("age", None)
    assert same(gallery.get("w 7"), dataclasses.replace(before, metadata=(expected,)))
    assert gallery.count({"sex": "X"}) == 1
    assert gallery.shortlist(entries.embedding[7:8], 1, "mark == 0.1")[0].ids == ("w 7",)
    with pytest.raises(NotFoundError, match="no entry 'nowhere'"):
        gallery.update("nowhere", {"sex": "F"})


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_filters_mean_what_the_naive_ones_mean(filled: tuple[Gallery, Entries], where: Where) -> None:
    gallery, entries = filled
    naive = as_filter(where)
    passing = {id for n, id in enumerate(IDS) if naive is None or naive.matches(entries.fields(n))}
    assert gallery.count(where) == len(passing)
    assert {id for batch in gallery.scan(8, where) for id in batch.ids} == passing
    found = gallery.shortlist(entries.embedding[:2], 10, where)
    for query, shortlist in zip(entries.embedding, found, strict=False):
        assert agrees(shortlist, naive_shortlist(entries, query, 10, naive))


def test_the_filters_of_this_file_can_fail(filled: tuple[Gallery, Entries]) -> None:
    counts = {filled[0].count(where) for where in FILTERS}
    assert len(counts) > 10


@pytest.mark.parametrize("k", [1, 10, 60, 500])
def test_shortlists_equal_the_naive_ones(filled: tuple[Gallery, Entries], k: int) -> None:
    gallery, entries = filled
    queries = np.random.default_rng(1).normal(size=(3, WIDTHS.embedding)).astype(np.float32)
    found = gallery.shortlist(queries, k)
    assert all(
        agrees(*pair) for pair in zip(found, [naive_shortlist(entries, q, k, None) for q in queries], strict=True)
    )


@pytest.mark.parametrize("k", [1, 10, 60, 500])
def test_shortlists_from_tokens_equal_the_naive_ones(filled: tuple[Gallery, Entries], k: int) -> None:
    """Queries with padding of their own; entries with fewer tokens than others."""
    gallery, entries = filled
    queries = entries_of(["q0", "q1", "q2"], seed=4)
    near = gallery.token_shortlist(queries.tokens, queries.valid, k)
    assert [len(one.ids) for one in near] == [min(k, 60)] * 3
    for n, one in enumerate(near):
        assert agrees(one, naive_token_shortlist(entries, queries.tokens[n], queries.valid[n], k, None))


@pytest.mark.parametrize("k", [1, 10, 60])
def test_shortlists_from_tokens_in_order_equal_the_naive_ones(filled: tuple[Gallery, Entries], k: int) -> None:
    gallery, entries = filled
    queries = entries_of(["q0", "q1", "q2"], seed=4)
    for n, one in enumerate(gallery.token_shortlist(queries.tokens, queries.valid, k, ordered=True)):
        assert agrees(one, naive_token_shortlist(entries, queries.tokens[n], queries.valid[n], k, None, True))


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_filters_mean_the_same_with_tokens(filled: tuple[Gallery, Entries], where: Where) -> None:
    gallery, entries = filled
    near = gallery.token_shortlist(entries.tokens[:2], entries.valid[:2], 10, where)
    for n, one in enumerate(near):
        expected = naive_token_shortlist(entries, entries.tokens[n], entries.valid[n], 10, as_filter(where))
        assert agrees(one, expected)


def test_shortlists_from_tokens_follow_every_change(filled: tuple[Gallery, Entries]) -> None:
    """Added, replaced, removed, updated and rewritten entries, each seen by the next shortlist."""
    gallery, entries = filled
    held = {id: entries.take([n]) for n, id in enumerate(entries.ids)}

    def check() -> None:
        query = entries_of(["q"], seed=8)
        stored = joined(list(held.values()))
        near = gallery.token_shortlist(query.tokens, query.valid, 15)[0]
        assert agrees(near, naive_token_shortlist(stored, query.tokens[0], query.valid[0], 15, None))

    check()
    fresh = entries_of(["new 1", *IDS[:9]], seed=5)
    gallery.add(fresh, existing="replace")
    held |= {id: fresh.take([n]) for n, id in enumerate(fresh.ids)}
    check()
    for id in IDS[20:40]:
        del held[id]
    gallery.remove(IDS[20:40])
    check()
    gallery.update(IDS[50], {"mark": 1})
    held[IDS[50]] = gallery.get(IDS[50])
    check()
    marked = held[IDS[50]]
    assert gallery.token_shortlist(marked.tokens, marked.valid, 3, "mark == 1")[0].ids == (IDS[50],)
    gallery.optimize()
    check()
    other = dataclasses.replace(ABOUT, encoder="other", widths=Widths(12, 4, 7))
    draw = np.random.default_rng(3)
    now = [gallery.get(id) for id in held]
    wider = {
        one.ids[0]: dataclasses.replace(
            one, encoder="other", tokens=(draw.normal(size=(1, 4, 7)) * one.valid[..., None]).astype(np.float32)
        )
        for one in now
    }
    gallery.engine.rewrite(other, None, list(wider.values()))
    stored = joined(list(wider.values()))
    near = gallery.token_shortlist(stored.tokens[:1], stored.valid[:1], 15)[0]
    assert agrees(near, naive_token_shortlist(stored, stored.tokens[0], stored.valid[0], 15, None))


def test_readers_see_new_tokens(ground: Ground) -> None:
    place, entries = ground.place(), entries_of(IDS)
    with Gallery.create(place, ABOUT) as writer, Gallery.open(place, read_only=True) as reader:
        assert reader.token_shortlist(entries.tokens[:1], entries.valid[:1], 3)[0].ids == ()
        for start in range(0, 60, 20):
            part = entries.take(range(start, start + 20))
            writer.add(part)
            stored = entries.take(range(start + 20))
            near = reader.token_shortlist(part.tokens[:1], part.valid[:1], 5)[0]
            assert agrees(near, naive_token_shortlist(stored, part.tokens[0], part.valid[0], 5, None))
        writer.remove(IDS[:1])
        assert IDS[0] not in reader.token_shortlist(entries.tokens[:1], entries.valid[:1], 60)[0].ids


def test_tokens_of_another_width_are_refused(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    with pytest.raises(GalleryError, match=r"expected tokens \(Q, K, 6\) .* got shapes \(1, 4, 5\) and \(1, 4\)"):
        gallery.token_shortlist(entries.tokens[:1, :, :5], entries.valid[:1], 3)
    with pytest.raises(GalleryError, match=r"got shapes \(1, 4, 6\) and \(1, 3\)"):
        gallery.token_shortlist(entries.tokens[:1], entries.valid[:1, :3], 3)


@pytest.mark.parametrize("scorer", ["fused", "aligned", "cosine"])
def test_a_search_ranks_the_shortlist_from_tokens(filled: tuple[Gallery, Entries], scorer: str) -> None:
    """The few nearest by tokens, in the order of the scorer."""
    gallery, entries = filled
    own, known = entries.tokens[7], entries.valid[7]
    ids = [id for id, _ in naive_token_shortlist(entries, own, known, 9, None, scorer == "aligned")]
    hits = gallery.search(IDS[7], 5, scorer=scorer, shortlist="tokens:8")
    every = gallery.search(IDS[7], 59, scorer=scorer)
    near = [id for id in ids if id != IDS[7]][:8]
    assert [hit.id for hit in hits] == [hit.id for hit in every if hit.id in near][:5]


def test_an_empty_gallery_answers(ground: Ground) -> None:
    with ground.gallery() as gallery:
        assert len(gallery) == 0
        found = gallery.shortlist(np.ones((2, WIDTHS.embedding), np.float32), 5)
        assert [shortlist.ids for shortlist in found] == [(), ()]
        assert list(gallery.scan()) == []
        assert gallery.fetch([]).ids == ()
        gallery.optimize()


def test_optimize_changes_no_answer(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    gallery.remove(IDS[:30])
    gallery.optimize()
    gallery.add(entries.take(range(10)))
    left = entries.take([*range(10), *range(30, 60)])
    assert agrees(
        gallery.shortlist(entries.embedding[:1], 20)[0], naive_shortlist(left, entries.embedding[0], 20, None)
    )


def test_vectors_of_another_encoder_are_refused(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    with pytest.raises(GalleryError, match="vectors of the encoder 0123456789abcdef, these entries came from other"):
        gallery.add(dataclasses.replace(entries, encoder="other"))
    narrow = dataclasses.replace(entries, embedding=entries.embedding[:, :5])
    with pytest.raises(GalleryError, match=r"expected entries of Widths\(embedding=12"):
        gallery.add(narrow)
    with pytest.raises(GalleryError, match=r"expected queries \(Q, 12\), got shape \(1, 5\)"):
        gallery.shortlist(narrow.embedding[:1], 3)
    assert same(gallery.fetch(IDS), entries)


def test_signals_need_a_model(filled: tuple[Gallery, Entries]) -> None:
    with pytest.raises(GalleryError, match="needs its model to take signals"):
        filled[0].add(np.zeros((1, 10)))


def test_the_second_writer_is_refused(ground: Ground) -> None:
    place = ground.place()
    with Gallery.create(place, ABOUT), pytest.raises(LockedError, match=f"is being written by process {os.getpid()}"):
        Gallery.open(place)
    Gallery.open(place).close()


def test_readers_see_what_the_writer_writes(ground: Ground) -> None:
    place, entries = ground.place(), entries_of(IDS)
    with Gallery.create(place, ABOUT) as writer, Gallery.open(place, read_only=True) as reader:
        for start in range(0, 60, 20):
            writer.add(entries.take(range(start, start + 20)))
            assert len(reader) == start + 20
            assert reader.shortlist(entries.embedding[start : start + 1], 1)[0].ids == (IDS[start],)
        writer.remove(IDS[:1])
        assert IDS[0] not in reader.shortlist(entries.embedding[:1], 60)[0].ids
        writer.optimize()
        assert len(reader.shortlist(entries.embedding[:1], 60)[0].ids) == 59
        with pytest.raises(GalleryError):
            reader.add(entries, existing="replace")
        with pytest.raises(GalleryError):
            reader.remove(IDS, missing="ignore")
        assert len(writer) == 59


def test_threads_share_a_gallery(filled: tuple[Gallery, Entries]) -> None:
    """A server answers from several threads while one of them writes."""
    gallery, entries = filled

    def work(n: int) -> tuple[str, ...]:
        if n % 5 == 0:
            gallery.add(entries_of([f"thread {n}"], seed=100 + n))
            gallery.remove([f"thread {n}"])
        assert gallery.count({"id": IDS[n]}) == 1
        return gallery.shortlist(entries.embedding[n : n + 1], 1, {"id": {"in": IDS}})[0].ids

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(40))) == [(id,) for id in IDS[:40]]


def test_create_refuses_what_is_there_and_open_what_is_not(ground: Ground) -> None:
    place = ground.place()
    for call in (Gallery.open, lambda place: Gallery.open(place, read_only=True), Gallery.upgrade):
        with pytest.raises(NotFoundError, match="no gallery"):
            call(place)
    Gallery.create(place, ABOUT).close()
    with pytest.raises(ExistsError, match="exists already"):
        Gallery.create(place, ABOUT)


def test_a_batch_is_added_whole_or_not_at_all(filled: tuple[Gallery, Entries], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in the middle of a batch leaves no part of it, and the gallery can be used."""
    gallery, entries = filled
    bad = entries_of([*IDS[:4], "new"], seed=3)
    object.__setattr__(bad, "records", (*bad.records[:3], None, bad.records[4]))  # past the check: the engine finds it
    with pytest.raises(GalleryError):
        gallery.add(bad, existing="replace")
    assert same(gallery.fetch(IDS), entries)
    assert "new" not in gallery


@pytest.mark.parametrize("engine", ENGINES)
def test_copies_are_equal_whatever_the_engine(
    filled: tuple[Gallery, Entries], engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    gallery, entries = filled
    target = ground_of(engine, tmp_path / "copies", request, "c")
    target.folder.mkdir()
    place, part = target.place(), target.place()
    assert gallery.copy(place) == 60
    with Gallery.open(place) as copy:
        assert copy.about == gallery.about
        found = everything(copy)
        assert same(copy.fetch(IDS), entries)
        assert list(found) == list(everything(gallery))
    assert gallery.copy(part, where={"sex": "F"}) == gallery.count({"sex": "F"})


def test_an_index_on_the_server_finds_what_comparing_finds(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "INDEX_FROM", 1000)
    entries = entries_of([f"w{n}" for n in range(2000)], keep_windows=False)
    queries = entries_of([f"q{n}" for n in range(20)], seed=4).embedding
    with Gallery.create(server.url("indexed"), ABOUT) as gallery:
        gallery.add(entries.take(range(1500)))
        gallery.optimize()
        assert gallery.info().indexed == 1500
        gallery.add(entries.take(range(1500, 2000)))
        gallery.remove([f"w{n}" for n in range(100)])
        left = entries.take(range(100, 2000))
        for where in (None, "sex == 'F'", "age < 23"):
            found = gallery.shortlist(queries, 20, where)
            truth = [{id for id, _ in naive_shortlist(left, query, 20, as_filter(where))} for query in queries]
            assert np.mean([len(set(a.ids) & b) / len(b) for a, b in zip(found, truth, strict=True)]) > 0.99
        changed = with_other_vectors(left)
        gallery.engine.rewrite(OTHER, None, batches_of(changed, 500))
        assert gallery.info().indexed == 0
        assert server.ask("SELECT to_regclass('geopatch_indexed.entry_embedding')") == [(None,)]
        gallery.optimize()
        assert gallery.info().indexed == 1900
        vector = f"'{changed.embedding[0].tolist()}'"
        server.ask("ANALYZE geopatch_indexed.entry")
        order = f"(embedding::vector({OTHER.widths.embedding})) <#> {vector}"
        plan = server.ask(f"EXPLAIN SELECT id FROM geopatch_indexed.entry ORDER BY {order} LIMIT 20")
        assert "entry_embedding" in str(plan)
        found = gallery.shortlist(changed.embedding[:20], 20)
        truth = [{id for id, _ in naive_shortlist(changed, query, 20, None)} for query in changed.embedding[:20]]
        assert np.mean([len(set(a.ids) & b) / len(b) for a, b in zip(found, truth, strict=True)]) > 0.99


def test_widths_of_another_gallery_do_not_fit(ground: Ground) -> None:
    other = dataclasses.replace(ABOUT, widths=Widths(12, 5, 6))
    with Gallery.create(ground.place(), other) as gallery, pytest.raises(GalleryError, match="expected entries of"):
        gallery.add(entries_of(IDS))


def test_contents_are_counted(ground: Ground) -> None:
    entries = entries_of(IDS)
    with ground.gallery() as gallery:
        gallery.add(entries)
        gallery.remove(IDS[:2])
        found = gallery.contents()
    rows = [entries.fields(n) for n in range(2, len(IDS))]
    records = {str(row["record"]) for row in rows}
    assert [record.name for record in found.records] == sorted(records)
    for record in found.records:
        own = [row for row in rows if row["record"] == record.name]
        assert (record.windows, record.start_s) == (len(own), min(float(row["start_s"]) for row in own))
        assert record.stop_s == max(float(row["stop_s"]) for row in own)
    assert [field.name for field in found.fields] == ["age", "noise", "paced", "sex", "the lead"]
    for field in found.fields:
        values = [row[field.name] for row in rows if field.name in row]
        assert field.distinct == len(set(values))
        assert dict(field.values) == {value: values.count(value) for value in set(values)}
        assert all(type(value) in {type(other) for other in values} for value, _ in field.values)
    assert (found.fields[2].low, found.fields[3].high) == (None, None)
    assert found.fields[0].low == min(float(row["age"]) for row in rows if "age" in row)


OTHER = About("fedcba9876543210", Widths(embedding=7, patches=5, token=3), patch_length=6, rate_hz=16.0, length=32)
MODEL = b"\x00packed\xff" * 1000


def with_other_vectors(entries: Entries, about: About = OTHER) -> Entries:
    """The same entries as another encoder of other widths would have them."""
    draw, count, widths = np.random.default_rng(7), len(entries), about.widths
    embedding = draw.normal(size=(count, widths.embedding)).astype(np.float32)
    return dataclasses.replace(
        entries,
        encoder=about.encoder,
        embedding=embedding / np.linalg.norm(embedding, axis=1, keepdims=True),
        tokens=draw.normal(size=(count, widths.patches, widths.token)).astype(np.float32),
        valid=np.ones((count, widths.patches), dtype=bool),
        patch_s=draw.uniform(size=(count, widths.patches, 2)).astype(np.float32),
    )


def batches_of(entries: Entries, size: int = 13) -> Iterator[Entries]:
    return (entries.take(range(first, min(first + size, len(entries)))) for first in range(0, len(entries), size))


def test_a_gallery_holds_a_model_or_none(ground: Ground, tmp_path: Path) -> None:
    with ground.gallery() as gallery:
        assert gallery.engine.model() is None
        assert gallery.model is None
    place = ground.place()
    with closing(create_engine(place, ABOUT, MODEL)) as engine:
        assert engine.model() == MODEL
    with Gallery.open(place, read_only=True) as gallery:
        gallery.copy(tmp_path / "copy")
    with closing(open_engine(tmp_path / "copy", read_only=True)) as engine:
        assert engine.model() == MODEL


@pytest.mark.parametrize("about", [OTHER, dataclasses.replace(OTHER, widths=WIDTHS)], ids=["other widths", "same"])
def test_a_rewrite_changes_all_vectors_and_nothing_else(ground: Ground, about: About) -> None:
    place, entries = ground.place(), entries_of(IDS)
    changed = with_other_vectors(entries, about)
    with Gallery.create(place, ABOUT) as gallery, Gallery.open(place, read_only=True) as reader:
        gallery.add(entries)
        gallery.remove(IDS[4])
        kept = [n for n in range(len(IDS)) if n != 4]
        expected, ids = changed.take(kept), [IDS[n] for n in kept]
        for _ in range(6):  # a statement that is used often is prepared
            before = reader.shortlist(entries.embedding[:3], 5)[1]
            assert reader.fetch(ids[:2]).encoder == ABOUT.encoder
        number = gallery.engine.next_number()
        gallery.engine.rewrite(about, MODEL, batches_of(expected))
        for one in (gallery, reader):
            assert same(one.fetch(ids), expected)
            assert one.about == about
            assert one.engine.model() == MODEL
            assert one.count("sex == 'F'") == sum(row.get("sex") == "F" for row in expected.metadata)
            assert [id for batch in one.scan(7) for id in batch.ids] == ids
            assert one.info().indexed == 0
            near = one.shortlist(expected.embedding[:3], 5)
            for query, shortlist in zip(expected.embedding[:3], near, strict=True):
                assert agrees(shortlist, naive_shortlist(expected, query, 5, None))
        assert before.ids
        assert gallery.engine.next_number() == number
        with pytest.raises(GalleryError, match="these entries came from 0123"):
            gallery.engine.put(entries.take([4]))
        gallery.add(changed.take([4]))
        assert same(reader.get(IDS[4]), changed.take([4]))
        gallery.optimize()
        assert agrees(
            reader.shortlist(changed.embedding[:1], 5)[0], naive_shortlist(changed, changed.embedding[0], 5, None)
        )
    with Gallery.open(place) as gallery:
        assert gallery.about == about
        assert everything(gallery).keys() == set(IDS)


def test_a_reader_sees_a_rewrite_only_when_it_is_done(ground: Ground) -> None:
    place, entries = ground.place(), entries_of(IDS)
    changed = with_other_vectors(entries)
    with Gallery.create(place, ABOUT) as gallery, Gallery.open(place, read_only=True) as reader:
        gallery.add(entries)

        def watched() -> Iterator[Entries]:
            for batch in batches_of(changed):
                yield batch
                assert reader.refresh() == ABOUT
                assert same(reader.fetch(IDS), entries)
                near = reader.shortlist(entries.embedding[:1], 5)[0]
                assert agrees(near, naive_shortlist(entries, entries.embedding[0], 5, None))

        gallery.engine.rewrite(OTHER, None, watched())
        assert reader.refresh() == OTHER
        with pytest.raises(GalleryError, match=r"expected queries \(Q, 7\), got shape \(1, 12\)"):
            reader.shortlist(entries.embedding[:1], 5)
        assert same(reader.fetch(IDS), changed)


def failing(entries: Entries) -> Iterator[Entries]:
    yield from batches_of(entries.take(range(30)))
    raise ValueError("stopped half way")


def test_a_rewrite_that_fails_changes_nothing(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    changed = with_other_vectors(entries)
    with pytest.raises(ValueError, match="stopped half way"):
        gallery.engine.rewrite(OTHER, MODEL, failing(changed))
    with pytest.raises(GalleryError, match="has 60 entries, got new vectors for 59; nothing was changed"):
        gallery.engine.rewrite(OTHER, MODEL, batches_of(changed.take(range(59))))
    with pytest.raises(GalleryError, match="these entries came from"):
        gallery.engine.rewrite(OTHER, MODEL, [entries])
    assert gallery.refresh() == ABOUT
    assert gallery.engine.model() is None
    assert same(gallery.fetch(IDS), entries)
    near = gallery.shortlist(entries.embedding[:1], 5)[0]
    assert agrees(near, naive_shortlist(entries, entries.embedding[0], 5, None))


def test_documents_are_kept_by_kind_and_name(ground: Ground) -> None:
    with ground.gallery() as gallery:
        engine = gallery.engine
        assert engine.documents("record") == {}
        engine.write_documents("record", {"a": "first", "b": "é"})
        engine.write_documents("file", {"a": "of a file"})
        engine.write_documents("record", {"a": "second", "c": None})
        assert engine.documents("record") == {"a": "second", "b": "é"}
        assert engine.documents("record", ["b", "nowhere"]) == {"b": "é"}
        engine.write_documents("record", {"a": None})
        assert (engine.documents("record"), engine.documents("file")) == ({"b": "é"}, {"a": "of a file"})
        with Gallery.open(f"{gallery.info().place}", read_only=True) as reader:
            assert reader.engine.documents("record") == {"b": "é"}
        info = gallery.info()
        assert info.created
        assert info.created <= info.changed


def test_records_are_listed_and_removed_whole(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    names = np.asarray(entries.records)
    for record in gallery.records():
        inside = names == record.name
        bounds = entries.start_s[inside].min(), entries.stop_s[inside].max()
        assert (record.windows, record.start_s, record.stop_s) == (inside.sum(), *bounds)
    assert [record.name for record in gallery.records()] == sorted(set(names))
    gallery.engine.write_documents("record", {"rec 1": RecordFacts().as_text(), "rec 2": RecordFacts().as_text()})
    facts = FileFacts("digest", "/where", ("rec 1",), windows=3, whole=True)
    gallery.engine.write_documents(
        "file", {"one": facts.as_text(), "two": replace(facts, records=("rec 2",)).as_text()}
    )
    with pytest.raises(NotFoundError, match="has no record 'rec 9'; nothing was removed"):
        gallery.remove(record=["rec 1", "rec 9"])
    assert gallery.remove(record="rec 1") == (names == "rec 1").sum() > 0
    assert gallery.remove(record=["rec 9"], missing="ignore") == 0
    assert {record.name for record in gallery.records()} == {"rec 0", "rec 2"}
    assert set(gallery.record_facts()) == {"rec 2"}
    assert set(gallery.engine.documents("file")) == {"two"}  # its file counts as a new one


def test_relabel_changes_metadata_of_many_in_one_change(filled: tuple[Gallery, Entries]) -> None:
    gallery, entries = filled
    chosen = [n for n, record in enumerate(entries.records) if record == "rec 1" and "sex" in entries.metadata[n]]
    assert gallery.relabel({"sex": "X", "age": None}, record="rec 1", where="sex in ('F', 'M')") == len(chosen) > 0
    for n, id in enumerate(IDS):
        row = dict(entries.metadata[n])
        if n in chosen:
            row = {**{name: value for name, value in row.items() if name != "age"}, "sex": "X"}
        assert gallery.get(id).metadata == (row,)
    assert gallery.relabel({"sex": "X"}, where="sex == 'X'") == 0
    with pytest.raises(NotFoundError, match="no record 'rec 9'"):
        gallery.relabel({"sex": "X"}, record="rec 9")


def test_a_copy_knows_what_is_known_of_records_and_files(filled: tuple[Gallery, Entries], tmp_path: Path) -> None:
    gallery, _ = filled
    facts = RecordFacts(datetime(2026, 5, 1, 12, tzinfo=timezone.utc), ("mV", ""))
    gallery.engine.write_documents("record", {"rec 1": facts.as_text()})
    gallery.copy(tmp_path / "copy")
    with Gallery.open(tmp_path / "copy", read_only=True) as copy:
        assert copy.record_facts() == {"rec 1": facts}
