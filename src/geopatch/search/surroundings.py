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


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A window, and what is stored round it without a hole."""

    window: Signal
    signal: Signal


def surroundings(
    gallery: Searchable, places: Sequence[Place], own: Sequence[str], front: FrontEnd
) -> list[Surroundings | None]:
    """The signal of each place round a window, whose id is in `own`, as far as it is stored; None where it is not."""
    grids = [_grid(place, gallery.about.clock_hz, front) for place in places]
    known = gallery.spans(list(dict.fromkeys(id for grid in grids for id in grid)))
    covers = [
        _cover([(id, known[id]) for id in grid if id in known], place)
        for grid, place in zip(grids, places, strict=True)
    ]
    entries = gallery.fetch(list(dict.fromkeys([*own, *(id for cover in covers for id in cover)])))
    windows = dict(zip(entries.ids, entries.windows, strict=True))
    return [
        None if (window := windows[id]) is None else _joined(window, [windows[other] for other in cover], place)
        for id, cover, place in zip(own, covers, places, strict=True)
    ]


def _grid(place: Place, clock_hz: float, front: FrontEnd) -> list[str]:
    """The ids of the windows of the middle length that touch a place."""
    assert front.window_s is not None
    length = round(front.window_s * clock_hz)
    step = max(round(length * (1 - front.overlap)), 1)
    first = max((int(place[1] * clock_hz) - length) // step + 1, 0)
    last = int(place[2] * clock_hz) // step
    return [f"{place[0]}@{n * step / clock_hz:.10g}s" for n in range(first, last + 1)]


def _cover(windows: Sequence[tuple[str, Place]], place: Place) -> list[str]:
    """As few of the windows, in order of time, as cover what all of them do."""
    chosen, reached = list[str](), -np.inf
    for n, (id, (_, _, stop_s)) in enumerate(windows):
        following = windows[n + 1][1][1] if n + 1 < len(windows) else np.inf
        if (following > reached and stop_s > reached) or not chosen:
            chosen.append(id)
            reached = stop_s
        if reached >= place[2]:
            break
    return chosen


def _joined(own: Signal, others: Sequence[Signal | None], place: Place) -> Surroundings:
    """The run without a hole that holds the window of the place itself."""
    clock_hz = own.clock_hz
    first = round(place[1] * clock_hz)
    values = np.full((max(round(place[2] * clock_hz) - first, 1), own.values.shape[1]), np.nan, np.float32)
    filled = np.zeros(len(values), dtype=bool)
    for window in (*others, own):
        if window is None or window.values.shape[1] != values.shape[1]:
            continue
        at = round(window.start_s * clock_hz) - first
        inside = slice(max(at, 0), max(at + window.length, 0))
        size = len(filled[inside])
        values[inside] = window.values[max(-at, 0) :][:size]
        filled[inside] = True
    middle = min(max(round((own.start_s + own.duration_s / 2) * clock_hz) - first, 0), len(filled) - 1)
    holes = np.flatnonzero(~filled)
    start = int(holes[holes < middle][-1]) + 1 if (holes < middle).any() else 0
    stop = int(holes[holes > middle][0]) if (holes > middle).any() else len(filled)
    begin_s = (first + start) / clock_hz
    begin = own.start_time and own.start_time + timedelta(seconds=begin_s - own.start_s)
    record = own.record or own.id
    return Surroundings(
        own, Signal(values[start:stop], record, own.rate_hz, own.channels, record, begin_s, None, begin, own.units)
    )
