"""What all requests share: the gallery, the queue of searches with the workers that answer it, writer and counters."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from geopatch.data.front_end import FrontEnd
from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.search.options import SearchOptions
from geopatch.search.query import Span
from geopatch.server.metrics import Metrics
from geopatch.server.records import RecordStore
from geopatch.server.refusal import RefusedError, overloaded
from geopatch.server.schema import ChunkIn
from geopatch.server.searcher import Searcher, SearchRequest
from geopatch.server.settings import Settings
from geopatch.server.watch_service import Json, StreamChunk, Values, WatchService
from geopatch.server.watch_store import WatchStore
from geopatch.server.worker import Worker
from geopatch.server.writer import Writer
from geopatch.signal import Signal

STREAMS_TOGETHER = 128  # whose samples are looked at together
LINGER_S = (
    0.02  # that samples of a stream wait for those of others: a batch costs as much as the windows of three chunks
)
MAX_READS = 2  # uploads that are parsed, and records that are joined, at the same time

Request = TypeVar("Request")
Answer = TypeVar("Answer")
RequestIn = TypeVar("RequestIn", contravariant=True)
AnswerOut = TypeVar("AnswerOut", covariant=True)

log = logging.getLogger(__name__)


class BatchWorker(Protocol[RequestIn, AnswerOut]):
    """Answers batches of requests, on a thread of its own."""

    def begin(self) -> None:
        """Get ready, where it is not; called before each batch."""

    def answer(self, requests: Sequence[RequestIn], /) -> Sequence[AnswerOut | BaseException]: ...


@dataclass
class _Waiting(Generic[Request, Answer]):
    request: Request
    future: Future[Answer] = field(default_factory=Future)


class Batcher(Generic[Request, Answer]):
    """Requests that arrive while all workers are busy form the next batch; first come, first served.

    Nobody waits for a batch to fill: a lone request is answered immediately, or after `linger_s` seconds, and the
    busier the server, the larger its batches. An answer may be an exception, which only its own request gets.
    """

    def __init__(
        self,
        workers: Sequence[BatchWorker[Request, Answer]],
        *,
        queue: int,
        batch_size: int,
        linger_s: float = 0.0,
        count: Callable[[int], None] = lambda batch_size: None,
    ) -> None:
        self._max_queue, self._batch_size, self._linger_s, self._count = queue, batch_size, linger_s, count
        self._queue: deque[_Waiting[Request, Answer]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(one,), name="geopatch-searcher", daemon=True) for one in workers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def submit(self, request: Request) -> Answer:
        """The answer, or 503 where too many wait already. A request whose client has gone is dropped."""
        with self._changed:
            if self._closed or len(self._queue) >= self._max_queue:
                raise overloaded()
            waiting: _Waiting[Request, Answer] = _Waiting(request)
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

    def _work(self, worker: BatchWorker[Request, Answer]) -> None:
        worker.begin()
        while batch := self._next():
            live = [one for one in batch if one.future.set_running_or_notify_cancel()]
            if live:
                self._answer(worker, live)
                worker.begin()

    def _next(self) -> list[_Waiting[Request, Answer]]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or self._closed)
            if self._linger_s:
                self._changed.wait_for(lambda: len(self._queue) >= self._batch_size or self._closed, self._linger_s)
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_size))]

    def _answer(self, worker: BatchWorker[Request, Answer], batch: Sequence[_Waiting[Request, Answer]]) -> None:
        self._count(len(batch))
        try:
            answers = worker.answer([one.request for one in batch])
        except BaseException as error:  # the worker must outlive whatever happens; each request gets the error
            log.exception("a batch of %d failed", len(batch))
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                one.future.set_exception(answer)
            else:
                one.future.set_result(answer)


class SearchService:
    """Opened when the server starts, closed when the last request is answered."""

    def __init__(
        self,
        gallery: Gallery,
        settings: Settings,
        writable: Gallery | None = None,
        searchers: Sequence[Searcher | Worker] = (),
    ) -> None:
        self.gallery, self.settings, self.limits = gallery, settings, settings.limits
        self.metrics = Metrics()
        self.records = RecordStore(gallery)
        self.place = gallery.info().place
        # How many the model takes, 0 without a model. A refit, on the gallery's own windows, does not change that.
        self.channels = 0 if gallery.model is None else int(gallery.model.encoder_.config.channels)
        self.front_end = FrontEnd.of(gallery.model) or FrontEnd()
        self.reading = asyncio.Semaphore(MAX_READS)
        self.surveying = asyncio.Semaphore(1)
        self._searchers = searchers or [Searcher(gallery)]
        self._batcher: Batcher[SearchRequest, bytes] = Batcher(
            self._searchers,
            queue=self.limits.search_queue,
            batch_size=self.limits.batch_size,
            count=self.metrics.searched,
        )
        self._writer = None if writable is None else Writer(writable, self.limits, self.metrics)
        path = self._watch_file() if self.writable else None
        self._watches = None if path is None else WatchService(gallery, WatchStore(path), self.limits, self.metrics)
        self._stream_batcher: Batcher[StreamChunk, Json] | None = (
            None
            if self._watches is None
            else Batcher(
                [self._watches],
                queue=self.limits.search_queue,
                batch_size=STREAMS_TOGETHER,
                linger_s=LINGER_S,
            )
        )
        self.metrics.watch("geopatch_searches_waiting", "Searches that wait.", lambda: self._batcher.waiting)
        self.metrics.watch("geopatch_windows", "Windows in the gallery.", lambda: self.gallery.info().windows)
        if gallery.info().shards:
            self.metrics.watch_shards(lambda: self.gallery.info().shards)

    @property
    def rate_hz(self) -> float | None:
        """What signals are brought to when they arrive; sound stays as it is until frames are made of it."""
        return None if self.front_end.audio is not None else self.gallery.about.rate_hz

    @property
    def ready(self) -> bool:
        """Whether a search would be answered."""
        return any(searcher.ready for searcher in self._searchers)

    @property
    def writable(self) -> bool:
        return self._writer is not None

    @property
    def optimizing(self) -> bool:
        return self._writer is not None and self._writer.optimizing

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            raise RefusedError(403, "this server writes nothing: it was started without --write-token-file")
        return self._writer

    @property
    def watches(self) -> WatchService:
        if self._watches is None:
            raise RefusedError(
                403,
                "this server watches no streams: start it with --write-token-file (and --watch-file, without a folder)",
            )
        return self._watches

    @property
    def watching(self) -> bool:
        """Whether there is a watch that samples of streams must be shown to."""
        return self._watches is not None and self._watches.watching

    async def watch(self, chunk: ChunkIn, values: Values) -> Json:
        """Show the next samples of a stream to the watches."""
        assert self._stream_batcher is not None
        names = tuple(chunk.channels)
        return await self._stream_batcher.submit(StreamChunk(chunk.stream, values, chunk.rate_hz, names, chunk.offset))

    async def end_stream(self, name: str) -> None:
        """End a stream: of the writer, and of the watches, for which what is pending is decided."""
        watched = self._watches is not None and self._watches.has_stream(name)
        if watched and self._stream_batcher is not None:
            await self._stream_batcher.submit(StreamChunk(name, np.zeros((0, 0), np.float32), None, (), None, end=True))
        if not watched or name in self.writer.streams:
            await self.writer.end(name)

    async def search(
        self, query: str | Span | Signal, options: SearchOptions, *, explain: bool = False, hit: str | None = None
    ) -> bytes:
        """The answer as JSON."""
        query = self.front_end.framed(query) if isinstance(query, Signal) else query
        self.check_query(query, options.ranking.name)
        return await self._batcher.submit(SearchRequest(query, options, explain, hit))

    def close(self) -> None:
        self._batcher.close()
        if self._stream_batcher is not None:
            self._stream_batcher.close()
        if self._watches is not None:
            self._watches.close()
        if self._writer is not None:
            self._writer.close()
        for searcher in self._searchers:
            searcher.close()
        self.gallery.close()

    def stop_following(self) -> None:
        """Let those who follow events go, so that the server can end."""
        if self._watches is not None:
            self._watches.end()

    def _watch_file(self) -> Path | None:
        folder = Path(self.place)
        return self.settings.watch_file or (folder / "watches.sqlite" if folder.is_dir() else None)

    def check_query(self, query: str | Span | Signal, scorer: str = "cosine") -> None:
        """Refuse what would keep all others waiting."""
        rate_hz = self.gallery.about.clock_hz
        samples = query.length if isinstance(query, Signal) else 0
        if isinstance(query, Span):
            samples = round(min(query.stop_s - query.start_s, 1e9) * rate_hz)
        most = self.limits.dtw_samples if scorer == "dtw" else self.limits.query_samples
        if samples > most:
            raise ConfigError(
                f"a query may have {most} samples, {most / rate_hz:g} s, with {scorer}; "
                f"got {samples / rate_hz:g} s: choose a shorter part"
            )
        if not isinstance(query, Signal) or not self.channels or query.values.shape[1] == self.channels:
            return
        if not query.channels or not self.gallery.about.channels:  # else the names say which of them are meant
            raise ConfigError(f"the gallery's model takes {self.channels} channels, got {query.values.shape[1]}")
