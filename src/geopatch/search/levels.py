"""Windows at several lengths: which of them a query is compared with, and which of those lie at one place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Shortlist
from geopatch.errors import ConfigError
from geopatch.search.candidates import shortlists
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery, Searchable

Place: TypeAlias = tuple[str, float, float]  # record, start and stop in seconds

SPEEDS = (0.6, 1.6)  # at which the query may happen again
SLACK = 1.2  # by which a window may be longer or shorter than what happens in it: about half a level
ONE_PLACE = 0.5  # of the shorter of two windows, shared with the other
OVERLAPPING = 0.25  # of the shorter of two hits
SHORT, TOO_SHORT = 0.7, 0.5  # of the shortest window
WINDOWS_OF_A_PLACE = 8  # candidates that are read for each place wanted, at first
GROWTH = 4  # of their number, where that was not enough
MOST_CANDIDATES = 20_000
MOST_CROWDING = 16.0
CLOSEST = 1e-9


@dataclass(frozen=True)
class Levels:
    """The lengths of the windows of a gallery of recordings, in seconds, shortest first."""

    lengths_s: tuple[float, ...]
    middle_s: float  # what the front end calls the window

    def reach(self, duration_s: float) -> tuple[float, float]:
        """From how short to how long the windows are that a query of this duration is compared with."""
        nearest = min(self.lengths_s, key=lambda length_s: abs(math.log(length_s / duration_s)))
        low, high = duration_s / SPEEDS[1] / SLACK, duration_s / SPEEDS[0] * SLACK
        return min(low, 0.999 * nearest), max(high, 1.001 * nearest)

    def crowding(self, duration_s: float) -> float:
        """How many times more places there are to tell a query from than one as long as the middle windows has.

        A short piece is like many others, and comes in more places.
        """
        return min(max(self.middle_s / duration_s, 1.0) ** 2, MOST_CROWDING)

    def check(self, duration_s: float) -> tuple[str, ...]:
        """Refuse a query that is far too short for windows of several lengths; what to say of one that is short."""
        shortest = self.lengths_s[0]
        if duration_s >= SHORT * shortest:
            return ()
        remedy = f"mark a longer part, or index with --shortest-s {duration_s:.2g}"
        if duration_s < TOO_SHORT * shortest and len(self.lengths_s) > 1:
            raise ConfigError(
                f"the query lasts {duration_s:.3g} s, the shortest windows of this gallery {shortest:.3g} s; {remedy}"
            )
        return (f"the query lasts {duration_s:.3g} s, the shortest windows {shortest:.3g} s: {remedy}",)


def nearness(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """-log(1 - s²): grows with a score of at most 1, the faster the nearer to 1; what is below 0 is 0."""
    near: npt.NDArray[np.float64] = -np.log(
        np.maximum(1 - np.maximum(np.asarray(scores, dtype=np.float64), 0.0) ** 2, CLOSEST)
    )
    return near


def duration_of(query: EncodedQuery) -> float:
    """Seconds that a query lasts."""
    if query.window is not None:
        return query.window.duration_s
    assert query.place is not None, "a query without values is a stored one"
    return float(query.place.stop_s[0] - query.place.start_s[0])


def own_place(query: EncodedQuery) -> Place | None:
    """Where a query comes from; None where it has no record."""
    if query.place is None:
        return None
    return str(query.place.records[0]), float(query.place.start_s[0]), float(query.place.stop_s[0])


def shared(first: Place, second: Place) -> float:
    """The share of the shorter of two spans that lies in the other."""
    if first[0] != second[0]:
        return 0.0
    both = min(first[2], second[2]) - max(first[1], second[1])
    return max(both, 0.0) / min(first[2] - first[1], second[2] - second[1])


def shortlists_apart(
    gallery: Searchable, queries: Sequence[EncodedQuery], options: SearchOptions, levels: Levels
) -> list[Shortlist]:
    """For each query the nearest window of each of the `depth` nearest places, and of one more.

    Windows overlap, at one length and across lengths: more are read until there are enough places.
    """
    limit, waiting, results = WINDOWS_OF_A_PLACE * options.depth, list(range(len(queries))), dict[int, Shortlist]()
    while waiting:
        near = shortlists(gallery, [queries[n] for n in waiting], options.deeper(limit))
        spans = gallery.spans(list(dict.fromkeys(id for one in near for id in one.ids)))
        for n, one in zip(waiting, near, strict=True):
            results[n] = _apart(one, spans, queries[n], levels, options)
        enough = {n for n, one in zip(waiting, near, strict=True) if len(one.ids) <= limit}  # there are no more
        waiting = [n for n in waiting if n not in enough and len(results[n].ids) <= options.depth]
        limit *= GROWTH
        if limit > MOST_CANDIDATES:
            break
    return [results[n] for n in range(len(queries))]


def _apart(
    near: Shortlist, spans: Mapping[str, Place], query: EncodedQuery, levels: Levels, options: SearchOptions
) -> Shortlist:
    """The best window of each place, as long as the query may last and not where the query itself lies."""
    low, high = levels.reach(duration_of(query))
    own, kept, taken = own_place(query), list[int](), defaultdict[str, list[Place]](list)
    if own is not None:
        taken[own[0]].append(own)
    for n, id in enumerate(near.ids):
        place = spans.get(id)
        if place is None or not low <= place[2] - place[1] <= high:
            continue
        if options.overlapping or all(shared(place, other) < ONE_PLACE for other in taken[place[0]]):
            taken[place[0]].append(place)
            kept.append(n)
            if len(kept) > options.depth:
                break
    return Shortlist(tuple(near.ids[n] for n in kept), np.asarray(near.scores[kept], dtype=np.float32))
