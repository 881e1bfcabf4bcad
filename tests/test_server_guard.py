"""Who may ask: tokens, addresses, sizes, times, and what every answer carries."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import READER, TOKEN, WRITE_TOKEN, WRITER, client_of, limited_server, make_place, server_of
from starlette.testclient import TestClient

from geopatch.cli import main
from geopatch.errors import ConfigError
from geopatch.server import Limits, Settings
from geopatch.server.guard import HEADERS, READING
from geopatch.server.refusal import RefusedError
from geopatch.server.service import Batcher
from geopatch.server.settings import is_loopback

SEARCH = {"query": {"id": "119@3s"}, "k": 2}
READS = ("/api/info", "/api/records", "/api/record?name=119", "/api/window?id=119@3s", "/metrics", "/api/openapi.json")
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/api/windows", {"windows": [{"id": "new", "values": [[1, 2]] * 256}]}),
    ("DELETE", "/api/windows", {"ids": ["119@3s"]}),
    ("POST", "/api/streams", {"stream": "s", "values": [[1, 2]] * 256}),
    ("DELETE", "/api/streams", {"stream": "s"}),
    ("POST", "/api/optimize", None),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def open_client(place: Path) -> Iterator[TestClient]:
    """Reading is open to this machine, writing needs its token."""
    with client_of(place) as found:
        yield found


@pytest.fixture
def closed_client(place: Path) -> Iterator[TestClient]:
    """Every request needs a token."""
    with client_of(place, Settings(token=TOKEN, write_token=WRITE_TOKEN)) as found:
        yield found


@pytest.mark.parametrize(
    "headers", [{}, READER, {"Authorization": f"Bearer {WRITE_TOKEN}x"}, {"Authorization": WRITE_TOKEN}]
)
@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=lambda part: str(part)[:20])
def test_without_the_write_token_nothing_is_written(
    open_client: TestClient, headers: dict[str, str], method: str, path: str, body: Any
) -> None:
    answer = open_client.request(method, path, json=body, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert open_client.get("/api/window?id=new").status_code == 404
    assert open_client.get("/api/window?id=119@3s").status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=lambda part: str(part)[:20])
def test_a_server_without_write_token_writes_nothing(place: Path, method: str, path: str, body: Any) -> None:
    with client_of(place, Settings()) as client:
        for headers in ({}, WRITER):
            assert client.request(method, path, json=body, headers=headers).status_code == 403


def test_every_route_that_writes_is_behind_the_write_token(open_client: TestClient) -> None:
    paths = open_client.get("/api/openapi.json").json()["paths"]
    changing = {path for path, methods in paths.items() for method in methods if method != "get"}
    writing = {path for path, methods in paths.items() for told in methods.values() if "write" in told["tags"]}
    assert changing - writing == set(READING)
    assert len(writing) == 7


def test_with_a_token_nothing_is_read_without_it(closed_client: TestClient) -> None:
    wrong = (f"Bearer {TOKEN[:-1]}", "Bearer ", "Basic x")
    for n, headers in enumerate(({}, *({"Authorization": text} for text in wrong))):
        stranger = TestClient(closed_client.app, base_url="http://127.0.0.1", client=(f"192.0.2.{n}", 1))
        for path in READS:
            assert stranger.get(path, headers=headers).status_code == 401, path
        for path in READING:
            assert stranger.post(path, json=SEARCH, headers=headers).status_code == 401, path
    for headers in (READER, WRITER):
        assert closed_client.get("/api/info", headers=headers).status_code == 200
        assert closed_client.post("/api/search", json=SEARCH, headers=headers).status_code == 200
    assert closed_client.post("/api/windows", json=WRITES[0][2], headers=READER).status_code == 401
    for path in ("/", "/health", "/ready", "/api", "/page/app.js"):  # nothing of the gallery is in these
        assert closed_client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("192.0.2.7", 1), {}),
        (("2001:db8::1", 1), {}),
        (("::ffff:192.0.2.7", 1), {}),
        (("127.0.0.1", 1), {"Host": "gallery.example"}),
        (("127.0.0.1", 1), {"Host": "127.0.0.1.gallery.example"}),
        (("127.0.0.1", 1), {"X-Forwarded-For": "127.0.0.1"}),
        (("127.0.0.1", 1), {"Forwarded": "for=127.0.0.1"}),
    ],
)
def test_from_elsewhere_nothing_is_read(place: Path, client: tuple[str, int], headers: dict[str, str]) -> None:
    with client_of(place) as inside:
        outside = TestClient(inside.app, base_url="http://127.0.0.1", client=client)
        for path in (*READS, "/", "/health"):
            assert outside.get(path, headers=headers).status_code == 403
        for path in READING:
            assert outside.post(path, json=SEARCH, headers=headers).status_code == 403
        assert outside.post("/api/windows", json=WRITES[0][2], headers={**headers, **WRITER}).status_code == 403


def test_a_page_of_another_site_may_not_ask(open_client: TestClient) -> None:
    answer = open_client.post("/api/search", json=SEARCH, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


def test_a_server_on_every_address_asks_for_its_token(place: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with server_of(place, "--token-file", str(tmp_path / "token"), host="0.0.0.0") as server:
        for address in {"127.0.0.1", *other_addresses()}:
            url = f"http://{address}:{server.port}"
            assert [httpx.get(f"{url}{path}").status_code for path in READS] == [401] * len(READS)
            assert httpx.post(f"{url}/api/search", json=SEARCH).status_code == 401
            assert httpx.post(f"{url}/api/search", json=SEARCH, headers=READER).status_code == 200
            assert httpx.post(f"{url}/api/windows", json=WRITES[0][2], headers=READER).status_code == 403
        assert server.stop() == 0


def test_a_server_on_loopback_does_not_listen_elsewhere(place: Path) -> None:
    with server_of(place) as server:
        for address in other_addresses():
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://{address}:{server.port}/health", timeout=5)


def other_addresses() -> set[str]:
    """Addresses of this machine besides loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # no packet is sent: this only asks which address would be used
        except OSError:
            return set()
        return {str(probe.getsockname()[0])} - {"127.0.0.1"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gallery.example"])
def test_other_addresses_need_a_token(host: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        Settings(host=host)
    with pytest.raises(SystemExit):
        main(["serve", str(place / "gallery"), "--host", host])
    assert "needs a token" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "ü" * 20, "a" * 20 + "\n"])
