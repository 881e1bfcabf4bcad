"""Relative tempo from fit to hit: chosen where it helps, stored as it is in memory, weighed by a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from geopatch import Gallery, GeoPatch, Signal
from geopatch.config import ModelConfig
from geopatch.data.anchors import detect_anchors, detect_peaks
from geopatch.data.front_end import FrontEnd
from geopatch.errors import ConfigError
from geopatch.kernels import fitting
from geopatch.search import SearchOptions, Span
from geopatch.server.app import create_app
from geopatch.train import rhythm_choice

RATE_HZ, LENGTH = 50.0, 64
SMALL = ModelConfig(halves=("kernels",), embedding=16, width=16, clock_share=0.4)


def recording(name: str, seed: int, *, uneven: bool) -> Signal:
    """The same bump at every mark; the marks are even, or short and long in turn."""
    random = np.random.default_rng(seed)
    steps = np.where(np.arange(60) % 2, 20.0, 30.0) if uneven else np.full(60, 25.0)
    marks = np.cumsum(steps) + random.uniform(0, 20)
    samples = np.arange(900)
    values = np.exp(-0.5 * ((samples[:, None] - marks) / 2) ** 2).sum(1) + 0.02 * random.normal(size=900)
    return Signal.from_array(values, name, RATE_HZ, anchors=marks)


def windows(names: str = "abcd") -> list[Signal]:
    recordings = [recording(name, n, uneven=n % 2 == 1) for n, name in enumerate(names)]
    return [one.window(start, start + LENGTH) for one in recordings for start in range(300, 600, 32)]


@pytest.fixture(scope="module", autouse=True)
def few_views() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "VIEWS", 1000)
        patch.setattr(rhythm_choice, "VIEWS", 500)
        yield


@pytest.fixture(scope="module")
def model() -> GeoPatch:
    return GeoPatch(model=SMALL, device="cpu").fit(windows())


@pytest.fixture(scope="module")
def gallery(model: GeoPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    place = tmp_path_factory.mktemp("rhythm") / "gallery"
    with Gallery.create(place, model) as made:
        made.add(windows())
    with Gallery.open(place, read_only=True, device="cpu") as opened:
        yield opened


def test_columns_stand_behind_the_shape(model: GeoPatch, gallery: Gallery) -> None:
    assert model.transform(windows()[:1]).shape == (1, SMALL.embedding_width)
    assert gallery.about.rhythm == SMALL.rhythm_width > 0


def test_a_stored_gallery_answers_as_the_model_in_memory(model: GeoPatch, gallery: Gallery) -> None:
    stored, kept = windows(), model.transform(windows())
    asking = stored[3]
    cosine = dict(zip([window.id for window in stored], (kept @ kept[3]).tolist(), strict=True))
    for clock in (None, 0.0, 0.3):
        options = SearchOptions(k=3, scorer="cosine", clock=clock)
        by_id = gallery.search(asking.id, options=options)
        by_span = gallery.search(Span("a", asking.start_s, asking.start_s + LENGTH / RATE_HZ), options=options)
        by_signal = [hit for hit in gallery.search(asking, options=options.changed(k=4)) if hit.id != asking.id]
        assert [hit.id for hit in by_id] == [hit.id for hit in by_span] == [hit.id for hit in by_signal]
        assert [hit.score for hit in by_id] == pytest.approx([hit.score for hit in by_signal], abs=1e-5)
        if clock is None:
            assert [hit.cosine for hit in by_id] == pytest.approx([cosine[hit.id] for hit in by_id], abs=1e-5)


@pytest.mark.parametrize("clock", [None, 0.0, 0.3])
def test_a_server_answers_as_the_gallery_does(model: GeoPatch, gallery: Gallery, clock: float | None) -> None:
    """By id, by span and by a signal with its marks, those round it as well."""
    asking = windows()[3]
    assert asking.anchors is not None
    stop_s = asking.start_s + LENGTH / RATE_HZ
    signal = {"values": asking.values.tolist(), "rate_hz": RATE_HZ, "anchors": asking.anchors.tolist()}
    span = {"record": "a", "start_s": asking.start_s, "stop_s": stop_s}
    queries: list[tuple[dict[str, Any], str | Span | Signal]] = [
        ({"id": asking.id}, asking.id),
        (span, Span("a", asking.start_s, stop_s)),
        ({"signal": signal}, Signal.from_array(asking.values, "query", RATE_HZ, anchors=asking.anchors)),
    ]
    reader = Gallery.open(gallery.info().place, model=model, read_only=True)
    with TestClient(create_app(reader), base_url="http://127.0.0.1", client=("127.0.0.1", 5000)) as client:
        for query, plain in queries:
            body = {"query": query, "k": 4, "scorer": "fused", "clock": clock}
            answer = client.post("/api/search", json=body)
            assert answer.status_code == 200, answer.text
            hits = gallery.search(plain, k=4, scorer="fused", clock=clock)
            assert [hit["id"] for hit in answer.json()["hits"]] == [hit.id for hit in hits]
            scores = [hit["score"] for hit in answer.json()["hits"]]
            assert scores == pytest.approx([hit.score for hit in hits], abs=1e-5)


def test_a_span_between_windows_keeps_its_surroundings(gallery: Gallery) -> None:
    start_s = windows()[3].start_s + 10 / RATE_HZ
    first = round(start_s * RATE_HZ)
    cut = recording("a", 0, uneven=False).window(first, first + LENGTH)
    hit = gallery.search(Span("a", start_s, start_s + LENGTH / RATE_HZ), k=1, clock=1.0)[0]
    assert hit.query_window is not None
    assert hit.query_window.anchors is not None
    assert cut.anchors is not None
    assert np.isin(hit.query_window.anchors.round(3), cut.anchors.round(3)).all()
    assert hit.score == pytest.approx(gallery.search(cut, k=1, clock=1.0)[0].score, abs=1e-3)


def test_rhythm_finds_rhythm_and_the_explanation_says_how_much(gallery: Gallery) -> None:
    query = recording("new", 9, uneven=True).window(400, 400 + LENGTH)
    hits = gallery.search(query, k=5, scorer="cosine", clock=1.0)
    assert {hit.record for hit in hits} <= {"b", "d"}
    assert hits[0].rhythm == pytest.approx(hits[0].cosine)
    mixed = gallery.search(query, k=1, scorer="cosine", clock=0.5)[0]
    explained = mixed.explain()
    assert 0 < explained.rhythm < explained.cosine
    assert f"rhythm {explained.rhythm:.4f}" in str(explained)
    assert gallery.search(query, k=1, scorer="cosine", clock=0.0)[0].rhythm == 0.0


def test_a_query_without_anchors_is_searched_by_its_shape(gallery: Gallery) -> None:
    query = windows()[0]
    bare = Signal.from_array(query.values, "bare", RATE_HZ)
    assert [hit.id for hit in gallery.search(bare, k=3, scorer="cosine")] == [
        hit.id for hit in gallery.search(query, k=3, scorer="cosine", clock=0.0)
    ]


def test_a_weight_needs_something_to_weigh(tmp_path: Path) -> None:
    bare = [Signal.from_array(window.values, window.id, RATE_HZ) for window in windows("ab")]
    plain = GeoPatch(embedding=8, width=16, device="cpu").fit(bare)
    with Gallery.create(tmp_path / "gallery", plain) as made:
        made.add(bare)
        with pytest.raises(ConfigError, match="weighs relative tempo, and the model of this gallery has none"):
            made.search(bare[0], clock=0.5)
        assert made.search(bare[0], k=1, clock=0.0)[0].rhythm == 0.0
    with pytest.raises(ConfigError, match="clock must lie within 0 and 1"):
        SearchOptions(clock=1.5)


def test_windows_without_anchors_are_encoded_as_ever() -> None:
    bare = [Signal.from_array(window.values, window.id, RATE_HZ) for window in windows("ab")]
    small = {"halves": ("kernels",), "embedding": 8, "width": 16}
    first, second = (
        GeoPatch(model=ModelConfig(**small, **more), device="cpu").fit(bare)  # type: ignore[arg-type]
        for more in ({}, {"clock_share": 0.0})
    )
    assert np.array_equal(first.transform(bare), second.transform(bare))
    assert "rhythm" not in first.card_.choices


def test_labels_that_rhythm_tells_choose_it() -> None:
    own = windows("abcdef")
    labels = ["uneven" if window.record in "bdf" else "even" for window in own]
    fitted = GeoPatch("instant", embedding=8, width=16, device="cpu").fit(own, labels)
    choice = fitted.card_.choices["rhythm"]
    assert fitted.encoder_.config.rhythm
    assert max(choice["recall@1"].values()) > choice["recall@1"]["none"]
    assert "rhythm chosen by" in _card(fitted)


def _card(model: GeoPatch) -> str:
    from geopatch.model.checkpoint import _card_text

    return _card_text(model.encoder_.config, model.card_)


def test_peaks_of_a_period_are_its_anchors() -> None:
    walk = Signal.from_array(np.sin(2 * np.pi * np.arange(1000) / 40), "walk", 100.0)
    anchors = detect_anchors(walk)
    assert np.abs(np.diff(anchors.trusted()) - 40).max() <= 1
    assert len(anchors.trusted()) == 24, "of the 25, the one at the edge is only half there"
    noise = Signal.from_array(np.random.default_rng(0).normal(size=1000), "noise")
    assert detect_peaks(noise).confidence.max(initial=0.0) < 0.3, "nothing is known of noise"
    assert not len(detect_anchors(Signal.from_array(np.ones(100), "flat")).samples)


def test_a_front_end_detects_what_a_recording_does_not_bring() -> None:
    walk = Signal.from_array(np.sin(2 * np.pi * np.arange(1000) / 40), "walk", 100.0)
    detected = FrontEnd(anchors="auto").anchored(walk)
    assert detected.anchors is not None
    part = detected.window(500, 600)
    assert part.anchors is not None
    assert len(part.anchors) > 20, "a part keeps the anchors round it"
    assert FrontEnd().anchored(walk) is walk
    marked = recording("a", 0, uneven=False)
    assert FrontEnd(anchors="auto").anchored(marked) is marked
