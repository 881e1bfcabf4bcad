"""Watches of a server: made, followed, posted and removed; nothing lost or doubled when it is killed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serving import WRITE_TOKEN, WRITER, client_of, server_of
from starlette.testclient import TestClient
from test_watching import LENGTH, noise, shape, stream_with

from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.server import Settings
from geopatch.server.watch_store import NewEvent, WatchStore
from geopatch.server.webhooks import check_webhook
from geopatch.signal import Signal

QUERY = {"query": {"record": "r0", "start_s": 1280, "stop_s": 1344}, "false_alarms_per_hour": 0.1, "name": "shape"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    model = GeoPatch.pretrained("general")
    model.save(tmp_path / "model")
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        for n in range(3):
            values = noise(draw, 64 * 120)
            if not n:
                values[1280 : 1280 + LENGTH] += shape()
            gallery.add_recording(Signal(values[:, None], f"r{n}"))
    return tmp_path


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place, Settings(write_token=WRITE_TOKEN)) as opened:
        yield opened


def send(client: Any, values: np.ndarray, at: int, stop: int, stream: str = "s", **more: Any) -> dict[str, Any]:
    chunk = {"stream": stream, "values": values[at:stop].tolist(), "offset": at, "store": False, **more}
    answer = client.post("/api/streams", json=chunk, headers=WRITER)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def events(client: Any, id: str, after: int = 0) -> list[dict[str, Any]]:
    headers = {"Last-Event-ID": str(after)}
    text = client.get(f"/api/watches/{id}/events", params={"wait_s": 0}, headers=headers).text
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_a_watch_reports_what_happens_again(client: TestClient) -> None:
    made = client.post("/api/watches", json=QUERY, headers=WRITER)
    assert made.status_code == 201, made.text
    watch = made.json()
    assert 0 < watch["threshold"] < 1
    assert (watch["name"], watch["events"]) == ("shape", 0)
    values = stream_with([700, 2000, 5003])
    for at in range(0, len(values), 500):
        answer = send(client, values, at, at + 500)
    assert answer["received"] == len(values)
    assert answer["safe"] <= len(values)
    rows = events(client, watch["id"])
    assert [round(row["start_s"] / 64) for row in rows] == [11, 31, 78]
    assert all(row["latency_ms"] > 0 and row["stream"] == "s" and row["watch"] == watch["id"] for row in rows)
    assert [row["id"] for row in rows] == sorted({row["id"] for row in rows})
    assert events(client, watch["id"], rows[1]["id"]) == rows[2:]
    assert client.get("/api/watches").json()["watches"][0]["events"] == 3
    assert client.get("/api/streams").json()["streams"][0]["stream"] == "s"
    assert len(client.get("/api/info").json()) > 5
    assert client.get("/api/records").json()["total"] == 3  # nothing was stored
    assert "geopatch_watch_latency_seconds_count 3.0" in client.get("/metrics").text
    assert client.request("DELETE", "/api/streams", json={"stream": "s"}, headers=WRITER).status_code == 200
    assert client.delete(f"/api/watches/{watch['id']}", headers=WRITER).json() == {"status": "removed"}
    assert client.get(f"/api/watches/{watch['id']}/events").status_code == 404


def test_a_watch_of_an_earlier_version_is_set_anew(place: Path) -> None:
    settings = Settings(write_token=WRITE_TOKEN)
    with client_of(place, settings) as client:
        id = client.post("/api/watches", json=QUERY, headers=WRITER).json()["id"]
    store = WatchStore(next(place.rglob("watches.sqlite")))
    body = store.watches()[id]
    store.put_watch(id, {name: value for name, value in body.items() if name not in ("prior", "threshold")})
    store.close()
    values = stream_with([700, 2000, 5003])
    with client_of(place, settings) as client:
        assert [watch["threshold"] for watch in client.get("/api/watches").json()["watches"]] == [None]
        send(client, values, 0, len(values))
        assert len(events(client, id)) == 3


def test_streams_that_are_stored_are_watched_too(client: TestClient) -> None:
    id = client.post("/api/watches", json=QUERY, headers=WRITER).json()["id"]
    values = stream_with([700], seconds=30)
    answer = send(client, values, 0, len(values), store=True)
    assert answer["ids"]
    assert len(events(client, id)) == 1
    gap = client.post(
        "/api/streams", json={"stream": "s", "values": [0.0], "offset": 10**6, "store": False}, headers=WRITER
    )
    assert (gap.status_code, "stands at sample 1920" in gap.json()["detail"]) == (409, True)


def test_watches_by_a_signal_and_by_a_file(client: TestClient) -> None:
    body = {"query": {"signal": {"values": shape().tolist()}}, "false_alarms_per_hour": 0.1}
    assert client.post("/api/watches", json=body, headers=WRITER).status_code == 201
    text = "\n".join(f"{value:.5f}" for value in shape())
    form = {"options": json.dumps({"name": "from a file", "false_alarms_per_hour": 0.1})}
    made = client.post("/api/watches/file", files={"file": ("q.csv", text)}, data=form, headers=WRITER)
    assert (made.status_code, made.json().get("name")) == (201, "from a file"), made.text


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"query": {"record": "nowhere", "start_s": 0, "stop_s": 9}}, "no window of record"),
        ({"query": {"record": "r0", "start_s": 0, "stop_s": 4}}, "8 samples or more"),
        ({"false_alarms_per_hour": 3000}, "must lie above 0 and within"),
        ({"webhook": "http://example.com/x"}, "--webhook-host example.com"),
        ({"webhook": "file:///etc/passwd"}, "expected a webhook"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_watch_that_cannot_be_is_refused(client: TestClient, change: dict[str, Any], line: str) -> None:
    answer = client.post("/api/watches", json={**QUERY, **change}, headers=WRITER)
    assert answer.status_code in (404, 422)
    assert line in answer.json()["detail"]


def test_making_a_watch_needs_the_write_token(client: TestClient) -> None:
    assert client.post("/api/watches", json=QUERY).status_code == 401
    assert client.get("/api/watches/none").status_code == 404


def test_webhooks_go_to_this_machine_or_to_hosts_that_were_named() -> None:
    assert check_webhook("http://127.0.0.1:9/x", ()) == "http://127.0.0.1:9/x"
    assert check_webhook("https://hooks.example.com/a?b=c", ("hooks.example.com",))
    for url in (
        "http://10.0.0.1/",
        "http://169.254.169.254/latest",
        "http://user:pw@localhost/",
        "http://localhost:x/",
    ):
        with pytest.raises(ConfigError):
            check_webhook(url, ("hooks.example.com",))


def test_events_that_overlap_are_kept_once_in_one_run_of_a_stream(tmp_path: Path) -> None:
    store = WatchStore(tmp_path / "watches.sqlite")
    first = store.begin_stream("s", 0, 64.0, 1, ())
    event = NewEvent("w", "s", first.run, 100, 164, {"x": 1})
    assert len(store.write([event], {"s": 50})) == 1
    assert store.write([NewEvent("w", "s", first.run, 108, 172, {"x": 2})], {}) == []
    assert len(store.write([NewEvent("other", "s", first.run, 100, 164, {"x": 3})], {})) == 1
    again = store.begin_stream("s", 0, 64.0, 1, ())
    assert again.run > first.run
    assert len(store.write([NewEvent("w", "s", again.run, 100, 164, {"x": 4})], {})) == 1
    store.close()
    reopened = WatchStore(tmp_path / "watches.sqlite")
    assert [body["x"] for _, body in reopened.events("w", 0, 10)] == [1, 4]
    assert reopened.last_matches("s", first.run) == {"w": 164, "other": 164}
    reopened.close()


class Hook(BaseHTTPRequestHandler):
    """Takes every second event at the first time, and remembers all that it took."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen: dict[int, int] = self.server.seen  # type: ignore[attr-defined]
        seen[body["id"]] = seen.get(body["id"], 0) + 1
        refused = body["id"] % 2 and seen[body["id"]] == 1
        self.send_response(503 if refused else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_webhook_gets_every_event_until_it_takes_it(client: TestClient) -> None:
    hook: Any = HTTPServer(("127.0.0.1", 0), Hook)
    hook.seen = {}
    thread = threading.Thread(target=hook.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{hook.server_address[1]}/events"
        id = client.post("/api/watches", json={**QUERY, "webhook": url}, headers=WRITER).json()["id"]
        values = stream_with([700, 2000])
        send(client, values, 0, len(values))
        numbers = [row["id"] for row in events(client, id)]
        assert len(numbers) == 2
        waiting = threading.Event()
        for _ in range(100):
            if set(hook.seen) == set(numbers) and all(hook.seen[n] == 1 + n % 2 for n in numbers):
                break
            waiting.wait(0.1)
        assert {n: hook.seen[n] for n in numbers} == {n: 1 + n % 2 for n in numbers}
    finally:
        hook.shutdown()
        hook.server_close()
        thread.join()


def test_nothing_is_lost_or_doubled_when_the_server_is_killed(place: Path) -> None:
    token = place / "token"
    token.write_text(WRITE_TOKEN)
    places = [300, 900, 1500, 2300, 3100, 4000, 5000, 6500]
    streams = {f"s{n}": stream_with([at + 40 * n for at in places], seed=20 + n) for n in range(2)}
    sent, id = dict.fromkeys(streams, 0), ""
    for last in (1000, 2340, 4030, 7680):  # each time a server is killed in the midst of things
        with server_of(place, "--write-token-file", str(token)) as server, httpx.Client(timeout=60) as http:
            http.base_url = httpx.URL(server.url)
            id = id or http.post("/api/watches", json=QUERY, headers=WRITER).json()["id"]
            known = {row["stream"]: row["safe"] for row in http.get("/api/streams").json()["streams"]}
            for name, values in streams.items():
                for at in range(known.get(name, 0), last, 130):
                    sent[name] = send(http, values, at, min(at + 130, last), name)["received"]
            server.kill()
    assert sent == {name: len(values) for name, values in streams.items()}
    with server_of(place, "--write-token-file", str(token)) as server, httpx.Client(timeout=60) as http:
        http.base_url = httpx.URL(server.url)
        for name in streams:
            http.request("DELETE", "/api/streams", json={"stream": name}, headers=WRITER)
        rows = events(http, id)
    for n, name in enumerate(streams):
        starts = sorted(row["grid_start_s"] for row in rows if row["stream"] == name)
        assert len(starts) == len(places)
        assert all(abs(start - at - 40 * n) <= LENGTH // 4 for start, at in zip(starts, places, strict=True))


def test_a_server_that_is_told_to_stop_lets_followers_go(place: Path) -> None:
    token = place / "token"
    token.write_text(WRITE_TOKEN)
    with server_of(place, "--write-token-file", str(token)) as server:
        id = httpx.post(f"{server.url}/api/watches", json=QUERY, headers=WRITER, timeout=120).json()["id"]
        with httpx.stream("GET", f"{server.url}/api/watches/{id}/events", timeout=120) as following:
            lines = following.iter_lines()
            assert next(lines) == "retry: 500"
            server.send(signal.SIGTERM)
            assert [line for line in lines if line.startswith("data")] == []  # ends long before its 50 seconds
        assert server.process.wait(40) == 0
