"""Which candidates count and which are right, as a value that can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import at_least, one_of
from geopatch.signal import Signal

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.str_]

RIGHT = "right is a candidate of the query's label"
OVERLAP = "candidates of the query's record that overlap it in time, with a guard gap on both sides,"
SAME_RECORD = "candidates of the query's record"
MEANING = {
    "standard": f"every candidate but the query itself; {RIGHT}",
    "strict-nonoverlap": f"{OVERLAP} are removed; {RIGHT}",
    "strict-cross-record": f"{SAME_RECORD} are removed; {RIGHT}",
    "penalised-nonoverlap": f"{OVERLAP} stay in the ranking and count as wrong; else {RIGHT}",
    "penalised-cross-record": f"{SAME_RECORD} stay in the ranking and count as wrong; else {RIGHT}",
}


@dataclass(frozen=True, eq=False)
class Places:
    """Where windows come from. A window without a record is a record of its own."""

    ids: npt.NDArray[np.str_]
    records: npt.NDArray[np.str_]
    start_s: npt.NDArray[np.float64]
    stop_s: npt.NDArray[np.float64]

    def __getitem__(self, part: slice) -> Places:
        return Places(self.ids[part], self.records[part], self.start_s[part], self.stop_s[part])


def places(signals: Sequence[Signal]) -> Places:
    """The places of signals."""
    start_s = np.asarray([signal.start_s for signal in signals])
    return Places(
        np.asarray([signal.id for signal in signals]),
        np.asarray([signal.record or signal.id for signal in signals]),
        start_s,
        start_s + np.asarray([signal.duration_s for signal in signals]),
    )


@dataclass(frozen=True)
class Protocol:
    """A named rule. Its digest changes when its meaning does, and is written into every result row."""

    name: str = "standard"
    guard_s: float = 0.0  # how far from the query a candidate of its record still counts as overlapping

    def __post_init__(self) -> None:
        one_of("protocol", self.name, tuple(MEANING))
        at_least("guard_s", self.guard_s, 0)

    @property
    def digest(self) -> str:
        told = f"{self.name}: {MEANING[self.name]}; guard gap {float(self.guard_s)!r} s"
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def candidates(self, query: Places, gallery: Places) -> Mask:
        """Which gallery entries (Q, N) stand in the ranking of each query."""
        others: Mask = np.not_equal(query.ids[:, None], gallery.ids[None])
        return others & ~self._near(query, gallery) if self.name.startswith("strict") else others

    def relevant(self, query: Places, gallery: Places, query_labels: Labels, gallery_labels: Labels) -> Mask:
        """Which gallery entries (Q, N) are right for each query."""
        same: Mask = np.equal(query_labels[:, None], gallery_labels[None])
        return same & ~self._near(query, gallery) if self.name.startswith("penalised") else same

    def _near(self, query: Places, gallery: Places) -> Mask:
        """Entries too near to the query to prove anything."""
        record: Mask = np.equal(query.records[:, None], gallery.records[None])
        if self.name.endswith("cross-record"):
            return record
        starts_before_it_ends: Mask = gallery.start_s[None] < query.stop_s[:, None] + self.guard_s
        ends_after_it_starts: Mask = gallery.stop_s[None] > query.start_s[:, None] - self.guard_s
        return record & starts_before_it_ends & ends_after_it_starts
