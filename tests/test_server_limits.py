"""What a stranger can do before any token is checked: headers, connections, guesses, proxies, unknown names."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serving import READER, TOKEN, WRITE_TOKEN, WRITER, client_of, limited_server, make_place, server_of
from starlette.testclient import TestClient

from geopatch.errors import (
    ConfigError,
    DataError,
    ExistsError,
    GalleryError,
    GeoPatchError,
    LockedError,
    MissingExtraError,
    NotFoundError,
    SignalError,
    StorageError,
)
from geopatch.server import Settings
from geopatch.server.connections import IDLE_S, max_connections
from geopatch.server.guard import FREE_FAILURES, MAX_ADDRESSES, MAX_WAIT_S, Throttle
from geopatch.server.metrics import Metrics
from geopatch.server.refusal import RefusedError, as_refusal
from geopatch.server.settings import Limits

WRONG = {"Authorization": "Bearer " + "x" * 20}
HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
PROXY_HEADERS = (
    "Forwarded",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Original-Forwarded-For",
    "X-Real-IP",
    "CF-Connecting-IP",
    "CF-Ray",
    "True-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "X-Azure-ClientIP",
    "X-Appengine-User-IP",
    "X-Envoy-External-Address",
    "X-ProxyUser-Ip",
    "X-Amzn-Trace-Id",
    "CDN-Loop",
    "Proxy-Connection",
)
BROWSER_HEADERS = {
    "Accept": "*/*",
    "Accept-Language": "en",
    "Cache-Control": "no-cache",
    "Cookie": "a=b",
    "DNT": "1",
    "Origin": "http://127.0.0.1",
    "Priority": "u=1",
    "Referer": "http://127.0.0.1/",
    "Sec-CH-UA-Platform": "Linux",
    "Sec-Fetch-Site": "same-origin",
    "Upgrade-Insecure-Requests": "1",
    "User-Agent": "Mozilla/5.0",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def closed_client(place: Path) -> Iterator[TestClient]:
    """Every request needs a token."""
    with client_of(place, Settings(token=TOKEN, write_token=WRITE_TOKEN)) as client:
        yield client


def received(wire: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    try:
        while part := wire.recv(4096):
            data += part
    except ConnectionError:
        pass
    return data


def send_endlessly(port: int, start: bytes, chunk: bytes, answers: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as wire:
        until = time.monotonic() + 4
        try:
            wire.sendall(start)
            while time.monotonic() < until:
                wire.sendall(chunk)
        except OSError:
            pass
        answers.append(received(wire))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_endless_headers_are_refused_in_bounded_memory(place: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with server_of(place, "--token-file", str(tmp_path / "token"), "--workers", "1") as server:
        before, answers = memory_mb(server.process.pid), list[bytes]()
        kinds = [
            (HEAD, b"X-Many: " + b"a" * 4000 + b"\r\n"),
            (HEAD + b"X-One: ", b"a" * 65_536),
            (b"GET /", b"a" * 65_536),
        ]
        threads = [
            threading.Thread(target=send_endlessly, args=(server.port, *kinds[n % 3], answers)) for n in range(6)
        ]
        for thread in threads:
            thread.start()
        peak = before
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, memory_mb(server.process.pid))
            time.sleep(0.1)
        assert [answer[:12] for answer in answers] == [b"HTTP/1.1 431"] * 6
        assert b"headers of a request may have 65536 bytes" in answers[0]
        assert peak - before < 60


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def test_large_headers_within_the_limit_are_read(place: Path) -> None:
    with limited_server(place) as (client, port):
        assert client.get("/health", headers={"X-Large": "a" * 60_000}).status_code == 200
        answer = client.get("/health", headers={"X-Large": "a" * 66_000})
        assert (answer.status_code, answer.headers["connection"]) == (431, "close")
        with socket.create_connection(("127.0.0.1", port), 5) as wire:  # the second request on one connection
            wire.sendall(HEAD + b"\r\n")
            assert b"200" in wire.recv(4096)
            wire.sendall(HEAD + b"X-Large: " + b"a" * 70_000 + b"\r\n\r\n")
            assert b"431" in received(wire)


def test_requests_in_one_piece_do_not_pile_up(place: Path) -> None:
    with limited_server(place) as (client, port), socket.create_connection(("127.0.0.1", port), 10) as wire:
        wire.sendall((HEAD + b"\r\n") * 5000)
        assert received(wire).count(b"HTTP/1.1 200") < 100
        assert client.get("/health").status_code == 200


def test_idle_connections_make_room_for_new_ones(place: Path) -> None:
    with limited_server(place, connections=16) as (client, port), ExitStack() as stack:
        wires = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(14)]
        time.sleep(IDLE_S + 0.3)
        for _ in range(10):
            fresh = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            fresh.sendall(HEAD + b"\r\n")
            assert b"200" in fresh.recv(4096)
        assert wires[0].recv(100) == b""  # the oldest went first
        wires[-1].sendall(HEAD + b"\r\n")
        assert b"200" in wires[-1].recv(4096)
        assert client.get("/health").status_code == 200


def test_connections_beyond_the_cap_are_refused(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with limited_server(place, connections=8) as (client, port), ExitStack() as stack:
        wires = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(12)]
        answers = [received(wire) for wire in wires[8:]]
        assert [answer[:12] for answer in answers] == [b"HTTP/1.1 503"] * 4
        assert all(b"retry-after: 1" in answer for answer in answers)
        for wire in wires[:8]:
            wire.sendall(HEAD + b"\r\n")
            assert b"200" in wire.recv(4096)
            wire.close()
        assert [record.message for record in caplog.records].count("8 connections are open; new ones are refused") == 1
        metrics = client.get("/metrics").text
    assert "geopatch_connections_refused_total 4.0" in metrics
    assert "geopatch_connections 1.0" in metrics


def test_the_cap_lies_below_the_limit_on_files() -> None:
    resource = pytest.importorskip("resource")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert max_connections(Limits(connections=10**9)) < files
    assert max_connections(Limits(connections=7)) == 7


def test_wrong_tokens_are_slowed_down_counted_and_logged(
    closed_client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "geopatch.server.guard"):
        answers = [closed_client.get("/api/info", headers=WRONG) for _ in range(FREE_FAILURES + 20)]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:FREE_FAILURES] == [401] * FREE_FAILURES
    assert 429 in statuses
    assert statuses.count(401) <= FREE_FAILURES + 3
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert "wrong tokens came from 127.0.0.1" in refused.json()["detail"]
    assert "wrong tokens since the last such line, the last one from 127.0.0.1" in caplog.text
    assert len(caplog.records) <= 3
    assert closed_client.get("/api/info").status_code == 401  # without a token nothing is guessed
    other = TestClient(closed_client.app, base_url="http://127.0.0.1", client=("192.0.2.9", 1))
    assert other.get("/api/info", headers=READER).status_code == 200
    text = other.get("/metrics", headers=READER).text
    assert f"geopatch_wrong_tokens_total {float(statuses.count(401))}" in text


def test_an_address_with_the_right_token_is_not_shut_out(closed_client: TestClient) -> None:
    assert closed_client.get("/api/info", headers=READER).status_code == 200
    for _ in range(FREE_FAILURES + 5):
        assert closed_client.get("/api/info", headers=WRONG).status_code == 401
    assert closed_client.get("/api/info", headers=READER).status_code == 200


def test_a_reader_who_tries_to_write_is_no_stranger(closed_client: TestClient) -> None:
    for _ in range(FREE_FAILURES + 5):
        assert closed_client.post("/api/optimize", headers=READER).status_code == 401
    assert closed_client.get("/api/info", headers=READER).status_code == 200


def test_the_wait_grows_and_the_table_does_not() -> None:
    now = [0.0]
    throttle = Throttle(Metrics(), clock=lambda: now[0])
    waits = []
    for _ in range(FREE_FAILURES + 9):
        throttle.check("192.0.2.1")
        throttle.failed("192.0.2.1")
        wait = throttle._attempts["192.0.2.1"].wait_until_s - now[0]
        waits.append(max(wait, 0.0))
        if wait > 0:
            with pytest.raises(RefusedError, match="try again in"):
                throttle.check("192.0.2.1")
            throttle.check("192.0.2.2")
        now[0] += max(wait, 0.0)
    assert waits[FREE_FAILURES - 1 :] == [1, 2, 4, 8, 16, 32, MAX_WAIT_S, MAX_WAIT_S, MAX_WAIT_S, MAX_WAIT_S]
    for n in range(3 * MAX_ADDRESSES):
        throttle.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(throttle) == MAX_ADDRESSES


def test_a_network_of_ipv6_counts_as_one_client() -> None:
    throttle = Throttle(Metrics(), clock=lambda: 0.0)
    for n in range(FREE_FAILURES):
        throttle.failed(f"2001:db8::{n:x}")
    with pytest.raises(RefusedError, match="wrong tokens"):
        throttle.check("2001:db8::ffff")
    throttle.check("2001:db9::1")


@pytest.mark.parametrize("name", PROXY_HEADERS)
def test_without_a_token_nothing_comes_through_a_proxy(place: Path, name: str) -> None:
    with client_of(place, Settings()) as client:
        for path in ("/api/info", "/health", "/"):
            assert client.get(path, headers={name: "127.0.0.1"}).status_code == 403, path
        assert client.get("/health", headers=BROWSER_HEADERS).status_code == 200


def test_with_a_token_a_proxy_may_stand_in_front(closed_client: TestClient) -> None:
    headers = {**READER, **dict.fromkeys(PROXY_HEADERS, "192.0.2.7")}
    assert closed_client.get("/api/info", headers=headers).status_code == 200


def test_every_route_refuses_unknown_query_parameters(closed_client: TestClient) -> None:
    paths = closed_client.get("/api/openapi.json", headers=WRITER).json()["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    for method, path in [*routes, ("get", "/"), ("get", "/api"), ("get", "/page/app.js"), ("get", "/api/openapi.json")]:
        answer = closed_client.request(method, f"{path}?bogus=1", headers=WRITER)
        assert answer.status_code == 422, path
        assert "unknown query parameter 'bogus'" in answer.json()["detail"]
    assert len(routes) == 26


@pytest.mark.parametrize("path", ["/api/search/file", "/api/read", "/api/windows/file", "/api/optimize"])
def test_unknown_form_fields_are_refused(closed_client: TestClient, path: str) -> None:
    sent = {"k": "1", **({"record": "new"} if "windows" in path else {})}
    files = None if path == "/api/optimize" else {"file": ("x.csv", b"1,2\n" * 256)}
    answer = closed_client.post(path, files=files, data=sent, headers=WRITER)
    assert (answer.status_code, "unknown form field 'k'" in answer.json()["detail"]) == (422, True)


def test_names_that_come_twice_are_refused(closed_client: TestClient) -> None:
    answer = closed_client.get("/api/records?limit=1&limit=2", headers=READER)
    assert (answer.status_code, "'limit' came more than once" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("x"), 404),
        (ExistsError("x"), 409),
        (LockedError("x"), 503),
        (StorageError("x"), 503),
        (ConfigError("the gallery has no entry"), 422),
        (SignalError("x"), 422),
        (DataError("has no window of"), 422),
        (GalleryError("the gallery has no entry 'a'"), 422),
        (MissingExtraError("soundfile", "serve", "reading sound"), 501),
        (RefusedError(415, "x"), 415),
    ],
)
def test_the_status_comes_from_the_class(error: GeoPatchError, status: int) -> None:
    refusal = as_refusal(error)
    assert refusal.status == status
    assert ("Retry-After" in refusal.headers) == (status == 503)


def test_what_the_storage_says_is_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refusal = as_refusal(StorageError("password=secret on db.example"), "")
    assert "secret" not in str(refusal)
    assert "secret" in caplog.text


def test_refusals_are_json_everywhere(closed_client: TestClient) -> None:
    answers: list[Any] = [closed_client.get("/nowhere"), closed_client.get("/api/info"), closed_client.put("/health")]
    for answer in answers:
        assert list(json.loads(answer.text)) == ["detail"]
