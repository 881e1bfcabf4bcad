"""Searches in a process of their own: the same answers, whatever ends the process or the server."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import make_place, server_of

from geopatch.errors import GeoPatchError, NotFoundError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.search import SearchOptions, Span
from geopatch.server import worker
from geopatch.server.refusal import RefusedError, as_refusal
from geopatch.server.searcher import Searcher, SearchRequest
from geopatch.server.worker import Worker
from geopatch.signal import Signal

OPTIONS = SearchOptions(k=3, scorer="cosine", windows=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def running(place: Path) -> Iterator[Worker]:
    found = Worker(place / "gallery", GeoPatch.load(place / "model", device="cpu"))
    found.begin()
    assert found.ready
    yield found
    found.close()
    assert not found.ready


def told(outcome: bytes | GeoPatchError) -> dict[str, Any]:
    assert isinstance(outcome, bytes), outcome
    found: dict[str, Any] = json.loads(outcome)
    return found


def test_a_process_answers_as_the_searcher_does(running: Worker, place: Path) -> None:
    model = GeoPatch.load(place / "model", device="cpu")
    with Gallery.open(place / "gallery", model=model, read_only=True) as gallery:
        window = gallery.get("119@3s").windows[0]
        assert window is not None
        dtw = SearchOptions(k=2, scorer="dtw", where="beat == 'N'", certify=True)
        queries = ("119@3s", Span("208", 2.5, 4.25), window, "nowhere")
        requests = [
            SearchRequest(query, options, explain=explain)
            for query in queries
            for options, explain in ((OPTIONS, False), (dtw, False), (SearchOptions(k=4), True))
        ]
        expected = Searcher(gallery).answer(requests)
    for outcome, alone in zip(running.answer(requests), expected, strict=True):
        if isinstance(alone, bytes):
            assert told(outcome) == told(alone)
        else:
            assert isinstance(outcome, RefusedError)
            assert (outcome.status, "has no entry 'nowhere'" in str(outcome)) == (404, True)


def test_what_is_written_is_found_by_the_next_search(running: Worker, place: Path) -> None:
    with Gallery.open(place / "gallery", model=GeoPatch.load(place / "model", device="cpu")) as gallery:
        window = gallery.get("119@3s").windows[0]
        assert window is not None
        request = SearchRequest(window, OPTIONS)
        gallery.add([Signal(window.values, "twin", window.rate_hz)])
        assert "twin" in [hit["id"] for hit in told(running.answer([request])[0])["hits"]]
        gallery.remove("twin")
        assert "twin" not in [hit["id"] for hit in told(running.answer([request])[0])["hits"]]


def test_a_process_that_was_killed_is_started_again(running: Worker, monkeypatch: pytest.MonkeyPatch) -> None:

    send = worker.send_requests

    def killed_under_way(pipe: BinaryIO, requests: Sequence[SearchRequest]) -> None:
        kill(running)
        send(pipe, requests)

    expected = told(running.answer([SearchRequest("119@3s", OPTIONS)])[0])
    kill(running)  # while it has nothing to do: nobody notices
    assert told(running.answer([SearchRequest("119@3s", OPTIONS)])[0]) == expected
    with monkeypatch.context() as change:
        change.setattr(worker, "send_requests", killed_under_way)
        outcome = running.answer([SearchRequest("119@3s", OPTIONS)] * 2)
    assert [(one.status, one.headers) for one in outcome if isinstance(one, RefusedError)] == [
        (503, {"Retry-After": "1"})
    ] * 2
    assert told(running.answer([SearchRequest("119@3s", OPTIONS)])[0]) == expected


def kill(running: Worker) -> None:
    assert running._process is not None
    running._process.kill()
    running._process.wait()


def test_a_process_that_does_not_start_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    lost = Worker(place / "nowhere", None)
    (outcome,) = lost.answer([SearchRequest("119@3s", OPTIONS)])
    assert isinstance(outcome, RefusedError)
    assert outcome.status == 503
    assert "did not start" in caplog.text
    lost.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_no_process_is_left_when_the_server_ends(place: Path, end: str) -> None:
    with server_of(place, "--workers", "1") as server:
        threads = Path(f"/proc/{server.process.pid}/task").iterdir()
        children = [Path("/proc", child) for thread in threads for child in (thread / "children").read_text().split()]
        assert len(children) == 1
        getattr(server, end)()
        until = time.monotonic() + 20
        while any(child.exists() and "(zombie)" not in (child / "status").read_text() for child in children):
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_failure_in_the_process_tells_no_details(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Searcher):
        def __init__(self) -> None:
            pass

        def answer(self, requests: Sequence[SearchRequest]) -> list[bytes | GeoPatchError]:
            raise RuntimeError("secret path /etc")

    (outcome,) = worker._outcomes(Broken(), [SearchRequest("a", OPTIONS)], "")
    assert isinstance(outcome, RefusedError)
    assert (outcome.status, str(outcome)) == (500, "the server failed; its log says why")
    assert "secret path" in caplog.text


def test_where_the_gallery_lies_is_not_told() -> None:
    refusal = as_refusal(NotFoundError("gallery /home/x/g has no entry 'a'"), "/home/x/g")
    assert (refusal.status, str(refusal)) == (404, "the gallery has no entry 'a'")


@given(
    st.lists(st.floats(width=32, allow_infinity=False), min_size=1, max_size=40).filter(
        lambda v: not np.isnan(v).all()
    ),
    st.text(min_size=1, max_size=20),
    st.sampled_from([None, "beat == 'V'", {"flag": True}, {"flag": 1}]),
)
def test_requests_arrive_as_they_were_sent(values: list[float], name: str, where: Any) -> None:
    bare = Signal(np.asarray(values, np.float32)[:, None], name, None, ("a",), name, 1.5)
    signal = replace(bare, rate_hz=128.0, anchors=np.asarray([-3.5, 0.0, 7.25]))
    options = SearchOptions(where=where, min_score=0.1, protocol="strict-cross-record")
    queries = (signal, name, Span(name, 0.0, 1.5), bare, signal)
    sent = [SearchRequest(query, options, explain=True, hit=name) for query in queries]
    pipe = io.BytesIO()
    worker.send_requests(pipe, sent)
    pipe.seek(0)
    for came, request in zip(worker.receive_requests(pipe), sent, strict=True):
        assert repr(came.options) == repr(request.options)  # as text, where 1 is not True
        assert (came.explain, came.hit) == (True, name)
        if isinstance(request.query, Signal):
            assert isinstance(came.query, Signal)
            np.testing.assert_array_equal(came.query.values, signal.values)
            assert (came.query.id, came.query.rate_hz, came.query.channels) == (name, request.query.rate_hz, ("a",))
            assert (came.query.record, came.query.start_s) == (name, 1.5)
            assert (came.query.anchors is None) == (request.query.anchors is None)
            if came.query.anchors is not None:
                np.testing.assert_array_equal(came.query.anchors, [-3.5, 0.0, 7.25])
        else:
            assert came.query == request.query


@given(st.lists(st.one_of(st.binary(max_size=50), st.text(max_size=20)), max_size=8), st.integers(1, 60))
def test_answers_arrive_as_they_were_sent(given_: list[bytes | str], parcel: int) -> None:
    sent = [one if isinstance(one, bytes) else RefusedError(422, one, {"Retry-After": "1"}) for one in given_]
    pipe, usual = io.BytesIO(), worker.PARCEL
    try:
        worker.PARCEL = parcel
        worker.send_answers(pipe, sent)
    finally:
        worker.PARCEL = usual
    pipe.seek(0)
    came = list(worker.receive_answers(pipe, len(sent)))
    assert [str(one) for one in came] == [str(one) for one in sent]
    assert not pipe.read()


def test_half_a_message_is_the_end() -> None:
    pipe = io.BytesIO()
    worker.send_requests(pipe, [SearchRequest("a", OPTIONS)])
    for size in (0, 5, len(pipe.getvalue()) - 1):
        with pytest.raises(EOFError, match="the other side is gone"):
            worker.receive_requests(io.BytesIO(pipe.getvalue()[:size]))
