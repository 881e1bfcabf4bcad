"""A searcher in a process of its own: in the server's, searches and requests would wait for each other's Python.

It ends when the server does, however that ends, because then its pipe is closed. Messages are a head of JSON and the
plain bytes that it describes, on stdin and stdout.

Why no library: `concurrent.futures.ProcessPoolExecutor` and `multiprocessing.Process` pickle what they send, which
nothing here does, though it would be quicker: 1.3 to 8 ms against 8 to 12 ms for 16 queries of two leads there and 16
answers back, medians on a busy machine, and 0.03 instead of 0.12 ms of CPU time a query, of the 2 to 7 ms that a search
takes. `multiprocessing.connection` with `send_bytes` took as long as these pipes and would save twelve lines.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np

from geopatch.engines.place import Place
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.model.checkpoint import save_checkpoint
from geopatch.search.options import SearchOptions
from geopatch.search.query import Span
from geopatch.server.refusal import FAILED, RefusedError, as_refusal, overloaded
from geopatch.server.searcher import Outcome, Searcher, SearchRequest
from geopatch.signal import Signal

Json = dict[str, Any]
COMMAND = (sys.executable, "-c", "from geopatch.server.worker import main; main()")
END_S = 30.0
GC_THRESHOLD = 50_000  # a search makes thousands of small objects; with the default of 700 the collector never rests
SIZES = struct.Struct("<QQ")  # of the head, of the bytes after it
PARCEL = 1 << 20  # answers of about so many bytes are sent together

log = logging.getLogger(__name__)


class Worker:
    """The process as the server sees it: started when it is first needed, and again when it was killed."""

    def __init__(self, place: Place, model: GeoPatch | None, *, device: str = "auto") -> None:
        self._place, self._model = os.fspath(place), model
        self._device = device if model is None else model.device
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Start it, where it is not running, and wait until the gallery is in its memory."""
        if self.ready:
            return
        self.close()
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        try:
            with TemporaryDirectory(prefix="geopatch-") as folder:
                send(_stdin(process), self._setup(Path(folder, "model")))
                receive(_stdout(process))
        except (OSError, EOFError):
            log.error("the search process did not start; it ended with code %s", _exit_code(process))
        else:
            self._process = process

    def answer(self, requests: Sequence[SearchRequest]) -> list[Outcome]:
        self.begin()
        if self._process is None:
            return [overloaded("searches cannot be answered now; the log of the server says why")] * len(requests)
        try:
            send_requests(_stdin(self._process), requests)
            return list(receive_answers(_stdout(self._process), len(requests)))
        except (OSError, EOFError):
            log.error("the search process ended with code %s; it is started again", _exit_code(self._process))
            return [overloaded("the search was interrupted; try again in a moment")] * len(requests)

    def close(self) -> None:
        if self._process is not None:
            _exit_code(self._process)
            self._process = None

    def _setup(self, folder: Path) -> dict[str, str | None]:
        if self._model is not None:
            save_checkpoint(self._model.encoder_, self._model.card_, folder)
        return {
            "place": self._place,
            "model": None if self._model is None else str(folder),
            "device": self._device,
        }


