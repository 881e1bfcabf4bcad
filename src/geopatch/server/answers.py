"""The JSON that the server answers with."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from geopatch.engines.entry import Entries
from geopatch.search.explain import Explanation
from geopatch.search.hit import Hit
from geopatch.search.query import EncodedQuery
from geopatch.signal import Signal

Json = dict[str, Any]
Metadata = dict[str, str | bool | int | float]


class ProblemOut(BaseModel):
    detail: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemOut, "description": description}
    for status, description in {
        400: "The request is no HTTP or JSON that can be read.",
        401: "The token is missing or wrong.",
        403: "Not from there, or not on this server.",
        404: "No such window, record or stream.",
        408: "The body came too slowly.",
        409: "An id is there already, or a chunk does not fit those before it.",
        413: "The body is too large.",
        415: "A format that is not read here.",
        422: "The request cannot be used; `detail` says why in one line.",
        429: "Too many wrong tokens; see Retry-After.",
        431: "The headers are too large.",
        501: "A library for this format is not installed on the server.",
        503: "Too much to do, or the gallery's disk or database does not work; see Retry-After.",
    }.items()
}


class StateOut(BaseModel):
    status: str


class SignalOut(BaseModel):
    """Values over time, null where nothing was measured; `rate_hz` is null where it is not known."""

    rate_hz: float | None
    channels: list[str]
    units: list[str] | None
    anchors: list[float] | None
    values: list[list[float | None]]


class DrawnOut(BaseModel):
    """A signal for drawing: `data` is base64 of little-endian float32 (samples, width), NaN where not measured.

    Where `bucket` is more than 1, the rows are in turn the minimum and the maximum of that many samples. `rate_hz` is
    null and `rate_known` false where the rate is not known; times then count samples.
    """

    id: str
    record: str
    start_s: float
    stop_s: float
    rate_hz: float | None
    rate_known: bool
    channels: list[str]
    bucket: int
    samples: int
    width: int
    data: str


class CertificateOut(BaseModel):
    radius: float | None
    product_radius: float | None
    margin: float | None
    R: int
    covers: str


class MatchOut(BaseModel):
    query_patch: int
    hit_patch: int
    query_s: list[float]
    hit_s: list[float]
    similarity: float
    weight: float


class ExplanationOut(BaseModel):
    scorer: str
    score: float | None
    cosine: float
    tempo: float
    token_score: float | None
    note: str
    ordered: bool
    rhythm: float
    matches: list[MatchOut]
    path_s: list[list[float]] | None


class PlaceOut(BaseModel):
    id: str
    record: str
    start_s: float
    stop_s: float
    window: SignalOut | None


class QueryOut(PlaceOut):
    """The query as it was searched by; `record` is empty for a signal that came without one."""


class WindowOut(PlaceOut):
    metadata: Metadata


class HitOut(WindowOut):
    """A hit; `start_time` is the wall-clock time at which it starts, null where that of its record is not known.

    In a gallery of recordings it lies where the query fits best, and goes `speed` times as fast; its values: `segment`.
    The stored window, whose values `window` has, lies from `window_start_s` to `window_stop_s`.
    """

    rank: int
    start_time: str | None
    speed: float | None
    fit: float | None
    window_start_s: float
    window_stop_s: float
    segment: SignalOut | None
    score: float | None
    chance: float | None
    scorer: str
    cosine: float
    tempo: float
    rhythm: float
    certificate: CertificateOut | None
    explanation: ExplanationOut | None


class SearchOut(BaseModel):
    """The hits, best first, and `notes` on what is doubtful about the query.

    Of each hit, `chance` is how many windows of a gallery of this size would score as much by chance. `together` is how
    many searches were answered in one batch with this one.
    """

    query: QueryOut
    hits: list[HitOut]
    notes: list[str]
    took_ms: float
    together: int


class ExplainOut(BaseModel):
    query: QueryOut
    hit: HitOut


class RecordOut(BaseModel):
    name: str
    windows: int
    start_s: float
    stop_s: float


class RecordsOut(BaseModel):
    total: int
    records: list[RecordOut]


class ValueOut(BaseModel):
    value: str | bool | int | float
    windows: int


class FieldOut(BaseModel):
    name: str
    distinct: int
    low: float | None
    high: float | None
    values: list[ValueOut]


class InfoOut(BaseModel):
    """`channels` is how many the model takes (0 without a model), `channel_names` their names where it knows them.

    `rhythm` says whether windows have relative tempo, which a search can weigh by `clock`.
    """

    version: str
    engine: str
    encoder: str
    windows: int
    indexed: int
    rate_hz: float | None
    window_s: float
    channels: int
    channel_names: list[str]
    searchable_by_signal: bool
    writable: bool
    optimizing: bool
    scorers: list[str]
    default_scorer: str
    rhythm: bool
    protocols: dict[str, str]
    fields: list[FieldOut]


class WrittenOut(BaseModel):
    """`ids` of the windows that were written, `skipped` those that were there already; a file's ids are not listed."""

    written: int
    ids: list[str]
    skipped: list[str]


