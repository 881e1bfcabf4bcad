"""The cosine shortlist of each query: the nearest windows that the filter and the protocol let in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Shortlist
from geopatch.engines.entry import Entries
from geopatch.engines.filters import All, Equal, Filter, Not, Order
from geopatch.errors import ConfigError
from geopatch.protocol import Places, Protocol
from geopatch.search.plan import Plan
from geopatch.search.query import Asked
from geopatch.search.searchable import Searchable
from geopatch.search.tempo import Variants

Rows = npt.NDArray[np.intp]


def shortlists(gallery: Searchable, asked: Sequence[Variants], plan: Plan) -> list[Shortlist]:
    """For each query its `depth` nearest candidates, and one more: the best of those outside.

    A candidate is as near as it is to the nearest tempo of the query; that of the best `depth` is in the shortlist of
    that tempo, so that nothing is missed.
    """
    near = iter(_shortlists(gallery, [query for variants in asked for query in variants], plan))
    return [_nearest([next(near) for _ in variants], plan) for variants in asked]


def _nearest(near: Sequence[Shortlist], plan: Plan) -> Shortlist:
    """The shortlists of one query at several tempos as one, by the best cosine of each candidate."""
    if len(near) == 1:
        return near[0]
    best: dict[str, np.float32] = {}
    for one in near:
        for id, score in zip(one.ids, one.scores, strict=True):
            best[id] = max(score, best.get(id, score))
    ids = sorted(best, key=lambda id: (-best[id], id))[: plan.depth + 1]
    return Shortlist(tuple(ids), np.asarray([best[id] for id in ids], dtype=np.float32))


def _shortlists(gallery: Searchable, asked: Sequence[Asked], plan: Plan) -> list[Shortlist]:
    """The shortlist of each query at one tempo.

    What a strict protocol removes is filtered by the engine, so that it cannot crowd out what the protocol lets in.
    Queries with the same filter go to the engine together.
    """
    groups: dict[Filter | None, list[int]] = defaultdict(list)
    for n, query in enumerate(asked):
        groups[allowed(query, plan)].append(n)
    found: dict[int, Shortlist] = {}
    for where, members in groups.items():
        embedding = np.stack([asked[n].embedding for n in members])
        for n, near in zip(members, gallery.shortlist(embedding, plan.depth + 2, where), strict=True):
            found[n] = _without_itself(near, asked[n], plan)
    return [found[n] for n in range(len(asked))]


def allowed(query: Asked, plan: Plan) -> Filter | None:
    """Which entries may be found, the query itself aside."""
    parts = [part for part in (plan.where, _far_enough(query, plan.protocol)) if part is not None]
    return None if not parts else parts[0] if len(parts) == 1 else All(tuple(parts))


def let_in(query: Asked, entries: Entries, rows: Rows, protocol: Protocol | None) -> Rows:
    """The rows of entries that the protocol lets in, by the protocol's own word."""
    ids = np.asarray([entries.ids[row] for row in rows], dtype=str)
    if protocol is None or query.place is None:
        return rows[ids != query.id] if query.stored else rows
    records = np.asarray([entries.records[row] for row in rows], dtype=str)
    there = Places(ids, records, entries.start_s[rows], entries.stop_s[rows])
    kept: Rows = rows[protocol.candidates(query.place, there)[0]]
    return kept


def _far_enough(query: Asked, protocol: Protocol | None) -> Filter | None:
    """The protocol as a filter."""
    if protocol is None or not protocol.name.startswith("strict"):
        return None
    if query.place is None:
        raise ConfigError(
            f"{protocol.name} needs the query's record, and an array has none; give a Signal with a record, or an id"
        )
    record = Equal("record", (str(query.place.records[0]),))
    if protocol.name.endswith("cross-record"):
        return Not(record)
    before_it_ends = Order("start_s", "<", float(query.place.stop_s[0]) + protocol.guard_s)
    after_it_starts = Order("stop_s", ">", float(query.place.start_s[0]) - protocol.guard_s)
    return Not(All((record, before_it_ends, after_it_starts)))


def _without_itself(near: Shortlist, query: Asked, plan: Plan) -> Shortlist:
    itself = query.id if query.stored or plan.protocol is not None else ""
    kept = [n for n, id in enumerate(near.ids) if id != itself][: plan.depth + 1]
    return Shortlist(tuple(near.ids[n] for n in kept), near.scores[kept])