def _stdin(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdin is not None
    return process.stdin  # type: ignore[return-value]


def _stdout(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdout is not None
    return process.stdout  # type: ignore[return-value]


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has seen that nothing more will come."""
    with suppress(OSError):  # it may be gone before it has read all
        _stdin(process).close()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        _stdout(process).close()


def main() -> None:
    """What the process does. Signals are for the server, which closes the pipe when all is answered."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the server is gone; buffers that cannot be written must not be tried again


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from threadpoolctl import threadpool_limits

    setup, _ = receive(requests)
    with ExitStack() as stack:
        gallery = stack.enter_context(_opened(**setup))
        stack.enter_context(threadpool_limits(1))
        searcher, place = Searcher(gallery), gallery.info().place
        searcher.begin()
        collect_rarely()
        send(answers, {})
        while True:
            send_answers(answers, _outcomes(searcher, receive_requests(requests), place))


def _opened(place: str, model: str | None, device: str) -> Gallery:
    """The gallery with the model that it holds: it may have been refitted since the server was started with another."""
    gallery = Gallery.open(place, read_only=True, device=device)
    if gallery.model is not None or model is None:
        return gallery
    gallery.close()
    return Gallery.open(place, model=GeoPatch.load(model, device=device), read_only=True, device=device)


def _outcomes(searcher: Searcher, requests: Sequence[SearchRequest], place: str) -> list[bytes | RefusedError]:
    try:
        return [one if isinstance(one, bytes) else as_refusal(one, place) for one in searcher.answer(requests)]
    except Exception:  # the process must outlive whatever happens; each request gets an answer
        log.exception("a batch of %d failed", len(requests))
        return [RefusedError(500, FAILED)] * len(requests)


def collect_rarely() -> None:
    """Take libraries, model and gallery, which stay, out of the garbage collector's rounds, and make these rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def send(pipe: BinaryIO, head: Json, parts: Sequence[bytes] = ()) -> None:
    text = json.dumps(head).encode()
    pipe.write(b"".join([SIZES.pack(len(text), sum(map(len, parts))), text, *parts]))
    pipe.flush()


def receive(pipe: BinaryIO) -> tuple[Json, memoryview]:
    """EOFError where the other side is gone."""
    head_size, size = SIZES.unpack(_exactly(pipe, SIZES.size))
    head: Json = json.loads(_exactly(pipe, head_size))
    return head, memoryview(_exactly(pipe, size))


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("the other side is gone")
    return data


def send_requests(pipe: BinaryIO, requests: Sequence[SearchRequest]) -> None:
    arrays = [part for request in requests for part in _arrays(request.query)]
    send(pipe, {"requests": [_request_out(request) for request in requests]}, arrays)


def receive_requests(pipe: BinaryIO) -> list[SearchRequest]:
    head, data = receive(pipe)
    requests = []
    for sent in head["requests"]:
        query, data = _query_in(sent["query"], data)
        requests.append(SearchRequest(query, SearchOptions(**sent["options"]), sent["explain"], sent["hit"]))
    return requests


def _request_out(request: SearchRequest) -> Json:
    """Options that came as JSON are JSON again: filter and protocol are still text."""
    options = {item.name: getattr(request.options, item.name) for item in fields(SearchOptions)}
    return {"query": _query_out(request.query), "options": options, "explain": request.explain, "hit": request.hit}


def _arrays(query: str | Span | Signal) -> list[bytes]:
    if not isinstance(query, Signal):
        return []
    return [query.values.tobytes(), b"" if query.anchors is None else query.anchors.tobytes()]


def _query_out(query: str | Span | Signal) -> Json:
    if isinstance(query, str):
        return {"id": query}
    if isinstance(query, Span):
        return {"span": [query.record, query.start_s, query.stop_s]}
    anchors = None if query.anchors is None else len(query.anchors)
    names = [query.id, query.rate_hz, query.channels, query.record, query.start_s]
    return {"signal": names, "shape": query.values.shape, "anchors": anchors}


def _query_in(head: Json, data: memoryview) -> tuple[str | Span | Signal, memoryview]:
    """The query, and the bytes after its own."""
    if "id" in head:
        return str(head["id"]), data
    if "span" in head:
        return Span(*head["span"]), data
    id, rate_hz, channels, record, start_s = head["signal"]
    size, marks = 4 * head["shape"][0] * head["shape"][1], 8 * (head["anchors"] or 0)
    values = np.frombuffer(data[:size], dtype=np.float32).reshape(head["shape"])
    anchors = None if head["anchors"] is None else np.frombuffer(data[size : size + marks], dtype=np.float64)
    return Signal(values, id, rate_hz, tuple(channels), record, start_s, anchors), data[size + marks :]


def send_answers(pipe: BinaryIO, outcomes: Iterable[bytes | RefusedError]) -> None:
    """Large ones in several parcels: they need not be in memory together."""
    heads: list[Json] = []
    parts: list[bytes] = []
    for outcome in outcomes:
        body = outcome if isinstance(outcome, bytes) else str(outcome).encode()
        refusal = {} if isinstance(outcome, bytes) else {"status": outcome.status, "headers": outcome.headers}
        heads.append({"size": len(body), **refusal})
        parts.append(body)
        if sum(map(len, parts)) > PARCEL:
            send(pipe, {"answers": heads}, parts)
            heads, parts = [], []
    if heads:
        send(pipe, {"answers": heads}, parts)


def receive_answers(pipe: BinaryIO, count: int) -> Iterator[Outcome]:
    while count > 0:
        head, data = receive(pipe)
        for one in head["answers"]:
            body, data = bytes(data[: one["size"]]), data[one["size"] :]
            yield RefusedError(one["status"], body.decode(), one["headers"]) if "status" in one else body
        count -= len(head["answers"])
