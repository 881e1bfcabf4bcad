"""The index of a large gallery: found again after opening, shared by readers, never trusted beyond what it covers."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from galleries import ABOUT, agrees, entries_of, naive_shortlist

from geopatch.engines import Entries, Widths, as_filter, embedded, index
from geopatch.engines.index import UnindexedRows, top
from geopatch.errors import GalleryError, MissingExtraError
from geopatch.gallery import Gallery

COUNT, K = 2000, 20
IDS = [f"w{n}" for n in range(COUNT)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Galleries of a thousand windows are large here."""
    monkeypatch.setattr(embedded, "INDEX_FROM", 1000)
    monkeypatch.setattr(embedded, "LARGEST_LIMIT", 200)
    monkeypatch.setattr(embedded, "ROOM_AT_LEAST", 0)


@pytest.fixture(scope="module")
def entries() -> Entries:
    return entries_of(IDS, keep_windows=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, entries: Entries) -> Path:
    """A gallery with an index, made once."""
    place = tmp_path_factory.mktemp("indexed") / "gallery"
    with pytest.MonkeyPatch.context() as patch, Gallery.create(place, ABOUT) as gallery:
        patch.setattr(embedded, "INDEX_FROM", 1000)
        gallery.add(entries)
        assert gallery.info().indexed == 0
        gallery.optimize()
        assert gallery.info().indexed == COUNT
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "gallery"))


def recall(gallery: Gallery, entries: Entries, where: str | None = None) -> float:
    queries = entries_of([f"q{n}" for n in range(40)], seed=77).embedding
    found = gallery.shortlist(queries, K, where)
    truth = [naive_shortlist(entries, query, K, as_filter(where)) for query in queries]
    return float(np.mean([len(set(a.ids) & {id for id, _ in b}) / len(b) for a, b in zip(found, truth, strict=True)]))


def test_the_index_finds_what_comparing_finds(place: Path, entries: Entries) -> None:
    with Gallery.open(place, read_only=True) as gallery:
        assert recall(gallery, entries) > 0.99
        found = gallery.shortlist(entries.embedding[:5], 1)
    assert [shortlist.ids[0] for shortlist in found] == IDS[:5]
    assert np.allclose([shortlist.scores[0] for shortlist in found], 1, atol=1e-6)  # scores come from the rows


@pytest.mark.parametrize("where", ["sex == 'F'", "age < 22", "not (sex == 'F')", "start_s >= 1"])
def test_filters_that_leave_much_or_little(place: Path, entries: Entries, where: str) -> None:
    with Gallery.open(place, read_only=True) as gallery:
        assert recall(gallery, entries, where) > 0.99


def test_the_index_is_used(place: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    search = index.Index.search

    def counted(self: index.Index, query: index.Vectors, limit: int) -> index.Numbers:
        asked.append(limit)
        return search(self, query, limit)

    monkeypatch.setattr(index.Index, "search", counted)
    with Gallery.open(place) as gallery:
        gallery.shortlist(entries.embedding[:3], K)
        assert asked == [embedded.SPARE * K] * 3


def test_entries_that_changed_since_are_found_as_they_are(place: Path, entries: Entries) -> None:
    fresh = entries_of(["new 1", *IDS[:50]], seed=5, keep_windows=False)
    with Gallery.open(place) as gallery:
        gallery.remove(IDS[100:400])
        gallery.add(fresh, existing="replace")
        gallery.update(IDS[60], {"mark": 1})
        assert gallery.shortlist(fresh.embedding[:2], 1)[1].ids == (IDS[0],)
        old = gallery.shortlist(entries.embedding[:1], 5)[0]
        assert IDS[0] not in old.ids  # its vector is another now
        for gone in (100, 399):
            assert IDS[gone] not in gallery.shortlist(entries.embedding[gone : gone + 1], K)[0].ids
        assert gallery.shortlist(entries.embedding[60:61], 3, "mark == 1")[0].ids == (IDS[60],)


def test_an_index_of_mostly_removed_entries_still_answers(place: Path, entries: Entries) -> None:
    with Gallery.open(place) as gallery:
        gallery.remove(IDS[: COUNT - 30])
        left = entries.take(range(COUNT - 30, COUNT))
        found = gallery.shortlist(entries.embedding[:1], K)[0]
        assert agrees(found, naive_shortlist(left, entries.embedding[0], K, None))


def test_readers_take_up_a_new_index(place: Path, entries: Entries) -> None:
    more = entries_of([f"more {n}" for n in range(300)], seed=8, keep_windows=False)
    with Gallery.open(place, read_only=True) as reader, Gallery.open(place) as writer:
        reader.shortlist(entries.embedding[:1], K)
        writer.add(more)
        writer.optimize()
        assert reader.shortlist(more.embedding[:1], 1)[0].ids == ("more 0",)
        assert reader.info().indexed == COUNT + 300
        writer.optimize()
        assert reader.shortlist(more.embedding[:1], 1)[0].ids == ("more 0",)
        assert len(list(place.glob("index-*"))) == 2  # the one in use and the one before it


OTHER_PROCESS = """
import sys
from galleries import entries_of
from geopatch.gallery import Gallery
with Gallery.open(sys.argv[1], read_only=True) as gallery:
    print(gallery.shortlist(entries_of(["q"]).embedding, 3)[0].ids)
"""


def test_two_processes_read_one_index(place: Path) -> None:
    query = entries_of(["q"]).embedding
    with Gallery.open(place) as writer:
        here = writer.shortlist(query, 3)[0].ids
        command = [sys.executable, "-c", OTHER_PROCESS, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=120)
        assert done.stdout.strip() == str(here), done.stderr
        assert writer.shortlist(query, 3)[0].ids == here


def test_a_failed_build_leaves_the_gallery_as_it_was(
    place: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, *_: object) -> None:
        folder.mkdir()
        raise GalleryError("the index could not be built")

    monkeypatch.setattr(embedded, "build_index", broken)
    with Gallery.open(place) as gallery:
        with pytest.raises(GalleryError, match="could not be built"):
            gallery.optimize()
        assert recall(gallery, entries) > 0.99
    assert [found.name for found in place.glob("index-*")] == ["index-1"]


def test_too_little_room_is_said_before_the_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "ROOM_AT_LEAST", 10**18)
    with Gallery.open(place) as gallery, pytest.raises(GalleryError, match="building the index needs"):
        gallery.optimize()


