"""Watches of a server: streams that are looked at as they come, events that are kept before they are sent."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.search.query import Span
from geopatch.server.metrics import Metrics
from geopatch.server.refusal import RefusedError, overloaded
from geopatch.server.settings import Limits
from geopatch.server.watch_store import NewEvent, StreamState, WatchStore
from geopatch.server.webhooks import Webhooks
from geopatch.signal import Signal
from geopatch.watching import AlarmRate, Watch, Watcher
from geopatch.watching.watcher import Alarm

Json = dict[str, Any]
Values = npt.NDArray[np.float32]
CHECKPOINT_S = 1.0  # how often it is kept how far streams are safe

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StreamChunk:
    """Samples of a stream as they came."""

    stream: str
    values: Values
    rate_hz: float | None
    channels: tuple[str, ...]
    offset: int | None
    arrived: float = field(default_factory=time.perf_counter)
    end: bool = False


class WatchService:
    """Watches streams with the gallery's model. All that changes streams happens on one thread, `answer`."""

    def __init__(self, gallery: Gallery, store: WatchStore, limits: Limits, metrics: Metrics) -> None:
        self._gallery, self._store, self._limits, self._metrics = gallery, store, limits, metrics
        self._lock = threading.RLock()  # between the thread of streams and that which makes watches
        self._watcher: Watcher | None = None
        self._bodies = store.watches()
        self._states = store.streams()
        self._checkpoint_s = time.monotonic()
        self._blocks: dict[tuple[str, str], int] = {}  # by stream and watch, of the level that is kept
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.ended = False
        self.webhooks = Webhooks(store, self._addresses)
        metrics.watch("geopatch_watches", "Watches on streams.", lambda: len(self._bodies))
        metrics.watch("geopatch_watched_streams", "Streams under watch.", lambda: len(self._states))

    # ---- watches

    def create(self, query: str | Span | Signal, per_hour: float, where: Any, name: str, webhook: str | None) -> Json:
        """Make a watch; its threshold is set before it is kept."""
        if len(self._bodies) >= self._limits.watches:
            raise overloaded(f"{self._limits.watches} watches are there; remove one")
        watch = Watch.create(self._gallery, query, per_hour, where=where)
        id, signal = secrets.token_hex(8), watch.signal
        body = {
            "name": name,
            "record": signal.record,
            "start_s": signal.start_s,
            "stop_s": signal.start_s + signal.duration_s,
            "rate_hz": signal.rate_hz,
            "channels": list(signal.channels),
            "values": [list(signal.values.shape), base64.b64encode(signal.values.astype("<f4").tobytes()).decode()],
            "embedding": base64.b64encode(watch.embedding.astype("<f4").tobytes()).decode(),
            "encoder": watch.encoder,
            "rate": watch.rate.as_dict(),
            "prior": list(watch.prior),
            "threshold": watch.threshold,
            "false_alarms_per_hour": per_hour,
            "where": where,
            "webhook": webhook,
            "created": _now(),
        }
        with self._lock:
            self._store.put_watch(id, body)
            self._bodies[id] = body
            if self._watcher is not None:
                self._watcher.watches[id] = watch
        return self.describe(id)

    def remove(self, id: str) -> None:
        with self._lock:
            self._known(id)
            self._store.remove_watch(id)
            del self._bodies[id]
            if self._watcher is not None:
                self._watcher.watches.pop(id, None)
        self._notify()

    def describe(self, id: str) -> Json:
        body = self._known(id)
        shown = ("name", "record", "start_s", "stop_s", "false_alarms_per_hour", "webhook", "created", "threshold")
        return {
            "id": id,
            **{field: body.get(field) for field in shown},
            "set_on_hours": body["rate"]["hours"],
            "events": self._store.count(id),
        }

    def describe_all(self) -> list[Json]:
        return [self.describe(id) for id in [*self._bodies]]

    def _known(self, id: str) -> Json:
        if id not in self._bodies:
            raise RefusedError(404, f"no watch {id[:100]!r}; GET /api/watches lists them")
        return self._bodies[id]

    # ---- streams

    def streams(self) -> list[Json]:
        """Each stream and the sample that it is to be sent from, should it be interrupted."""
        with self._lock:
            return [
                {"stream": name, "safe": state.safe, "received": self._received(name), "rate_hz": state.rate_hz}
                for name, state in self._states.items()
            ]

    @property
    def watching(self) -> bool:
        """Whether samples of streams are looked at."""
        return bool(self._bodies) or bool(self._states)

    def has_stream(self, name: str) -> bool:
        return name in self._states

    def begin(self) -> None:
        """Nothing has to be ready before the first chunk."""

    def answer(self, chunks: Sequence[StreamChunk]) -> list[Json | BaseException]:
        """Take up chunks that came together: those of different streams are encoded together."""
        outcomes: dict[int, Json | BaseException] = {}
        waiting = list(enumerate(chunks))
        while waiting:  # a second chunk of a stream waits for the next round
            names = list(dict.fromkeys(chunk.stream for _, chunk in waiting))
            turn = [next(pair for pair in waiting if pair[1].stream == name) for name in names]
            waiting = [pair for pair in waiting if pair not in turn]
            outcomes.update(self._round(turn))
        return [outcomes[n] for n in range(len(chunks))]

    def _round(self, turn: Sequence[tuple[int, StreamChunk]]) -> dict[int, Json | BaseException]:
        outcomes: dict[int, Json | BaseException] = {}
        with self._lock:
            watcher, ready = self._ready(), list[tuple[int, StreamChunk, Values]]()
            for n, chunk in turn:
                try:
                    ready.append((n, chunk, self._fresh(watcher, chunk)))
                except GeoPatchError as error:
                    outcomes[n] = error
            try:
                alarms = watcher.push_many([(chunk.stream, values) for _, chunk, values in ready])
                ended = [watcher.end(chunk.stream) if chunk.end else [] for _, chunk, _ in ready]
                self._keep(ready, [one + more for one, more in zip(alarms, ended, strict=True)])
            except GeoPatchError as error:
                return {**outcomes, **{n: error for n, *_ in ready}}
            for n, chunk, _ in ready:
                outcomes[n] = {"received": self._received(chunk.stream), "safe": self._safe(chunk.stream)}
                if chunk.end:
                    self._states.pop(chunk.stream, None)
        return outcomes

    def _ready(self) -> Watcher:
        """The watcher with the gallery's present model; after a refit, watches are encoded and set anew."""
        encoder = self._gallery.refresh().encoder
        if self._watcher is None or any(one.encoder != encoder for one in self._watcher.watches.values()):
            model = self._gallery.model
            if model is None:
                raise RefusedError(422, "streams are watched with the gallery's model, and this gallery holds none")
            self._blocks.clear()
            self._watcher = Watcher(model, {id: self._loaded(body, encoder) for id, body in self._bodies.items()})
            for state in self._states.values():
                self._open(self._watcher, state)
        return self._watcher

    def _loaded(self, body: Json, encoder: str) -> Watch:
        shape, data = body["values"]
        values = np.frombuffer(base64.b64decode(data), dtype="<f4").reshape(shape)
        signal = Signal(
            values, "watch", body["rate_hz"], tuple(body["channels"]), body["record"], float(body["start_s"])
        )
        if body["encoder"] != encoder or "prior" not in body:  # without a prior: of an earlier version
            log.info("the gallery was refitted, or the watch is an old one: its threshold is set anew")
            return Watch.create(self._gallery, signal, body["false_alarms_per_hour"], where=body["where"])
        embedding = np.frombuffer(base64.b64decode(body["embedding"]), dtype="<f4")
        rate, prior = AlarmRate(**body["rate"]), tuple(body["prior"])
        return Watch(signal, embedding, encoder, rate, prior, body["false_alarms_per_hour"])

    def _open(self, watcher: Watcher, state: StreamState) -> None:
        matches, kept = self._store.last_matches(state.name, state.run), self._store.levels(state.name)
        encoders = {id: watch.encoder for id, watch in watcher.watches.items()}
        levels = {id: body for id, body in kept.items() if body["encoder"] == encoders.get(id)}
        place = (state.name, state.width, state.rate_hz, state.channels)
        watcher.open(*place, first=state.safe, last_matches=matches, levels=levels)

    def _new_levels(self, watcher: Watcher) -> dict[tuple[str, str], Json]:
        """Levels of streams that have moved on to another block since they were last kept."""
        fresh: dict[tuple[str, str], Json] = {}
        for name in self._states:
            for id, level in watcher.streams[name].levels.items() if name in watcher.streams else ():
                if id in watcher.watches and self._blocks.get((name, id)) != level.block:
                    self._blocks[name, id] = level.block
                    fresh[name, id] = {**level.as_dict(), "encoder": watcher.watches[id].encoder}
        return fresh

    def _fresh(self, watcher: Watcher, chunk: StreamChunk) -> Values:
        """The samples of a chunk that have not come yet; its stream is begun where it is new."""
        name, width = chunk.stream, chunk.values.shape[1]
        state = self._states.get(name)
        if chunk.end and state is not None:
            return np.zeros((0, state.width), dtype=np.float32)
        if state is None:
            if len(self._states) >= self._limits.streams:
                raise overloaded(f"{self._limits.streams} streams are running; end one, or come back later")
            rate_hz = float(chunk.rate_hz or self._gallery.about.clock_hz)
            opened = watcher.open(name, width, rate_hz, chunk.channels, first=chunk.offset or 0)
            first = opened.samples.first
            state = self._store.begin_stream(name, first, rate_hz, width, chunk.channels)
            self._states[name] = state
            if first < (chunk.offset or 0):  # taken up between two samples that both clocks have
                gap = np.full(((chunk.offset or 0) - first, width), np.nan, dtype=np.float32)
                return np.concatenate([gap, chunk.values])
        if (state.width, state.rate_hz) != (width, float(chunk.rate_hz or self._gallery.about.clock_hz)):
            raise RefusedError(409, f"stream {name!r} has {state.width} channels at {state.rate_hz:g} Hz; end it first")
        received = self._received(name)
        at = received if chunk.offset is None else chunk.offset
        if at > received:
            raise RefusedError(409, f"stream {name!r} stands at sample {received}, got one that starts at {at}")
        return chunk.values[received - at :]

    def _received(self, name: str) -> int:
        if self._watcher is not None and name in self._watcher.streams:
            return self._watcher.streams[name].samples.received
        return self._states[name].safe if name in self._states else 0

    def _safe(self, name: str) -> int:
        return self._states[name].safe if name in self._states else 0

    def _keep(self, ready: Sequence[tuple[int, StreamChunk, Values]], alarms: Sequence[list[Alarm]]) -> None:
        """Events are on disk before anybody is told of them."""
        arrived = {chunk.stream: chunk.arrived for _, chunk, _ in ready}
        events = [self._event(one, arrived[one.stream]) for several in alarms for one in several]
        due = time.monotonic() - self._checkpoint_s >= CHECKPOINT_S
        if events or due:
            written = self._write_checkpoint(events) if due else self._store.write(events)
            for _, body in written:
                self._metrics.event(body["latency_ms"] / 1e3)
            if written:
                self._notify()
        for _, chunk, _ in ready:
            if chunk.end:
                self._store.end_stream(chunk.stream)
                self._blocks = {place: block for place, block in self._blocks.items() if place[0] != chunk.stream}

    def _write_checkpoint(self, events: Sequence[NewEvent]) -> list[tuple[int, Json]]:
        """Events and how far all streams are safe; what is written in between is seen again, and kept once."""
        self._checkpoint_s = time.monotonic()
        assert self._watcher is not None
        safe = {name: self._watcher.safe(name) for name in self._states if name in self._watcher.streams}
        written = self._store.write(events, safe, self._new_levels(self._watcher))
        for name, at in safe.items():
            self._states[name] = replace(self._states[name], safe=at)
        return written

    def _event(self, alarm: Alarm, arrived: float) -> NewEvent:
        match = alarm.match
        body = {
            **alarm.as_dict(),
            "name": self._bodies[alarm.watch]["name"],
            "time": _now(),
            "latency_ms": (time.perf_counter() - arrived) * 1e3,
        }
        run = self._states[alarm.stream].run
        return NewEvent(alarm.watch, alarm.stream, run, match.start, match.stop, body)

    # ---- events

    def events(self, watch: str, after: int, limit: int) -> list[tuple[int, Json]]:
        self._known(watch)
        return self._store.events(watch, after, limit)

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be something new; clear it before looking."""
        listener = (asyncio.get_running_loop(), asyncio.Event())
        self._listeners.add(listener)
        try:
            yield listener[1]
        finally:
            self._listeners.discard(listener)

    def exists(self, watch: str) -> bool:
        return watch in self._bodies

    def end(self) -> None:
        """Let those who wait for events go: the server stops."""
        self.ended = True
        self._notify()

    def close(self) -> None:
        self.end()
        self.webhooks.close()
        self._store.close()

    def _notify(self) -> None:
        for loop, event in [*self._listeners]:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        self.webhooks.notify()

    def _addresses(self) -> dict[str, str]:
        return {id: body["webhook"] for id, body in [*self._bodies.items()] if body["webhook"]}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
