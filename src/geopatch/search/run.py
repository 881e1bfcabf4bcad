"""Search: shortlist -> scorer -> protocol -> gap, least score, k -> hits."""

from __future__ import annotations

from collections.abc import Sequence

from geopatch.engines.engine import Shortlist
from geopatch.engines.entry import Entries
from geopatch.engines.filters import Where, as_filter
from geopatch.errors import ConfigError, GalleryError
from geopatch.estimator import GeoPatch
from geopatch.protocol import Protocol
from geopatch.search.candidates import shortlists
from geopatch.search.dtw import BAND
from geopatch.search.hit import Hit
from geopatch.search.plan import Plan
from geopatch.search.query import Query, ask
from geopatch.search.ranking import hits, rank
from geopatch.search.searchable import Searchable, model_of
from geopatch.search.sureness import sureness
from geopatch.search.tempo import Variants, as_it_is, at_tempos
from geopatch.signal import Signal

CHUNK = 32  # queries whose candidates are in memory together
LOOKS = 3  # a writer beside us may take an entry out between the shortlist and its reading


def search(
    gallery: Searchable,
    query: Query,
    k: int = 10,
    *,
    model: GeoPatch | None = None,
    scorer: str = "fused",
    shortlist: int | None = None,
    where: Where = None,
    protocol: Protocol | str | None = None,
    guard_s: float = 0.0,
    min_gap_s: float = 0.0,
    min_score: float | None = None,
    band: float = BAND,
    certify: bool = False,
    tempos: bool = False,
    windows: bool = True,
) -> list[Hit]:
    """The k windows of a gallery nearest to a query, best first.

    The query is a signal or an array (T,) or (T, C), which the gallery's model encodes, the id of a stored window, or a
    `Span` of a stored record. Of the `shortlist` nearest by cosine (50), `scorer` finds the order: cosine, maxsim,
    fused, bridge or dtw. `where` filters by metadata. A strict `protocol` leaves out windows of the query's record, all
    or those within `guard_s` of it. Hits of one record start at least `min_gap_s` apart; there may be fewer than k.
    `band` is how far a dtw path may leave the diagonal, as a share of the longer signal. With `certify`, each hit says
    how far embeddings may drift before it leaves the top k. With `tempos`, the query is searched as it is and warped by
    0.05 of its length to either side, and each candidate keeps its best score. Without `windows`, hits come without
    their values, which then need not be read.
    """
    return search_batch(
        gallery,
        [query],
        k,
        model=model,
        scorer=scorer,
        shortlist=shortlist,
        where=where,
        protocol=protocol,
        guard_s=guard_s,
        min_gap_s=min_gap_s,
        min_score=min_score,
        band=band,
        certify=certify,
        tempos=tempos,
        windows=windows,
    )[0]


def search_batch(
    gallery: Searchable,
    queries: Sequence[Query],
    k: int = 10,
    *,
    model: GeoPatch | None = None,
    scorer: str = "fused",
    shortlist: int | None = None,
    where: Where = None,
    protocol: Protocol | str | None = None,
    guard_s: float = 0.0,
    min_gap_s: float = 0.0,
    min_score: float | None = None,
    band: float = BAND,
    certify: bool = False,
    tempos: bool = False,
    windows: bool = True,
) -> list[list[Hit]]:
    """The hits of each of several queries, encoded and scored together."""
    if isinstance(queries, (str, Signal)):
        raise ConfigError("search_batch takes a list of queries; give one query to search")
    rule = Protocol(protocol, guard_s) if isinstance(protocol, str) else protocol
    plan = Plan(k, scorer, shortlist, as_filter(where), rule, min_gap_s, min_score, band, certify, tempos, windows)
    used = model_of(gallery, model)
    return [
        found
        for start in range(0, len(queries), CHUNK)
        for found in _searched(gallery, queries[start : start + CHUNK], plan, used)
    ]


def _searched(gallery: Searchable, queries: Sequence[Query], plan: Plan, model: GeoPatch | None) -> list[list[Hit]]:
    given = ask(gallery, queries, model)
    asked = at_tempos(gallery, given, model) if plan.tempos else as_it_is(given)
    near, entries = _candidates(gallery, asked, plan)
    if entries is None:
        return [[] for _ in asked]
    encoder = None if model is None else model.encoder_
    rankings = [rank(*one, entries, plan, encoder) for one in zip(asked, near, strict=True)]
    if not plan.certify:
        found = [hits(ranking, plan, None, encoder) for ranking in rankings]
    else:
        indexed = gallery.info().indexed
        found = [
            hits(ranking, plan, sureness(ranking, one, plan, indexed=indexed).of, encoder)
            for ranking, one in zip(rankings, near, strict=True)
        ]
    return _with_windows(gallery, found) if plan.windows and not plan.needs_windows else found


def _with_windows(gallery: Searchable, found: list[list[Hit]]) -> list[list[Hit]]:
    """The hits with their values, which the search itself did not need; one that is gone by now stays without."""
    ids = list(dict.fromkeys(hit.id for hits in found for hit in hits))
    try:
        entries = gallery.fetch(ids) if ids else None
    except GalleryError:
        entries = None
    if entries is None:
        return found
    windows = dict(zip(entries.ids, entries.windows, strict=True))
    return [[hit.with_window(windows[hit.id]) for hit in hits] for hits in found]


def _candidates(gallery: Searchable, asked: Sequence[Variants], plan: Plan) -> tuple[list[Shortlist], Entries | None]:
    """The shortlist of each query, and the entries of all of them; None where there are none."""
    for look in range(1, LOOKS + 1):
        near = shortlists(gallery, asked, plan)
        ids = list(dict.fromkeys(id for one in near for id in one.ids))
        try:
            return near, gallery.fetch(ids, with_windows=plan.needs_windows) if ids else None
        except GalleryError:
            if look == LOOKS:
                raise
    raise AssertionError("the last look returns or raises")
