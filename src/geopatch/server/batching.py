"""Questions that wait together are answered together: a thread for each worker, a queue that does not grow."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from geopatch.server.refusal import overloaded

Question = TypeVar("Question")
Answer = TypeVar("Answer")

Asked = TypeVar("Asked", contravariant=True)
Given = TypeVar("Given", covariant=True)

log = logging.getLogger(__name__)


class Work(Protocol[Asked, Given]):
    """What answers, on a thread of its own."""

    def begin(self) -> None:
        """Called before each batch: get ready, where it is not."""

    def answer(self, questions: Sequence[Asked], /) -> Sequence[Given | BaseException]: ...


@dataclass
class _Waiting(Generic[Question, Answer]):
    question: Question
    future: Future[Answer] = field(default_factory=Future)


class Batcher(Generic[Question, Answer]):
    """While the workers answer, new questions gather; who is free takes all of them next, first come first served.

    Nobody waits for a batch to fill: a lone question is answered at once, and the busier the server, the larger its
    batches. An answer may be an exception, which only its own question gets.
    """

    def __init__(
        self,
        workers: Sequence[Work[Question, Answer]],
        *,
        waiting: int,
        together: int,
        counted: Callable[[int], None] = lambda together: None,
        name: str = "geopatch",
    ) -> None:
        self._most_waiting, self._together, self._counted = waiting, together, counted
        self._queue: deque[_Waiting[Question, Answer]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, args=(one,), name=name, daemon=True) for one in workers]
        for thread in self._threads:
            thread.start()

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
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, worker: Work[Question, Answer]) -> None:
        worker.begin()
        while batch := self._next():
            wanted = [one for one in batch if one.future.set_running_or_notify_cancel()]
            if wanted:
                self._answered(worker, wanted)
                worker.begin()

    def _next(self) -> list[_Waiting[Question, Answer]]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or self._closed)
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._together))]

    def _answered(self, worker: Work[Question, Answer], batch: Sequence[_Waiting[Question, Answer]]) -> None:
        self._counted(len(batch))
        try:
            answers = worker.answer([one.question for one in batch])
        except BaseException as error:  # the worker must outlive whatever happens; each asker gets the error
            log.exception("a batch of %d failed", len(batch))
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                one.future.set_exception(answer)
            else:
                one.future.set_result(answer)
