"""What one may search by, and how it is encoded: a signal or array, the id of a stored window, a span of a record."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.arrays import anchors_around
from geopatch.data.front_end import FrontEnd
from geopatch.engines.about import About, about_model
from geopatch.engines.engine import Info, Record, Shortlist
from geopatch.engines.entry import Channels, Entries, entries_from, fitting_layout
from geopatch.engines.filters import Where
from geopatch.errors import ConfigError, GalleryError, NotFoundError, SignalError
from geopatch.protocol import Places, places
from geopatch.search.explain import Floats, Tokens
from geopatch.signal import Signal
from geopatch.warp import warped

if TYPE_CHECKING:  # a search by a stored id needs no torch
    from geopatch.estimator import GeoPatch

SAMPLE_SLACK = 0.51  # samples by which a span may miss the grid of its record
ANCHOR_DIGITS = 6  # decimals of a sample to which anchors of overlapping windows agree

# Half of the warp that queries are stressed with, to either side, so that what is left of it is no more than what the
# encoder bears well; each further tempo costs an encoding and a scoring. The first wins where two score the same.
TEMPOS = (0.0, -0.05, 0.05)


class BeginAndUnits(Protocol):
    """What is known of a record as a whole."""

    @property
    def start_time(self) -> datetime | None: ...


class Searchable(Protocol):
    """A gallery, as far as a search is concerned."""

    @property
    def model(self) -> GeoPatch | None: ...

    @property
    def about(self) -> About: ...

    @property
    def front_end(self) -> FrontEnd | None: ...

    def refresh(self) -> About: ...

    def get(self, id: str) -> Entries: ...

    def fetch(self, ids: Sequence[str], *, with_windows: bool = ...) -> Entries: ...

    def spans(self, ids: Sequence[str]) -> Mapping[str, tuple[str, float, float]]: ...

    def scan(self, batch_size: int = ..., where: Where = ...) -> Iterator[Entries]: ...

    def shortlist(self, embedding: Floats, k: int = ..., where: Where = ...) -> list[Shortlist]: ...

    def token_shortlist(
        self, tokens: Floats, valid: npt.NDArray[np.bool_], k: int = ..., where: Where = ..., ordered: bool = ...
    ) -> list[Shortlist]: ...

    def layouts(self) -> Sequence[Channels]: ...

    def records(self) -> tuple[Record, ...]: ...

    def record_facts(self, records: Sequence[str] | None = ...) -> Mapping[str, BeginAndUnits]: ...

    def info(self) -> Info: ...


@dataclass(frozen=True)
class Span:
    """A part of a record whose windows are in the gallery.

    Parameters
    ----------
    record : str
        The record.
    start_s, stop_s : float
        Where the part starts and stops, in seconds from the start of the record.

    Raises
    ------
    ConfigError
        When it does not stop after it starts.

    Examples
    --------
    >>> Span("rec1", 2.5, 4.0)
    Span(record='rec1', start_s=2.5, stop_s=4.0)
    """

    record: str
    start_s: float
    stop_s: float

    def __post_init__(self) -> None:
        if not self.start_s < self.stop_s:
            raise ConfigError(f"a span must end after it starts, got {self.start_s:g} to {self.stop_s:g} s")


Query: TypeAlias = str | Span | Signal | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class EncodedQuery:
    """A query, encoded. `place` is where it comes from, None for an array; `stored` says that it is in the gallery."""

    embedding: Floats  # (D,)
    tokens: Tokens
    place: Places | None
    window: Signal | None
    stored: bool
    tempo: float = 0.0  # the strength of the warp that it was read with
    others: tuple[EncodedQuery, ...] = ()  # the same query at other tempos

    @property
    def id(self) -> str:
        return "" if self.place is None else str(self.place.ids[0])

    @property
    def tempos(self) -> tuple[EncodedQuery, ...]:
        """The query at each tempo it is searched by, its own first."""
        return (self, *self.others)


def model_of(gallery: Searchable, model: GeoPatch | None) -> GeoPatch | None:
    """The model to search with, if it is the gallery's; None stands for the one that the gallery has."""
    if model is None:
        return None
    if (encoder := about_model(model).encoder) != gallery.about.encoder:
        raise GalleryError(
            f"this gallery holds vectors of the encoder {gallery.about.encoder}, the model is {encoder}; "
            "search with the model it was made with"
        )
    return model


