"""The index over tokens: what comparing finds, it finds; changed, removed and new windows; killed and failed builds."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import naive
import numpy as np
import pytest
from galleries import ABOUT, agrees, entries_of, naive_token_shortlist

from geopatch.engines import Entries, as_filter, embedded, embedded_tokens, token_index, tokens
from geopatch.engines.token_loops import MOST_VOTE
from geopatch.engines.tokens import REACH, TokenBlock, TokenRows, rounded, token_scores
from geopatch.errors import StorageError
from geopatch.gallery import Gallery

COUNT, K, COMPARED = 1000, 10, 300
IDS = [f"w{n}" for n in range(COUNT)]
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Galleries of a thousand windows are large here."""
    monkeypatch.setattr(embedded_tokens, "INDEX_FROM", 2000)
    monkeypatch.setattr(embedded, "ROOM_AT_LEAST", 0)
    monkeypatch.setattr(tokens, "COMPARED", COMPARED * ABOUT.widths.patches)


@pytest.fixture(scope="module")
def entries() -> Entries:
    return unit_entries(IDS)


def unit_entries(ids: list[str], seed: int = 0) -> Entries:
    """Entries whose tokens are unit vectors, as those of an encoder are."""
    made = entries_of(ids, seed, keep_windows=False)
    lengths = np.linalg.norm(made.tokens, axis=-1, keepdims=True)
    return dataclasses.replace(made, tokens=made.tokens / np.where(lengths > 0, lengths, 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, entries: Entries) -> Path:
    """A gallery with an index over its tokens, and none over its embeddings."""
    place = tmp_path_factory.mktemp("tokens") / "gallery"
    with pytest.MonkeyPatch.context() as patch, Gallery.create(place, ABOUT) as gallery:
        patch.setattr(embedded_tokens, "INDEX_FROM", 2000)
        patch.setattr(embedded, "ROOM_AT_LEAST", 0)
        gallery.add(entries)
        gallery.optimize()
        assert gallery.info().indexed == 0
    assert sorted(path.stem for path in (place / "index-1" / "tokens").iterdir()) == sorted(token_index.FILES)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "gallery"))


def recall(gallery: Gallery, entries: Entries, where: str | None = None, ordered: bool = False) -> float:
    """The share of the true nearest that is in the shortlist."""
    queries = unit_entries([f"q{n}" for n in range(20)], seed=77)
    near = gallery.token_shortlist(queries.tokens, queries.valid, K, where, ordered)
    passes = as_filter(where)
    some = entries.take([n for n in range(len(entries)) if passes is None or passes.matches(entries.fields(n))])
    shares = []
    for n, one in enumerate(near):
        scores = token_scores(queries.tokens[n][queries.valid[n]], some.tokens, some.valid, ordered)
        truth = {some.ids[place] for place in np.argsort(-scores)[:K]}
        shares.append(len(set(one.ids) & truth) / len(truth))
    return float(np.mean(shares))


def test_the_index_finds_what_comparing_finds(place: Path, entries: Entries) -> None:
    with Gallery.open(place, read_only=True) as gallery:
        assert recall(gallery, entries) > 0.95
        near = gallery.token_shortlist(entries.tokens[:3], entries.valid[:3], 5)
    for n, one in enumerate(near):
        rows = [IDS.index(id) for id in one.ids]
        exact = token_scores(entries.tokens[n][entries.valid[n]], entries.tokens[rows], entries.valid[rows])
        assert np.allclose(one.scores, exact, atol=1e-6)  # scores come from the rows


def test_the_index_finds_in_order_what_was_changed_a_little(place: Path, entries: Entries) -> None:
    """The best of all comes first, mostly the window itself, with its score from the rows."""
    rows, draw = list(range(0, COUNT, 25)), np.random.default_rng(3)
    moved = entries.tokens[rows] + 0.1 * draw.normal(size=entries.tokens[rows].shape).astype(np.float32)
    with Gallery.open(place, read_only=True) as gallery:
        near = gallery.token_shortlist(moved, entries.valid[rows], K, ordered=True)
    for n, (row, one) in enumerate(zip(rows, near, strict=True)):
        exact = token_scores(moved[n][entries.valid[row]], entries.tokens, entries.valid, ordered=True)
        assert one.ids[0] == IDS[exact.argmax()]
        assert np.allclose(one.scores[0], exact.max(), atol=1e-6)


