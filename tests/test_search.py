"""Search: the fast way finds what the obvious slow one finds, and its laws hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import naive_search
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_search import ABOUT, entries_of

from geopatch.config import ModelConfig, TrainConfig
from geopatch.dtw import BAND, WEIGHT, scaled
from geopatch.engines import Entries, Info
from geopatch.errors import ConfigError, GalleryError, GeoPatchError, NotFoundError, SignalError, StorageError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.protocol import MEANING, Protocol
from geopatch.scoring import SCORERS
from geopatch.search import Hit, SearchOptions, Span
from geopatch.search.certificate import token_certificate
from geopatch.signal import Signal
from geopatch.warp import warped

COUNT = 90
FAST = tuple(scorer for scorer in SCORERS if scorer != "dtw")
STRICT = [name for name in MEANING if name.startswith("strict")]


@pytest.fixture(scope="module", params=["exact:", ""], ids=["exact", "embedded"])
def gallery(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    with filled(f"{request.param}{tmp_path_factory.mktemp('search') / 'gallery'}", entries_of(COUNT)) as made:
        yield made


def filled(place: str, entries: Entries) -> Gallery:
    made = Gallery.create(place, ABOUT)
    made.add(entries)
    return made


@pytest.fixture(scope="module")
def model() -> GeoPatch:
    config = ModelConfig(halves=("learned",), patch_length=8, max_patches=4, width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    return GeoPatch(model=config, train=train, device="cpu").fit(recording().values.reshape(-1, 32, 2), None)


def recording(name: str = "r", seed: int = 0) -> Signal:
    rng = np.random.default_rng(seed)
    return Signal.from_array(rng.normal(size=(320, 2)).cumsum(0), id=name, rate_hz=16.0, channels=("a", "b"))


def windows(name: str = "r", seed: int = 0) -> list[Signal]:
    return [recording(name, seed).window(start, start + 32) for start in range(0, 289, 16)]


@pytest.fixture
def encoded(model: GeoPatch, tmp_path: Path) -> Iterator[Gallery]:
    """A gallery of real windows with their values."""
    with Gallery.create(tmp_path / "gallery", replace_rate(model)) as made:
        made.add([*windows("r", 0), *windows("s", 1)])
        yield made


def replace_rate(model: GeoPatch) -> GeoPatch:
    """The model was fit on arrays; its windows have 16 Hz."""
    model.card_ = replace(model.card_, data={**model.card_.data, "rate_hz": 16.0})
    return model


def pairs(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


def assert_same(found: list[Hit], expected: list[tuple[str, float]]) -> None:
    assert [hit.id for hit in found] == [id for id, _ in expected]
    np.testing.assert_allclose([hit.score for hit in found], [score for _, score in expected], atol=2e-6)
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("scorer", FAST)
@pytest.mark.parametrize("protocol", MEANING)
def test_search_equals_its_twin(gallery: Gallery, scorer: str, protocol: str) -> None:
    entries = entries_of(COUNT)
    for query in (0, 33, 89):
        for asked in ({}, {"guard_s": 1.5}, {"shortlist": 12}, {"min_gap_s": 2.0}, {"min_score": 0.5}):
            found = gallery.search(f"w{query}", 12, scorer=scorer, protocol=protocol, **asked)
            expected = naive_search.search(entries, query, 12, scorer=scorer, protocol=protocol, **asked)
            assert_same(found, expected)


@pytest.mark.parametrize("protocol", STRICT)
def test_a_filter_and_a_protocol_do_not_starve_the_shortlist(gallery: Gallery, protocol: str) -> None:
    entries = entries_of(COUNT)
    found = gallery.search("w7", 10, shortlist=10, where="even == true and place >= 20", protocol=protocol)
    expected = naive_search.search(
        entries, 7, 10, shortlist=10, passes=lambda f: f["even"] and f["place"] >= 20, protocol=protocol
    )
    assert len(found) == 10
    assert_same(found, expected)


def test_a_hit_tells_where_it_lies(gallery: Gallery) -> None:
    hit = gallery.search("w5", 1)[0]
    entries, n = entries_of(COUNT), int(hit.id[1:])
    assert (hit.record, hit.start_s, hit.stop_s) == (entries.records[n], entries.start_s[n], entries.stop_s[n])
    assert hit.metadata == {"even": n % 2 == 0, "place": n}
    assert (hit.scorer, hit.certificate) == ("fused", None)
    assert hit.cosine == pytest.approx(float(entries.embedding[5] @ entries.embedding[n]), abs=1e-6)
    assert hit.window is not None
    np.testing.assert_array_equal(hit.window.values, entries.windows[n].values)  # type: ignore[union-attr]


@pytest.mark.parametrize("scorer", FAST)
def test_a_batch_finds_what_its_queries_find_alone(gallery: Gallery, scorer: str) -> None:
    asked = [f"w{n}" for n in range(0, COUNT, 2)] + ["w3", "w3"]  # more than one chunk, one query twice
    together = gallery.search_batch(asked, 5, scorer=scorer, protocol="strict-nonoverlap")
    for query, hits in zip(asked, together, strict=True):
        assert_same(hits, pairs(gallery.search(query, 5, scorer=scorer, protocol="strict-nonoverlap")))


def test_an_empty_batch_and_an_empty_gallery_find_nothing(gallery: Gallery, tmp_path: Path, model: GeoPatch) -> None:
    assert gallery.search_batch([]) == []
    with Gallery.create(tmp_path / "empty", model) as empty:
        assert empty.search(windows()[0].values) == []
    assert gallery.search("w0", where="place > 1000") == []


@given(order=st.permutations(range(20)))
def test_the_order_of_the_gallery_does_not_matter(order: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    entries = entries_of(20)
    folder = tmp_path_factory.mktemp("order")
    with (
        filled(f"exact:{folder / 'one'}", entries) as one,
        filled(f"exact:{folder / 'two'}", entries.take(order)) as two,
    ):
        for scorer in FAST:
            assert_same(two.search("w0", scorer=scorer), pairs(one.search("w0", scorer=scorer)))


def test_equal_scores_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    entries = entries_of(12)
    same = [0] * 12
    alike = replace(entries, embedding=entries.embedding[same], tokens=entries.tokens[same], valid=entries.valid[same])
    with filled(f"exact:{tmp_path / 'alike'}", alike) as made:
        assert [hit.id for hit in made.search("w0", 20)] == sorted(alike.ids[1:])


@pytest.mark.parametrize("scorer", FAST)
def test_asking_for_more_only_adds(gallery: Gallery, scorer: str) -> None:
    most = pairs(gallery.search("w4", 50, scorer=scorer, min_gap_s=2.0))
    for k in (1, 2, 7, 20):
        assert pairs(gallery.search("w4", k, scorer=scorer, min_gap_s=2.0)) == most[:k]
    assert len(gallery.search("w4", 89)) == 89, "k may be more than the usual shortlist"


@pytest.mark.parametrize("gap_s", [0.5, 1.0, 2.0, 100.0])
def test_hits_of_one_record_keep_their_distance(gallery: Gallery, gap_s: float) -> None:
    hits = gallery.search("w4", 50, min_gap_s=gap_s)
    for one in hits:
        for other in hits:
            if one.rank < other.rank and one.record == other.record:
                assert abs(one.start_s - other.start_s) >= gap_s
    if gap_s == 100:
        assert sorted(hit.record for hit in hits) == ["r0", "r1", "r2", "r3"]


def test_strict_protocols_never_give_what_they_exclude(gallery: Gallery) -> None:
    for query in range(0, COUNT, 7):
        asked = gallery.get(f"w{query}")
        record, start_s, stop_s = asked.records[0], float(asked.start_s[0]), float(asked.stop_s[0])
        assert all(hit.record != record for hit in gallery.search(f"w{query}", 50, protocol="strict-cross-record"))
        for hit in gallery.search(f"w{query}", 50, protocol=Protocol("strict-nonoverlap", 0.5)):
            assert hit.record != record or hit.start_s >= stop_s + 0.5 or hit.stop_s <= start_s - 0.5


def test_a_stored_query_does_not_find_itself(gallery: Gallery) -> None:
    assert all(hit.id != "w4" for hit in gallery.search("w4", 89))


def test_a_signal_finds_its_stored_twin_unless_the_protocol_leaves_it_out(encoded: Gallery) -> None:
    query = windows("s", 1)[3]
    best = encoded.search(query, 1)[0]
    assert best.id == query.id
    assert best.score == pytest.approx(2.0, abs=1e-5)
    assert encoded.search(query, 1, protocol="standard")[0].id != query.id
    assert encoded.search(query.values, 1)[0].id == query.id, "an array is taken at the model's rate"


@pytest.mark.parametrize("scorer", SCORERS)
def test_signals_in_a_batch_find_what_they_find_alone(encoded: Gallery, scorer: str) -> None:
    asked: list[Any] = [windows("s", 1)[3], windows("r", 0)[5].values, windows("q", 2)[0], windows("s", 1)[3]]
    asked += [windows("r", 0)[2].id, Span("s", 3.0, 5.0)]
    for query, hits in zip(asked, encoded.search_batch(asked, 4, scorer=scorer), strict=True):
        alone = encoded.search(query, 4, scorer=scorer)
        assert [hit.id for hit in hits] == [hit.id for hit in alone]
        np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in alone], atol=1e-4)


def test_a_span_of_a_stored_record(encoded: Gallery) -> None:
    whole = encoded.search(Span("s", 3.0, 5.0), 3)
    assert pairs(whole) == pairs(encoded.search(windows("s", 1)[3].id, 3)), "one stored window is that window"
    cut = recording("s", 1).window(56, 90)
    joined = encoded.search(Span("s", 3.5, 5.625), 3)
    assert joined[0].query_window is not None
    np.testing.assert_array_equal(joined[0].query_window.values, cut.values)
    assert_same(joined, pairs(encoded.search(cut, 3)))
    assert all(hit.record != "s" for hit in encoded.search(Span("s", 3.5, 5.625), protocol="strict-cross-record"))


def test_dtw_takes_the_distance_off_the_fused_score_and_brings_its_path(model: GeoPatch, encoded: Gallery) -> None:
    query = windows("s", 1)[3]
    hits, fused = encoded.search(query, 30, scorer="dtw"), encoded.search(query, 1000)
    assert hits[0].id == query.id
    assert hits[0].score == pytest.approx(2)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    before = {hit.id: hit.score for hit in fused}
    for hit in hits:
        assert hit.window is not None
        asked, given = (values.tolist() for values in scaled(model.encoder_, [query, hit.window]))
        distance = naive_search.dtw(asked, given, 1 + math.ceil(BAND * 32)) / math.sqrt(32 * 2)
        assert hit.score == pytest.approx(before[hit.id] - WEIGHT * distance, abs=1e-5)
    for hit in hits[:3]:
        path_s = hit.explain().path_s
        assert path_s is not None
        assert path_s[0].tolist() == [0, 0]
        assert path_s[-1].tolist() == [31 / 16, 31 / 16]
        assert (np.diff(path_s, axis=0) >= 0).all()
    np.testing.assert_array_equal(hits[0].explain().path_s[:, 0], hits[0].explain().path_s[:, 1])  # type: ignore[index]


def test_a_wider_band_is_never_further(encoded: Gallery) -> None:
    query = windows("q", 2)[4]
    scores = [
        {hit.id: hit.score for hit in encoded.search(query, 30, scorer="dtw", band=band)} for band in (0.0, 0.1, 0.5)
    ]
    assert all(scores[0][id] <= scores[1][id] <= scores[2][id] for id in scores[0])
    assert sum(scores[0].values()) < sum(scores[2].values())


def test_dtw_needs_the_values(model: GeoPatch, tmp_path: Path, gallery: Gallery) -> None:
    with Gallery.create(tmp_path / "bare", replace_rate(model)) as bare:
        bare.add(windows(), keep_windows=False)
        with pytest.raises(GalleryError, match=r"dtw needs the values of every window.*keep_windows=True"):
            bare.search(windows()[0], scorer="dtw")
        with pytest.raises(GalleryError, match=r"keeps no values of record .r. from 0\.5 to 2\.5 s"):
            bare.search(Span("r", 0.5, 2.5))
    with pytest.raises(GalleryError, match="dtw scales windows as the model does; give model="):
        gallery.search("w0", scorer="dtw")


def test_without_windows_no_values_are_read(encoded: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    full = encoded.search(windows("q", 2)[4], 5)
    assert all(hit.window is not None for hit in full)
    read, fetch = [], encoded.fetch

    def watched(ids: Any, *, with_windows: bool = True) -> Entries:
        read.append(with_windows)
        return fetch(ids, with_windows=with_windows)

    monkeypatch.setattr(encoded, "fetch", watched)
    bare = encoded.search(windows("q", 2)[4], 5, windows=False)
    assert read == [False]
    assert bare == full
    assert all(hit.window is None for hit in bare)
    assert bare[0].explain() is not None


def failing(gallery: Gallery, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> list[bool]:
    """Let so many reads of entries fail; what comes back fills with whether each read asked for windows."""
    fetch, reads = gallery.fetch, []

    def faulty(ids: Any, *, with_windows: bool = True) -> Entries:
        reads.append(with_windows)
        if len(reads) <= times:
            raise error
        return fetch(ids, with_windows=with_windows)

    monkeypatch.setattr(gallery, "fetch", faulty)
    return reads


def test_an_entry_that_is_taken_out_meanwhile_is_not_missed(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(gallery, monkeypatch, NotFoundError("gallery has no entry 'w8'"), 2)
    assert len(gallery.search("w0", 5)) == 5
    failing(gallery, monkeypatch, NotFoundError("gallery has no entry 'w8'"), 10)
    with pytest.raises(NotFoundError, match="no entry 'w8'"):
        gallery.search("w0", 5)


def test_a_fault_of_the_disk_is_raised_at_once(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read again where reading failed, and no hit comes without its values because of it."""
    reads = failing(gallery, monkeypatch, StorageError("gallery: the disk refused"), 1)
    with pytest.raises(StorageError, match="the disk refused"):
        gallery.search("w0", 5)
    assert reads == [False]


