"""What the server answers, as JSON."""

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
from geopatch.search.query import Asked
from geopatch.signal import Signal

Json = dict[str, Any]
Meta = dict[str, str | bool | int | float]


class Problem(BaseModel):
    detail: str


class State(BaseModel):
    status: str


class SignalOut(BaseModel):
    """Values over time, null where nothing was measured."""

    rate_hz: float | None
    channels: list[str]
    values: list[list[float | None]]


class DrawnOut(BaseModel):
    """A signal for drawing: `data` is base64 of little-endian float32 (samples, width), NaN where not measured.

    Where `bucket` is more than 1, the rows are in turn the minimum and the maximum of that many samples.
    """

    id: str
    record: str
    start_s: float
    stop_s: float
    rate_hz: float
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
    matches: list[MatchOut]
    path_s: list[list[float]] | None


class HitOut(BaseModel):
    rank: int
    id: str
    record: str
    start_s: float
    stop_s: float
    score: float | None
    scorer: str
    cosine: float
    tempo: float
    metadata: Meta
    certificate: CertificateOut | None
    explanation: ExplanationOut | None
    window: SignalOut | None


class AskedOut(BaseModel):
    """The query as it was searched by; without a place where a signal came without one."""

    id: str
    record: str
    start_s: float
    stop_s: float
    window: SignalOut | None


class SearchOut(BaseModel):
    query: AskedOut
    hits: list[HitOut]
    took_ms: float
    together: int


class ExplainOut(BaseModel):
    query: AskedOut
    hit: HitOut


class WindowOut(BaseModel):
    id: str
    record: str
    start_s: float
    stop_s: float
    metadata: Meta
    window: SignalOut | None


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
    version: str
    engine: str
    encoder: str
    windows: int
    indexed: int
    rate_hz: float | None
    window_s: float
    channels: int
    searchable_by_signal: bool
    writable: bool
    optimizing: bool
    scorers: list[str]
    protocols: dict[str, str]
    fields: list[FieldOut]


class WrittenOut(BaseModel):
    written: int
    ids: list[str]


class RemovedOut(BaseModel):
    removed: int


class ChunkOut(BaseModel):
    """Samples before `safe` are on disk in windows; after an interruption, send again from there."""

    received: int
    safe: int
    ids: list[str]


def finite(value: float | None) -> float | None:
    """JSON has neither NaN nor infinity."""
    return None if value is None or not math.isfinite(value) else float(value)


def signal_out(signal: Signal | None) -> Json | None:
    if signal is None:
        return None
    return {"rate_hz": signal.rate_hz, "channels": list(signal.channels), "values": _rows(signal.values)}


def drawn_out(signal: Signal, bucket: int = 1, stop_s: float | None = None) -> Json:
    return {
        "id": signal.id,
        "record": signal.record,
        "start_s": signal.start_s,
        "stop_s": signal.start_s + signal.duration_s if stop_s is None else stop_s,
        "rate_hz": signal.clock_hz,
        "rate_known": signal.rate_hz is not None,
        "channels": list(signal.channels),
        "bucket": bucket,
        "samples": signal.length,
        "width": signal.values.shape[1],
        "data": base64.b64encode(signal.values.astype("<f4").tobytes()).decode(),
    }


def hit_out(hit: Hit, *, explain: bool, windows: bool) -> Json:
    told = hit.as_dict()
    return {
        **told,
        "score": finite(hit.score),
        "explanation": explanation_out(hit.explain()) if explain else None,
        "window": signal_out(hit.window) if windows else None,
    }


def explanation_out(found: Explanation) -> Json:
    return {**found.as_dict(), "score": finite(found.score), "token_score": finite(found.token_score)}


def asked_out(asked: Asked, *, windows: bool) -> Json:
    place = asked.place
    return {
        "id": asked.id,
        "record": "" if place is None else str(place.records[0]),
        "start_s": 0.0 if place is None else float(place.start_s[0]),
        "stop_s": 0.0 if place is None else float(place.stop_s[0]),
        "window": signal_out(asked.window) if windows else None,
    }


def window_out(entries: Entries) -> Json:
    place = {"record": entries.records[0], "start_s": float(entries.start_s[0]), "stop_s": float(entries.stop_s[0])}
    return {
        "id": entries.ids[0],
        **place,
        "metadata": dict(entries.metadata[0]),
        "window": signal_out(entries.windows[0]),
    }


def _rows(values: npt.NDArray[np.float32]) -> list[list[float | None]]:
    """Seven digits: what a float32 holds."""
    rows: list[list[float | None]] = [[float(f"{value:.7g}") for value in row] for row in values.tolist()]
    if np.isnan(values).any():
        rows = [[None if value != value else value for value in row] for row in rows]
    return rows
