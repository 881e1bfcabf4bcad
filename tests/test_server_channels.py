"""Channel names and anchors over HTTP: what a search with them gives in Python, it gives through the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import WRITER, client_of
from starlette.testclient import TestClient

from geopatch.config import ModelConfig, TrainConfig
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.search import SearchOptions, Span
from geopatch.server.searcher import Searcher, SearchRequest
from geopatch.server.worker import Worker
from geopatch.signal import Signal

RATE_HZ, CHANNELS = 16.0, ("lead", "breath")


def beats(name: str, seed: int) -> Signal:
    """Twenty seconds of two channels, with a mark at each beat of the first."""
    draw, time_s = np.random.default_rng(seed), np.arange(320) / RATE_HZ
    peaks = np.arange(0.3, 20, 0.75) + draw.uniform(-0.1, 0.1, 27)
    wave = np.exp(-((time_s[:, None] - peaks) ** 2) / 0.01).sum(1)
    values = np.stack([wave, 0.3 * np.sin(2 * np.pi * time_s * (1 + seed))], axis=1)
    return Signal(values.astype(np.float32), name, RATE_HZ, CHANNELS, anchors=peaks * RATE_HZ)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose geometry is read on the clock of the anchors, and a gallery of two records."""
    folder = tmp_path_factory.mktemp("place")
    sizes = {"patch_length": 8, "max_patches": 4, "width": 16, "embedding": 8, "layers": 1, "heads": 1}
    config = ModelConfig(halves=("learned",), **sizes, geometry_source="clock")  # type: ignore[arg-type]
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    parts = [beats(f"t{n}", n).window(start, start + 32) for n in range(4) for start in range(0, 289, 32)]
    model = GeoPatch(model=config, train=train, device="cpu").fit(parts, None)
    model.save(folder / "model")
    with Gallery.create(folder / "gallery", model) as made:
        made.add(
            [beats(name, n).window(start, start + 32) for n, name in enumerate("rs") for start in range(0, 289, 16)]
        )
    return folder


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place) as client:
        yield client


@pytest.fixture(scope="module")
def gallery(place: Path) -> Iterator[Gallery]:
    model = GeoPatch.load(place / "model", device="cpu")
    with Gallery.open(place / "gallery", model=model, read_only=True) as opened:
        yield opened


def as_json(signal: Signal) -> dict[str, Any]:
    assert signal.anchors is not None
    return {
        "values": signal.values.tolist(),
        "rate_hz": signal.rate_hz,
        "channels": list(signal.channels),
        "anchors": signal.anchors.tolist(),
    }


def hits_of(client: TestClient, query: dict[str, Any], **options: Any) -> list[tuple[str, float]]:
    answer = client.post("/api/search", json={"query": query, "k": 6, **options})
    assert answer.status_code == 200, answer.text
    return [(hit["id"], round(hit["score"], 4)) for hit in answer.json()["hits"]]


def expected(gallery: Gallery, query: Any, **options: Any) -> list[tuple[str, float]]:
    return [(hit.id, round(hit.score, 4)) for hit in gallery.search(query, 6, **options)]


@pytest.mark.parametrize("tempos", [False, True])
def test_a_model_with_a_clock_is_searched_by_span_and_signal(
    client: TestClient, gallery: Gallery, tempos: bool
) -> None:
    span, window = Span("s", 3.5, 5.625), beats("s", 1).window(50, 84)
    query = {"record": "s", "start_s": 3.5, "stop_s": 5.625}
    assert hits_of(client, query, tempos=tempos) == expected(gallery, span, tempos=tempos)
    plain = replace(window, id="query", record="", start_s=0.0)
    assert hits_of(client, {"signal": as_json(window)}, tempos=tempos) == expected(gallery, plain, tempos=tempos)