def test_a_fault_while_values_are_read_is_raised(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = gallery.fetch

    def faulty(ids: Any, *, with_windows: bool = True) -> Entries:
        if with_windows:
            raise StorageError("gallery: the disk refused")
        return fetch(ids, with_windows=with_windows)

    monkeypatch.setattr(gallery, "fetch", faulty)
    with pytest.raises(StorageError, match="the disk refused"):
        gallery.search("w0", 5)
    assert gallery.search("w0", 5, windows=False)


def test_an_id_that_is_not_there_is_not_found(gallery: Gallery) -> None:
    with pytest.raises(NotFoundError, match="no entry 'nobody'"):
        gallery.search("nobody")
    with pytest.raises(NotFoundError, match="no window of record 'nobody'"):
        gallery.search(Span("nobody", 0, 2))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"k": 0}, "k must be at least 1"),
        (
            {"scorer": "best"},
            "one of cosine, maxsim, fused, bridge, dtw, aligned, fused-aligned, got 'best'",
        ),
        ({"shortlist": 3}, "shortlist must be at least k = 10, got 3"),
        ({"shortlist": 0}, "shortlist must be a number from 1 on, tokens, or .* such as tokens:200, got 0"),
        ({"shortlist": "vectors"}, "shortlist must be a number from 1 on, tokens, .*, got vectors"),
        ({"shortlist": "tokens:"}, "shortlist must be a number from 1 on, tokens, .*, got tokens:"),
        ({"shortlist": "tokens:9"}, "shortlist must be at least k = 10, got tokens:9"),
        ({"min_gap_s": -1.0}, "min_gap_s must be at least 0"),
        ({"min_score": float("nan")}, "min_score must be a number"),
        ({"band": -0.1}, "band must be at least 0"),
        ({"protocol": "loose"}, "protocol must be one of standard"),
        ({"where": "even =="}, "cannot read the filter"),
    ],
)
def test_what_cannot_be_asked_is_refused(gallery: Gallery, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(GeoPatchError, match=expected):
        gallery.search("w0", **asked)


def test_queries_that_cannot_be_used_are_refused(encoded: Gallery, gallery: Gallery, model: GeoPatch) -> None:
    with pytest.raises(SignalError, match=r"trained on 2 channel\(s\), these signals have 3"):
        encoded.search(np.zeros((32, 3)))
    with pytest.raises(GalleryError, match="no entry 'nobody'"):
        encoded.search("nobody")
    with pytest.raises(GalleryError, match="no window of record 'q'"):
        encoded.search(Span("q", 0, 2))
    with pytest.raises(GalleryError, match="do not cover record 's' from 19 to 25 s"):
        encoded.search(Span("s", 19, 25))
    with pytest.raises(ConfigError, match="a span must end after it starts"):
        Span("s", 2, 2)
    with pytest.raises(ConfigError, match="strict-cross-record needs the query's record, and an array has none"):
        encoded.search(np.ones((32, 2)), protocol="strict-cross-record")
    with pytest.raises(GalleryError, match="needs the gallery's model"):
        gallery.search(np.ones((32, 2)))
    with pytest.raises(ConfigError, match="search_batch takes a list of queries"):
        gallery.search_batch("w0")
    with pytest.raises(GalleryError, match="holds vectors of the encoder some encoder, the model is"):
        gallery.search(np.ones((32, 2)), model=model)


def test_a_cosine_certificate_is_about_all_candidates(gallery: Gallery) -> None:
    entries, R = entries_of(COUNT), 6
    hits = gallery.search("w3", R, scorer="cosine", certify=True)
    cosine = np.sort(np.delete(entries.embedding @ entries.embedding[3], 3))[::-1]
    for hit in hits:
        sure = hit.certificate
        assert sure is not None
        assert sure.R == R
        assert sure.margin == pytest.approx(hit.score - cosine[R], abs=1e-6)
        assert sure.radius == pytest.approx(np.sin((np.arccos(cosine[R]) - np.arccos(hit.cosine)) / 4), abs=1e-4)
        assert sure.covers.startswith("the hit stays among the 6 best by cosine while")


@pytest.mark.parametrize("scorer", ["maxsim", "fused", "bridge", "aligned", "fused-aligned"])
def test_a_reranked_hit_is_certified_for_what_was_compared(gallery: Gallery, scorer: str) -> None:
    part = gallery.search("w3", 4, scorer=scorer, shortlist=20, certify=True)
    assert all(hit.certificate is not None and hit.certificate.R == 20 for hit in part)
    assert f"which {scorer} ranks in an order not covered" in part[0].certificate.covers  # type: ignore[union-attr]
    whole = gallery.search("w3", 5, scorer=scorer, shortlist=200, certify=True)
    for hit in whole[:4]:
        assert hit.certificate is not None
        assert hit.certificate.R == 5
        assert "embeddings and tokens" in hit.certificate.covers
    assert whole[0].certificate.margin > whole[3].certificate.margin > 0  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("scorer", ["cosine", "fused", "aligned"])
def test_a_shortlist_from_tokens_is_certified_where_it_holds_all(gallery: Gallery, scorer: str) -> None:
    part = gallery.search("w3", 4, scorer=scorer, shortlist="tokens:20", certify=True)
    for hit in part:
        assert hit.certificate is not None
        assert hit.certificate.radius is None
        assert "the shortlist comes from tokens" in hit.certificate.covers
    whole = gallery.search("w3", 5, scorer=scorer, shortlist="tokens:200", certify=True)
    expected = gallery.search("w3", 5, scorer=scorer, shortlist=200, certify=True)
    assert [(hit.id, hit.certificate) for hit in whole] == [(hit.id, hit.certificate) for hit in expected]


def test_a_shortlist_from_tokens_leaves_out_what_filter_and_protocol_do(gallery: Gallery) -> None:
    options: dict[str, Any] = {"where": "even == true and place >= 20", "protocol": "strict-cross-record"}
    hits = gallery.search("w7", 10, shortlist="tokens:10", **options)
    allowed = {hit.id for hit in gallery.search("w7", 89, **options)}
    assert len(hits) == 10
    assert {hit.id for hit in hits} <= allowed
    assert "w7" not in {hit.id for hit in gallery.search("w7", 50, shortlist="tokens")}
    some = SearchOptions(shortlist="tokens:60")
    assert (some.by_tokens, some.depth, SearchOptions(70, shortlist="tokens").depth) == (True, 60, 70)


def test_where_nothing_is_sure_nothing_is_said(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    few = gallery.search("w3", 5, scorer="cosine", where="place < 4", certify=True)
    assert [hit.certificate.radius for hit in few] == [None] * 3  # type: ignore[union-attr]
    assert few[0].certificate.covers == (  # type: ignore[union-attr]
        "no certificate: there are 3 candidates, so every one of them is in the top 5"
    )
    told = gallery.info()
    monkeypatch.setattr(gallery, "info", lambda: Info(told.engine, told.place, told.about, COUNT, COUNT, 0))
    hits = gallery.search("w3", 5, scorer="cosine", certify=True)
    assert all(hit.certificate is not None and hit.certificate.radius is None for hit in hits)
    assert "the index is approximate" in hits[0].certificate.covers  # type: ignore[union-attr]


def test_an_engine_that_rounds_gets_no_certificate(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    precise = gallery.shortlist

    def rounding(*arguments: Any) -> Any:
        return [replace(one, scores=one.scores.round(3)) for one in precise(*arguments)]

    monkeypatch.setattr(gallery, "shortlist", rounding)
    sure = gallery.search("w3", 5, certify=True)[0].certificate
    assert sure is not None
    assert sure.radius is None
    assert "the engine's cosines are off by up to" in sure.covers


def test_dtw_is_certified_as_fused_is(encoded: Gallery) -> None:
    """What it takes off is a distance of values, which do not drift."""
    hits = encoded.search(windows("s", 1)[3], 3, scorer="dtw", certify=True)
    outside = encoded.search(windows("s", 1)[3], 4, scorer="dtw")[3].score
    for hit in hits:
        assert hit.certificate == token_certificate("dtw", hit.score, outside, 3)
    assert hits[0].certificate is not None
    assert hits[0].certificate.radius == pytest.approx((hits[0].score - outside) / 8, abs=1e-5)


def test_drift_within_the_radius_keeps_the_hit(tmp_path: Path) -> None:
    """The whole way: galleries of drifted embeddings, searched again."""
    rng, entries, R = np.random.default_rng(0), entries_of(40), 5
    with filled(f"exact:{tmp_path / 'clean'}", entries) as clean:
        hits = clean.search("w0", R, scorer="cosine", certify=True)
    for trial, hit in enumerate(hits[:-1] * 3):
        radius = hit.certificate.radius  # type: ignore[union-attr]
        assert radius is not None
        drift = rng.normal(size=entries.embedding.shape)
        moved = entries.embedding + 0.999 * radius * drift / np.linalg.norm(drift, axis=1, keepdims=True)
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        with filled(f"exact:{tmp_path / str(trial)}", replace(entries, embedding=moved.astype(np.float32))) as drifted:
            assert hit.id in [found.id for found in drifted.search("w0", R, scorer="cosine")]


def beats(name: str, seed: int, beats_s: float = 0.75) -> Signal:
    """Twenty seconds of two channels that share their beats, marked; the second channel is another lead."""
    rng, time_s = np.random.default_rng(seed), np.arange(320) / 16.0
    peaks = np.arange(0.3, 20, beats_s) + rng.uniform(-0.1, 0.1, size=len(np.arange(0.3, 20, beats_s)))
    wave = np.exp(-((time_s[:, None] - peaks) ** 2) / 0.01).sum(1)
    values = np.stack([wave, 0.3 * np.sin(2 * np.pi * time_s * (1 + seed))], axis=1) + rng.normal(size=(320, 2)) * 0.02
    return Signal.from_array(values, name, 16.0, ("lead", "breath"), anchors=peaks * 16.0)


@pytest.fixture(scope="module")
def by_clock() -> GeoPatch:
    """A model whose geometry is read on the clock of the anchors."""
    config = ModelConfig(
        halves=("learned",),
        patch_length=8,
        max_patches=4,
        width=16,
        embedding=8,
        layers=1,
        heads=1,
        geometry_source="clock",
    )
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    parts = [beats(f"t{n}", n).window(start, start + 32) for n in range(4) for start in range(0, 289, 32)]
    return GeoPatch(model=config, train=train, device="cpu").fit(parts, None)


@pytest.fixture
def clocked(by_clock: GeoPatch, tmp_path: Path) -> Iterator[Gallery]:
    with Gallery.create(tmp_path / "clocked", by_clock) as made:
        made.add(
            [beats(name, n).window(start, start + 32) for n, name in enumerate("rs") for start in range(0, 289, 16)]
        )
        yield made


def test_a_model_with_a_clock_searches_by_span(clocked: Gallery) -> None:
    """A span is put together with its anchors: it is encoded as the same part of the recording is."""
    cut = beats("s", 1).window(56, 90)
    assert cut.anchors is not None
    hits = clocked.search(Span("s", 3.5, 5.625), 8)
    joined = hits[0].query_window
    assert joined is not None
    assert joined.anchors is not None
    np.testing.assert_allclose(joined.anchors, cut.anchors, atol=1e-5)
    assert joined.channels == cut.channels
    assert_same(hits, pairs(clocked.search(cut, 8)))


def test_a_model_with_a_clock_searches_by_id_and_at_tempos(clocked: Gallery) -> None:
    window = beats("s", 1).window(48, 80)
    plain = clocked.search(window.id, 5)
    assert_same(plain, pairs(clocked.search(window, 6, protocol="standard"))[:5])
    for query in (window.id, Span("s", 3.5, 5.625), window):
        hits = clocked.search(query, 8, tempos=True)
        for hit in hits:
            assert hit.query_window is not None
            assert hit.query_window.anchors is not None
    moved = clocked.search(window, 38, tempos=True)
    for hit in moved:
        expected = warped(window, hit.tempo).anchors
        assert hit.query_window is not None
        assert hit.query_window.anchors is not None
        assert expected is not None
        np.testing.assert_allclose(hit.query_window.anchors, expected)
    assert any(hit.tempo for hit in moved)


def test_channels_are_matched_by_name(encoded: Gallery) -> None:
    query = windows("q", 2)[4]
    turned = replace(query, values=query.values[:, ::-1], channels=("b", "a"))
    assert_same(encoded.search(turned, 8), pairs(encoded.search(query, 8)))
    unnamed = replace(turned, channels=())
    assert pairs(encoded.search(unnamed, 8)) != pairs(encoded.search(query, 8)), "without names they stand as they are"
    for scorer in SCORERS:
        assert_same(encoded.search(turned, 8, scorer=scorer), pairs(encoded.search(query, 8, scorer=scorer)))
    with pytest.raises(SignalError, match=r"channels a, c.*a, b"):
        encoded.search(replace(query, channels=("a", "c")))


def test_precision_does_not_fall_when_channels_change_places(tmp_path: Path) -> None:
    """Classes differ in which channel is quick: with its channels swapped, a query looks like another class."""
    config = ModelConfig(halves=("learned",), patch_length=8, max_patches=4, width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=4, min_steps=20, max_steps=40, batch_size=16)
    rng, time_s, signals, labels = np.random.default_rng(0), np.arange(32) / 16.0, [], []
    for n in range(80):
        label = n % 4
        speeds = [(1, 4), (4, 1), (2, 6), (6, 2)][label]
        waves = [np.sin(2 * np.pi * (time_s * speed / 2 + rng.uniform())) for speed in speeds]
        values = np.stack(waves, axis=1) + rng.normal(size=(32, 2)) * 0.1
        signals.append(Signal.from_array(values, f"w{n}", 16.0, ("a", "b")))
        labels.append(str(label))
    model = GeoPatch(model=config, train=train, device="cpu").fit(signals[:60], labels[:60])
    with Gallery.create(tmp_path / "classes", model) as made:
        made.add(signals[:60], metadata=[{"label": label} for label in labels[:60]])
        right = [precision(made, signal, label) for signal, label in zip(signals[60:], labels[60:], strict=True)]
        turned = [replace(signal, values=signal.values[:, ::-1], channels=("b", "a")) for signal in signals[60:]]
        swapped = [precision(made, signal, label) for signal, label in zip(turned, labels[60:], strict=True)]
        blind = [
            precision(made, replace(signal, channels=()), label)
            for signal, label in zip(turned, labels[60:], strict=True)
        ]
    assert swapped == right
    assert np.mean(blind) < np.mean(right) - 0.2, "the data must be such that the order matters"


def precision(gallery: Gallery, query: Signal, label: str) -> float:
    return float(np.mean([hit.metadata["label"] == label for hit in gallery.search(query, 10, protocol="standard")]))


def test_a_hit_is_one_line_and_a_table_in_notebooks(encoded: Gallery) -> None:
    hit = encoded.search(windows("q", 2)[4], 1)[0]
    assert repr(hit) == f"Hit(1, {hit.id!r}, fused {hit.score:.4f}, {hit.start_s:g}-{hit.stop_s:g} s)"
    assert "\n" not in repr(hit)
    assert "<table>" in hit._repr_html_()
    assert "<svg" in hit._repr_html_()
    assert "<svg" not in hit.with_window(None)._repr_html_()


def test_options_and_overrides(gallery: Gallery) -> None:
    options = SearchOptions(k=4, scorer="cosine")
    assert pairs(gallery.search("w3", options=options)) == pairs(gallery.search("w3", 4, scorer="cosine"))
    assert len(gallery.search("w3", 2, options=options)) == 2
    assert gallery.search("w3", options=options, scorer="maxsim")[0].scorer == "maxsim"
    with pytest.raises(ConfigError, match="a search has no option 'scoring'; it has k, scorer, shortlist"):
        gallery.search("w3", scoring="cosine")
    with pytest.raises(ConfigError, match="guard_s is 2 here and 1 in the protocol"):
        gallery.search("w3", protocol=Protocol("strict-nonoverlap", 1.0), guard_s=2.0)


def test_cosines_are_those_of_the_embeddings(gallery: Gallery) -> None:
    entries = gallery.fetch([f"w{n}" for n in range(COUNT)])
    for hit in gallery.search("w3", 5, certify=True):
        assert hit.cosine == pytest.approx(naive_search.cosine(entries, 3, entries.ids.index(hit.id)), abs=1e-6)


def test_sound_is_told_by_its_tokens_in_the_order_of_time_unless_options_say_otherwise(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    names = tuple(f"mel {n}" for n in range(8))
    sounds = [Signal(draw.normal(size=(150, 8)).astype(np.float32), f"u{n}", 100.0, names) for n in range(12)]
    with Gallery.create(tmp_path / "sounds", GeoPatch().fit(sounds)) as gallery:
        gallery.add(sounds)
        hits = gallery.search(replace(sounds[3], id="heard again"), k=2)
        assert [hits[0].id, hits[0].scorer, hits[0].explain().ordered] == ["u3", "aligned", True]
        assert gallery.search(sounds[3], k=2, scorer="cosine")[0].scorer == "cosine"


def test_what_options_leave_open_depends_on_the_gallery() -> None:
    left_open = SearchOptions()
    assert (left_open.completed(sound=False).scorer, left_open.completed(sound=False).by_tokens) == ("fused", False)
    assert (left_open.completed(sound=True).scorer, left_open.completed(sound=True).by_tokens) == ("aligned", True)
    chosen = SearchOptions(scorer="fused", shortlist=60)
    assert chosen.completed(sound=True) == chosen
