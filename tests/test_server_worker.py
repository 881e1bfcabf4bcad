"""Searches in a process of their own: the same answers, whatever ends the process or the server."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import make_place, server_of

from geopatch.errors import GalleryError, GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.search import Span
from geopatch.server import wire, worker
from geopatch.server.refusal import RefusedError
from geopatch.server.searcher import Question, Searcher, Wish
from geopatch.server.worker import Worker
from geopatch.signal import Signal

WISH = Wish(3, "cosine")


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
        wishes = (WISH, Wish(2, "dtw", where="beat == 'N'", certify=True, windows=True), Wish(4, explain=True))
        queries = ("119@3s", Span("208", 2.5, 4.25), window, "nowhere")
        questions = [Question(query, wish) for query in queries for wish in wishes]
        expected = Searcher(gallery).answer(questions)
    for outcome, alone in zip(running.answer(questions), expected, strict=True):
        if isinstance(alone, bytes):
            assert told(outcome) == told(alone)
        else:
            assert isinstance(outcome, RefusedError)
            assert (outcome.status, "has no entry 'nowhere'" in str(outcome)) == (404, True)


def test_what_is_written_is_found_by_the_next_search(running: Worker, place: Path) -> None:
    with Gallery.open(place / "gallery", model=GeoPatch.load(place / "model", device="cpu")) as gallery:
        window = gallery.get("119@3s").windows[0]
        assert window is not None
        question = Question(window, WISH)
        gallery.add([Signal(window.values, "twin", window.rate_hz)])
        assert "twin" in [hit["id"] for hit in told(running.answer([question])[0])["hits"]]
        gallery.remove("twin")
        assert "twin" not in [hit["id"] for hit in told(running.answer([question])[0])["hits"]]


def test_a_process_that_was_killed_is_started_again(running: Worker, monkeypatch: pytest.MonkeyPatch) -> None:

    def killed_under_way(pipe: BinaryIO, questions: Sequence[Question]) -> None:
        kill(running)
        wire.send_questions(pipe, questions)

    expected = told(running.answer([Question("119@3s", WISH)])[0])
    kill(running)  # while it has nothing to do: nobody notices
    assert told(running.answer([Question("119@3s", WISH)])[0]) == expected
    with monkeypatch.context() as change:
        change.setattr(worker, "send_questions", killed_under_way)
        outcome = running.answer([Question("119@3s", WISH)] * 2)
    assert [(one.status, one.headers) for one in outcome if isinstance(one, RefusedError)] == [
        (503, {"Retry-After": "1"})
    ] * 2
    assert told(running.answer([Question("119@3s", WISH)])[0]) == expected


def kill(running: Worker) -> None:
    assert running._process is not None
    running._process.kill()
    running._process.wait()


def test_a_process_that_does_not_start_is_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    lost = Worker(place / "nowhere", None)
    (outcome,) = lost.answer([Question("119@3s", WISH)])
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

        def answer(self, questions: Sequence[Question]) -> list[bytes | GeoPatchError]:
            raise RuntimeError("secret path /etc")

    (outcome,) = worker._answered(Broken(), [Question("a", WISH)], "")
    assert isinstance(outcome, RefusedError)
    assert (outcome.status, str(outcome)) == (500, "the server failed; its log says why")
    assert "secret path" in caplog.text


def test_where_the_gallery_lies_is_not_told() -> None:
    refusal = worker._refused(GalleryError("gallery /home/x/g has no entry 'a'"), "/home/x/g")
    assert (refusal.status, str(refusal)) == (404, "the gallery has no entry 'a'")


@given(
    st.lists(st.floats(width=32, allow_infinity=False), min_size=1, max_size=40).filter(
        lambda v: not np.isnan(v).all()
    ),
    st.text(min_size=1, max_size=20),
    st.sampled_from([None, "beat == 'V'", {"flag": True}, {"flag": 1}]),
)
def test_questions_arrive_as_they_were_sent(values: list[float], name: str, where: Any) -> None:
    signal = Signal(np.asarray(values, np.float32)[:, None], name, 128.0, ("a",), name, 1.5)
    sent = [Question(query, Wish(where=where, min_score=0.1)) for query in (signal, name, Span(name, 0.0, 1.5), signal)]
    pipe = io.BytesIO()
    wire.send_questions(pipe, sent)
    pipe.seek(0)
    for came, question in zip(wire.receive_questions(pipe), sent, strict=True):
        assert repr(came.wish) == repr(question.wish)  # as text, where 1 is not True
        if isinstance(question.query, Signal):
            assert isinstance(came.query, Signal)
            np.testing.assert_array_equal(came.query.values, signal.values)
            assert (came.query.id, came.query.rate_hz, came.query.channels) == (name, 128.0, ("a",))
            assert (came.query.record, came.query.start_s) == (name, 1.5)
        else:
            assert came.query == question.query


@given(st.lists(st.one_of(st.binary(max_size=50), st.text(max_size=20)), max_size=8), st.integers(1, 60))
def test_answers_arrive_as_they_were_sent(given_: list[bytes | str], parcel: int) -> None:
    sent = [one if isinstance(one, bytes) else RefusedError(422, one, {"Retry-After": "1"}) for one in given_]
    pipe, usual = io.BytesIO(), wire.PARCEL
    try:
        wire.PARCEL = parcel
        wire.send_answers(pipe, sent)
    finally:
        wire.PARCEL = usual
    pipe.seek(0)
    came = list(wire.receive_answers(pipe, len(sent)))
    assert [str(one) for one in came] == [str(one) for one in sent]
    assert not pipe.read()


def test_half_a_message_is_the_end() -> None:
    pipe = io.BytesIO()
    wire.send_questions(pipe, [Question("a", WISH)])
    for size in (0, 5, len(pipe.getvalue()) - 1):
        with pytest.raises(EOFError, match="the other side is gone"):
            wire.receive_questions(io.BytesIO(pipe.getvalue()[:size]))
