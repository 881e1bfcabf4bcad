"""Where the hits of a search lie: moved and stretched from the grid of windows to where the query fits best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from geopatch.arrays import Values
from geopatch.errors import NotFoundError
from geopatch.search.levels import OVERLAPPING, Levels, Place, duration_of, nearness, own_place, shared
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery, Searchable
from geopatch.search.ranking import Placed, Ranking
from geopatch.search.refine import SHIFT, SIDE, RoughFit, rough_fit
from geopatch.search.surroundings import Wanted, surroundings
from geopatch.signal import Signal

FIT_WEIGHT = 0.5  # of the fit beside the score
MARGIN = SHIFT + (SIDE - 1) / 2  # of a window's length, read on either side of it


@dataclass(frozen=True, eq=False)
class Candidate:
    """Where the window of a candidate lies, the signal round it, and about where the query fits; None: not known."""

    place: Place
    around: Signal | None = None
    rough: RoughFit | None = None


@dataclass(eq=False)
class HitPlacer:
    """Places the candidates of one query in a gallery of recordings, and ranks them by score and fit."""

    query: EncodedQuery
    candidates: list[Candidate]
    overlapping: bool = False  # whether hits may overlap each other and the query

    @classmethod
    def of(
        cls, gallery: Searchable, ranking: Ranking, options: SearchOptions, levels: Levels
    ) -> tuple[HitPlacer, Ranking]:
        """For the candidates of a ranking; and the ranking by score and fit together."""
        candidates = _candidates(gallery, ranking)
        fits = [0.0 if one.rough is None else one.rough.fit.correlation for one in candidates]
        crowding = levels.crowding(duration_of(ranking.query))
        order = np.argsort(-evidence(ranking.score / options.ranking.steepness, fits, crowding), kind="stable")
        placer = cls(ranking.query, [candidates[n] for n in order], options.overlapping)
        return placer, ranking.taken(order)

    def place(self, n: int) -> Placed:
        """Where the n-th of the ranking lies."""
        one = self.candidates[n]
        assert one.around is None or self.query.window is not None
        return refined(self.query.window, one)

    def is_free(self, placed: Placed, kept: Mapping[int, Placed]) -> bool:
        """Whether it overlaps neither the query nor a better hit."""
        if self.overlapping:
            return True
        own = own_place(self.query)
        taken = [_span(other) for other in kept.values()]
        return all(shared(_span(placed), other) <= OVERLAPPING for other in (taken if own is None else [own, *taken]))


def evidence(scores: npt.ArrayLike, fits: npt.ArrayLike, crowding: float = 1.0) -> npt.NDArray[np.float64]:
    """What speaks for places of these scores, of 1 at most, and fits.

    The score tells what is alike at any tempo. The fit is the sharper of the two where a query is short and many
    windows are about as near to it.
    """
    return nearness(scores) + FIT_WEIGHT * crowding * nearness(fits)


def _candidates(gallery: Searchable, ranking: Ranking) -> list[Candidate]:
    entries, rows, query, front = ranking.entries, ranking.rows.tolist(), ranking.query.window, gallery.front_end
    grid = [(entries.records[row], float(entries.start_s[row]), float(entries.stop_s[row])) for row in rows]
    if query is None or front is None:
        return [Candidate(place) for place in grid]
    wanted = [Wanted(entries.ids[row], place, _widened(place)) for row, place in zip(rows, grid, strict=True)]
    try:
        around = surroundings(gallery, wanted, front)
    except NotFoundError:  # a writer beside us removed one of them
        return [Candidate(place) for place in grid]
    bridged = query.bridged()
    return [_fitted(bridged, place, one) for place, one in zip(grid, around, strict=True)]


def _fitted(query: Values, place: Place, around: Signal | None) -> Candidate:
    if around is None or around.values.shape[1] != query.shape[1]:
        return Candidate(place)
    first, clock_hz = round(around.start_s * around.clock_hz), around.clock_hz
    window = round(place[1] * clock_hz) - first, round(place[2] * clock_hz) - first
    return Candidate(place, around, rough_fit(query, around.bridged(), window))


def place_near(gallery: Searchable, query: Signal, place: Place, window: str) -> Placed:
    """Where a query fits best near a place that may be longer than any window; `window` is the id of one in it."""
    front = gallery.front_end
    assert front is not None, "a gallery of recordings has a front end"
    try:
        around = surroundings(gallery, [Wanted(window, place, _widened(place))], front)[0]
    except NotFoundError:
        return Placed(*place)
    placed = refined(query, _fitted(query.bridged(), place, around))
    if around is None:
        return placed
    first, last = (round((edge - around.start_s) * around.clock_hz) for edge in place[1:])
    first, last = max(first, 0), min(last, around.length)
    known = first < last and not np.isnan(around.values[first:last]).all()
    return replace(placed, window=around.window(first, last) if known else None)


def refined(query: Signal | None, candidate: Candidate) -> Placed:
    """The span near a candidate where the query fits best; its window where nothing can be compared."""
    around, rough = candidate.around, candidate.rough
    if query is None or around is None or rough is None:
        return Placed(*candidate.place)
    fit = rough.finer()
    start_s, stop_s = (around.start_s + edge / around.clock_hz for edge in (fit.start, fit.stop))
    known = not np.isnan(around.values[fit.start : fit.stop]).all()
    segment = around.window(fit.start, fit.stop) if known else None
    return Placed(
        candidate.place[0], start_s, stop_s, query.duration_s / (stop_s - start_s), segment, fit=fit.correlation
    )


def _span(placed: Placed) -> Place:
    return placed.record, placed.start_s, placed.stop_s


def _widened(place: Place) -> Place:
    margin_s = MARGIN * (place[2] - place[1])
    return place[0], max(place[1] - margin_s, 0.0), place[2] + margin_s
