"""A searcher in a process of its own: in the server's, searches and requests would wait for each other's Python.

It ends when the server does, however that ends, because then its pipe is closed.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from geopatch.engines.place import Place
from geopatch.errors import GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.model.checkpoint import save_checkpoint
from geopatch.server.refusal import RefusedError, as_refusal, is_storage_failure, overloaded
from geopatch.server.searcher import Outcome, Question, Searcher
from geopatch.server.wire import receive, receive_answers, receive_questions, send, send_answers, send_questions

COMMAND = (sys.executable, "-c", "from geopatch.server.worker import main; main()")
END_S = 30.0
GARBAGE = 50_000  # a search makes thousands of small objects; the usual 700 would have the collector run all the time

log = logging.getLogger(__name__)


class Worker:
    """The process as the server sees it: started when it is first needed, and again when it was killed."""

    def __init__(self, place: Place, model: GeoPatch | None) -> None:
        self._place, self._model = os.fspath(place), model
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
                send(_into(process), self._told(Path(folder, "model")))
                receive(_out_of(process))
        except (OSError, EOFError):
            log.error("the search process did not start; it ended with code %s", _ended(process))
        else:
            self._process = process

    def answer(self, questions: Sequence[Question]) -> list[Outcome]:
        self.begin()
        if self._process is None:
            return [overloaded("searches cannot be answered now; the log of the server says why")] * len(questions)
        try:
            send_questions(_into(self._process), questions)
            return list(receive_answers(_out_of(self._process), len(questions)))
        except (OSError, EOFError):
            log.error("the search process ended with code %s; it is started again", _ended(self._process))
            return [overloaded("the search was interrupted; ask again in a moment")] * len(questions)

    def close(self) -> None:
        if self._process is not None:
            _ended(self._process)
            self._process = None

    def _told(self, folder: Path) -> dict[str, str | None]:
        if self._model is None:
            return {"place": self._place, "model": None}
        save_checkpoint(self._model.encoder_, self._model.card_, folder)
        return {"place": self._place, "model": str(folder), "device": self._model.device}


def _into(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdin is not None
    return process.stdin  # type: ignore[return-value]


def _out_of(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdout is not None
    return process.stdout  # type: ignore[return-value]


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has seen that nothing more will come."""
    with suppress(OSError):  # it may be gone before it has read all
        _into(process).close()
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        _out_of(process).close()


def main() -> None:
    """What the process does. Signals are for the server, which closes the pipe when all is answered."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # nobody is left to tell; buffers that cannot be written must not be tried again


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    from threadpoolctl import threadpool_limits

    told, _ = receive(questions)
    model = None if told["model"] is None else GeoPatch.load(told["model"], device=told["device"])
    with ExitStack() as stack:
        gallery = stack.enter_context(Gallery.open(told["place"], model=model, read_only=True))
        stack.enter_context(threadpool_limits(1))
        searcher, place = Searcher(gallery), gallery.info().place
        searcher.begin()
        collect_seldom()
        send(answers, {})
        while True:
            send_answers(answers, _answered(searcher, receive_questions(questions), place))


def _answered(searcher: Searcher, questions: Sequence[Question], place: str) -> list[bytes | RefusedError]:
    try:
        return [one if isinstance(one, bytes) else _refused(one, place) for one in searcher.answer(questions)]
    except Exception:  # it must outlive whatever happens; each asker gets to know
        log.exception("a batch of %d failed", len(questions))
        return [RefusedError(500, "the server failed; its log says why")] * len(questions)


def _refused(error: GeoPatchError, place: str) -> RefusedError:
    if is_storage_failure(error):
        log.error("the gallery failed", exc_info=error)
    return as_refusal(error, place)


def collect_seldom() -> None:
    """Libraries, model and gallery stay: the garbage collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
