"""The plain engine: every query is compared with every entry, every filter is tried on every entry.

Slow and obviously right: the other engines are tested against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.contents import Contents
from geopatch.engines.engine import Info, Shortlist
from geopatch.engines.entry import Entries, Metadata
from geopatch.engines.filters import Filter
from geopatch.engines.lock import lock
from geopatch.engines.rows import Rows
from geopatch.errors import GalleryError

SCAN_BATCH = 1024


class Exact:
    """Engine over a folder, without any index."""

    name = "exact"

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self._lock = None if read_only else lock(folder)
        try:
            self.rows = Rows(folder, read_only=read_only)
        except GalleryError:
            self._unlock()
            raise

    @property
    def about(self) -> About:
        return self.rows.about

    def put(self, entries: Entries) -> None:
        self.rows.put(entries)

    def remove(self, ids: Sequence[str]) -> int:
        return self.rows.remove(ids)

    def update(self, id: str, metadata: Metadata) -> None:
        self.rows.update(id, metadata)

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        return self.rows.fetch(ids, with_windows)

    def known(self, ids: Sequence[str]) -> set[str]:
        return self.rows.known(ids)

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        best = [Shortlist((), np.zeros(0, np.float32)) for _ in embedding]
        for entries in self.scan(SCAN_BATCH, where):
            scores = embedding @ entries.embedding.T  # (Q, N)
            best = [_merged(old, entries.ids, row, k) for old, row in zip(best, scores, strict=True)]
        return best

    def count(self, where: Filter | None = None) -> int:
        return self.rows.count() if where is None else sum(len(part) for part in self.scan(SCAN_BATCH, where))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        for entries in self.rows.scan(batch_size):
            kept = [n for n in range(len(entries)) if where is None or where.matches(entries.fields(n))]
            if kept:
                yield entries.take(kept)

    def contents(self) -> Contents:
        return self.rows.contents()

    def optimize(self) -> None:
        self.rows.vacuum()

    def info(self) -> Info:
        size = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        return Info(self.name, str(self.folder), self.about, self.count(), 0, size)

    def close(self) -> None:
        self.rows.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()


def _merged(old: Shortlist, ids: Sequence[str], scores: npt.NDArray[np.float32], k: int) -> Shortlist:
    """The best k of a shortlist and further entries; of equal scores the earlier entry stands first."""
    all_ids, all_scores = [*old.ids, *ids], np.concatenate([old.scores, scores])
    order = np.argsort(-all_scores, kind="stable")[:k]
    return Shortlist(tuple(all_ids[n] for n in order), all_scores[order])
