"""The requests that write. The guard lets none of them through without the write token."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import JSONResponse

from geopatch.engines.entry import Value, checked_metadata
from geopatch.errors import ConfigError, GalleryError
from geopatch.server import answers
from geopatch.server.questions import AddIn, ChunkIn, EndIn, RemoveIn
from geopatch.server.reading import REFUSALS, QuickRoute, Rate, desk_of, uploaded
from geopatch.signal import Signal

router = APIRouter(prefix="/api", tags=["write"], responses=REFUSALS, route_class=QuickRoute)


@router.post("/windows", response_model=answers.WrittenOut)
async def add(request: Request, asked: AddIn) -> Any:
    """Encode windows and keep them. When the answer comes, they are on disk."""
    desk = desk_of(request)
    rate_hz = desk.gallery.about.rate_hz
    signals = [window.as_signal(desk.limits, rate_hz) for window in asked.windows]
    if any(signal.length > desk.limits.query_samples for signal in signals):
        raise ConfigError(f"a window may have {desk.limits.query_samples} samples; send a recording as a file")
    ids = await desk.writes.add(signals, [checked_metadata(window.metadata) for window in asked.windows])
    return JSONResponse({"written": len(ids), "ids": ids})


@router.post("/windows/file", response_model=answers.WrittenOut)
async def add_file(
    request: Request,
    file: Annotated[list[UploadFile], File(description=".csv, .json, .npy, .wav, .zip, or .hea with .dat")],
    record: Annotated[str, Form(min_length=1, max_length=200, description="what the record will be called")],
    metadata: Annotated[str, Form(description="JSON with names and values that all windows get")] = "{}",
    rate_hz: Rate = None,
) -> Any:
    """Cut a recording into windows as long as the model's, half overlapping, and keep them."""
    desk = desk_of(request)
    told = _metadata(metadata)
    signal = await uploaded(desk, file, rate_hz)
    named = Signal(signal.values, record, signal.rate_hz, signal.channels)
    windows = named.duration_s * 2 / (desk.gallery.about.length / desk.gallery.about.clock_hz)
    if windows > desk.limits.record_windows:
        raise ConfigError(f"a recording may make {desk.limits.record_windows} windows, got {windows:.0f}; send a part")
    written = await desk.writes.add_recording(named, told)
    return JSONResponse({"written": written, "ids": []})


@router.delete("/windows", response_model=answers.RemovedOut)
async def remove(request: Request, asked: RemoveIn) -> Any:
    """Take windows out; ids that are not there do not matter."""
    return JSONResponse({"removed": await desk_of(request).writes.remove(asked.ids)})


@router.post("/streams", response_model=answers.ChunkOut)
async def push(request: Request, chunk: ChunkIn) -> Any:
    """The next samples of a running sensor; windows are cut and kept as they fill."""
    checked_metadata(chunk.metadata)
    return JSONResponse(await desk_of(request).writes.push(chunk))


@router.delete("/streams", response_model=answers.State)
async def end(request: Request, asked: EndIn) -> Any:
    """End a stream; its windows stay."""
    await desk_of(request).writes.end(asked.stream)
    return JSONResponse({"status": "ended"})


@router.post("/optimize", response_model=answers.State, status_code=202)
async def optimize(request: Request) -> Any:
    """Build the index anew, in the background; the gallery can be searched meanwhile."""
    begun = desk_of(request).writes.optimize()
    return JSONResponse({"status": "begun" if begun else "under way"}, status_code=202)


def _metadata(text: str) -> dict[str, Value]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GalleryError("expected metadata as a JSON object of names and values") from error
    if not isinstance(told, dict) or len(told) > 100:
        raise GalleryError("expected metadata as a JSON object of at most 100 names and values")
    return checked_metadata(told)
