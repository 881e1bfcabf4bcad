"""What a client may send, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, SkipValidation, StringConstraints

from geopatch.dtw import BAND
from geopatch.engines.filters import All, Either, Filter, Not, as_filter
from geopatch.errors import ConfigError, GalleryError
from geopatch.search.options import SearchOptions
from geopatch.search.query import Span
from geopatch.server.searcher import Wish
from geopatch.server.settings import Limits
from geopatch.server.uploads import checked, json_values
from geopatch.signal import Signal

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Values = SkipValidation[list[float | None] | list[list[float | None]]]  # numpy checks them, much sooner
DEEPEST_FILTER = 20


class Strict(BaseModel):
    """Unknown names are refused: a misspelt setting must not pass for its default."""

    model_config = ConfigDict(extra="forbid")


class SignalIn(Strict):
    """Values over time; null where nothing was measured."""

    values: Values = Field(description="(T,) or (T, C) numbers", examples=[[0.1, 0.4, None, 0.2]])
    rate_hz: FiniteFloat | None = Field(None, gt=0, description="without it: the rate of the gallery's model")
    channels: list[Text] = Field(default_factory=list, max_length=512)
    id: Text | None = None
    record: Text | None = None
    start_s: FiniteFloat = 0.0

    def as_signal(self, limits: Limits, rate_hz: float | None) -> Signal:
        """At the rate of the gallery."""
        name, record = self.id or self.record or "query", self.record or ""
        given = Signal.from_array(json_values(self.values), name, self.rate_hz, self.channels)
        signal = at_rate(checked(given, limits), rate_hz)
        if (signal.id, signal.record, signal.start_s) == (name, record, self.start_s):
            return signal  # most queries: every further copy would be checked anew
        return Signal(signal.values, name, signal.rate_hz, signal.channels, record, float(self.start_s))


class QueryIn(Strict):
    """One of: a stored window by its `id`; a part of a stored record; a signal of your own."""

    id: Text | None = None
    record: Text | None = None
    start_s: FiniteFloat | None = None
    stop_s: FiniteFloat | None = None
    signal: SignalIn | None = None

    def as_query(self, limits: Limits, rate_hz: float | None) -> str | Span | Signal:
        given = [part for part in (self.id, self.record, self.signal) if part is not None]
        if len(given) != 1:
            raise ConfigError("give one of `id`, `record` with `start_s` and `stop_s`, or `signal`")
        if self.signal is not None:
            return self.signal.as_signal(limits, rate_hz)
        if self.id is not None:
            return self.id
        if self.start_s is None or self.stop_s is None:
            raise ConfigError("a part of a record needs `start_s` and `stop_s`, in seconds")
        return Span(str(self.record), self.start_s, self.stop_s)


class OptionsIn(Strict):
    """What a search asks for besides its query."""

    k: int = Field(10, ge=1, le=1000, description="how many hits")
    scorer: str = Field("fused", description="cosine, maxsim, fused, bridge or dtw")
    shortlist: int | None = Field(None, ge=1, le=1000, description="candidates by cosine that the scorer ranks")
    where: str | dict[str, Any] | None = Field(
        None, description="a filter over metadata, as text or as a mapping", examples=["sex == 'F' and 40 <= age < 60"]
    )
    protocol: str | None = Field(None, description="leave out windows of the query's record")
    guard_s: FiniteFloat = Field(0.0, ge=0)
    min_gap_s: FiniteFloat = Field(0.0, ge=0, description="between the starts of two hits of one record")
    min_score: FiniteFloat | None = None
    band: FiniteFloat = Field(BAND, ge=0, le=1, description="how far a dtw path may leave the diagonal")
    certify: bool = Field(False, description="say of each hit how far embeddings may drift")
    tempos: bool = Field(
        False, description="also search the query a little faster and slower; takes three times as long"
    )
    explain: bool = Field(False, description="say of each hit which patches met")
    windows: bool = Field(False, description="send the values of query and hits along")

    def wish(self, limits: Limits) -> Wish:
        """Checked before it waits for its turn."""
        where = bounded_filter(self.where, limits.filter_parts)
        names = OptionsIn.model_fields.keys() - {"where"}
        wish = Wish(where=self.where or None, **{name: getattr(self, name) for name in names})
        SearchOptions(**{**wish.as_keywords(), "where": where})
        return wish


class SearchIn(OptionsIn):
    query: QueryIn


class ExplainIn(SearchIn):
    hit: Text = Field(description="the id of one hit of this search")

    def wish(self, limits: Limits) -> Wish:
        return replace(super().wish(limits), certify=True, hit=self.hit)


class EntryIn(SignalIn):
    """A window to add. Its id names it; an id that is there already is replaced."""

    id: Text
    metadata: dict[str, str | bool | int | float] = Field(default_factory=dict, max_length=100)


class AddIn(Strict):
    windows: list[EntryIn] = Field(min_length=1, max_length=4096)


class RemoveIn(Strict):
    ids: list[Text] = Field(min_length=1, max_length=4096)


class ChunkIn(Strict):
    """The next samples of a running sensor. With `offset`, a chunk that is sent twice counts once."""

    stream: Text
    values: Values
    rate_hz: FiniteFloat | None = Field(None, gt=0)
    channels: list[Text] = Field(default_factory=list, max_length=512)
    offset: int | None = Field(None, ge=0, le=2**53, description="number of the chunk's first sample since the start")
    metadata: dict[str, str | bool | int | float] = Field(default_factory=dict, max_length=100)


class EndIn(Strict):
    stream: Text


def at_rate(signal: Signal, rate_hz: float | None) -> Signal:
    """At the rate of the gallery; a signal that came without one is taken to have it."""
    if signal.rate_hz is not None and rate_hz is not None:
        growth = rate_hz / signal.rate_hz
        if signal.values.size * growth > 4 * Limits().values or not 1e-4 < growth < 1e4:
            raise ConfigError(f"cannot bring a signal of {signal.rate_hz:g} Hz to {rate_hz:g} Hz; check its rate")
    return signal.at_rate(rate_hz)


def bounded_filter(where: str | Mapping[str, Any] | None, most: int) -> Filter | None:
    """A filter of no more parts than a search should spend its time on."""
    if isinstance(where, Mapping) and _depth(where) > DEEPEST_FILTER:
        raise GalleryError(f"a filter may be nested {DEEPEST_FILTER} times; give a simpler one")
    found = as_filter(where or None)
    if found is not None and _parts(found, 0) > most:
        raise GalleryError(f"a filter may have {most} parts, nested {DEEPEST_FILTER} times; give a simpler one")
    return found


def _depth(value: Any, depth: int = 0) -> int:
    if depth > DEEPEST_FILTER or not isinstance(value, (list, dict)):
        return depth
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(part, depth + 1) for part in inner), default=depth)


def _parts(where: Filter, depth: int) -> int:
    if depth > DEEPEST_FILTER:
        raise GalleryError(f"a filter may be nested {DEEPEST_FILTER} times; give a simpler one")
    if isinstance(where, (All, Either)):
        return 1 + sum(_parts(part, depth + 1) for part in where.parts)
    return 1 + _parts(where.part, depth + 1) if isinstance(where, Not) else 1
