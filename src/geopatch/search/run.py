"""Search: shortlist -> scorer -> gap, least score, largest chance, k -> hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from geopatch.engines.engine import Embeddings, Shortlist
from geopatch.engines.entry import Entries
from geopatch.engines.filters import Where
from geopatch.engines.partial import partial_answers
from geopatch.errors import ConfigError, GalleryError, GeoPatchError, NotFoundError
from geopatch.search.candidates import shortlists
from geopatch.search.certificate import Certifier, cosine_doubt
from geopatch.search.chain import chain_hits, part_options, parts_of
from geopatch.search.chance import Chance, Chances
from geopatch.search.hit import Hit, Hits
from geopatch.search.levels import Levels, duration_of, shortlists_apart
from geopatch.search.notes import query_notes
from geopatch.search.options import SearchOptions
from geopatch.search.placing import HitPlacer
from geopatch.search.query import (
    EncodedQuery,
    Query,
    Searchable,
    Span,
    at_tempos,
    encode_queries,
    encode_windows,
    loaded_model,
    model_of,
)
from geopatch.search.ranking import Certify, Ranking, hits_of, rank
from geopatch.search.weighing import check_clock
from geopatch.signal import Signal, are_bands

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch
    from geopatch.model.encoder import Encoder

CHUNK = 32  # queries whose candidates are in memory together
MAX_RETRIES = 2  # a writer beside us may remove an entry between the shortlist and its reading
REFIT_RETRIES = 20  # a gallery may be refitted in the midst of a search, and again in the midst of the next try
PLACES, MOST_PLACES = 4, 150  # that are fitted for each hit wanted, and besides all of them at most
T = TypeVar("T")


class Measured(Searchable, Protocol):
    """A gallery that knows what its scores mean."""

    chances: Chances

    @property
    def loaded_model(self) -> GeoPatch | None: ...

    def embeddings(self, where: Where = ...) -> Embeddings: ...


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

    with partial_answers(allowed=not options.whole) as missing:
        results = with_one_encoder(gallery, search)
    return [Hits(hits, (*hits.notes, *sorted(missing))) for hits in results] if missing else results


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
    check_clock(options.clock, gallery.about)
    encoder, encoded, levels = gallery.about.encoder, encode_queries(gallery, queries, model), _levels(gallery)
    notes = [() if levels is None else levels.check(duration_of(query)) for query in encoded]
    results: dict[int, list[Hit]] = {}
    for n, query in enumerate(encoded):
        if levels is not None and query.window is not None and len(parts := parts_of(query.window, levels)) > 1:
            results[n] = _search_parts(gallery, query, parts, options, model, levels, encoder)
    others = [n for n in range(len(encoded)) if n not in results]
    if others:
        some = _search_windows(gallery, [encoded[n] for n in others], options, model, levels, encoder)
        results.update(zip(others, some, strict=True))
    if gallery.about.encoder != encoder:
        raise GalleryError("the gallery was refitted during the search; search again")
    used = gallery.loaded_model if model is None else model
    timed = _with_times(gallery, [results[n] for n in range(len(encoded))])
    return [
        Hits(hits, (*said, *query_notes(query.window, None if used is None else used.encoder_)))
        for hits, query, said in zip(timed, encoded, notes, strict=True)
    ]


def _search_windows(
    gallery: Measured,
    queries: Sequence[EncodedQuery],
    options: SearchOptions,
    model: GeoPatch | None,
    levels: Levels | None,
    of_queries: str,
) -> list[list[Hit]]:
    """The hits of queries that are about as long as windows."""
    if levels is not None:
        options = options.deeper(_places(queries, options, levels))
    rankings = _ranked(gallery, queries, options, model, levels, of_queries)
    results = list[list[Hit]]()
    for ranking, near in zip(rankings.rankings, rankings.near, strict=True):
        placer = None
        if levels is not None:
            placer, ranking = HitPlacer.of(gallery, ranking, options, levels)
        certify = _certify(ranking, near, options, gallery.info().indexed, levels) if options.certify else None
        chances = None if rankings.chance is None else rankings.chance.of(ranking.score)
        results.append(hits_of(ranking, options, certify, rankings.encoder, chances, placer))
    if not rankings.rankings:
        return [[] for _ in queries]
    return _with_windows(gallery, results) if options.windows and not options.ranking.needs_windows else results


def _places(queries: Sequence[EncodedQuery], options: SearchOptions, levels: Levels) -> int:
    """How many places are fitted: the shorter a query, the more there are that it must be told from."""
    places = max(options.depth, min(PLACES * options.k, options.k + MOST_PLACES))
    return round(places * max(levels.crowding(duration_of(query)) for query in queries))


def _search_parts(
    gallery: Measured,
    query: EncodedQuery,
    parts: Sequence[Signal],
    options: SearchOptions,
    model: GeoPatch | None,
    levels: Levels,
    of_queries: str,
) -> list[Hit]:
    """The hits of a query that is longer than the windows."""
    encoded = [
        replace(one, place=None if query.place is None else one.place) for one in encode_windows(gallery, parts, model)
    ]
    rankings = _ranked(gallery, encoded, part_options(options), model, levels, of_queries)
    return chain_hits(gallery, query, rankings.rankings, options, rankings.chance) if rankings.rankings else []


@dataclass(frozen=True, eq=False)
class _Rankings:
    """Candidates of several queries in the order of the scorer, what scores mean, and what scales values."""

    rankings: list[Ranking]  # none where nothing passes the filters
    near: list[Shortlist]
    chance: Chance | None
    encoder: Encoder | None


def _ranked(
    gallery: Measured,
    queries: Sequence[EncodedQuery],
    options: SearchOptions,
    model: GeoPatch | None,
    levels: Levels | None,
    of_queries: str,
) -> _Rankings:
    if options.tempos:
        queries = at_tempos(gallery, queries, model)
    near, entries = _candidates(gallery, queries, options, levels)
    if entries is None:
        return _Rankings([], [], None, None)
    if entries.encoder != of_queries:
        raise GalleryError("the gallery was refitted during the search; search again")  # as `with_one_encoder` does
    used = _model_at_hand(gallery, queries, options, model)
    encoder = None if used is None else used.encoder_
    rhythm = gallery.about.rhythm
    rankings = [rank(query, one, entries, options, encoder, rhythm) for query, one in zip(queries, near, strict=True)]
    return _Rankings(rankings, near, gallery.chances.measure(options, used), encoder)


def _levels(gallery: Searchable) -> Levels | None:
    """The lengths of the windows of a gallery of recordings; None of one that windows were added to as they came."""
    front = gallery.front_end
    return None if front is None or front.window_s is None else Levels(front.levels_s, front.window_s)


def _model_at_hand(
    gallery: Measured, queries: Sequence[EncodedQuery], options: SearchOptions, model: GeoPatch | None
) -> GeoPatch | None:
    """The model, for the scale of values and for chance; stored queries alone do not have it loaded."""
    needed = options.ranking.needs_windows or options.max_chance is not None
    if needed or model is not None or not all(query.stored for query in queries):
        return loaded_model(gallery, model)
    return gallery.loaded_model


def _certify(ranking: Ranking, near: Shortlist, options: SearchOptions, indexed: int, levels: Levels | None) -> Certify:
    doubt = "" if options.by_tokens else cosine_doubt(ranking.near_cosine, near, indexed)
    if options.clock is not None:
        doubt = "with clock, candidates are ranked by other weights than those they were looked up by"
    cosine = dict(zip(near.ids, ranking.near_cosine.tolist(), strict=True))
    return Certifier(options, cosine, ranking.scores, doubt, levels is not None).certify


def _with_windows(gallery: Searchable, results: list[list[Hit]]) -> list[list[Hit]]:
    """The hits with their values, which the search itself did not need; where one is gone by now, all stay without."""
    ids = list(dict.fromkeys(hit.id for hits in results for hit in hits if hit.window is None))
    if not ids:
        return results
    try:
        entries = gallery.fetch(ids)
    except NotFoundError:
        return results
    windows = dict(zip(entries.ids, entries.windows, strict=True))
    return [[hit.with_window(windows.get(hit.id, hit.window)) for hit in hits] for hits in results]


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
    gallery: Searchable, queries: Sequence[EncodedQuery], options: SearchOptions, levels: Levels | None
) -> tuple[list[Shortlist], Entries | None]:
    """The shortlist of each query, and the entries of all of them; None where there are none."""
    for attempt in range(MAX_RETRIES + 1):
        near = (
            shortlists(gallery, queries, options)
            if levels is None
            else shortlists_apart(gallery, queries, options, levels)
        )
        ids = list(dict.fromkeys(id for one in near for id in one.ids))
        try:
            return near, gallery.fetch(ids, with_windows=options.ranking.needs_windows) if ids else None
        except NotFoundError:
            if attempt == MAX_RETRIES:
                raise
    raise AssertionError("the last attempt returns or raises")
