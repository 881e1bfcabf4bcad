"""What a gallery asks of the engine that keeps its entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.contents import Contents
from geopatch.engines.entry import Entries, Metadata
from geopatch.engines.filters import Filter


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The entries nearest to one query by cosine, best first."""

    ids: tuple[str, ...]
    scores: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Info:
    """The state of a gallery."""

    engine: str
    place: str
    about: About
    windows: int
    indexed: int  # entries that the index covers; all others are compared one by one
    bytes: int  # on disk


class Engine(Protocol):
    """Keeps entries. One writer, any number of readers; what a write call has returned from is on disk."""

    @property
    def about(self) -> About: ...

    def put(self, entries: Entries) -> None:
        """Add entries, all or none; an id that is there already is replaced."""

    def remove(self, ids: Sequence[str]) -> int:
        """Take entries out; says how many were there."""

    def update(self, id: str, metadata: Metadata) -> None:
        """Give an entry other metadata."""

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        """Entries in the order asked for; quicker where the raw windows are left behind."""

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids are there."""

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        """For each query (Q, D) the k entries of largest cosine among those that pass the filter."""

    def count(self, where: Filter | None = None) -> int: ...

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        """All entries, a batch at a time."""

    def contents(self) -> Contents:
        """Records and metadata with their counts."""

    def optimize(self) -> None:
        """Build the index anew and give space back; may take minutes."""

    def info(self) -> Info: ...

    def close(self) -> None: ...