class RemovedOut(BaseModel):
    """How many windows were removed, and which ids were not there."""

    removed: int
    missing: list[str]


class ChunkOut(BaseModel):
    """Samples before `safe` are on disk in windows; after an interruption, send again from there."""

    received: int
    safe: int
    ids: list[str]


def finite(value: float | None) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else float(value)


def signal_out(signal: Signal | None) -> Json | None:
    if signal is None:
        return None
    return {
        "rate_hz": signal.rate_hz,
        "channels": list(signal.channels),
        "units": None if signal.units is None else list(signal.units),
        "anchors": None if signal.anchors is None else signal.anchors.tolist(),
        "values": _rows(signal.values),
    }


def drawn_out(signal: Signal, bucket: int = 1, stop_s: float | None = None) -> Json:
    return {
        "id": signal.id,
        "record": signal.record,
        "start_s": signal.start_s,
        "stop_s": signal.start_s + signal.duration_s if stop_s is None else stop_s,
        "rate_hz": signal.rate_hz,
        "rate_known": signal.rate_hz is not None,
        "channels": list(signal.channels),
        "bucket": bucket,
        "samples": signal.length,
        "width": signal.values.shape[1],
        "data": base64.b64encode(signal.values.astype("<f4").tobytes()).decode(),
    }


def hit_out(hit: Hit, *, explain: bool, windows: bool) -> Json:
    return {
        **hit.as_dict(),
        "score": finite(hit.score),
        "chance": finite(hit.chance),
        "explanation": explanation_out(hit.explain()) if explain else None,
        "window": signal_out(hit.window) if windows else None,
        "segment": signal_out(hit.segment) if windows else None,
    }


def explanation_out(explanation: Explanation) -> Json:
    scores = {"score": finite(explanation.score), "token_score": finite(explanation.token_score)}
    return {**explanation.as_dict(), **scores}


def query_out(query: EncodedQuery, *, windows: bool) -> Json:
    place = query.place
    return {
        "id": query.id,
        "record": "" if place is None else str(place.records[0]),
        "start_s": 0.0 if place is None else float(place.start_s[0]),
        "stop_s": 0.0 if place is None else float(place.stop_s[0]),
        "window": signal_out(query.window) if windows else None,
    }


def window_out(entries: Entries) -> Json:
    return {
        "id": entries.ids[0],
        "record": entries.records[0],
        "start_s": float(entries.start_s[0]),
        "stop_s": float(entries.stop_s[0]),
        "metadata": dict(entries.metadata[0]),
        "window": signal_out(entries.windows[0]),
    }


def _rows(values: npt.NDArray[np.float32]) -> list[list[float | None]]:
    """Seven digits: what a float32 holds."""
    rows: list[list[float | None]] = [[float(f"{value:.7g}") for value in row] for row in values.tolist()]
    if np.isnan(values).any():
        rows = [[None if value != value else value for value in row] for row in rows]
    return rows
