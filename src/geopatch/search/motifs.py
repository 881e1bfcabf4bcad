"""What happens most often in a gallery, and what happens nowhere else: motifs and anomalies, without any query."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Embeddings
from geopatch.engines.filters import Where
from geopatch.errors import NotFoundError, at_least
from geopatch.search.chance import Chance
from geopatch.search.neighbours import Neighbours
from geopatch.search.notes import query_notes
from geopatch.search.options import SearchOptions
from geopatch.search.query import Searchable
from geopatch.search.run import Measured, with_one_encoder
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.engines.entry import Entries

SAMPLE = 4_096  # windows by which it is estimated how often each one is repeated
CENTRES = 16  # of those repeated most by that estimate, counted exactly for each motif
MAX_CHANCE = 0.01  # windows as near as this by chance belong together
VERIFIED = 512  # windows that are compared with all others together
DRAWN = 9  # members of a motif whose values are read


@dataclass(frozen=True)
class Occurrence:
    """A window that belongs to a motif, or that is the nearest one to an anomaly.

    Parameters
    ----------
    id, record : str
        The window and its record.
    start_s, stop_s : float
        Where it lies in its record, in seconds.
    cosine : float
        Of its embedding and that of the motif's centre or the anomaly.
    start_time : datetime, optional
        The wall-clock time at which it starts, where that of its record is known.
    window : Signal, optional
        Its values, where they were read.
    """

    id: str
    record: str
    start_s: float
    stop_s: float
    cosine: float
    start_time: datetime | None = None
    window: Signal | None = field(default=None, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Returns
        -------
        dict
            A value for each field but the window.
        """
        plain = {name: getattr(self, name) for name in ("id", "record", "start_s", "stop_s", "cosine")}
        return {**plain, "start_time": None if self.start_time is None else self.start_time.isoformat()}


@dataclass(frozen=True)
class Motif:
    """Something that happens again and again: a window and all those that are as near to it as its like.

    Parameters
    ----------
    rank : int
        Its place by how often it happens; 1 is the most frequent.
    members : tuple of Occurrence
        The windows, none of which overlap: the centre first, then the nearest to it first.
    chance : float, optional
        How many windows of a gallery of this size would be as near to the centre by chance as half the members are.
        None where the gallery has no model.
    notes : tuple of str, default=()
        What makes it a doubtful one: that it is a flat line, mostly missing, or noise.
    """

    rank: int
    members: tuple[Occurrence, ...]
    chance: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def centre(self) -> Occurrence:
        """The window that the others are like."""
        return self.members[0]

    @property
    def count(self) -> int:
        """How many times it happens."""
        return len(self.members)

    @property
    def records(self) -> tuple[str, ...]:
        """The records in which it happens, by name."""
        return tuple(sorted({member.record for member in self.members}))

    @property
    def cosine(self) -> float:
        """The median cosine of the other members with the centre."""
        return float(np.median([member.cosine for member in self.members[1:]]))

    def as_dict(self, members: int | None = None) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Parameters
        ----------
        members : int, optional
            How many of the members to list; by default all.

        Returns
        -------
        dict
            Rank, count, cosine, chance, records, notes and members.
        """
        plain = {name: getattr(self, name) for name in ("rank", "count", "cosine", "chance")}
        listed = [member.as_dict() for member in self.members[:members]]
        return {**plain, "records": list(self.records), "notes": list(self.notes), "members": listed}


@dataclass(frozen=True)
class Anomaly:
    """A window that is like no other: the farther its nearest neighbour, the lonelier.

    Parameters
    ----------
    rank : int
        Its place; 1 is the loneliest.
    place : Occurrence
        The window; its cosine is the one with its nearest neighbour.
    nearest : Occurrence
        Its nearest neighbour that does not overlap it.
    notes : tuple of str, default=()
        What makes it a doubtful one: that it is a flat line, mostly missing, or noise.
    """

    rank: int
    place: Occurrence
    nearest: Occurrence
    notes: tuple[str, ...] = ()

    @property
    def distance(self) -> float:
        """1 less the cosine with the nearest neighbour."""
        return 1.0 - self.place.cosine

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Returns
        -------
        dict
            Rank, id, record, start and stop, distance, notes and the nearest neighbour.
        """
        place = {"rank": self.rank, **self.place.as_dict(), "distance": self.distance}
        return {**place, "notes": list(self.notes), "nearest": self.nearest.as_dict()}


