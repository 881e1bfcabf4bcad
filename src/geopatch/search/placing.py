"""Where the hits of a search lie: moved and stretched from the grid of windows to where the query fits best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from geopatch.data.front_end import FrontEnd
from geopatch.errors import NotFoundError
from geopatch.search.levels import OVERLAPPING, Place, own_place, shared
from geopatch.search.query import Searchable
from geopatch.search.ranking import Placed, Ranking
from geopatch.search.refine import SHIFT, SIDE, best_fit
from geopatch.search.surroundings import Surroundings, surroundings
from geopatch.signal import Signal

BLOCK = 12  # hits whose surroundings are read together
MARGIN = SHIFT + (SIDE - 1) / 2  # of a window's length, read on either side of it


@dataclass(eq=False)
class HitPlacer:
    """Places the hits of one ranking, some at a time, in a gallery of recordings."""

    gallery: Searchable
    front: FrontEnd
    ranking: Ranking
    overlapping: bool = False  # whether hits may overlap each other and the query
    _placed: dict[int, Placed] = field(default_factory=dict)

    def place(self, n: int) -> Placed:
        """Where the n-th of the ranking lies."""
        if n not in self._placed:
            block = range(n, min(n + BLOCK, len(self.ranking.rows)))
            self._placed.update(zip(block, self._block(block), strict=True))
        return self._placed[n]

    def is_free(self, placed: Placed, kept: Mapping[int, Placed]) -> bool:
        """Whether it overlaps neither the query nor a better hit."""
        if self.overlapping:
            return True
        own = own_place(self.ranking.query)
        taken = [_span(other) for other in kept.values()]
        return all(shared(_span(placed), other) <= OVERLAPPING for other in (taken if own is None else [own, *taken]))

    def _block(self, block: range) -> list[Placed]:
        entries, rows = self.ranking.entries, [int(self.ranking.rows[n]) for n in block]
        grid = [(entries.records[row], float(entries.start_s[row]), float(entries.stop_s[row])) for row in rows]
        query = self.ranking.query.window
        if query is None:
            return [Placed(*place) for place in grid]
        wide = [_widened(place) for place in grid]
        try:
            around = surroundings(self.gallery, wide, [entries.ids[row] for row in rows], self.front)
        except NotFoundError:  # a writer beside us removed one of them
            return [Placed(*place) for place in grid]
        return [refined(query, place, one) for place, one in zip(grid, around, strict=True)]


def place_near(gallery: Searchable, query: Signal, place: Place, window: str) -> Placed:
    """Where a query fits best near a place that may be longer than any window; `window` is the id of one in it."""
    front = gallery.front_end
    assert front is not None, "a gallery of recordings has a front end"
    try:
        around = surroundings(gallery, [_widened(place)], [window], front)[0]
    except NotFoundError:
        return Placed(*place)
    placed = refined(query, place, around)
    if around is None:
        return placed
    signal = around.signal
    first, last = (round((edge - signal.start_s) * signal.clock_hz) for edge in place[1:])
    first, last = max(first, 0), min(last, signal.length)
    known = first < last and not np.isnan(signal.values[first:last]).all()
    return replace(placed, window=signal.window(first, last) if known else None)


def refined(query: Signal, place: Place, around: Surroundings | None) -> Placed:
    """The span near a place where the query fits best; the place itself where nothing can be compared."""
    if around is None or around.signal.values.shape[1] != query.values.shape[1]:
        return Placed(*place)
    signal, clock_hz = around.signal, around.signal.clock_hz
    first = round(signal.start_s * clock_hz)
    window = round(place[1] * clock_hz) - first, round(place[2] * clock_hz) - first
    fit = best_fit(query.bridged(), signal.bridged(), window)
    if fit is None:
        return Placed(*place, window=around.window)
    start_s, stop_s = (first + fit.start) / clock_hz, (first + fit.stop) / clock_hz
    values = signal.values[fit.start : fit.stop]
    segment = None if np.isnan(values).all() else signal.window(fit.start, fit.stop)
    return Placed(place[0], start_s, stop_s, query.duration_s / (stop_s - start_s), segment, around.window)


def _span(placed: Placed) -> Place:
    return placed.record, placed.start_s, placed.stop_s


def _widened(place: Place) -> Place:
    margin_s = MARGIN * (place[2] - place[1])
    return place[0], max(place[1] - margin_s, 0.0), place[2] + margin_s
