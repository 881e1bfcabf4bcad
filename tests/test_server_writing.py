"""Adding, removing and streaming: what was acknowledged is there, also after kill -9; SIGTERM lets requests finish."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import WRITE_TOKEN, WRITER, Server, client_of, make_place, server_of
from starlette.testclient import TestClient

from geopatch.data.recording import Recording, WindowConfig, cut_windows
from geopatch.engines.about import About, Widths
from geopatch.errors import StorageError
from geopatch.gallery import Gallery
from geopatch.server.refusal import RefusedError
from geopatch.server.writer import Stream
from geopatch.signal import Signal

KILLS = int(os.environ.get("GEOPATCH_KILLS", "2"))
ABOUT = About("digest", Widths(8, 16, 16), patch_length=16, rate_hz=128.0, length=256)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path)


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place) as found:
        yield found


def window(n: int) -> dict[str, object]:
    values = np.random.default_rng(n).normal(size=(256, 2)).round(3).tolist()
    return {"id": f"new {n}", "values": values, "record": "new", "start_s": n, "metadata": {"n": n}}


def test_added_windows_are_found_and_removed_ones_are_not(client: TestClient) -> None:
    answer = client.post("/api/windows", json={"windows": [window(1), window(2)]}, headers=WRITER)
    assert answer.json() == {"written": 2, "ids": ["new 1", "new 2"], "skipped": []}
    found = client.post("/api/search", json={"query": {"signal": {"values": window(2)["values"]}}, "k": 1}).json()
    assert found["hits"][0]["id"] == "new 2"
    assert found["hits"][0]["metadata"] == {"n": 2}
    gone = client.request("DELETE", "/api/windows", json={"ids": ["new 2", "nowhere"]}, headers=WRITER)
    assert gone.json() == {"removed": 1, "missing": ["nowhere"]}
    assert client.get("/api/window", params={"id": "new 2"}).status_code == 404
    assert client.get("/api/window", params={"id": "new 1"}).status_code == 200


def test_an_id_that_is_there_is_an_error_unless_the_request_says_otherwise(client: TestClient) -> None:
    def add(*windows: dict[str, object], **options: str) -> httpx.Response:
        body = {"windows": list(windows), **options}
        return client.post("/api/windows", json=body, headers=WRITER)  # type: ignore[return-value]

    def value(id: str) -> float:
        return float(client.get("/api/window", params={"id": id}).json()["window"]["values"][0][0])

    assert add(window(1)).status_code == 200
    other = {**window(7), "id": "new 1"}
    refused = add(window(2), other)
    assert (refused.status_code, "'new 1' already" in refused.json()["detail"]) == (409, True)
    assert client.get("/api/window", params={"id": "new 2"}).status_code == 404  # all or none
    before = value("new 1")
    skipped = add(window(2), other, existing="skip")
    assert skipped.json() == {"written": 1, "ids": ["new 2"], "skipped": ["new 1"]}
    assert value("new 1") == before
    replaced = add(other, existing="replace")
    assert replaced.json() == {"written": 1, "ids": ["new 1"], "skipped": []}
    assert value("new 1") != before
    assert add(other, existing="maybe").status_code == 422
    twice = add({**window(3), "id": "same"}, {**window(4), "id": "same"})
    assert (twice.status_code, "'same'" in twice.json()["detail"]) == (422, True)


def test_a_recording_that_is_there_is_an_error_unless_the_request_says_otherwise(client: TestClient) -> None:
    file = {"file": ("walk.csv", "\n".join(f"{n % 9},{n % 7}" for n in range(1024)).encode())}
    sent = {"record": "walk", "rate_hz": "128"}
    statuses = [
        client.post("/api/windows/file", files=file, data={**sent, **options}, headers=WRITER).status_code
        for options in ({}, {}, {"existing": "skip"}, {"existing": "replace"}, {"existing": "maybe"})
    ]
    assert statuses == [200, 409, 200, 200, 422]


def test_ids_that_are_not_there_are_named(client: TestClient) -> None:
    body = {"ids": ["nowhere", "119@3s", "nobody", "nowhere"]}
    answer = client.request("DELETE", "/api/windows", json=body, headers=WRITER)
    assert answer.json() == {"removed": 1, "missing": ["nowhere", "nobody"]}
    again = client.request("DELETE", "/api/windows", json={"ids": ["119@3s"]}, headers=WRITER)
    assert (again.status_code, again.json()) == (200, {"removed": 0, "missing": ["119@3s"]})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"metadata": {"id": 1}}, "cannot be called 'id'"),
        ({"metadata": {"x": 2**60}}, "within 2\\*\\*53"),
        ({"values": [[1, 2, 3]] * 256}, "channel"),
        ({"id": ""}, "at least 1 character"),
        ({"id": "zero \x00"}, "without zero bytes"),
    ],
)
def test_what_cannot_be_added_is_told(client: TestClient, change: dict[str, object], line: str) -> None:
    answer = client.post("/api/windows", json={"windows": [window(0), {**window(1), **change}]}, headers=WRITER)
    assert answer.status_code == 422
    assert re.search(line, answer.json()["detail"]), answer.json()
    assert client.get("/api/window", params={"id": "new 0"}).status_code == 404  # all or none


def test_a_recording_is_cut_into_windows(client: TestClient) -> None:
    rows = "\n".join(f"{n / 128},{np.sin(n / 9):.4f},{np.cos(n / 5):.4f}" for n in range(1024))
    told = client.post(
        "/api/windows/file",
        files={"file": ("walk.csv", f"time,a,b\n{rows}".encode())},
        data={"record": "walk", "metadata": '{"site": "B"}'},
        headers=WRITER,
    )
    assert told.json()["written"] == 7
    found = client.get("/api/window", params={"id": "walk@3s"}).json()
    assert found["metadata"] == {"subject": "walk", "site": "B"}


def test_a_stream_fills_windows(client: TestClient) -> None:
    values = np.random.default_rng(3).normal(size=(700, 2)).round(3)
    sent, ids = 0, list[str]()
    for size in (100, 300, 50, 250):
        chunk = {
            "stream": "bed 4",
            "values": values[sent : sent + size].tolist(),
            "offset": sent,
            "metadata": {"ward": 2},
        }
        for _ in range(2):  # a chunk that is sent twice counts once
            told = client.post("/api/streams", json=chunk, headers=WRITER).json()
            ids += told["ids"]
        sent += size
        assert told["received"] == sent
    assert ids == [f"bed 4@{n}s" for n in range(4)]
    stored = client.get("/api/window", params={"id": "bed 4@1s"}).json()
    np.testing.assert_allclose(stored["window"]["values"], values[128:384], rtol=1e-5)
    assert (stored["record"], stored["metadata"]) == ("bed 4", {"ward": 2})
    late = client.post("/api/streams", json={"stream": "bed 4", "values": [[1, 2]], "offset": 9999}, headers=WRITER)
    assert (late.status_code, "stands at sample 700" in late.json()["detail"]) == (409, True)
    other = client.post("/api/streams", json={"stream": "bed 4", "values": [[1, 2, 3]]}, headers=WRITER)
    assert other.status_code == 409
    assert client.request("DELETE", "/api/streams", json={"stream": "bed 4"}, headers=WRITER).status_code == 200
    assert client.request("DELETE", "/api/streams", json={"stream": "bed 4"}, headers=WRITER).status_code == 404


@given(
    rate_hz=st.sampled_from([128.0, 360.0, 250.0, 64.0, 100.0]),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=12),
    cut=st.integers(0, 11),
)
def test_a_stream_gives_the_windows_of_the_whole_recording(rate_hz: float, sizes: list[int], cut: int) -> None:
    """However the samples are cut into chunks, and also where a server was started again in the middle."""
    draw = np.random.default_rng(sum(sizes))
    values = np.cumsum(draw.normal(size=(sum(sizes), 2)), axis=0).astype(np.float32)
    stream, at, found = Stream("s", rate_hz, 2, ABOUT), 0, dict[str, Signal]()
    for n, size in enumerate(sizes):
        done = stream.push(values[at : at + size], at)
        stream.forget(done)
        found.update((one.id, one) for one in done.windows)
        at += size
        if n == cut:  # a new process knows nothing; the client sends again from what was safe
            begin = stream.safe
            stream = Stream("s", rate_hz, 2, ABOUT, first=begin)
            again = stream.push(values[begin:at], begin)
            stream.forget(again)
            found.update((one.id, one) for one in again.windows)
    whole = Signal(values, "s", rate_hz)
    try:
        expected = cut_windows("s", [Recording(whole, "s")], WindowConfig(128.0, 2.0)).signals
    except ValueError:
        expected = ()
    ids = [one.id for one in expected]
    assert list(found) == ids[: len(found)]
    assert len(ids) - len(found) <= 1  # the last may still wait for what resampling looks at
    spread = float(values.std()) + 1e-3
    for one in expected[: len(found)][1:-1]:  # at the very ends, resampling has nothing to look at
        assert np.abs(found[one.id].values - one.values).max() < 0.05 * spread


def test_a_stream_leaves_out_what_was_not_measured() -> None:
    stream = Stream("s", 128.0, 1, ABOUT)
    values = np.full((512, 1), np.nan, np.float32)
    values[500:] = 1.0
    done = stream.push(values, 0)
    assert [one.id for one in done.windows] == ["s@2s"]
    assert done.upto == 3


def test_a_chunk_that_skips_samples_is_refused() -> None:
    with pytest.raises(RefusedError, match="stands at sample 0"):
        Stream("s", 128.0, 1, ABOUT).push(np.zeros((4, 1), np.float32), 8)


def test_kill_9_under_load_loses_no_acknowledged_window(place: Path) -> None:
    token = place / "token"
    token.write_text(WRITE_TOKEN)
    draw, acknowledged = random.Random(0), list[int]()
    for kill in range(KILLS):
        with server_of(place, "--workers", "2", "--write-token-file", str(token)) as server:
            writers = [
                threading.Thread(target=write_until_refused, args=(server, 10_000 * kill + 1_000 * n, acknowledged))
                for n in range(3)
            ]
            for writer in writers:
                writer.start()
            before = len(acknowledged)
            while len(acknowledged) < before + 5:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.5))
            server.kill()
            for writer in writers:
                writer.join()
        with Gallery.open(place / "gallery") as gallery:
            missing = {f"new {n}" for n in acknowledged} - gallery.engine.known([f"new {n}" for n in acknowledged])
            assert not missing
    assert len(acknowledged) == len(set(acknowledged)) >= 5 * KILLS


def write_until_refused(server: Server, first: int, acknowledged: list[int]) -> None:
    with httpx.Client(base_url=server.url, headers=WRITER, timeout=30) as client:
        for n in range(first, first + 1_000):
            try:
                answer = client.post("/api/windows", json={"windows": [window(n)]})
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                acknowledged.append(n)


def test_sigterm_lets_requests_finish(place: Path) -> None:
    token = place / "token"
    token.write_text(WRITE_TOKEN)
    with server_of(place, "--write-token-file", str(token)) as server:
        answers: list[int] = []
        asked = threading.Barrier(9)

        def ask(n: int) -> None:
            with httpx.Client(base_url=server.url, headers=WRITER, timeout=60) as client:
                client.get("/health")
                short = {"record": "new", "values": [[m, -m] for m in range(64)]}
                body = {"windows": [{**short, "id": f"new {n} {m}"} for m in range(40)]}
                asked.wait()
                answers.append(client.post("/api/windows", json=body).status_code)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        asked.wait()
        while not answers:  # one is done, the others are under way
            time.sleep(0.001)
        server.send(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(60) == 0
    assert answers == [200] * 8
    with Gallery.open(place / "gallery", read_only=True) as gallery:
        assert gallery.count("record == 'new'") == 320


def test_a_gallery_that_is_optimised_can_be_searched(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    optimize = Gallery.optimize

    def slow(self: Gallery) -> None:
        begun.set()
        go_on.wait(30)
        optimize(self)

    monkeypatch.setattr(Gallery, "optimize", slow)
    assert client.post("/api/optimize", headers=WRITER).json() == {"status": "begun"}
    begun.wait(10)
    assert client.post("/api/optimize", headers=WRITER).json() == {"status": "under way"}
    assert client.get("/api/info").json()["optimizing"] is True
    assert client.post("/api/search", json={"query": {"id": "119@3s"}}).status_code == 200
    assert client.post("/api/windows", json={"windows": [window(1)]}, headers=WRITER).status_code == 200
    go_on.set()
    until = time.monotonic() + 20
    while client.get("/api/info").json()["optimizing"] and time.monotonic() < until:
        time.sleep(0.05)
    assert client.get("/api/info").json()["optimizing"] is False


def test_a_full_disk_is_no_fault_of_the_client(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Gallery, *given: object, **told: object) -> int:
        raise StorageError("gallery: the disk is full; free some space")

    monkeypatch.setattr(Gallery, "add", full)
    answer = client.post("/api/windows", json={"windows": [window(1)]}, headers=WRITER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "the log of the server says why" in answer.json()["detail"]
    assert "the disk is full" in caplog.text
