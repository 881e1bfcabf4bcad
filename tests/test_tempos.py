"""Search at other tempos: the best of three plain searches, and what each hit then says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import naive_search
import numpy as np
import numpy.typing as npt
import pytest
from naive_search import entries_of

from geopatch.cli import main
from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.collection import Collection
from geopatch.data.sample import ecg_windows
from geopatch.engines import Entries, about_model
from geopatch.engines.engine import Shortlist
from geopatch.errors import GalleryError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.protocol import MEANING
from geopatch.scoring import SCORERS
from geopatch.search import Hit, SearchOptions, Span
from geopatch.search.candidates import shortlists
from geopatch.search.explain import Tokens
from geopatch.search.query import TEMPOS, EncodedQuery, at_tempos, encode_queries
from geopatch.search.ranking import Ranking, rank
from geopatch.search.run import _certify
from geopatch.signal import Signal
from geopatch.warp import warped

COUNT = 40
FAST = tuple(scorer for scorer in SCORERS if scorer != "dtw")
Vectors = npt.NDArray[np.float64]


def sample() -> Collection:
    return ecg_windows().subset(np.arange(0, 25 * COUNT, 25))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a gallery of ECG windows, and the same without values."""
    folder, windows = tmp_path_factory.mktemp("tempos"), sample()
    config = ModelConfig(halves=("learned",), patch_length=64, max_patches=6, width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    model = GeoPatch(model=config, train=train, device="cpu").fit(windows.signals, windows.labels)
    model.save(folder / "model")
    for name, keep in (("gallery", True), ("bare", False)):
        with Gallery.create(folder / name, model) as made:
            made.add(windows.signals, metadata=[{"even": n % 2 == 0} for n in range(COUNT)], keep_windows=keep)
    return folder


@pytest.fixture
def gallery(place: Path) -> Iterator[Gallery]:
    model = GeoPatch.load(place / "model", device="cpu")
    with Gallery.open(place / "gallery", model=model, read_only=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def signals() -> tuple[Signal, ...]:
    return tuple(sample().signals)


def with_query_at_tempos(gallery: Gallery, entries: Entries, n: int) -> list[Entries]:
    """The entries, with the n-th one encoded by itself at each tempo."""
    window, found = entries.windows[n], []
    assert window is not None
    assert gallery.model is not None
    for tempo in TEMPOS:
        encoded = gallery.model.encode([warped(window, tempo)])
        embedding, tokens = entries.embedding.copy(), entries.tokens.copy()
        embedding[n], tokens[n] = encoded.embedding[0], encoded.tokens[0]
        found.append(replace(entries, embedding=embedding, tokens=tokens))
    return found


def assert_alike(found: list[Hit], expected: list[tuple[str, float]]) -> None:
    np.testing.assert_allclose([hit.score for hit in found], [score for _, score in expected], atol=5e-5)
    wanted = dict(expected)
    assert sum(hit.id not in wanted for hit in found) <= 1, "two that are level may change places at the end"
    assert all(abs(hit.score - wanted.get(hit.id, hit.score)) < 5e-5 for hit in found)


@pytest.mark.parametrize("scorer", FAST)
@pytest.mark.parametrize("protocol", MEANING)
def test_search_at_tempos_equals_its_twin(gallery: Gallery, scorer: str, protocol: str) -> None:
    entries = gallery.fetch([signal.id for signal in sample().signals])
    for n in (0, 23):
        tempos = with_query_at_tempos(gallery, entries, n)
        for asked in ({}, {"shortlist": 8}, {"min_gap_s": 40.0}):
            how: dict[str, Any] = {"scorer": scorer, "protocol": protocol, **asked}
            found = gallery.search(entries.ids[n], 8, tempos=True, **how)
            assert_alike(found, naive_search.search(entries, n, 8, tempos=tempos, **how))
        even = gallery.search(entries.ids[n], 8, scorer=scorer, protocol=protocol, where="even == true", tempos=True)
        expected = naive_search.search(
            entries, n, 8, scorer=scorer, protocol=protocol, passes=lambda fields: fields["even"], tempos=tempos
        )
        assert_alike(even, expected)


@pytest.mark.parametrize("scorer", SCORERS)
def test_each_candidate_has_the_best_of_three_searches(
    gallery: Gallery, signals: tuple[Signal, ...], scorer: str
) -> None:
    query = warped(signals[7], 0.08)
    plain = {
        tempo: {hit.id: hit.score for hit in gallery.search(warped(query, tempo), COUNT, scorer=scorer)}
        for tempo in TEMPOS
    }
    hits = gallery.search(query, COUNT, scorer=scorer, tempos=True)
    assert len(hits) == COUNT
    for hit in hits:
        best = max(plain[tempo][hit.id] for tempo in TEMPOS)
        assert hit.score == pytest.approx(best, abs=5e-5)
        assert plain[hit.tempo][hit.id] == pytest.approx(best, abs=5e-5)
    assert len({hit.tempo for hit in hits}) > 1


def test_without_tempos_nothing_more_is_encoded(
    gallery: Gallery, signals: tuple[Signal, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, counts = gallery.search(signals[3], 9), []
    model = gallery.model
    assert model is not None
    encode = model.encode

    def counting(asked: Any) -> Any:
        counts.append(len(asked))
        return encode(asked)

    monkeypatch.setattr(model, "encode", counting)
    assert gallery.search(signals[3], 9, tempos=False) == before
    assert counts == [1]
    assert {hit.tempo for hit in before} == {0.0}
    gallery.search_batch([signals[3], signals[4], signals[5].id], tempos=True)
    assert counts == [1, 2, 6], "the other tempos of all queries are encoded together"


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_batch_finds_what_its_queries_find_alone(gallery: Gallery, signals: tuple[Signal, ...], scorer: str) -> None:
    asked: list[Any] = [warped(signals[3]), signals[8].values, signals[11].id, warped(signals[3], -0.1)]
    asked.append(Span(signals[20].record, signals[20].start_s, signals[20].start_s + 1.5))
    for query, hits in zip(asked, gallery.search_batch(asked, 6, scorer=scorer, tempos=True), strict=True):
        alone = gallery.search(query, 6, scorer=scorer, tempos=True)
        assert_alike(hits, [(hit.id, hit.score) for hit in alone])


@pytest.mark.parametrize("strength", [-0.1, -0.05, 0.05, 0.1])
def test_a_warped_query_is_no_further_from_its_own_window(
    gallery: Gallery, signals: tuple[Signal, ...], strength: float
) -> None:
    nearer = 0
    for signal in signals[::5]:
        query = warped(signal, strength)
        plain, best = (
            {hit.id: hit.score for hit in gallery.search(query, COUNT, tempos=tempos)} for tempos in (False, True)
        )
        assert all(best[id] >= plain[id] - 1e-5 for id in plain)
        nearer += best[signal.id] > plain[signal.id] + 1e-4
    assert nearer > 0


def test_a_hit_shows_the_query_that_it_met(gallery: Gallery, signals: tuple[Signal, ...]) -> None:
    query = warped(signals[7], 0.1)
    hits = gallery.search(query, COUNT, tempos=True)
    for hit in hits:
        assert hit.query_window is not None
        np.testing.assert_array_equal(hit.query_window.values, warped(query, hit.tempo).values)
        explained = hit.explain()
        assert explained.cosine + explained.token_score == pytest.approx(hit.score, abs=1e-5)
        assert explained.tempo == hit.as_dict()["tempo"] == explained.as_dict()["tempo"] == hit.tempo
        assert (f"query warped by {hit.tempo:+g}" in str(explained)) == (hit.tempo != 0)
    assert any(hit.tempo for hit in hits)


def test_the_shortlist_is_the_best_of_all_tempos(gallery: Gallery, signals: tuple[Signal, ...]) -> None:
    plain = encode_queries(gallery, [warped(signals[7]), signals[9].id], gallery.model)
    queries, options = at_tempos(gallery, plain, gallery.model), SearchOptions(3, shortlist=6, tempos=True)
    entries = gallery.fetch([signal.id for signal in signals])
    for query, near in zip(queries, shortlists(gallery, queries, options), strict=True):
        assert [one.tempo for one in query.tempos] == list(TEMPOS)
        cosine = np.max([entries.embedding @ one.embedding for one in query.tempos], axis=0)
        others = cosine[[not (one == query.id and query.stored) for one in entries.ids]]
        np.testing.assert_allclose(near.scores, np.sort(others)[::-1][:7], atol=1e-6)


def test_protocols_hold_at_every_tempo(gallery: Gallery, signals: tuple[Signal, ...]) -> None:
    for query in (signals[9], signals[9].id):
        hits = gallery.search(query, COUNT, tempos=True, protocol="strict-cross-record")
        assert hits
        assert all(hit.record != signals[9].record for hit in hits)
        assert signals[9].id not in [hit.id for hit in gallery.search(query, COUNT, tempos=True, protocol="standard")]
    assert all(hit.id != signals[9].id for hit in gallery.search(signals[9].id, COUNT, tempos=True))


def test_what_other_tempos_need(place: Path, signals: tuple[Signal, ...], tmp_path: Path) -> None:
    model = GeoPatch.load(place / "model", device="cpu")
    told = r"other tempos are encoded by the gallery's model; give model="
    with Gallery.create(tmp_path / "gallery", about_model(model)) as no_model:
        Gallery(no_model.engine, model).add(signals[:3])
        with pytest.raises(GalleryError, match=told):
            no_model.search(signals[0].id, tempos=True)
    with Gallery.open(place / "bare", model=model, read_only=True) as bare:
        with pytest.raises(GalleryError, match=r"need the values of the query.*keeps none of .*keep_windows=True"):
            bare.search(signals[0].id, tempos=True)
        assert bare.search(signals[0], 1, tempos=True)[0].id == signals[0].id


def test_on_the_command_line(
    place: Path, signals: tuple[Signal, ...], capsys: pytest.CaptureFixture[str], gallery: Gallery
) -> None:
    asked = ["search", str(place / "gallery"), "--id", signals[7].id, "--tempos", "-k", str(COUNT)]
    main([*asked, "--model", str(place / "model"), "--device", "cpu", "--json"])
    told = json.loads(capsys.readouterr().out)["hits"]
    assert [(hit["id"], hit["tempo"]) for hit in told] == [
        (hit.id, hit.tempo) for hit in gallery.search(signals[7].id, COUNT, tempos=True)
    ]
    main([*asked, "--model", str(place / "model"), "--device", "cpu"])
    table = capsys.readouterr().out
    assert "tempo" in table
    assert "+0.05" in table or "-0.05" in table
    main(asked)  # with the model that the gallery holds
    assert capsys.readouterr().out == table


def three(entries: Entries) -> EncodedQuery:
    """The first three entries as one query at three tempos."""
    first, *others = (
        EncodedQuery(entries.embedding[n], tokens_of(entries, n), None, None, False, tempo)
        for n, tempo in enumerate(TEMPOS)
    )
    return replace(first, others=tuple(others))


def tokens_of(entries: Entries, n: int) -> Tokens:
    return Tokens(entries.tokens[n], entries.valid[n], entries.patch_s[n])


def compared(entries: Entries, options: SearchOptions) -> tuple[Ranking, Shortlist]:
    """The ranking of all but the first three, and their shortlist."""
    query, ids = three(entries), np.asarray(entries.ids[3:])
    cosine = np.max([entries.embedding[3:] @ one.embedding for one in query.tempos], axis=0)
    best = np.argsort(-cosine)
    near = Shortlist(tuple(ids[best].tolist()), cosine[best])
    return rank(query, near, entries, options, None), near


def unit(vectors: Vectors) -> npt.NDArray[np.float32]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: npt.NDArray[np.float32] = (vectors / np.where(length > 0, length, 1)).astype(np.float32)
    return scaled


def pushed(entries: Entries, hit: int, radius: float) -> Entries:
    """Embeddings and tokens moved by just the radius: the hit away from the query, all others and the query nearer."""
    away = np.where(np.arange(len(entries)) == hit, -1.0, 1.0)
    middle = entries.embedding[:3].mean(0) - entries.embedding[hit]
    embedding = unit(entries.embedding + radius * away[:, None] * unit(middle[None].astype(np.float64)))
    centre = entries.tokens[:3].mean((0, 1)) - entries.tokens[hit].mean(0)
    step = radius * away[:, None, None] * unit(centre[None, None].astype(np.float64)) * entries.valid[..., None]
    return replace(entries, embedding=embedding, tokens=unit(entries.tokens + step))


@pytest.mark.parametrize("scorer", FAST)
def test_drift_within_the_radius_keeps_the_hit(scorer: str) -> None:
    options, left = SearchOptions(5, scorer, shortlist=50, certify=True, tempos=True), 0
    for seed in range(6):
        entries = entries_of(40, seed)
        ranking, near = compared(entries, options)
        certify = _certify(ranking, near, options, 0, None)
        assert len(set(ranking.tempo.tolist())) > 1
        for row in ranking.rows[:4]:
            certificate = certify(entries.ids[row])
            assert certificate.radius is not None
            assert certificate.covers.endswith("; the query at each tempo drifts on its own")
            for far in (0.999, 6.0):
                moved, _ = compared(pushed(entries, int(row), far * certificate.radius), options)
                kept = row in moved.rows[: options.k]
                assert kept or far > 1
                left += not kept
    assert left > 0, "drift beyond the radius must be able to move a hit out"
