"""The requests below /api: searches and what the gallery holds, and, with the write token, changes."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from geopatch.engines.entry import Value, checked_metadata
from geopatch.errors import ConfigError, GalleryError
from geopatch.protocol import MEANING
from geopatch.scoring import default_scorer, scorer_names
from geopatch.search.query import Span
from geopatch.server import answers
from geopatch.server.records import draw_record
from geopatch.server.schema import (
    MAX_NAMES,
    AddIn,
    ChunkIn,
    EndIn,
    Existing,
    ExplainIn,
    RemoveIn,
    SearchIn,
    SearchOptionsIn,
    StrictRoute,
    Text,
    at_rate,
    chunk_values,
)
from geopatch.server.service import SearchService
from geopatch.server.uploads import read_upload
from geopatch.signal import Signal, are_bands
from geopatch.version import __version__

JSON = "application/json"
reading = APIRouter(prefix="/api", tags=["read"], responses=answers.REFUSALS, route_class=StrictRoute)
writing = APIRouter(prefix="/api", tags=["write"], responses=answers.REFUSALS, route_class=StrictRoute)
FORMATS = ".csv, .tsv, .txt, .json, .npy, .wav, .flac, a .zip of a WFDB record, or its .hea with its .dat"
Files = Annotated[list[UploadFile], File(description=FORMATS)]
Rate = Annotated[float | None, Form(gt=0, allow_inf_nan=False, description="Hz, where the file does not say")]
Seconds = Annotated[float | None, Form(allow_inf_nan=False, description="where the part lies in the file")]


def service_of(request: Request) -> SearchService:
    service: SearchService = request.app.state.service
    return service


@reading.post("/search", response_model=answers.SearchOut)
async def search(request: Request, body: SearchIn) -> Any:
    """Find the windows nearest to a stored window, to a part of a stored record, or to a signal.

    Send a `query` and any options; the answer has the query as it was searched by and the hits, best first. Named
    channels of a signal are matched by name; a model with clock geometry needs its `anchors`.
    """
    start, service = time.perf_counter(), service_of(request)
    query = body.query.as_query(service.limits, service.rate_hz)
    return _timed(await service.search(query, body.as_options(service.limits), explain=body.explain), start)


@reading.post("/search/file", response_model=answers.SearchOut)
async def search_file(
    request: Request,
    file: Files,
    options: Annotated[str, Form(description="the options of /api/search as a JSON object, without `query`")] = "{}",
    rate_hz: Rate = None,
    start_s: Seconds = None,
    stop_s: Seconds = None,
) -> Any:
    """Find the windows nearest to the signal of a file, or to a part of it.

    Send the file and any options as a form; the answer is that of `/api/search`.
    """
    start, service = time.perf_counter(), service_of(request)
    wanted = _options(options)
    signal = at_rate(await uploaded(service, file, rate_hz), service.gallery.about.rate_hz)
    query = part_of(signal, start_s, stop_s)
    return _timed(await service.search(query, wanted.as_options(service.limits), explain=wanted.explain), start)


@reading.post("/explain", response_model=answers.ExplainOut)
async def explain(request: Request, body: ExplainIn) -> Any:
    """Explain one hit of a search: which patches matched, and how far embeddings may drift.

    Send the search again with the id of the `hit`; the answer has that hit with its certificate, its explanation and
    the values of both windows. 404 where it is not among the hits.
    """
    service = service_of(request)
    query = body.query.as_query(service.limits, service.rate_hz)
    options = body.as_options(service.limits).changed(certify=True, windows=True)
    return Response(await service.search(query, options, hit=body.hit), media_type=JSON)


@reading.get("/info", response_model=answers.InfoOut)
def info(request: Request) -> Any:
    """Say what the gallery holds and how it can be searched.

    The answer has the number of windows, their rate (null where it is not known), length and channels, the names and
    values of metadata, and the scorers and protocols.
    """
    service = service_of(request)
    stored, about = service.gallery.info(), service.gallery.about
    fields = [
        {**vars(field), "values": [{"value": value, "windows": count} for value, count in field.values]}
        for field in service.records.contents().fields
    ]
    return JSONResponse(
        {
            "version": __version__,
            "engine": stored.engine,
            "encoder": about.encoder,
            "windows": stored.windows,
            "indexed": stored.indexed,
            "rate_hz": about.rate_hz,
            "window_s": about.length / about.clock_hz,
            "channels": service.channels,
            "channel_names": list(about.channels),
            "searchable_by_signal": service.gallery.model is not None,
            "writable": service.writable,
            "optimizing": service.optimizing,
            "scorers": list(scorer_names()),
            "default_scorer": default_scorer(sound=are_bands(about.channels)),
            "rhythm": about.rhythm > 0,
            "protocols": dict(MEANING),
            "fields": fields,
        }
    )


@reading.get("/records", response_model=answers.RecordsOut)
def records(
    request: Request,
    contains: Annotated[str, Query(max_length=200, description="part of the name, in any case")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """List the records that have windows here.

    The answer has the first `limit` of them by name, and how many there are in `total`.
    """
    part = contains.lower()
    rows = [vars(record) for record in service_of(request).records.contents().records if part in record.name.lower()]
    return JSONResponse({"total": len(rows), "records": rows[:limit]})


@reading.get("/record", response_model=answers.DrawnOut)
async def record(
    request: Request,
    name: Annotated[Text, Query()],
    start_s: Annotated[float, Query(allow_inf_nan=False)] = -1e12,
    stop_s: Annotated[float, Query(allow_inf_nan=False)] = 1e12,
    points: Annotated[int | None, Query(ge=4, le=100_000, description="most rows; without it every sample")] = None,
) -> Any:
    """Send the values of a stored record, or of a part of it, joined from its windows.

    With `points`, a part of more samples is answered with minima and maxima. 404 where the gallery keeps no values
    there.
    """
    service = service_of(request)
    most = service.limits.values
    async with service.reading:
        drawing = await to_thread.run_sync(draw_record, service.gallery, name, start_s, stop_s, points, most)
        return JSONResponse(answers.drawn_out(drawing.signal, drawing.bucket, drawing.stop_s))


@reading.get("/window", response_model=answers.WindowOut)
def window(request: Request, id: Annotated[Text, Query()]) -> Any:
    """Send one stored window with its metadata, and its values where they are kept.

    404 where there is no such id.
    """
    return JSONResponse(answers.window_out(service_of(request).gallery.get(id)))


@reading.post("/read", response_model=answers.DrawnOut)
async def read(request: Request, file: Files, rate_hz: Rate = None) -> Any:
    """Read the signal of a file, for drawing; nothing is kept."""
    return JSONResponse(answers.drawn_out(await uploaded(service_of(request), file, rate_hz)))


@writing.post("/windows", response_model=answers.WrittenOut)
async def add(request: Request, body: AddIn) -> Any:
    """Encode windows and store them; when the answer comes, they are on disk.

    An id that is there already is answered with 409 and nothing is written, unless `existing` is `replace` or `skip`.
    """
    service = service_of(request)
    signals = [entry.as_signal(service.limits, service.gallery.about.rate_hz) for entry in body.windows]
    if any(signal.length > service.limits.query_samples for signal in signals):
        raise ConfigError(f"a window may have {service.limits.query_samples} samples; send a recording as a file")
    metadata = [checked_metadata(entry.metadata) for entry in body.windows]
    return JSONResponse(await service.writer.add(signals, metadata, body.existing))


@writing.post("/windows/file", response_model=answers.WrittenOut)
async def add_file(
    request: Request,
    file: Files,
    record: Annotated[str, Form(min_length=1, max_length=200, description="the name of the record")],
    metadata: Annotated[str, Form(description="a JSON object of names and values for all windows")] = "{}",
    rate_hz: Rate = None,
    existing: Annotated[Existing, Form(description="where a window is there already: as for /api/windows")] = "error",
) -> Any:
    """Cut a recording into windows as long as the model's, half overlapping, and store them.

    The answer says how many were `written`; their ids are `RECORD@START_Ss`.
    """
    service = service_of(request)
    values, limits, about = _metadata(metadata), service.limits, service.gallery.about
    signal = dataclasses.replace(await uploaded(service, file, rate_hz), id=record, record="")
    windows = 2 * signal.length / about.length * about.clock_hz / (signal.rate_hz or about.clock_hz)
    if windows > limits.record_windows:
        raise ConfigError(f"a recording may make {limits.record_windows} windows, got {windows:.0f}; send a part")
    written = await service.writer.add_recording(signal, values, existing)
    return JSONResponse({"written": written, "ids": [], "skipped": []})


@writing.delete("/windows", response_model=answers.RemovedOut)
async def remove(request: Request, body: RemoveIn) -> Any:
    """Remove windows by their ids.

    The answer says how many were `removed`, and which ids were `missing`: they were not there.
    """
    return JSONResponse(await service_of(request).writer.remove(body.ids))


@writing.post("/streams", response_model=answers.ChunkOut)
async def push(request: Request, body: ChunkIn) -> Any:
    """Send the next samples of a running sensor; windows are cut and stored as they fill, and watches look at them.

    The answer has the samples `received`, those that are `safe` (in windows on disk, and looked at by every watch), and
    the ids of new windows. 409 where `offset` lies beyond the samples received. With `store` false, samples are only
    watched and nothing is added to the gallery.
    """
    service, values = service_of(request), chunk_values(body)
    checked_metadata(body.metadata)
    watched = await service.watch(body, values) if service.watching else {}
    stored = await service.writer.push(body, values) if body.store else {"received": watched.get("received", 0)}
    safe = min([one["safe"] for one in (watched, stored) if "safe" in one], default=0)
    return JSONResponse({"received": stored["received"], "safe": safe, "ids": stored.get("ids", [])})


@writing.delete("/streams", response_model=answers.StateOut)
async def end(request: Request, body: EndIn) -> Any:
    """End a stream; its windows stay. 404 where it is not running."""
    await service_of(request).end_stream(body.stream)
    return JSONResponse({"status": "ended"})


@writing.post("/optimize", response_model=answers.StateOut, status_code=202)
async def optimize(request: Request) -> Any:
    """Build the index anew in the background; the gallery can be searched meanwhile."""
    begun = service_of(request).writer.optimize()
    return JSONResponse({"status": "begun" if begun else "under way"}, status_code=202)


async def uploaded(service: SearchService, files: list[UploadFile], rate_hz: float | None) -> Signal:
    """The signal of the files that came, sound as frames; only so many are in memory at the same time."""
    async with service.reading:
        content = {file.filename or "": await file.read() for file in files[:10]}
        signal = await to_thread.run_sync(read_upload, content, service.limits, rate_hz)
        return await to_thread.run_sync(service.front_end.framed, signal)


def _options(text: str) -> SearchOptionsIn:
    try:
        return SearchOptionsIn.model_validate_json(text)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"options: {'.'.join(map(str, first['loc']))} {first['msg']}") from error


def part_of(signal: Signal, start_s: float | None, stop_s: float | None) -> Signal:
    if start_s is None and stop_s is None:
        return signal
    span = Span(signal.id, start_s or 0.0, signal.duration_s if stop_s is None else stop_s)
    first, last = (round(min(max(second, -1e9), 1e9) * signal.clock_hz) for second in (span.start_s, span.stop_s))
    return signal.window(first, min(last, signal.length))


def _metadata(text: str) -> dict[str, Value]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GalleryError("expected metadata as a JSON object of names and values") from error
    if not isinstance(values, dict) or len(values) > MAX_NAMES:
        raise GalleryError(f"expected metadata as a JSON object of at most {MAX_NAMES} names and values")
    return checked_metadata(values)


def _timed(body: bytes, start: float) -> Response:
    """The answer as it came, with the time that it took put in at its end."""
    took_ms = (time.perf_counter() - start) * 1e3
    return Response(body[:-1] + b',"took_ms":%.3f}' % took_ms, media_type=JSON)