def loaded_model(gallery: Searchable, model: GeoPatch | None) -> GeoPatch | None:
    """`model`, or the one that the gallery has, which is loaded where it is needed only."""
    return gallery.model if model is None else model


def encode_queries(
    gallery: Searchable, queries: Sequence[Query | EncodedQuery], model: GeoPatch | None
) -> list[EncodedQuery]:
    """Queries encoded together; those that are stored need no model, those that are encoded stay as they are."""
    read = [_read(gallery, query) for query in queries]
    signals = [
        item if isinstance(query, Span) else _through_front_end(gallery, item, model)  # stored windows went through it
        for item, query in zip(read, queries, strict=True)
        if isinstance(item, Signal)
    ]
    encoded = iter(encode_windows(gallery, signals, model) if signals else ())
    return [
        item
        if isinstance(item, EncodedQuery)
        else next(encoded)
        if isinstance(query, (Signal, Span))
        else replace(next(encoded), place=None)  # an array comes from nowhere
        for item, query in zip(read, queries, strict=True)
    ]


def _through_front_end(gallery: Searchable, signal: Signal, model: GeoPatch | None) -> Signal:
    """A query as windows are made of recordings: sound as frames, within the model's band."""
    front = FrontEnd.of(loaded_model(gallery, model))
    return signal if front is None else front.query(signal)


def at_tempos(gallery: Searchable, queries: Sequence[EncodedQuery], model: GeoPatch | None) -> list[EncodedQuery]:
    """Each query with itself at the other tempos, all encoded together. They share id, record and place."""
    model = loaded_model(gallery, model)
    if model is None:
        raise GalleryError("other tempos are encoded by the gallery's model; give model=GeoPatch.load(folder)")
    tempos = [tempo for tempo in TEMPOS if tempo]
    encoded = iter(
        encode_windows(gallery, [warped(_window(query), tempo) for query in queries for tempo in tempos], model)
    )
    return [
        replace(
            query,
            others=tuple(
                replace(next(encoded), place=query.place, stored=query.stored, tempo=tempo) for tempo in tempos
            ),
        )
        for query in queries
    ]


def _window(query: EncodedQuery) -> Signal:
    if query.window is None:
        raise GalleryError(
            f"other tempos need the values of the query, and the gallery keeps none of {query.id!r}; "
            "give a signal, or add windows with keep_windows=True"
        )
    return query.window


def _read(gallery: Searchable, query: Query | EncodedQuery) -> EncodedQuery | Signal:
    """The query as a signal to encode, or encoded where it is stored or was encoded before."""
    if isinstance(query, (EncodedQuery, Signal)):
        return query
    if isinstance(query, str):
        return _encoded(gallery.get(query), 0)
    return _span(gallery, query) if isinstance(query, Span) else Signal.from_array(query, id="query")


def _span(gallery: Searchable, span: Span) -> EncodedQuery | Signal:
    """The stored window that is the span, or the values of the span from the windows that touch it."""
    where = {"record": span.record, "start_s": {"<": span.stop_s}, "stop_s": {">": span.start_s}}
    parts = list(gallery.scan(where=where))
    if not parts:
        known = [record for record in gallery.records() if record.name == span.record]
        if not known:
            raise unknown_record(span.record, [record.name for record in gallery.records()])
        raise NotFoundError(
            f"the gallery has no window of record {span.record!r} between {span.start_s:g} and {span.stop_s:g} s; "
            f"it has {known[0].start_s:g} to {known[0].stop_s:g} s of it"
        )
    slack = SAMPLE_SLACK / gallery.about.clock_hz
    for entries in parts:
        same = (abs(entries.start_s - span.start_s) < slack) & (abs(entries.stop_s - span.stop_s) < slack)
        if same.any():
            return _encoded(entries, int(np.flatnonzero(same)[0]))
    return _joined(span, [window for entries in parts for window in entries.windows])


def unknown_record(record: str, records: Sequence[str]) -> NotFoundError:
    """The error for a record that is not there, with the names nearest to it."""
    nearest = difflib.get_close_matches(record, records, n=3, cutoff=0.0)
    there = (
        f"of its {len(records)} records the nearest are {', '.join(map(repr, nearest))}" if nearest else "it is empty"
    )
    return NotFoundError(f"the gallery has no window of record {record!r}; {there}")