def find_motifs(gallery: Measured, k: int, where: Where, *, windows: bool) -> list[Motif]:
    """The k most repeated windows with all their likes; `Gallery.motifs` says more."""
    at_least("k", k, 1)

    def work() -> list[Motif]:
        stored = gallery.embeddings(where)
        model = gallery.model
        options = SearchOptions(scorer="cosine").completed(sound=False)
        chance = None if model is None or not len(stored) else gallery.chances.measure(options, model)
        groups = motif_groups(Neighbours(stored), k, 0.0 if chance is None else least_cosine(chance))
        motifs = [
            Motif(rank, tuple(map(_occurrence(stored), rows, cosines)))
            for rank, (rows, cosines) in enumerate(groups, start=1)
        ]
        shown = _read(gallery, [one.id for motif in motifs for one in motif.members[:DRAWN]]) if windows else {}
        begins = _begins(gallery, {member.record for motif in motifs for member in motif.members})
        return [_completed(motif, shown, begins, chance) for motif in motifs]

    return with_one_encoder(gallery, work)


def find_anomalies(gallery: Measured, k: int, where: Where, *, windows: bool) -> list[Anomaly]:
    """The k windows whose nearest neighbour is farthest; `Gallery.anomalies` says more."""
    at_least("k", k, 1)

    def work() -> list[Anomaly]:
        stored = gallery.embeddings(where)
        occurrence = _occurrence(stored)
        pairs = [(occurrence(row, c), occurrence(near, c)) for row, near, c in lonely(Neighbours(stored), k)]
        shown = _read(gallery, [one.id for pair in pairs for one in pair]) if windows else {}
        begins = _begins(gallery, {one.record for pair in pairs for one in pair})
        both = [tuple(_with_facts(one, shown, begins) for one in pair) for pair in pairs]
        return [
            Anomaly(rank, place, near, query_notes(place.window)) for rank, (place, near) in enumerate(both, start=1)
        ]

    return with_one_encoder(gallery, work)


def least_cosine(chance: Chance) -> float:
    """The smallest cosine that chance does not explain."""
    cosines = np.linspace(0.0, 1.0, 1_001)
    unlikely = chance.of(cosines) <= MAX_CHANCE
    return float(cosines[unlikely][0]) if unlikely.any() else 1.0


def motif_groups(windows: Neighbours, k: int, least: float = 0.0) -> list[tuple[list[int], list[float]]]:
    """Rows and cosines of the members of up to k groups, the largest first, the centre of each at its beginning.

    Together belong what is as near as half of all windows are to their nearest neighbour, and at least `least`.
    """
    nearest = windows.nearest().cosine
    known = nearest[np.isfinite(nearest)]
    if not len(known):
        return []
    radius = max(float(np.median(known)), least)
    sample = np.unique(np.linspace(0, len(windows) - 1, min(SAMPLE, len(windows))).round().astype(np.intp))
    crowd, local = windows.crowd(radius, sample), windows.group_crowd(radius)
    free, groups = np.ones(len(windows), dtype=np.bool_), list[tuple[list[int], list[float]]]()
    while len(groups) < k:
        estimate = np.where(free, np.maximum(crowd * (len(windows) / len(sample)), local), -1.0)
        centres = np.argsort(-estimate, kind="stable")[:CENTRES]
        cosines = windows.vectors @ windows.vectors[centres].T  # (N, centres)
        choices = [
            _members(windows, int(centre), cosines[:, n], free, radius)
            for n, centre in enumerate(centres)
            if free[centre]
        ]
        best = max(choices, key=lambda rows: len(rows[0]), default=([], []))
        if len(best[0]) < 2:
            break
        groups.append(best)
        gone = _taken(windows, best[0]) & free
        free &= ~gone
        crowd = crowd - windows.crowd(radius, sample[gone[sample]])
    return sorted(groups, key=lambda rows: -len(rows[0]))


def _members(
    windows: Neighbours, centre: int, cosine: npt.NDArray[np.float32], free: npt.NDArray[np.bool_], radius: float
) -> tuple[list[int], list[float]]:
    """The centre and the free windows near to it, nearest first, without those that overlap a nearer one."""
    near = np.flatnonzero((cosine >= radius) & free)
    rows = [centre, *near[np.argsort(-cosine[near], kind="stable")].tolist()]
    kept = apart(windows, rows)
    return kept, [1.0, *(min(float(cosine[row]), 1.0) for row in kept[1:])]