def test_a_damaged_index_is_one_line(place: Path, entries: Entries) -> None:
    shutil.rmtree(place / "index-1" / "segments")
    with Gallery.open(place) as gallery:
        with pytest.raises(GalleryError, match="optimize the gallery"):
            gallery.shortlist(entries.embedding[:1], 3)
        gallery.optimize()
        assert gallery.shortlist(entries.embedding[:1], 1)[0].ids == (IDS[0],)


def test_without_the_library_a_small_gallery_works(
    tmp_path: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(entries)
        assert gallery.shortlist(entries.embedding[:1], 1)[0].ids == (IDS[0],)
        with pytest.raises(MissingExtraError, match="pip install 'geopatch-ts\\[gallery\\]'"):
            gallery.optimize()


def test_unindexed_rows_equal_a_plain_sort() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(5000, 4)).astype(np.float32)
    rows = UnindexedRows(4)
    for start in range(0, 5000, 700):
        numbers = np.arange(start, min(start + 700, 5000), dtype=np.int64) * 3
        rows.append(numbers, vectors[start : start + 700])
    gone = np.asarray([0, 3, 4, 300, 20_000], dtype=np.int64)
    rows.forget(gone)
    allowed = np.flatnonzero(draw.uniform(size=5000) < 0.3) * 3
    query = draw.normal(size=(1, 4)).astype(np.float32)
    for some in (None, allowed):
        numbers, scores = next(rows.best(query, 50, some))
        kept = [n for n in range(5000) if n * 3 not in gone and (some is None or n * 3 in some)]
        plain = sorted(kept, key=lambda n: -float(vectors[n] @ query[0]))[:50]
        assert numbers.tolist() == [n * 3 for n in plain]
        assert np.allclose(scores, vectors[plain] @ query[0], atol=1e-6)


@pytest.mark.parametrize("k", [0, 1, 3, 7, 8])
def test_top_keeps_the_order_of_equal_scores(k: int) -> None:
    scores = np.asarray([1, 3, 3, -np.inf, 2, 3, 1, 0], dtype=np.float32)
    assert top(scores, k).tolist() == [1, 2, 5, 4, 0, 6, 7, 3][:k]


def test_a_rewrite_leaves_the_old_index_aside(place: Path, entries: Entries) -> None:
    """Readers compare all entries until there is a new one; what is left of the old one goes with the next writer."""
    other = dataclasses.replace(ABOUT, encoder="other", widths=Widths(20, 4, 6))
    draw = np.random.default_rng(3).normal(size=(COUNT, 20)).astype(np.float32)
    changed = dataclasses.replace(
        entries, encoder="other", embedding=draw / np.linalg.norm(draw, axis=1, keepdims=True)
    )
    queries = changed.embedding[:5]
    truth = [naive_shortlist(changed, query, K, None) for query in queries]
    with Gallery.open(place) as gallery, Gallery.open(place, read_only=True) as reader:
        assert recall(reader, entries) > 0.95
        gallery.engine.rewrite(other, None, [changed])
        for one in (gallery, reader):
            assert one.info().indexed == 0
            assert all(agrees(*pair) for pair in zip(one.shortlist(queries, K), truth, strict=True))
        gallery.remove(IDS[0])
        assert IDS[0] not in reader.shortlist(queries, K)[0].ids
    with Gallery.open(place) as gallery, Gallery.open(place, read_only=True) as reader:
        assert not list(place.glob("index-*"))
        gallery.add(changed.take([0]))
        reader.shortlist(queries, K)
        gallery.optimize()
        assert len(list(place.glob("index-*"))) == 1
        assert reader.info().indexed == COUNT
        near = reader.shortlist(queries, K)
        assert np.mean([len(set(a.ids) & {id for id, _ in b}) / K for a, b in zip(near, truth, strict=True)]) > 0.95
