"""What requests bring, checked name by name. The options of a search are made from the fields of `SearchOptions`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import numpy.typing as npt
from fastapi import Request, Response
from fastapi.params import Form
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, SkipValidation, StringConstraints, create_model
from pydantic_core import from_json

from geopatch.data.json_files import json_numbers, json_values
from geopatch.engines.filters import All, Either, Filter, Not, as_filter
from geopatch.errors import ConfigError, GalleryError, SignalError
from geopatch.search.options import TOKENS, SearchOptions
from geopatch.search.query import Span
from geopatch.server.refusal import RefusedError
from geopatch.server.settings import Limits
from geopatch.server.uploads import checked
from geopatch.signal import Signal

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Metadata = dict[str, str | bool | int | float]
Existing = Literal["error", "replace", "skip"]
Values = SkipValidation[list[float | None] | list[list[float | None]]]  # checked by numpy, in a fraction of the time
Numbers = SkipValidation[list[float]]
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
MAX_FILTER_DEPTH, MAX_WINDOWS, MAX_NAMES = 20, 4_096, 100


class Strict(BaseModel):
    """Unknown names are refused: a misspelt setting must not pass for its default."""

    model_config = ConfigDict(extra="forbid")


class SignalIn(Strict):
    """Values over time; null where nothing was measured."""

    values: Values = Field(description="(T,) or (T, C) numbers", examples=[[0.1, 0.4, None, 0.2]])
    rate_hz: FiniteFloat | None = Field(None, gt=0, description="samples a second; by default the gallery's own rate")
    channels: list[Text] = Field(
        default_factory=list, max_length=512, description="names, by which channels are matched; by default by place"
    )
    anchors: Numbers | None = Field(
        None, description="samples of alignment marks (R peaks, word times), for models with clock geometry"
    )
    id: Text | None = None
    record: Text | None = None
    start_s: FiniteFloat = Field(0.0, description="seconds from the start of the record")

    def as_signal(self, limits: Limits, rate_hz: float | None) -> Signal:
        """At the rate of the gallery."""
        name, record = self.id or self.record or "query", self.record or ""
        anchors = None if self.anchors is None else json_numbers(self.anchors, "anchors")
        signal = Signal.from_array(json_values(self.values), name, self.rate_hz, self.channels, anchors)
        signal = at_rate(checked(signal, limits), rate_hz)
        if (signal.id, signal.record, signal.start_s) == (name, record, self.start_s):
            return signal  # most queries: every further copy would be checked anew
        return dataclasses.replace(signal, id=name, record=record, start_s=float(self.start_s))


class QueryIn(Strict):
    """One of: a stored window by its `id`; a part of a stored record; a signal of your own."""

    id: Text | None = None
    record: Text | None = None
    start_s: FiniteFloat | None = None
    stop_s: FiniteFloat | None = None
    signal: SignalIn | None = None

    def as_query(self, limits: Limits, rate_hz: float | None) -> str | Span | Signal:
        kinds = [part for part in (self.id, self.record, self.signal) if part is not None]
        if len(kinds) != 1:
            raise ConfigError("give one of `id`, `record` with `start_s` and `stop_s`, or `signal`")
        if self.signal is not None:
            return self.signal.as_signal(limits, rate_hz)
        if self.id is not None:
            return self.id
        if self.start_s is None or self.stop_s is None:
            raise ConfigError("a part of a record needs `start_s` and `stop_s`, in seconds")
        return Span(str(self.record), self.start_s, self.stop_s)


# Where JSON differs from Python: the type, the default, and the largest value.
FromTokens = Annotated[str, StringConstraints(pattern=rf"^{TOKENS}(:\d{{1,3}})?$")]
JSON_TYPES: dict[str, Any] = {
    "where": str | dict[str, Any] | None,
    "protocol": str | None,
    "shortlist": Annotated[int, Field(ge=1, le=1_000)] | FromTokens | None,
}
JSON_DEFAULTS = {"windows": False}  # values make an answer a hundred times larger
HIGH = {"k": 1_000, "band": 1.0, "clock": 1.0}


def _option_fields() -> dict[str, Any]:
    """The fields of `SearchOptions` as pydantic's."""
    hints = get_type_hints(SearchOptions)
    made: dict[str, Any] = {}
    for item in dataclasses.fields(SearchOptions):
        kind = JSON_TYPES.get(item.name, hints[item.name])
        kind = {float: FiniteFloat, float | None: FiniteFloat | None}.get(kind, kind)
        default: Any = JSON_DEFAULTS.get(item.name, item.default)
        choices = item.metadata["choices"]
        names: Any = None if choices is None else {"enum": [*([None] if default is None else []), *choices()]}
        limits = {"ge": item.metadata["low"], "le": HIGH.get(item.name)}
        made[item.name] = (kind, Field(default, description=item.metadata["help"], json_schema_extra=names, **limits))
    return made


class SearchOptionsIn(create_model("OptionFields", __base__=Strict, **_option_fields())):  # type: ignore[misc]
    """How to search, without the query."""

    explain: bool = Field(False, description="Say of each hit which patches matched.")

    def as_options(self, limits: Limits) -> SearchOptions:
        """Checked before the search waits for its turn."""
        check_filter(self.where, limits.filter_parts)
        options = {item.name: getattr(self, item.name) for item in dataclasses.fields(SearchOptions)}
        return SearchOptions(**{**options, "where": self.where or None})


