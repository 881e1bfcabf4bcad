"""The requests about watches: make and remove them, and follow their events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Form, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field, FiniteFloat, ValidationError
from pydantic_core import to_json

from geopatch.errors import ConfigError
from geopatch.search.query import Span
from geopatch.server.answers import REFUSALS, StateOut
from geopatch.server.routes import Files, Rate, Seconds, part_of, service_of, uploaded
from geopatch.server.schema import QueryIn, Strict, StrictRoute, Text, at_rate, check_filter
from geopatch.server.service import SearchService
from geopatch.server.watch_service import WatchService
from geopatch.server.webhooks import check_webhook
from geopatch.signal import Signal

watching = APIRouter(prefix="/api", tags=["watch"], responses=REFUSALS, route_class=StrictRoute)
Id = Annotated[str, Path(min_length=1, max_length=100)]
PAGE = 200  # events read together
HEARTBEAT_S, RETRY_MS = 10.0, 500
MAX_FOLLOW_S = 50.0  # below the limit of an answer: who follows comes back by itself


class WatchOptionsIn(Strict):
    """How to watch, without the query."""

    false_alarms_per_hour: FiniteFloat = Field(1.0, gt=0, le=3600, description="on signal without the pattern")
    name: str = Field("", max_length=200, description="what to call it")
    webhook: Text | None = Field(None, description="where events are posted to: this machine, or an allowed host")
    where: str | dict[str, Any] | None = Field(
        None, description="only stored windows that pass are what the threshold is set on"
    )


class WatchIn(WatchOptionsIn):
    """What to watch streams for."""

    query: QueryIn


class WatchOut(BaseModel):
    """A watch: `threshold` is the score from which on something is an event, set on so many hours of stored signal."""

    id: str
    name: str
    record: str
    start_s: float
    stop_s: float
    false_alarms_per_hour: float
    webhook: str | None
    created: str
    threshold: float
    set_on_hours: float
    events: int


class WatchesOut(BaseModel):
    watches: list[WatchOut]


class WatchedStreamOut(BaseModel):
    """A stream under watch: after an interruption, send it again from `safe`."""

    stream: str
    safe: int
    received: int
    rate_hz: float


class WatchedStreamsOut(BaseModel):
    streams: list[WatchedStreamOut]


@watching.post("/watches", response_model=WatchOut, status_code=201, tags=["write"])
async def create(request: Request, body: WatchIn) -> Any:
    """Watch all streams for a stored window, a part of a stored record, or a signal.

    The threshold is set so that signal of the gallery without the query's own record passes it as often as is
    tolerated, which takes some seconds. Events are followed at `/api/watches/ID/events`, or posted to `webhook`.
    """
    service = service_of(request)
    return await _create(service, body.query.as_query(service.limits, service.rate_hz), body)


@watching.post("/watches/file", response_model=WatchOut, status_code=201, tags=["write"])
async def create_from_file(
    request: Request,
    file: Files,
    options: Annotated[str, Form(description="the options of /api/watches as a JSON object, without `query`")] = "{}",
    rate_hz: Rate = None,
    start_s: Seconds = None,
    stop_s: Seconds = None,
) -> Any:
    """Watch all streams for the signal of a file, or for a part of it."""
    service = service_of(request)
    try:
        wanted = WatchOptionsIn.model_validate_json(options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"options: {'.'.join(map(str, first['loc']))} {first['msg']}") from error
    signal = at_rate(await uploaded(service, file, rate_hz), service.gallery.about.rate_hz)
    return await _create(service, part_of(signal, start_s, stop_s), wanted)


@watching.get("/watches", response_model=WatchesOut)
def list_all(request: Request) -> Any:
    """List the watches with their thresholds and how many events each has had."""
    return JSONResponse({"watches": service_of(request).watches.describe_all()})


@watching.get("/watches/{id}", response_model=WatchOut)
def describe(request: Request, id: Id) -> Any:
    """Describe one watch. 404 where there is none of that id."""
    return JSONResponse(service_of(request).watches.describe(id))


@watching.delete("/watches/{id}", response_model=StateOut, tags=["write"])
def remove(request: Request, id: Id) -> Any:
    """Remove a watch with its events. 404 where there is none of that id."""
    service_of(request).watches.remove(id)
    return JSONResponse({"status": "removed"})


@watching.get("/streams", response_model=WatchedStreamsOut)
def streams(request: Request) -> Any:
    """List the streams under watch, and from which sample on each must be sent again after an interruption."""
    return JSONResponse({"streams": service_of(request).watches.streams()})


@watching.get(
    "/watches/{id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events."}},
)
async def events(
    request: Request,
    id: Id,
    after: Annotated[int, Query(ge=0, le=2**53, description="events with larger numbers; or Last-Event-ID")] = 0,
    wait_s: Annotated[float, Query(ge=0, le=MAX_FOLLOW_S, description="how long to wait for more")] = MAX_FOLLOW_S,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:
    """Follow the events of a watch as server-sent events, from the first one or from where the last answer ended.

    Each has a number, `id`, that grows. The answer ends after `wait_s` seconds; who sends the last number again as
    `Last-Event-ID`, as browsers do by themselves, misses nothing and gets nothing twice.
    """
    watches = service_of(request).watches
    number = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else after
    watches.describe(id)  # 404 before the stream begins
    return StreamingResponse(_followed(watches, id, min(number, 2**53), wait_s), media_type="text/event-stream")


async def _followed(watches: WatchService, id: str, after: int, wait_s: float) -> AsyncIterator[bytes]:
    until = time.monotonic() + wait_s
    yield b"retry: %d\n\n" % RETRY_MS
    with watches.listening() as changed:
        while not watches.ended:
            changed.clear()
            rows = watches.events(id, after, PAGE) if watches.exists(id) else []
            for number, body in rows:
                after = number
                yield b"id: %d\nevent: match\ndata: %b\n\n" % (number, to_json({"id": number, **body}))
            left_s = until - time.monotonic()
            if len(rows) == PAGE:
                continue
            if left_s <= 0 or not watches.exists(id):
                return
            try:
                await asyncio.wait_for(changed.wait(), min(left_s, HEARTBEAT_S))
            except asyncio.TimeoutError:
                yield b": waiting\n\n"


async def _create(service: SearchService, query: str | Span | Signal, options: WatchOptionsIn) -> Any:
    check_filter(options.where, service.limits.filter_parts)
    webhook = None if options.webhook is None else check_webhook(options.webhook, service.settings.webhook_hosts)
    service.check_query(query)
    async with service.surveying:
        made = await to_thread.run_sync(
            service.watches.create, query, options.false_alarms_per_hour, options.where or None, options.name, webhook
        )
    return JSONResponse(made, 201)