def apart(windows: Neighbours, rows: Sequence[int], k: int | None = None) -> list[int]:
    """The first k of these windows, in order, that overlap none before them."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)  # of each record, in order of time
    kept: list[int] = []
    for row in rows:
        own, span = spans[int(windows.record[row])], (float(windows.start_s[row]), float(windows.stop_s[row]))
        at = bisect_left(own, span)
        before, after = at > 0 and own[at - 1][1] > span[0], at < len(own) and own[at][0] < span[1]
        if not before and not after:
            insort(own, span)
            kept.append(row)
            if len(kept) == k:
                break
    return kept


def _taken(windows: Neighbours, rows: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which windows overlap one of these (N,), these themselves among them."""
    taken = np.zeros(len(windows), dtype=np.bool_)
    chosen = np.asarray(rows, dtype=np.intp)
    for record in np.unique(windows.record[chosen]):
        members, own = chosen[windows.record[chosen] == record], np.flatnonzero(windows.record == record)
        order = members[np.argsort(windows.start_s[members])]  # they do not overlap: stops are in order, too
        first = np.searchsorted(windows.stop_s[order], windows.start_s[own], side="right")
        inside = first < len(order)
        inside[inside] = windows.start_s[order[first[inside]]] < windows.stop_s[own[inside]]
        taken[own[inside]] = True
    taken[chosen] = True
    return taken


def lonely(windows: Neighbours, k: int) -> list[tuple[int, int, float]]:
    """Row, nearest row and cosine of the k windows that do not overlap and are farthest from all others; exact.

    What `nearest` knows bounds each cosine from below, so windows are verified in its order until no other can be
    among the k.
    """
    bound = windows.nearest()
    order = np.argsort(bound.cosine, kind="stable")
    order = order[np.isfinite(bound.cosine[order])]
    rows, near, cosine = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.float32)
    for start in range(0, len(order), VERIFIED):
        part = order[start : start + VERIFIED]
        exact = windows.exact(part)
        rows, near = np.concatenate([rows, part]), np.concatenate([near, exact.row])
        cosine = np.concatenate([cosine, exact.cosine])
        next_bound = bound.cosine[order[start + VERIFIED]] if start + VERIFIED < len(order) else np.inf
        ranked = np.argsort(cosine, kind="stable")
        certain = ranked[cosine[ranked] <= next_bound]
        place = {int(rows[n]): n for n in certain}
        chosen = apart(windows, rows[certain].tolist(), k)
        if len(chosen) == k or start + VERIFIED >= len(order):
            return [(row, int(near[place[row]]), float(cosine[place[row]])) for row in chosen]
    return []


def _occurrence(stored: Embeddings) -> Callable[[int, float], Occurrence]:
    def occurrence(row: int, cosine: float) -> Occurrence:
        start_s, stop_s = float(stored.start_s[row]), float(stored.stop_s[row])
        return Occurrence(stored.ids[row], stored.records[row], start_s, stop_s, cosine)

    return occurrence


def _read(gallery: Searchable, ids: Sequence[str]) -> dict[str, Signal]:
    """The values of windows, of those that are there still and have any."""
    if not ids:
        return {}
    try:
        entries: Entries = gallery.fetch(list(dict.fromkeys(ids)))
    except NotFoundError:  # a writer beside us removed one
        return {}
    return {id: window for id, window in zip(entries.ids, entries.windows, strict=True) if window is not None}


def _begins(gallery: Searchable, records: set[str]) -> dict[str, datetime]:
    facts = gallery.record_facts(sorted(records)) if records else {}
    return {name: one.start_time for name, one in facts.items() if one.start_time is not None}


def _with_facts(one: Occurrence, shown: dict[str, Signal], begins: dict[str, datetime]) -> Occurrence:
    begin = begins.get(one.record)
    time = None if begin is None else begin + timedelta(seconds=one.start_s)
    return replace(one, start_time=time, window=shown.get(one.id))


def _completed(motif: Motif, shown: dict[str, Signal], begins: dict[str, datetime], chance: Chance | None) -> Motif:
    members = tuple(_with_facts(member, shown, begins) for member in motif.members)
    likely = None if chance is None else float(chance.of(motif.cosine))
    return replace(motif, members=members, chance=likely, notes=query_notes(members[0].window))
