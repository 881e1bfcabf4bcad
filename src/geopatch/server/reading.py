"""The requests that read: info, records, windows, searches and their explanations."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from pydantic_core import from_json

from geopatch.errors import ConfigError
from geopatch.protocol import MEANING
from geopatch.search.plan import SCORERS
from geopatch.search.query import Span
from geopatch.server import answers
from geopatch.server.desk import Desk
from geopatch.server.questions import ExplainIn, OptionsIn, SearchIn, Text, at_rate
from geopatch.server.records import draw_record
from geopatch.server.uploads import read_upload
from geopatch.signal import Signal
from geopatch.version import __version__

JSON = "application/json"
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.Problem, "description": told}
    for status, told in {
        400: "The request is no HTTP or JSON that can be read.",
        401: "The token is missing or wrong.",
        403: "Not from there, or not on this server.",
        404: "No such window or record.",
        408: "The body came too slowly.",
        409: "It does not fit what came before.",
        413: "The body is too large.",
        415: "A format that is not read here.",
        422: "What was sent cannot be used; `detail` says why in one line.",
        503: "Too much to do, or the gallery's disk or server does not work; see Retry-After.",
    }.items()
}


class QuickRequest(Request):
    """Reads JSON with pydantic's parser, in a fraction of the time that others have to wait for."""

    async def json(self) -> Any:
        return from_json(await self.body(), cache_strings="keys")


class QuickRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(QuickRequest(request.scope, request.receive))

        return handle


router = APIRouter(prefix="/api", tags=["read"], responses=REFUSALS, route_class=QuickRoute)
Rate = Annotated[float | None, Form(gt=0, allow_inf_nan=False, description="of the file, where it does not say")]
Seconds = Annotated[float | None, Form(allow_inf_nan=False, description="of the part that is meant, in the file")]


def desk_of(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


@router.post("/search", response_model=answers.SearchOut)
async def search(request: Request, asked: SearchIn) -> Any:
    """The windows nearest to a stored window, to a part of a stored record, or to a signal."""
    start, desk = time.perf_counter(), desk_of(request)
    query = asked.query.as_query(desk.limits, desk.gallery.about.rate_hz)
    return _timed(await desk.search(asked, query), start)


@router.post("/search/file", response_model=answers.SearchOut)
async def search_file(
    request: Request,
    file: Annotated[list[UploadFile], File(description=".csv, .json, .npy, .wav, .zip, or .hea with .dat")],
    options: Annotated[str, Form(description="JSON with the settings of /api/search, without `query`")] = "{}",
    rate_hz: Rate = None,
    start_s: Seconds = None,
    stop_s: Seconds = None,
) -> Any:
    """The windows nearest to the signal of a file, or to a part of it."""
    start, desk = time.perf_counter(), desk_of(request)
    asked = _options(options)
    signal = await uploaded(desk, file, rate_hz)
    query = at_rate(signal, desk.gallery.about.rate_hz)
    return _timed(await desk.search(asked, _part(query, start_s, stop_s)), start)


@router.post("/explain", response_model=answers.ExplainOut)
async def explain(request: Request, asked: ExplainIn) -> Any:
    """One hit of a search with its certificate, and which patch of the query met which of its patches."""
    desk = desk_of(request)
    query = asked.query.as_query(desk.limits, desk.gallery.about.rate_hz)
    return Response(await desk.search(asked, query), media_type=JSON)


@router.get("/info", response_model=answers.InfoOut)
def info(request: Request) -> Any:
    """What the gallery holds and how it can be searched."""
    desk = desk_of(request)
    found, about = desk.gallery.info(), desk.gallery.about
    fields = [
        {**vars(field), "values": [{"value": value, "windows": count} for value, count in field.values]}
        for field in desk.shelf.contents().fields
    ]
    return JSONResponse(
        {
            "version": __version__,
            "engine": found.engine,
            "encoder": about.encoder,
            "windows": found.windows,
            "indexed": found.indexed,
            "rate_hz": about.rate_hz,
            "window_s": about.length / about.clock_hz,
            "channels": desk.channels,
            "searchable_by_signal": desk.gallery.model is not None,
            "writable": desk.writer is not None,
            "optimizing": desk.writer is not None and desk.writer.optimizing,
            "scorers": list(SCORERS),
            "protocols": dict(MEANING),
            "fields": fields,
        }
    )


@router.get("/records", response_model=answers.RecordsOut)
def records(
    request: Request,
    contains: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """The records that have windows here, to pick from."""
    wanted = contains.lower()
    found = [vars(one) for one in desk_of(request).shelf.contents().records if wanted in one.name.lower()]
    return JSONResponse({"total": len(found), "records": found[:limit]})


@router.get("/record", response_model=answers.DrawnOut)
async def record(
    request: Request,
    name: Annotated[Text, Query()],
    start_s: Annotated[float, Query(allow_inf_nan=False)] = -1e12,
    stop_s: Annotated[float, Query(allow_inf_nan=False)] = 1e12,
    points: Annotated[int | None, Query(ge=4, le=100_000, description="most rows; without it every sample")] = None,
) -> Any:
    """The values of a stored record, or of a part of it, put together from its windows.

    With `points`, a part of more samples is answered with minima and maxima.
    """
    desk = desk_of(request)
    async with desk.reading:
        drawing = await to_thread.run_sync(draw_record, desk.gallery, name, start_s, stop_s, points, desk.limits.values)
        return JSONResponse(answers.drawn_out(drawing.signal, drawing.bucket, drawing.stop_s))


@router.get("/window", response_model=answers.WindowOut)
def window(request: Request, id: Annotated[Text, Query()]) -> Any:
    """One stored window with its values, where they are kept, and its metadata."""
    return JSONResponse(answers.window_out(desk_of(request).gallery.get(id)))


@router.post("/read", response_model=answers.DrawnOut)
async def read(request: Request, file: Annotated[list[UploadFile], File()], rate_hz: Rate = None) -> Any:
    """The signal of a file, for drawing; nothing is kept. Send .csv, .json, .npy, .wav, .zip, or .hea with .dat."""
    signal = await uploaded(desk_of(request), file, rate_hz)
    return JSONResponse(answers.drawn_out(signal))


async def uploaded(desk: Desk, files: list[UploadFile], rate_hz: float | None) -> Signal:
    """The signal of the files that came; only so many are held in memory at once."""
    async with desk.reading:
        content = {file.filename or "": await file.read() for file in files[:10]}
        return await to_thread.run_sync(read_upload, content, desk.limits, rate_hz)


def _options(text: str) -> OptionsIn:
    try:
        return OptionsIn.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"options: {'.'.join(map(str, first['loc']))} {first['msg']}") from error


def _part(signal: Signal, start_s: float | None, stop_s: float | None) -> Signal:
    if start_s is None and stop_s is None:
        return signal
    span = Span(signal.id, start_s or 0.0, signal.duration_s if stop_s is None else stop_s)
    first, last = (round(min(max(second, -1e9), 1e9) * signal.clock_hz) for second in (span.start_s, span.stop_s))
    return signal.window(first, min(last, signal.length))


def _timed(told: bytes, start: float) -> Response:
    """The answer as it came, with the time that it took put in at its end."""
    took_ms = (time.perf_counter() - start) * 1e3
    return Response(told[:-1] + b',"took_ms":%.3f}' % took_ms, media_type=JSON)
