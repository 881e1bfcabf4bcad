"""The requests that need no query: what happens most often in the gallery, and what happens nowhere else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from geopatch.errors import ConfigError
from geopatch.search.motifs import Anomaly, Motif, Occurrence
from geopatch.server.answers import REFUSALS, Json, PlaceOut, finite, signal_out
from geopatch.server.routes import service_of
from geopatch.server.schema import StrictRoute, check_filter
from geopatch.server.service import SearchService

overview = APIRouter(prefix="/api", tags=["read"], responses=REFUSALS, route_class=StrictRoute)
Where = Annotated[str, Query(max_length=10_000, description="only windows that pass this filter, as text or as JSON")]
Work = Callable[[SearchService, Any], list[Json]]
Windows = Annotated[bool, Query(description="let windows bring their values")]


class OccurrenceOut(PlaceOut):
    """A window and its cosine with what it is like; `start_time` as of a hit."""

    cosine: float
    start_time: str | None


class MotifOut(BaseModel):
    """`count` windows that are alike, of which the first are listed, the centre before all."""

    rank: int
    count: int
    cosine: float
    chance: float | None
    records: list[str]
    notes: list[str]
    members: list[OccurrenceOut]


class MotifsOut(BaseModel):
    motifs: list[MotifOut]
    took_ms: float


class AnomalyOut(OccurrenceOut):
    """A window, how far its nearest neighbour is, and which that is."""

    rank: int
    distance: float
    notes: list[str]
    nearest: OccurrenceOut


class AnomaliesOut(BaseModel):
    anomalies: list[AnomalyOut]
    took_ms: float


@overview.get("/motifs", response_model=MotifsOut)
async def motifs(
    request: Request,
    k: Annotated[int, Query(ge=1, le=100, description="how many")] = 5,
    members: Annotated[int, Query(ge=1, le=1000, description="how many members of each to list")] = 9,
    where: Where = "",
    windows: Windows = False,
) -> Any:
    """Find what happens most often: the most repeated windows, each with its likes.

    The answer has the most frequent first, with how often each happens and the members nearest to its centre; at most
    nine of them bring their values.
    """

    def work(service: SearchService, passing: Any) -> list[Json]:
        rows = service.gallery.motifs(k, where=passing, windows=windows)
        return [motif_out(motif, members) for motif in rows]

    return await _answer(request, "motifs", where, work)


@overview.get("/anomalies", response_model=AnomaliesOut)
async def anomalies(
    request: Request,
    k: Annotated[int, Query(ge=1, le=100, description="how many")] = 10,
    where: Where = "",
    windows: Windows = False,
) -> Any:
    """Find what happens nowhere else: the windows whose nearest neighbour is farthest, the loneliest first."""

    def work(service: SearchService, passing: Any) -> list[Json]:
        return [anomaly_out(one) for one in service.gallery.anomalies(k, where=passing, windows=windows)]

    return await _answer(request, "anomalies", where, work)


async def _answer(request: Request, name: str, where: str, work: Work) -> Any:
    """One at a time: all vectors are in memory meanwhile."""
    service, start, passing = service_of(request), time.perf_counter(), _filter(where)
    check_filter(passing, service.limits.filter_parts)
    async with service.surveying:
        rows = await to_thread.run_sync(work, service, passing)
    return JSONResponse({name: rows, "took_ms": (time.perf_counter() - start) * 1e3})


def _filter(text: str) -> Any:
    """A filter as text, or as the object that a search takes."""
    if not text.lstrip().startswith("{"):
        return text or None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("expected `where` as text or as a JSON object") from error


def occurrence_out(one: Occurrence) -> Json:
    return {**one.as_dict(), "window": signal_out(one.window)}


def motif_out(motif: Motif, members: int) -> Json:
    listed = [occurrence_out(member) for member in motif.members[:members]]
    return {**motif.as_dict(members=0), "chance": finite(motif.chance), "members": listed}


def anomaly_out(anomaly: Anomaly) -> Json:
    windows = {"window": signal_out(anomaly.place.window), "nearest": occurrence_out(anomaly.nearest)}
    return {**anomaly.as_dict(), **windows}