def test_paths_over_centroids_and_votes_equal_their_twins(place: Path, entries: Entries) -> None:
    block = token_index.TokenIndex(place / "index-1" / "tokens")._block
    assert block.codes is not None
    assert block.centroids is not None
    query = entries.tokens[3][entries.valid[3]]
    rows = np.asarray([0, 5, 17, 500, 998])
    paths, votes = block._paths_over_centroids(query, rows), block._votes(query, ordered=True)
    nearness = block.centroids @ query.T  # (C, I)
    level = (nearness - min(nearness.min(), 0)) / (max(nearness.max(), 0) - min(nearness.min(), 0))
    for n, row in enumerate(rows):
        codes = block.codes[row][block.codes[row] < len(block.centroids)]
        known = (np.ones(len(query), dtype=np.bool_), np.ones(len(codes), dtype=np.bool_))
        expected = naive.aligned(query, known[0], block.centroids[codes], known[1])
        assert paths[n] == pytest.approx(expected, abs=1e-6)
        total = 0.0
        for i in range(len(query)):
            near = [abs((i + 0.5) / len(query) - (j + 0.5) / len(codes)) <= REACH + 1e-9 for j in range(len(codes))]
            total += max((level[code, i] for code, is_near in zip(codes, near, strict=True) if is_near), default=0.0)
        assert votes[row] / MOST_VOTE == pytest.approx(total, abs=len(query) / MOST_VOTE)


@pytest.mark.parametrize("where", ["sex == 'F'", "age < 22", "not (sex == 'F')", "start_s >= 1"])
def test_filters_that_leave_much_or_little(place: Path, entries: Entries, where: str) -> None:
    with Gallery.open(place, read_only=True) as gallery:
        assert recall(gallery, entries, where) > 0.95


def test_the_index_is_used_and_nothing_it_covers_is_read_into_memory(
    place: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    by_tokens = TokenBlock._by_tokens

    def counted(self: TokenBlock, query: np.ndarray, rows: np.ndarray, ordered: bool) -> np.ndarray:
        compared.append(len(rows))
        return by_tokens(self, query, rows, ordered)

    monkeypatch.setattr(TokenBlock, "_by_tokens", counted)
    with Gallery.open(place) as gallery:
        gallery.token_shortlist(entries.tokens[:1], entries.valid[:1], K)
    assert compared == [COMPARED, 0]  # of the index, and of newer windows


def test_windows_that_changed_since_are_found_as_they_are(place: Path, entries: Entries) -> None:
    fresh = unit_entries(["new 1", *IDS[:50]], seed=5)
    with Gallery.open(place) as gallery, Gallery.open(place, read_only=True) as reader:
        recall(reader, entries)
        gallery.remove(IDS[100:400])
        gallery.add(fresh, existing="replace")
        gallery.update(IDS[60], {"mark": 1})
        left = [*range(50, 100), *range(400, COUNT)]
        everyone = joined_entries(entries.take(left), fresh)
        for one in (gallery, reader):
            assert recall(one, everyone) > 0.95
            near = one.token_shortlist(entries.tokens[100:101], entries.valid[100:101], COUNT)[0]
            assert len(near.ids) == len(everyone)
            assert not {IDS[100], IDS[399]} & set(near.ids)
            assert one.token_shortlist(entries.tokens[60:61], entries.valid[60:61], 3, "mark == 1")[0].ids == (IDS[60],)


def joined_entries(*parts: Entries) -> Entries:
    from memory_engine import joined

    return joined([part.take([n]) for part in parts for n in range(len(part))])


def test_readers_take_up_a_new_index(place: Path, entries: Entries) -> None:
    more = unit_entries([f"more {n}" for n in range(300)], seed=8)
    everyone = joined_entries(entries, more)
    with Gallery.open(place, read_only=True) as reader, Gallery.open(place) as writer:
        recall(reader, entries)
        writer.add(more)
        assert recall(reader, everyone) > 0.95
        writer.optimize()
        assert (place / "index-2" / "tokens").is_dir()
        assert recall(reader, everyone) > 0.95
        assert recall(writer, everyone) > 0.95


def test_both_indexes_are_built_together(place: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "INDEX_FROM", 500)
    with Gallery.open(place) as gallery:
        gallery.optimize()
        assert gallery.info().indexed == COUNT
        assert gallery.shortlist(entries.embedding[:1], 1)[0].ids == (IDS[0],)
        assert recall(gallery, entries) > 0.95


def test_a_small_gallery_has_no_index_and_is_compared_in_full(tmp_path: Path, entries: Entries) -> None:
    some = entries.take(range(300))
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(some)
        gallery.optimize()
        assert not list((tmp_path / "gallery").glob("index-*"))
        assert recall(gallery, some) == 1


def test_a_failed_build_leaves_the_gallery_as_it_was(
    place: Path, entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_index, "fit_centroids", full)
    with Gallery.open(place) as gallery:
        with pytest.raises(StorageError, match=r"could not be built .*No space left on device.*; is the disk full"):
            gallery.optimize()
        assert recall(gallery, entries) > 0.95
    assert [path.name for path in place.glob("index-*")] == ["index-1"]


def test_too_little_room_is_said_before_the_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_tokens, "BYTES_BESIDE", 10**15)
    with Gallery.open(place) as gallery, pytest.raises(StorageError, match="building the index needs"):
        gallery.optimize()


