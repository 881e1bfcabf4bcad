"""What all requests share: the gallery with its searcher, its writer and its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.search.query import Span
from geopatch.server.batching import Batcher
from geopatch.server.metrics import Metrics
from geopatch.server.questions import OptionsIn
from geopatch.server.records import RecordStore
from geopatch.server.refusal import RefusedError
from geopatch.server.searcher import Question, Searcher
from geopatch.server.settings import Settings
from geopatch.server.worker import Worker
from geopatch.server.writer import Writer
from geopatch.signal import Signal

READ_AT_ONCE = 2  # uploads that are parsed, and records put together, at the same time


class Desk:
    """Opened when the server starts, closed when the last request is answered."""

    def __init__(
        self,
        gallery: Gallery,
        settings: Settings,
        writing: Gallery | None = None,
        searchers: Sequence[Searcher | Worker] = (),
    ) -> None:
        self.gallery, self.settings, self.limits = gallery, settings, settings.limits
        self.metrics = Metrics()
        self.shelf = RecordStore(gallery)
        self.place = gallery.info().place
        self.reading = asyncio.Semaphore(READ_AT_ONCE)
        self._searchers = searchers or [Searcher(gallery)]
        self._turns: Batcher[Question, bytes] = Batcher(
            self._searchers,
            waiting=self.limits.waiting,
            together=self.limits.together,
            counted=self.metrics.searched,
            name="geopatch-searcher",
        )
        self.writer = None if writing is None else Writer(writing, self.limits, self.metrics)
        self.metrics.watch("geopatch_searches_waiting", "Searches that wait.", lambda: self._turns.waiting)
        self.metrics.watch("geopatch_windows", "Windows in the gallery.", lambda: len(self.gallery))

    @property
    def ready(self) -> bool:
        return any(searcher.ready for searcher in self._searchers)

    @property
    def writes(self) -> Writer:
        if self.writer is None:
            raise RefusedError(403, "this server writes nothing: it was started without --write-token-file")
        return self.writer

    async def search(self, asked: OptionsIn, query: str | Span | Signal) -> bytes:
        self._check(asked, query)
        return await self._turns.ask(Question(query, asked.wish(self.limits)))

    def close(self) -> None:
        self._turns.close()
        if self.writer is not None:
            self.writer.close()
        for searcher in self._searchers:
            searcher.close()
        self.gallery.close()

    @property
    def channels(self) -> int:
        """Of the signals that the model takes; 0 without a model."""
        return 0 if self.gallery.model is None else int(self.gallery.model.encoder_.config.channels)

    def _check(self, asked: OptionsIn, query: str | Span | Signal) -> None:
        """What would keep all others waiting."""
        rate_hz = self.gallery.about.clock_hz
        samples = query.length if isinstance(query, Signal) else 0
        if isinstance(query, Span):
            samples = round(min(query.stop_s - query.start_s, 1e9) * rate_hz)
        most = self.limits.dtw_samples if asked.scorer == "dtw" else self.limits.query_samples
        if samples > most:
            raise ConfigError(
                f"a query may have {most} samples, {most / rate_hz:g} s, with {asked.scorer}; "
                f"got {samples / rate_hz:g} s: choose a shorter part"
            )
        if isinstance(query, Signal) and self.channels and query.values.shape[1] != self.channels:
            raise ConfigError(f"the gallery's model takes {self.channels} channels, got {query.values.shape[1]}")
