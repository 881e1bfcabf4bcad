"""Which candidates count and which are right, as a value that can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import one_of

Mask = npt.NDArray[np.bool_]

MEANING = {"standard": "every candidate but the query itself; right is a candidate of the query's label"}


@dataclass(frozen=True)
class Protocol:
    """A named rule. Its digest changes when its meaning does, and is written into every result row."""

    name: str = "standard"

    def __post_init__(self) -> None:
        one_of("protocol", self.name, tuple(MEANING))

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.name}: {MEANING[self.name]}".encode()).hexdigest()[:12]

    def candidates(self, query_ids: Sequence[str], gallery_ids: Sequence[str]) -> Mask:
        """Which gallery entries (Q, N) stand in the ranking of each query."""
        others: Mask = np.not_equal(np.asarray(query_ids)[:, None], np.asarray(gallery_ids)[None])
        return others

    def relevant(self, query_labels: npt.NDArray[np.str_], gallery_labels: npt.NDArray[np.str_]) -> Mask:
        """Which gallery entries (Q, N) are right for each query."""
        same: Mask = np.equal(query_labels[:, None], gallery_labels[None])
        return same
