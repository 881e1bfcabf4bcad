"""What one may search by: a signal or array, the id of a stored window, or a span of a stored record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.entry import Entries, entries_from
from geopatch.errors import ConfigError, GalleryError
from geopatch.estimator import GeoPatch
from geopatch.protocol import Places, places
from geopatch.search.explain import Tokens
from geopatch.search.late import Floats
from geopatch.search.searchable import Searchable
from geopatch.signal import Signal

SAMPLE_SLACK = 0.51  # samples by which a span may miss the grid of its record


@dataclass(frozen=True)
class Span:
    """A part of a record whose windows are in the gallery."""

    record: str
    start_s: float
    stop_s: float

    def __post_init__(self) -> None:
        if not self.start_s < self.stop_s:
            raise ConfigError(f"a span must end after it starts, got {self.start_s:g} to {self.stop_s:g} s")


@dataclass(frozen=True, eq=False)
class Asked:
    """A query, encoded. `place` is where it comes from, None for an array; `stored` says that it is in the gallery."""

    embedding: Floats  # (D,)
    tokens: Tokens
    place: Places | None
    window: Signal | None
    stored: bool
    tempo: float = 0.0  # the strength of the warp that it was read with

    @property
    def id(self) -> str:
        return "" if self.place is None else str(self.place.ids[0])


Query: TypeAlias = str | Span | Signal | Asked | npt.ArrayLike


def ask(gallery: Searchable, queries: Sequence[Query], model: GeoPatch | None) -> list[Asked]:
    """Queries encoded together; those that are stored need no model."""
    found = [_found(gallery, query) for query in queries]
    signals = [item for item in found if isinstance(item, Signal)]
    encoded = iter(encode(gallery, signals, model) if signals else ())
    named = [isinstance(query, (Signal, Span)) for query in queries]
    return [
        item if isinstance(item, Asked) else next(encoded) if has_place else replace(next(encoded), place=None)
        for item, has_place in zip(found, named, strict=True)
    ]


def as_query(values: Any) -> Signal:
    """One signal from a signal or from (T,) or (T, C) numbers."""
    return values if isinstance(values, Signal) else Signal.from_array(values, id="query")


def _found(gallery: Searchable, query: Query) -> Asked | Signal:
    if isinstance(query, Asked):  # encoded before, maybe together with queries of other searches
        return query
    return _stored(gallery, query) if isinstance(query, (str, Span)) else as_query(query)


def _stored(gallery: Searchable, query: str | Span) -> Asked | Signal:
    if isinstance(query, str):
        return _asked(gallery.get(query), 0)
    parts = list(gallery.scan(where=_touching(query)))
    if not parts:
        raise GalleryError(
            f"the gallery has no window of record {query.record!r} between {query.start_s:g} and {query.stop_s:g} s"
        )
    slack = SAMPLE_SLACK / gallery.about.clock_hz
    for entries in parts:
        same = (abs(entries.start_s - query.start_s) < slack) & (abs(entries.stop_s - query.stop_s) < slack)
        if same.any():
            return _asked(entries, int(np.flatnonzero(same)[0]))
    return _joined(query, [window for entries in parts for window in entries.windows])


def _touching(span: Span) -> dict[str, Any]:
    return {"record": span.record, "start_s": {"<": span.stop_s}, "stop_s": {">": span.start_s}}


def _joined(span: Span, windows: Iterable[Signal | None]) -> Signal:
    """The values of a span, put together from the stored windows that touch it."""
    kept = sorted((window for window in windows if window is not None), key=lambda window: window.start_s)
    told = f"record {span.record!r} from {span.start_s:g} to {span.stop_s:g} s"
    if not kept:
        raise GalleryError(f"the gallery keeps no values of {told}; add its windows with keep_windows=True")
    rate_hz, clock_hz = kept[0].rate_hz, kept[0].clock_hz
    values = np.full((round((span.stop_s - span.start_s) * clock_hz), kept[0].values.shape[1]), np.nan, np.float32)
    filled = np.zeros(len(values), dtype=bool)
    for window in kept:
        first = round((window.start_s - span.start_s) * clock_hz)
        inside = slice(max(first, 0), max(first + window.length, 0))
        size = len(filled[inside])
        values[inside] = window.values[max(-first, 0) :][:size]
        filled[inside] = True
    if not filled.all() or not len(filled):
        raise GalleryError(f"the stored windows do not cover {told}; ask for a part that they cover")
    return Signal(values, told, rate_hz, kept[0].channels, span.record, span.start_s)


def encode(gallery: Searchable, signals: Sequence[Signal], model: GeoPatch | None) -> list[Asked]:
    """Signals encoded together."""
    if model is None:
        raise GalleryError("searching by a signal needs the gallery's model; give model=GeoPatch.load(folder)")
    timed = [signal.at_rate(gallery.about.rate_hz) for signal in signals]
    numbered = [replace(signal, id=str(n)) for n, signal in enumerate(timed)]  # two queries may have one id
    entries = entries_from(model.encode(numbered), numbered, gallery.about, keep_windows=False)
    return [
        replace(_asked(entries, n), place=places([signal]), window=signal, stored=False)
        for n, signal in enumerate(timed)
    ]


def _asked(entries: Entries, n: int) -> Asked:
    place = Places(
        np.asarray([entries.ids[n]]), np.asarray([entries.records[n]]), entries.start_s[[n]], entries.stop_s[[n]]
    )
    tokens = Tokens(entries.tokens[n], entries.valid[n], entries.patch_s[n])
    return Asked(entries.embedding[n], tokens, place, entries.windows[n], stored=True)
