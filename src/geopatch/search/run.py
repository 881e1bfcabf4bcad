"""Search: shortlist -> scorer -> gap, least score, largest chance, k -> hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from geopatch.engines.engine import Shortlist
from geopatch.engines.entry import Entries
from geopatch.errors import ConfigError, GalleryError, GeoPatchError, NotFoundError
from geopatch.search.candidates import shortlists
from geopatch.search.certificate import Certifier, cosine_doubt
from geopatch.search.chance import Chances
from geopatch.search.hit import Hit, Hits
from geopatch.search.notes import query_notes
from geopatch.search.options import SearchOptions
from geopatch.search.query import (
    EncodedQuery,
    Query,
    Searchable,
    Span,
    at_tempos,
    encode_queries,
    loaded_model,
    model_of,
)
from geopatch.search.ranking import Certify, Ranking, hits_of, rank
from geopatch.search.weighing import check_clock
from geopatch.signal import Signal, are_bands

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

CHUNK = 32  # queries whose candidates are in memory together
MAX_RETRIES = 2  # a writer beside us may remove an entry between the shortlist and its reading
REFIT_RETRIES = 20  # a gallery may be refitted in the midst of a search, and again in the midst of the next try
T = TypeVar("T")


class Measured(Searchable, Protocol):
    """A gallery that knows what its scores mean."""

    chances: Chances

    @property
    def loaded_model(self) -> GeoPatch | None: ...


def search_batch(
    gallery: Measured,
    queries: Sequence[Query | EncodedQuery],
    options: SearchOptions,
    *,
    model: GeoPatch | None = None,
) -> list[Hits]:
    """The hits of each of several queries, encoded and scored together; `Gallery.search_batch` says more."""
    if isinstance(queries, (str, Signal, Span)):
        raise ConfigError("search_batch takes a list of queries; give one query to search")

    def search() -> list[Hits]:
        used, complete = model_of(gallery, model), options.completed(sound=are_bands(gallery.about.channels))
        return [
            hits
            for start in range(0, len(queries), CHUNK)
            for hits in _search_chunk(gallery, queries[start : start + CHUNK], complete, used)
        ]

    return with_one_encoder(gallery, search)


def with_one_encoder(gallery: Searchable, work: Callable[[], T]) -> T:
    """What `work` returns, done again where the gallery was refitted meanwhile: vectors of two encoders never meet."""
    for _ in range(REFIT_RETRIES + 1):
        encoder = gallery.refresh().encoder
        try:
            result = work()
        except GeoPatchError:
            if gallery.refresh().encoder == encoder:
                raise
        else:
            if gallery.refresh().encoder == encoder:
                return result
    raise GalleryError("the gallery was refitted again and again while it was searched; search again")


def _search_chunk(
    gallery: Measured, queries: Sequence[Query | EncodedQuery], options: SearchOptions, model: GeoPatch | None
) -> list[Hits]:
    of_queries = gallery.about.encoder
    check_clock(options.clock, gallery.about)
    encoded = encode_queries(gallery, queries, model)
    if options.tempos:
        encoded = at_tempos(gallery, encoded, model)
    near, entries = _candidates(gallery, encoded, options)
    if entries is None:
        return [Hits(notes=query_notes(query.window)) for query in encoded]
    if entries.encoder != of_queries:
        raise GalleryError("the gallery was refitted during the search; search again")  # as `with_one_encoder` does
    used = _model_at_hand(gallery, encoded, options, model)
    chance, encoder = gallery.chances.measure(options, used), None if used is None else used.encoder_
    indexed = gallery.info().indexed if options.certify else 0
    results = []
    for query, one in zip(encoded, near, strict=True):
        ranking = rank(query, one, entries, options, encoder, gallery.about.rhythm)
        certify = _certify(ranking, one, options, indexed) if options.certify else None
        chances = None if chance is None else chance.of(ranking.score)
        results.append(hits_of(ranking, options, certify, encoder, chances))
    if options.windows and not options.ranking.needs_windows:
        results = _with_windows(gallery, results)
    results = _with_times(gallery, results)
    return [Hits(hits, query_notes(query.window, encoder)) for hits, query in zip(results, encoded, strict=True)]


def _model_at_hand(
    gallery: Measured, queries: Sequence[EncodedQuery], options: SearchOptions, model: GeoPatch | None
) -> GeoPatch | None:
    """The model, for the scale of values and for chance; stored queries alone do not have it loaded."""
    needed = options.ranking.needs_windows or options.max_chance is not None
    if needed or model is not None or not all(query.stored for query in queries):
        return loaded_model(gallery, model)
    return gallery.loaded_model


def _certify(ranking: Ranking, near: Shortlist, options: SearchOptions, indexed: int) -> Certify:
    doubt = "" if options.by_tokens else cosine_doubt(ranking.near_cosine, near, indexed)
    if options.clock is not None:
        doubt = "with clock, candidates are ranked by other weights than those they were looked up by"
    cosine = dict(zip(near.ids, ranking.near_cosine.tolist(), strict=True))
    return Certifier(options, cosine, ranking.scores, doubt).certify


def _with_windows(gallery: Searchable, results: list[list[Hit]]) -> list[list[Hit]]:
    """The hits with their values, which the search itself did not need; where one is gone by now, all stay without."""
    ids = list(dict.fromkeys(hit.id for hits in results for hit in hits))
    if not ids:
        return results
    try:
        entries = gallery.fetch(ids)
    except NotFoundError:
        return results
    windows = dict(zip(entries.ids, entries.windows, strict=True))
    return [[hit.with_window(windows[hit.id]) for hit in hits] for hits in results]


def _with_times(gallery: Searchable, results: list[list[Hit]]) -> list[list[Hit]]:
    """The hits with their wall-clock times, where those of their records are known."""
    records = list(dict.fromkeys(hit.record for hits in results for hit in hits))
    facts = gallery.record_facts(records) if records else {}
    begins = {name: one.start_time for name, one in facts.items() if one.start_time is not None}
    return [
        [
            replace(hit, start_time=begins[hit.record] + timedelta(seconds=hit.start_s))
            if hit.record in begins
            else hit
            for hit in hits
        ]
        for hits in results
    ]


def _candidates(
    gallery: Searchable, queries: Sequence[EncodedQuery], options: SearchOptions
) -> tuple[list[Shortlist], Entries | None]:
    """The shortlist of each query, and the entries of all of them; None where there are none."""
    for attempt in range(MAX_RETRIES + 1):
        near = shortlists(gallery, queries, options)
        ids = list(dict.fromkeys(id for one in near for id in one.ids))
        try:
            return near, gallery.fetch(ids, with_windows=options.ranking.needs_windows) if ids else None
        except NotFoundError:
            if attempt == MAX_RETRIES:
                raise
    raise AssertionError("the last attempt returns or raises")