def test_a_damaged_index_is_one_line(place: Path, entries: Entries) -> None:
    (place / "index-1" / "tokens" / "codes.npy").write_bytes(b"nothing")
    with Gallery.open(place) as gallery:
        with pytest.raises(StorageError, match=r"cannot be read .*; optimize the gallery"):
            gallery.token_shortlist(entries.tokens[:1], entries.valid[:1], 3)
        gallery.optimize()
        assert recall(gallery, entries) > 0.95


OPTIMIZING = """
import sys
from geopatch.engines import embedded, embedded_tokens
from geopatch.gallery import Gallery
embedded_tokens.INDEX_FROM, embedded.ROOM_AT_LEAST = 2000, 0
with Gallery.open(sys.argv[1]) as gallery:
    print("ready", flush=True)
    while True:
        gallery.optimize()
"""


@pytest.mark.parametrize("moment_s", [0.05, 0.6])
def test_a_killed_build_loses_nothing(place: Path, entries: Entries, moment_s: float) -> None:
    """Whatever it was at: the index before it is the one that counts, and the next build works."""
    command = [sys.executable, "-c", OPTIMIZING, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moment_s)
        os.kill(process.pid, signal.SIGKILL)
    with Gallery.open(place) as gallery:
        assert recall(gallery, entries) > 0.95
        assert len(list(place.glob("index-*"))) == 1
        gallery.optimize()
        assert recall(gallery, entries) > 0.95


def test_bytes_are_near_the_tokens_they_stand_for(entries: Entries) -> None:
    levels, scale = rounded(entries.tokens, entries.valid)
    assert levels.dtype == np.int8
    assert np.array_equal(scale > 0, entries.valid)
    near = levels * scale[..., None]
    assert np.abs(near - entries.tokens).max() <= 0.51 * scale.max()


def test_rows_in_memory_equal_a_plain_sort(entries: Entries) -> None:
    rows = TokenRows(ABOUT)
    for start in range(0, COUNT, 130):
        part = slice(start, min(start + 130, COUNT))
        rows.append(np.arange(COUNT)[part] * 3 + 1, entries.tokens[part], entries.valid[part])
    gone = np.asarray([1, 4, 5, 301, 20_000])
    rows.forget(gone)
    assert rows.alive == COUNT - 3
    allowed = np.arange(0, COUNT, 2) * 3 + 1
    query = entries.tokens[5][entries.valid[5]]
    exact = token_scores(query, entries.tokens, entries.valid)
    for some in (None, allowed):
        numbers, scores = rows.best(query, 30, some, False)
        kept = [n for n in range(COUNT) if n * 3 + 1 not in gone and (some is None or n * 3 + 1 in some)]
        plain = sorted(kept, key=lambda n: -exact[n])[:30]
        assert len(set(numbers.tolist()) & {n * 3 + 1 for n in plain}) >= 29  # the last two may be level in bytes
        assert np.allclose(scores, exact[(numbers - 1) // 3], atol=0.05)
    rows.keep(np.asarray([4, 7, 10]))
    assert rows.alive == 2


def test_centroids_grow_as_the_square_root() -> None:
    assert [token_index.centroid_count(16 * n) for n in (0, 5_000, 100_000, 1_000_000)] == [1, 512, 2048, 4096]


def test_padding_has_no_centroid(entries: Entries) -> None:
    centroids = entries.tokens[entries.valid][:20]
    codes = token_index.nearest(entries.tokens, entries.valid, centroids)
    assert (codes[~entries.valid] == 20).all()
    flat, own = entries.tokens[entries.valid], codes[entries.valid]
    distances = ((flat[:, None] - centroids) ** 2).sum(-1)
    assert np.array_equal(own, distances.argmin(1))


def test_agreement_is_checked_by_score(entries: Entries, tmp_path: Path) -> None:
    """What this file calls recall 1 is agreement with the twin, scores and all."""
    some = entries.take(range(50))
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(some)
        near = gallery.token_shortlist(some.tokens[:1], some.valid[:1], K)[0]
    assert agrees(near, naive_token_shortlist(some, some.tokens[0], some.valid[0], K, None))
