"""The shortlist of each query: the nearest windows, by embeddings or by tokens, that filter and protocol let in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from geopatch.engines.engine import Shortlist
from geopatch.engines.filters import All, Equal, Filter, Not, Order
from geopatch.errors import ConfigError
from geopatch.protocol import Protocol
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery, Searchable
from geopatch.search.weighing import probes


def shortlists(gallery: Searchable, queries: Sequence[EncodedQuery], options: SearchOptions) -> list[Shortlist]:
    """For each query its `depth` nearest candidates, and one more: the best of those outside.

    A candidate is as near as it is to the nearest tempo of the query; that of the best `depth` is in the shortlist of
    that tempo, so that nothing is missed.
    """
    near = iter(_shortlists(gallery, [one for query in queries for one in query.tempos], options))
    return [_nearest([next(near) for _ in query.tempos], options) for query in queries]


def _nearest(near: Sequence[Shortlist], options: SearchOptions) -> Shortlist:
    """The shortlists of one query at several tempos as one, by the best score of each candidate."""
    if len(near) == 1:
        return near[0]
    best: dict[str, np.float32] = {}
    for one in near:
        for id, score in zip(one.ids, one.scores, strict=True):
            best[id] = max(score, best.get(id, score))
    ids = sorted(best, key=lambda id: (-best[id], id))[: options.depth + 1]
    return Shortlist(tuple(ids), np.asarray([best[id] for id in ids], dtype=np.float32))


def _shortlists(gallery: Searchable, queries: Sequence[EncodedQuery], options: SearchOptions) -> list[Shortlist]:
    """The shortlist of each query at one tempo.

    What a strict protocol removes is filtered by the engine, so that it cannot crowd out what the protocol lets in.
    Queries with the same filter go to the engine together.
    """
    groups: dict[Filter | None, list[int]] = defaultdict(list)
    for n, query in enumerate(queries):
        groups[allowed(query, options)].append(n)
    near: dict[int, Shortlist] = {}
    for where, members in groups.items():
        for n, one in zip(members, _nearest_to([queries[n] for n in members], gallery, options, where), strict=True):
            near[n] = _without_itself(one, queries[n], options)
    return [near[n] for n in range(len(queries))]


def _nearest_to(
    queries: Sequence[EncodedQuery], gallery: Searchable, options: SearchOptions, where: Filter | None
) -> list[Shortlist]:
    if not options.by_tokens:
        vectors = probes(np.stack([query.embedding for query in queries]), options.clock, gallery.about.rhythm)
        return gallery.shortlist(vectors, options.depth + 2, where)
    tokens, valid = (np.stack([getattr(query.tokens, name) for query in queries]) for name in ("tokens", "valid"))
    return gallery.token_shortlist(tokens, valid, options.depth + 2, where, options.ranking.ordered)


def allowed(query: EncodedQuery, options: SearchOptions) -> Filter | None:
    """Which entries may be hits, the query itself aside."""
    parts = [part for part in (options.filter, _far_enough(query, options.rule)) if part is not None]
    return None if not parts else parts[0] if len(parts) == 1 else All(tuple(parts))


def _far_enough(query: EncodedQuery, protocol: Protocol | None) -> Filter | None:
    """What a strict protocol removes, as a filter."""
    if protocol is None or not protocol.strict:
        return None
    if query.place is None:
        raise ConfigError(
            f"{protocol.name} needs the query's record, and an array has none; give a Signal with a record, or an id"
        )
    parts = [_condition(field, sign, value[0]) for field, sign, value in protocol.too_near(query.place)]
    return Not(parts[0] if len(parts) == 1 else All(tuple(parts)))


def _condition(field: str, sign: str, value: np.generic) -> Filter:
    return Equal(field, (str(value),)) if sign == "==" else Order(field, sign, float(value))


def _without_itself(near: Shortlist, query: EncodedQuery, options: SearchOptions) -> Shortlist:
    itself = query.id if query.stored or options.rule is not None else ""
    kept = [n for n, id in enumerate(near.ids) if id != itself][: options.depth + 1]
    return Shortlist(tuple(near.ids[n] for n in kept), near.scores[kept])
