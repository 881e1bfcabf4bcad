"""Which candidates count and which are right, as a value that can be checked."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from geopatch.errors import at_least, one_of

if TYPE_CHECKING:  # the names of the protocols are known without numpy
    import numpy as np
    import numpy.typing as npt

    from geopatch.signal import Signal

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Labels: TypeAlias = "npt.NDArray[np.str_]"
Condition: TypeAlias = tuple[str, str, Any]  # a field of a candidate, a sign, and the value it is compared with

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


SIGNS: dict[str, Callable[[Any, Any], Any]] = {"==": operator.eq, "<": operator.lt, ">": operator.gt}


def places(signals: Sequence[Signal]) -> Places:
    """The places of signals."""
    import numpy as np

    start_s = np.asarray([signal.start_s for signal in signals])
    return Places(
        np.asarray([signal.id for signal in signals]),
        np.asarray([signal.record or signal.id for signal in signals]),
        start_s,
        start_s + np.asarray([signal.duration_s for signal in signals]),
    )


@dataclass(frozen=True)
class Protocol:
    """A rule that says which candidates count, and which of them are right.

    Its digest changes when its meaning does, and is written into every result row.

    Parameters
    ----------
    name : str, default="standard"
        A key of `MEANING`, which says what it does.
    guard_s : float, default=0.0
        Seconds round the query within which a candidate of its record still counts as overlapping it.

    Raises
    ------
    ConfigError
        When there is no such protocol, or the guard is negative.

    Examples
    --------
    >>> Protocol("strict-nonoverlap", guard_s=1.0).strict
    True
    """

    name: str = "standard"
    guard_s: float = 0.0

    def __post_init__(self) -> None:
        one_of("protocol", self.name, tuple(MEANING))
        at_least("guard_s", self.guard_s, 0)

    @property
    def digest(self) -> str:
        """Twelve digits that change with the meaning of the protocol."""
        text = f"{self.name}: {MEANING[self.name]}; guard gap {float(self.guard_s)!r} s"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def strict(self) -> bool:
        """Whether candidates too near to the query are removed."""
        return self.name.startswith("strict")

    @property
    def cross_record(self) -> bool:
        """Whether every candidate of the query's record is too near."""
        return self.name.endswith("cross-record")

    def too_near(self, query: Places) -> list[Condition]:
        """What a candidate fulfils, all of it, that is too near to a query to prove anything.

        Parameters
        ----------
        query : Places
            Where the queries come from.

        Returns
        -------
        list of (str, str, array of shape (Q,))
            A field of `Places`, a sign of `SIGNS`, and the value for each query. Search makes a filter of them,
            evaluation a mask: strictness is defined here alone.
        """
        record = ("record", "==", query.records)
        if self.cross_record:
            return [record]
        return [record, ("start_s", "<", query.stop_s + self.guard_s), ("stop_s", ">", query.start_s - self.guard_s)]

    def candidates(self, query: Places, gallery: Places) -> Mask:
        """Which gallery entries stand in the ranking of each query.

        Parameters
        ----------
        query, gallery : Places
            Where queries and entries come from.

        Returns
        -------
        array of bool of shape (Q, N)
            False for the query itself and for what a strict protocol removes.
        """
        others: Mask = query.ids[:, None] != gallery.ids[None]
        return others & ~self._near(query, gallery) if self.strict else others

    def relevant(self, query: Places, gallery: Places, query_labels: Labels, gallery_labels: Labels) -> Mask:
        """Which gallery entries are right for each query.

        Parameters
        ----------
        query, gallery : Places
            Where queries and entries come from.
        query_labels, gallery_labels : array of str
            Their labels.

        Returns
        -------
        array of bool of shape (Q, N)
            True for the query's label, except for what a penalised protocol counts as wrong.
        """
        same: Mask = query_labels[:, None] == gallery_labels[None]
        return same & ~self._near(query, gallery) if self.name.startswith("penalised") else same

    def _near(self, query: Places, gallery: Places) -> Mask:
        columns = {"record": gallery.records, "start_s": gallery.start_s, "stop_s": gallery.stop_s}
        masks = [SIGNS[sign](columns[field][None], value[:, None]) for field, sign, value in self.too_near(query)]
        near: Mask = masks[0]
        for mask in masks[1:]:
            near = near & mask
        return near
