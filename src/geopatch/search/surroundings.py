"""The signal round hits, put together from the stored windows that lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from geopatch.data.front_end import FrontEnd
from geopatch.search.levels import Place
from geopatch.search.query import Searchable
from geopatch.signal import Signal

CLOSE_S = 1e-6  # by which two windows may miss each other and still touch


@dataclass(frozen=True)
class Wanted:
    """A window by its id and its place, and how much of the record round it is wanted."""

    id: str
    place: Place
    wide: Place


def surroundings(gallery: Searchable, wanted: Sequence[Wanted], front: FrontEnd) -> list[Signal | None]:
    """The signal round each window as far as it is stored without a hole; None where no values are kept.

    It is read from windows of the middle length, which candidates share, and only where these do not reach from the
    window itself.
    """
    grids = [_grid(one.wide, gallery.about.clock_hz, front) for one in wanted]
    known = gallery.spans(list(dict.fromkeys(id for grid in grids for id in grid)))
    covers = []
    for grid, one in zip(grids, wanted, strict=True):
        stored = [(id, known[id]) for id in grid if id in known]
        covers.append([*_cover(stored, one.wide), *([] if _covered(stored, one.place) else [one.id])])
    ids = list(dict.fromkeys(id for cover in covers for id in cover))
    entries = gallery.fetch(ids)
    windows = dict(zip(entries.ids, entries.windows, strict=True))
    return [_joined([windows[id] for id in cover], one) for cover, one in zip(covers, wanted, strict=True)]


def _grid(place: Place, clock_hz: float, front: FrontEnd) -> list[str]:
    """The ids of the windows of the middle length that touch a place."""
    assert front.window_s is not None
    length = round(front.window_s * clock_hz)
    step = max(round(length * (1 - front.overlap)), 1)
    first = max((int(place[1] * clock_hz) - length) // step + 1, 0)
    last = int(place[2] * clock_hz) // step
    return [f"{place[0]}@{n * step / clock_hz:.10g}s" for n in range(first, last + 1)]


def _cover(windows: Sequence[tuple[str, Place]], place: Place) -> list[str]:
    """As few of the windows, which are in order of time, as cover what all of them cover of a place."""
    chosen, reached = list[str](), place[1]
    for n, (id, (_, _, stop_s)) in enumerate(windows):
        following = windows[n + 1][1][1] if n + 1 < len(windows) else np.inf
        if following > reached and stop_s > reached:
            chosen.append(id)
            reached = stop_s
        if reached >= place[2]:
            break
    return chosen


def _covered(windows: Sequence[tuple[str, Place]], place: Place) -> bool:
    """Whether windows, which are in order of time, cover a place without a hole."""
    reached = place[1]
    for _, (_, start_s, stop_s) in windows:
        if start_s > reached + CLOSE_S:
            break
        reached = max(reached, stop_s)
    return reached >= place[2] - CLOSE_S


def _joined(windows: Sequence[Signal | None], wanted: Wanted) -> Signal | None:
    """The run without a hole that holds the middle of the window that is wanted."""
    kept = [window for window in windows if window is not None]
    if not kept:
        return None
    one, (record, start_s, stop_s) = kept[0], wanted.wide
    clock_hz = one.clock_hz
    first = round(start_s * clock_hz)
    values = np.full((max(round(stop_s * clock_hz) - first, 1), one.values.shape[1]), np.nan, np.float32)
    filled = np.zeros(len(values), dtype=bool)
    for window in kept:
        if window.values.shape[1] != values.shape[1]:
            continue
        at = round(window.start_s * clock_hz) - first
        inside = slice(max(at, 0), max(at + window.length, 0))
        values[inside] = window.values[max(-at, 0) :][: len(filled[inside])]
        filled[inside] = True
    middle = round((wanted.place[1] + wanted.place[2]) / 2 * clock_hz) - first
    holes = np.flatnonzero(~filled)
    start = int(holes[holes < middle].max(initial=-1)) + 1
    stop = int(holes[holes >= middle].min(initial=len(filled)))
    if stop <= start or np.isnan(values[start:stop]).all():
        return None
    begin_s = (first + start) / clock_hz
    begin = one.start_time and one.start_time + timedelta(seconds=begin_s - one.start_s)
    return Signal(values[start:stop], record, one.rate_hz, one.channels, record, begin_s, None, begin, one.units)
