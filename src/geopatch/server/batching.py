"""Questions that wait together are answered together: one worker thread, a queue that does not grow."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from geopatch.server.refusal import overloaded

Question = TypeVar("Question")
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)


@dataclass
class _Waiting(Generic[Question, Answer]):
    question: Question
    future: Future[Answer] = field(default_factory=Future)


class Batcher(Generic[Question, Answer]):
    """While the worker answers, new questions gather; it takes all of them next, first come first served.

    Nobody waits for a batch to fill: a lone question is answered at once, and the busier the server, the larger its
    batches. An answer may be an exception, which only its own question gets.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], Sequence[Answer | BaseException]],
        *,
        waiting: int,
        together: int,
        begin: Callable[[], None] = lambda: None,
        name: str = "geopatch",
    ) -> None:
        self._answer, self._begin = answer, begin
        self._most_waiting, self._together = waiting, together
        self._queue: deque[_Waiting[Question, Answer]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def ask(self, question: Question) -> Answer:
        """The answer, or a refusal at once where too many wait already. One who goes away is not answered."""
        with self._changed:
            if self._closed or len(self._queue) >= self._most_waiting:
                raise overloaded()
            waiting: _Waiting[Question, Answer] = _Waiting(question)
            self._queue.append(waiting)
            self._changed.notify()
        return await asyncio.wrap_future(waiting.future)

    def close(self) -> None:
        """Answer what is waiting, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        self._begin()
        while batch := self._next():
            wanted = [one for one in batch if one.future.set_running_or_notify_cancel()]
            if wanted:
                self._answered(wanted)

    def _next(self) -> list[_Waiting[Question, Answer]]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or self._closed)
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._together))]

    def _answered(self, batch: Sequence[_Waiting[Question, Answer]]) -> None:
        try:
            answers = self._answer([one.question for one in batch])
        except BaseException as error:  # the worker must outlive whatever happens; each asker gets the error
            log.exception("a batch of %d failed", len(batch))
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                one.future.set_exception(answer)
            else:
                one.future.set_result(answer)
