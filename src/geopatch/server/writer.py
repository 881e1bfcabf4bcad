"""What changes the gallery: one change at a time, on a thread and a connection of its own beside the searches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from geopatch.engines.entry import Metadata
from geopatch.errors import GeoPatchError, SignalError
from geopatch.gallery import Gallery
from geopatch.server.batching import Batcher
from geopatch.server.ingest import Streams
from geopatch.server.metrics import Metrics
from geopatch.server.questions import ChunkIn
from geopatch.server.searcher import one_thread
from geopatch.server.settings import Limits
from geopatch.server.uploads import json_values
from geopatch.signal import Signal

Change = Callable[[], Any]
log = logging.getLogger(__name__)


class Writer:
    """When a call returns, its change is on disk."""

    def __init__(self, gallery: Gallery, limits: Limits, metrics: Metrics) -> None:
        self.gallery, self._metrics = gallery, metrics
        self.streams = Streams(gallery.about, limits.streams)
        self.optimizing = False
        self._turns: Batcher[Change, Any] = Batcher(
            [_OneByOne()], waiting=limits.writes_waiting, together=1, name="geopatch-writer"
        )

    async def add(self, signals: Sequence[Signal], metadata: Sequence[Metadata]) -> list[str]:
        await self._turns.ask(lambda: self._add(signals, metadata))
        return [signal.id for signal in signals]

    async def add_recording(self, signal: Signal, metadata: Metadata) -> int:
        def change() -> int:
            written = self.gallery.add_recording(signal, metadata=metadata, existing="replace")
            self._metrics.written(written)
            return written

        return int(await self._turns.ask(change))

    async def remove(self, ids: Sequence[str]) -> int:
        removed = int(await self._turns.ask(lambda: self.gallery.remove(ids, missing="ignore")))
        self._metrics.removed(removed)
        return removed

    async def push(self, chunk: ChunkIn) -> dict[str, Any]:
        answer: dict[str, Any] = await self._turns.ask(lambda: self._push(chunk))
        return answer

    async def end(self, stream: str) -> None:
        await self._turns.ask(lambda: self.streams.end(stream))

    def optimize(self) -> bool:
        """Begin to build the index anew; false where that is under way already. Searches and changes go on."""
        if self.optimizing:
            return False
        self.optimizing = True
        threading.Thread(target=self._optimize, name="geopatch-optimizer", daemon=True).start()
        return True

    def close(self) -> None:
        self._turns.close()
        self.gallery.close()

    def _add(self, signals: Sequence[Signal], metadata: Sequence[Metadata]) -> None:
        self._metrics.written(self.gallery.add(list(signals), metadata=list(metadata), existing="replace"))

    def _push(self, chunk: ChunkIn) -> dict[str, Any]:
        values = json_values(chunk.values)
        values = values[:, None] if values.ndim == 1 else values
        if not values.size or np.isinf(values).any():
            raise SignalError(f"stream {chunk.stream!r}: expected finite samples, null for gaps, got none or infinity")
        if chunk.channels and len(chunk.channels) != values.shape[1]:
            raise SignalError(f"stream {chunk.stream!r} has {values.shape[1]} channels, {len(chunk.channels)} names")
        stream = self.streams.get(chunk.stream, values, chunk.rate_hz, chunk.channels, chunk.offset or 0)
        cut = stream.push(values, chunk.offset)
        if cut.windows:
            self._add(cut.windows, [chunk.metadata] * len(cut.windows))
        stream.forget(cut)
        return {"received": stream.received, "safe": stream.safe, "ids": [window.id for window in cut.windows]}

    def _optimize(self) -> None:
        try:
            self.gallery.optimize()
        except GeoPatchError:
            log.exception("the gallery could not be optimised")
        finally:
            self.optimizing = False


class _OneByOne:
    def begin(self) -> None:
        one_thread()

    def answer(self, changes: Sequence[Change]) -> list[Any]:
        return [_outcome(change) for change in changes]


def _outcome(change: Change) -> Any:
    try:
        return change()
    except Exception as error:  # told to the one who asked for this change
        return error