class SearchIn(SearchOptionsIn):
    """A query, and how to search by it."""

    query: QueryIn


class ExplainIn(SearchIn):
    """A search, and the hit of it that is to be explained."""

    hit: Text = Field(description="the id of one hit of this search")


class EntryIn(SignalIn):
    """A window to add, under its own id."""

    id: Text
    metadata: Metadata = Field(default_factory=dict, max_length=MAX_NAMES)


class AddIn(Strict):
    """Windows to add; `existing` says what happens where an id is there already: nothing is written, or that window is
    replaced or left as it is."""

    windows: list[EntryIn] = Field(min_length=1, max_length=MAX_WINDOWS)
    existing: Existing = "error"


class RemoveIn(Strict):
    """Windows to remove."""

    ids: list[Text] = Field(min_length=1, max_length=MAX_WINDOWS)


class ChunkIn(Strict):
    """The next samples of a running sensor. With `offset`, a chunk that is sent twice counts once."""

    stream: Text
    values: Values
    rate_hz: FiniteFloat | None = Field(None, gt=0)
    channels: list[Text] = Field(default_factory=list, max_length=512)
    offset: int | None = Field(None, ge=0, le=2**53, description="number of the chunk's first sample since the start")
    metadata: Metadata = Field(default_factory=dict, max_length=MAX_NAMES)
    store: bool = Field(True, description="whether windows are added to the gallery; without, they are only watched")


def chunk_values(chunk: ChunkIn) -> npt.NDArray[np.float32]:
    """The samples (T, C) of a chunk, checked."""
    values = json_values(chunk.values)
    values = values[:, None] if values.ndim == 1 else values
    if not values.size or np.isinf(values).any():
        raise SignalError(f"stream {chunk.stream!r}: expected finite samples, null for gaps, got none or infinity")
    if chunk.channels and len(chunk.channels) != values.shape[1]:
        raise SignalError(f"stream {chunk.stream!r} has {values.shape[1]} channels, {len(chunk.channels)} names")
    return values.astype(np.float32, copy=False)


class EndIn(Strict):
    """A stream to end."""

    stream: Text


class FastRequest(Request):
    """Reads JSON with pydantic's parser, in a fraction of the time of Python's."""

    async def json(self) -> Any:
        return from_json(await self.body(), cache_strings="keys")


class StrictRoute(APIRoute):
    """Refuses query parameters and form fields that the route does not have, and those that come twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        parameters = {param.alias for param in self.dependant.query_params}
        fields = {param.alias for param in self.dependant.body_params if isinstance(param.field_info, Form)}

        async def handle(request: Request) -> Response:
            request = FastRequest(request.scope, request.receive)
            _check_names("query parameter", request.query_params.multi_items(), parameters)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind in FORMS:
                form = await request.form()
                try:
                    _check_names("form field", form.multi_items(), fields)
                except RefusedError:
                    await form.close()
                    raise
            return await handler(request)

        return handle


def _check_names(what: str, items: Iterable[tuple[str, Any]], known: set[str]) -> None:
    names = [name for name, _ in items]
    unknown = sorted({name[:100] for name in names} - known)
    if unknown:
        line = f"unknown {what} {', '.join(map(repr, unknown[:10]))}; {', '.join(sorted(known)) or 'none'} can be used"
        raise RefusedError(422, line)
    twice = sorted({name for name in names if names.count(name) > 1 and name != "file"})
    if twice:
        raise RefusedError(422, f"{what} {', '.join(map(repr, twice))} came more than once; send it once")


def at_rate(signal: Signal, rate_hz: float | None) -> Signal:
    """At the rate of the gallery; a signal that came without one is taken to have it."""
    if signal.rate_hz is not None and rate_hz is not None:
        growth = rate_hz / signal.rate_hz
        if signal.values.size * growth > 4 * Limits().values or not 1e-4 < growth < 1e4:
            raise ConfigError(f"cannot bring a signal of {signal.rate_hz:g} Hz to {rate_hz:g} Hz; check its rate")
    return signal.at_rate(rate_hz)


def check_filter(where: str | Mapping[str, Any] | None, most: int) -> None:
    """Refuse a filter of more parts than a search should spend its time on."""
    deep = GalleryError(f"a filter may have {most} parts, nested {MAX_FILTER_DEPTH} times; give a simpler one")
    if isinstance(where, Mapping) and _depth(where) > MAX_FILTER_DEPTH:
        raise deep
    parsed = as_filter(where or None)
    if parsed is not None and _parts(parsed, 0) > most:
        raise deep


def _depth(value: Any, depth: int = 0) -> int:
    if depth > MAX_FILTER_DEPTH or not isinstance(value, (list, dict)):
        return depth
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(part, depth + 1) for part in inner), default=depth)


def _parts(where: Filter, depth: int) -> float:
    """How many parts; infinitely many where it is nested too deeply."""
    if depth > MAX_FILTER_DEPTH:
        return float("inf")
    if isinstance(where, (All, Either)):
        return 1 + sum(_parts(part, depth + 1) for part in where.parts)
    return 1 + _parts(where.part, depth + 1) if isinstance(where, Not) else 1