def test_weak_tokens_are_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 16 printable"):
        Settings(token=token)


def test_loopback_addresses() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "", "1"))


def test_every_answer_carries_security_headers(open_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [open_client.get(path) for path in ("/", "/api/info", "/nowhere", "/page/app.js", "/api/window?id=x")]
    answers.append(open_client.post("/api/windows", json={}))
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert open_client.get("/api/info").headers["cache-control"] == "no-store"


def test_large_bodies_are_refused(place: Path) -> None:
    limits = Limits(json_bytes=2_000, upload_bytes=10_000)
    with client_of(place, Settings(limits=limits)) as client:
        large = client.post("/api/search", json={"query": {"signal": {"values": [[0.1, 0.2]] * 500}}})
        assert (large.status_code, "may have 0.002 MB" in large.json()["detail"]) == (413, True)
        chunked = client.post("/api/search", content=iter([b'{"query": "'] + [b"x" * 900] * 4))
        assert chunked.status_code == 413
        upload = client.post("/api/read", files={"file": ("x.csv", b"1\n" * 6_000)})
        assert upload.status_code == 413
        assert client.post("/api/search", json=SEARCH).status_code == 200


def test_a_slow_body_is_refused(place: Path) -> None:
    with (
        limited_server(place, body_s=0.3) as (client, port),
        socket.create_connection(("127.0.0.1", port), 5) as wire,
    ):
        wire.sendall(b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        wire.settimeout(10)
        assert b"408" in wire.recv(100)
        assert client.get("/health").status_code == 200


def healthy(wire: socket.socket) -> bytes:
    """The answer to one request, its head and its body: they may come apart."""
    wire.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        part = wire.recv(2000)
        assert part, "hung up"
        answer += part
    return answer


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_who_does_not_ask_is_hung_up_on(place: Path, sent: bytes) -> None:
    with (
        limited_server(place, head_s=0.3) as (_, port),
        socket.create_connection(("127.0.0.1", port), 5) as wire,
        socket.create_connection(("127.0.0.1", port), 5) as other,
    ):
        assert b"200" in healthy(other)
        wire.sendall(sent)
        wire.settimeout(10)
        assert wire.recv(100) == b""
        assert b"200" in healthy(other)  # one who has asked may stay
        other.sendall(sent)  # but a later head has no more time than the first
        if sent:
            assert other.recv(100) == b""


class Ready:
    """A worker that needs no preparation."""

    def begin(self) -> None:
        pass


def test_overload_is_told_at_once_and_the_queue_does_not_grow() -> None:
    gate, sizes = threading.Event(), list[int]()

    class Doubling(Ready):
        def answer(self, requests: Sequence[int]) -> list[int]:
            sizes.append(len(requests))
            gate.wait(20)
            return [request * 2 for request in requests]

    async def ask() -> tuple[list[int], list[RefusedError]]:
        batcher: Batcher[int, int] = Batcher([Doubling()], queue=10, batch_size=4)
        first = asyncio.create_task(batcher.submit(0))
        while not sizes:
            await asyncio.sleep(0.01)
        asked = [asyncio.create_task(batcher.submit(n)) for n in range(1, 16)]
        await asyncio.sleep(0.05)
        assert batcher.waiting == 10
        gate.set()
        found = await asyncio.gather(first, *asked, return_exceptions=True)
        await asyncio.to_thread(batcher.close)
        return [one for one in found if isinstance(one, int)], [one for one in found if isinstance(one, RefusedError)]

    answers, refusals = asyncio.run(ask())
    assert answers == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]  # first come, first served
    assert sizes == [1, 4, 4, 2]
    assert [(one.status, one.headers) for one in refusals] == [(503, {"Retry-After": "1"})] * 5


def test_one_who_went_away_is_not_answered() -> None:
    gate, seen = threading.Event(), list[int]()

    class Seeing(Ready):
        def answer(self, requests: Sequence[int]) -> list[int]:
            gate.wait(20)
            seen.extend(requests)
            return list(requests)

    async def ask() -> None:
        batcher: Batcher[int, int] = Batcher([Seeing()], queue=10, batch_size=1)
        tasks = [asyncio.create_task(batcher.submit(n)) for n in range(4)]
        await asyncio.sleep(0.05)
        tasks[2].cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(batcher.close)

    asyncio.run(ask())
    assert seen == [0, 1, 3]


def test_overload_of_a_server_is_503_with_retry_after(place: Path) -> None:
    with client_of(place, Settings(limits=Limits(requests=0))) as client:
        answer = client.get("/api/info")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_two_workers_answer_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)

    class Meeting(Ready):
        def answer(self, requests: Sequence[int]) -> list[int]:
            both.wait()  # broken, and so an error, where the other does not come
            return list(requests)

    async def ask() -> list[int]:
        batcher: Batcher[int, int] = Batcher([Meeting(), Meeting()], queue=10, batch_size=1)
        found = await asyncio.gather(*(batcher.submit(n) for n in range(4)))
        await asyncio.to_thread(batcher.close)
        return found

    assert asyncio.run(ask()) == [0, 1, 2, 3]