def _joined(span: Span, windows: Iterable[Signal | None]) -> Signal:
    """The values and anchors of a span, put together from the stored windows that touch it."""
    kept = sorted((window for window in windows if window is not None), key=lambda window: window.start_s)
    name = f"record {span.record!r} from {span.start_s:g} to {span.stop_s:g} s"
    if not kept:
        raise GalleryError(f"the gallery keeps no values of {name}; add its windows with keep_windows=True")
    clock_hz, channels = kept[0].clock_hz, kept[0].channels
    kept = [window.arranged(channels) for window in kept]
    values = np.full((round((span.stop_s - span.start_s) * clock_hz), kept[0].values.shape[1]), np.nan, np.float32)
    filled = np.zeros(len(values), dtype=bool)
    for window in kept:
        first = round((window.start_s - span.start_s) * clock_hz)
        inside = slice(max(first, 0), max(first + window.length, 0))
        size = len(filled[inside])
        values[inside] = window.values[max(-first, 0) :][:size]
        filled[inside] = True
    if not filled.all() or not len(filled):
        raise GalleryError(f"the stored windows do not cover {name}; choose a part that they cover")
    anchors = _joined_anchors(kept, span.start_s, len(values))
    start = kept[0].start_time and kept[0].start_time + timedelta(seconds=span.start_s - kept[0].start_s)
    return Signal(values, name, kept[0].rate_hz, channels, span.record, span.start_s, anchors, start, kept[0].units)


def _joined_anchors(windows: Sequence[Signal], start_s: float, length: int) -> npt.NDArray[np.float64] | None:
    """The anchors of all windows in samples of the span, each once, with those of its surroundings."""
    shifted = [
        window.anchors + (window.start_s - start_s) * window.clock_hz
        for window in windows
        if window.anchors is not None
    ]
    if not shifted:
        return None
    anchors = np.unique(np.concatenate(shifted).round(ANCHOR_DIGITS))
    return anchors_around(anchors, 0, length)


def encode_windows(gallery: Searchable, signals: Sequence[Signal], model: GeoPatch | None) -> list[EncodedQuery]:
    """Signals encoded together, at the rate and in the order of channels of the gallery."""
    model = loaded_model(gallery, model)
    if model is None:
        raise GalleryError(
            "searching by a signal needs the gallery's model; give model=GeoPatch.load(folder), or --model"
        )
    ready = _arranged(gallery, [signal.at_rate(gallery.about.rate_hz) for signal in signals])
    numbered = [replace(signal, id=str(n)) for n, signal in enumerate(ready)]  # two queries may have one id
    entries = entries_from(model.encode(numbered), numbered, gallery.about, keep_windows=False)
    return [
        replace(_encoded(entries, n), place=places([signal]), window=signal, stored=False)
        for n, signal in enumerate(ready)
    ]


def _arranged(gallery: Searchable, signals: Sequence[Signal]) -> list[Signal]:
    """Named channels in the order of the model's, or of the windows that the gallery holds where the model has none."""
    if gallery.about.channels or not any(signal.channels for signal in signals):
        return [signal.arranged(gallery.about.channels) for signal in signals]
    layouts = gallery.layouts()
    return [_in_layout(signal, layouts) if signal.channels and layouts else signal for signal in signals]


def _in_layout(signal: Signal, layouts: Sequence[Channels]) -> Signal:
    layout = fitting_layout(signal.channels, layouts)
    if layout is None:
        stored = "; ".join(", ".join(one) for one in layouts)
        raise SignalError(
            f"signal {signal.id!r} has the channels {', '.join(signal.channels)}; the gallery holds windows of "
            f"{stored}: rename its channels, or leave the names out to take them as they stand"
        )
    return signal.arranged(layout)


def _encoded(entries: Entries, n: int) -> EncodedQuery:
    place = Places(
        np.asarray([entries.ids[n]]), np.asarray([entries.records[n]]), entries.start_s[[n]], entries.stop_s[[n]]
    )
    tokens = Tokens(entries.tokens[n], entries.valid[n], entries.patch_s[n])
    return EncodedQuery(entries.embedding[n], tokens, place, entries.windows[n], stored=True)