def test_a_clock_without_anchors_is_refused(client: TestClient) -> None:
    signal = {**as_json(beats("s", 1).window(50, 84)), "anchors": None}
    answer = client.post("/api/search", json={"query": {"signal": signal}})
    assert (answer.status_code, "has no anchors" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize("anchors", ["x", [None], ["x"], [[1], [1, 2]], 3])
def test_anchors_that_are_no_numbers_are_refused(client: TestClient, anchors: Any) -> None:
    signal = {**as_json(beats("s", 1).window(50, 84)), "anchors": anchors}
    assert client.post("/api/search", json={"query": {"signal": signal}}).status_code == 422


def test_channels_are_matched_by_name(client: TestClient) -> None:
    window = beats("s", 1).window(50, 84)
    turned = replace(window, values=window.values[:, ::-1], channels=CHANNELS[::-1])
    wide = replace(
        window, values=np.concatenate([window.values * 9, window.values], axis=1), channels=("x", "y", *CHANNELS)
    )
    straight = hits_of(client, {"signal": as_json(window)})
    assert hits_of(client, {"signal": as_json(turned)}) == straight
    assert hits_of(client, {"signal": as_json(wide)}) == straight
    assert hits_of(client, {"signal": {**as_json(turned), "channels": []}}) != straight
    wrong = client.post("/api/search", json={"query": {"signal": {**as_json(window), "channels": ["lead", "flow"]}}})
    assert wrong.status_code == 422
    assert "lead, flow" in wrong.json()["detail"]
    assert "lead, breath" in wrong.json()["detail"]


def test_answers_carry_channels_and_anchors(client: TestClient) -> None:
    window = beats("s", 1).window(64, 96)
    assert window.anchors is not None
    turned = replace(window, values=window.values[:, ::-1], channels=CHANNELS[::-1])
    body = {"query": {"signal": as_json(turned)}, "k": 1, "windows": True}
    answer = client.post("/api/search", json=body).json()
    for part in (answer["query"], answer["hits"][0]):
        assert part["window"]["channels"] == list(CHANNELS)
    np.testing.assert_allclose(answer["query"]["window"]["anchors"], window.anchors)
    stored = client.get("/api/window", params={"id": window.id}).json()["window"]
    assert stored["channels"] == list(CHANNELS)
    np.testing.assert_allclose(stored["anchors"], window.anchors, atol=1e-4)
    assert client.get("/api/info").json()["channel_names"] == list(CHANNELS)
    assert client.get("/api/record", params={"name": "s"}).json()["channels"] == list(CHANNELS)


def test_added_windows_are_arranged_and_keep_their_anchors(client: TestClient) -> None:
    window = beats("new", 3).window(32, 64)
    turned = replace(window, values=window.values[:, ::-1], channels=CHANNELS[::-1])
    body = {"windows": [{**as_json(turned), "id": "turned"}]}
    assert client.post("/api/windows", json=body, headers=WRITER).status_code == 200
    stored = client.get("/api/window", params={"id": "turned"}).json()["window"]
    np.testing.assert_allclose(stored["values"], window.values, rtol=1e-5, atol=1e-6)
    assert stored["channels"] == list(CHANNELS)
    gone = client.request("DELETE", "/api/windows", json={"ids": ["turned"]}, headers=WRITER)
    assert gone.json() == {"removed": 1, "missing": []}


def test_a_process_gets_channels_and_anchors(place: Path, gallery: Gallery) -> None:
    window = beats("s", 1).window(50, 84)
    turned = replace(window, values=window.values[:, ::-1], channels=CHANNELS[::-1])
    requests = [SearchRequest(query, SearchOptions(k=3)) for query in (window, turned, Span("s", 3.5, 5.625))]
    worker = Worker(place / "gallery", GeoPatch.load(place / "model", device="cpu"))
    try:
        assert worker.answer(requests) == Searcher(gallery).answer(requests)
    finally:
        worker.close()


def test_a_gallery_without_a_rate_says_so(tmp_path: Path) -> None:
    signals = [Signal(beats("t", n).values[:64], f"n{n}", record=f"r{n}") for n in range(8)]
    sizes = {"patch_length": 8, "max_patches": 8, "width": 16, "embedding": 8, "layers": 1, "heads": 1}
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    model = GeoPatch(model=ModelConfig(halves=("learned",), **sizes), train=train, device="cpu").fit(signals, None)  # type: ignore[arg-type]
    model.save(tmp_path / "model")
    with Gallery.create(tmp_path / "gallery", model) as made:
        made.add(signals)
    with client_of(tmp_path) as client:
        info = client.get("/api/info").json()
        assert (info["rate_hz"], info["window_s"]) == (None, 64.0)
        drawn = client.get("/api/record", params={"name": "r3"}).json()
        assert (drawn["rate_hz"], drawn["rate_known"], drawn["samples"]) == (None, False, 64)
        answer = client.post("/api/search", json={"query": {"id": "n3"}, "windows": True}).json()
        assert answer["query"]["window"]["rate_hz"] is None
        read = client.post("/api/read", files={"file": ("x.csv", b"1,2\n3,4\n")}).json()
        assert (read["rate_hz"], read["rate_known"]) == (None, False)
