"""The plain engine: every query is compared with every entry, every filter is tried on every entry.

Slow and obviously right: the other engines are tested against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.engine import (
    CHANGED,
    CREATED,
    OF_GALLERY,
    Contents,
    Embeddings,
    Info,
    Record,
    Shortlist,
    check_queries,
)
from geopatch.engines.entry import Channels, Entries, Metadata
from geopatch.engines.filters import Filter
from geopatch.engines.folder import create_file, lock_folder, upgrade_file
from geopatch.engines.rows import Rows
from geopatch.engines.tokens import check_token_queries, token_scores
from geopatch.errors import ExistsError, GalleryError
from geopatch.storage import atomic_folder

SCAN_BATCH = 1024


class Exact:
    """Engine over a folder, without any index."""

    name = "exact"

    def __init__(self, place: str | Path, *, read_only: bool = False) -> None:
        self.folder = Path(place).expanduser()
        self._lock = None if read_only else lock_folder(self.folder)
        try:
            self.rows = Rows(self.folder, read_only=read_only)
        except GalleryError:
            self._unlock()
            raise

    @classmethod
    def create(cls, place: str, about: About, model: bytes | None = None) -> None:
        """A new, empty gallery in a folder that is not there yet."""
        folder = Path(place).expanduser()
        if folder.exists():
            raise ExistsError(f"cannot create the gallery {folder}: it exists already; open it, or give another path")
        with atomic_folder(folder) as partial:
            create_file(partial, about, cls.name, model)

    @staticmethod
    def upgrade(place: str) -> bool:
        """Bring an older gallery to the present format; false where it has that already."""
        folder = Path(place).expanduser()
        lock = lock_folder(folder)
        try:
            return upgrade_file(folder)
        finally:
            lock.release()

    @property
    def about(self) -> About:
        return self.rows.about

    def refresh(self) -> About:
        return self.rows.refresh()

    def model(self) -> bytes | None:
        return self.rows.model()

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        self.rows.rewrite(about, model, batches)

    def put(self, entries: Entries) -> None:
        self.rows.put(entries)

    def remove(self, ids: Sequence[str]) -> int:
        return self.rows.remove(ids)

    def update(self, rows: Mapping[str, Metadata]) -> None:
        self.rows.update(rows)

    def documents(self, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
        return self.rows.documents(kind, names)

    def write_documents(self, kind: str, texts: Mapping[str, str | None]) -> None:
        self.rows.write_documents(kind, texts)

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        return self.rows.fetch(ids, with_windows)

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        return self.rows.spans(ids)

    def known(self, ids: Sequence[str]) -> set[str]:
        return self.rows.known(ids)

    def known_fields(self, names: Sequence[str]) -> set[str]:
        return self.rows.known_fields(names)

    def layouts(self) -> tuple[Channels, ...]:
        return self.rows.layouts()

    def next_number(self) -> int:
        return self.rows.next_number()

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        best = [Shortlist((), np.zeros(0, np.float32)) for _ in embedding]
        with self.rows.looking():
            check_queries(embedding, self.about)
            for entries in self.scan(SCAN_BATCH, where):
                scores = embedding @ entries.embedding.T  # (Q, N)
                best = [_merged(old, entries.ids, row, k) for old, row in zip(best, scores, strict=True)]
        return best

    def token_shortlist(
        self,
        tokens: npt.NDArray[np.float32],
        valid: npt.NDArray[np.bool_],
        k: int,
        where: Filter | None = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        best = [Shortlist((), np.zeros(0, np.float32)) for _ in tokens]
        with self.rows.looking():
            check_token_queries(tokens, valid, self.about)
            for entries in self.scan(SCAN_BATCH, where):
                for n, (query, known) in enumerate(zip(tokens, valid, strict=True)):
                    scores = token_scores(query[known], entries.tokens, entries.valid, ordered)
                    best[n] = _merged(best[n], entries.ids, scores, k)
        return best

    def count(self, where: Filter | None = None) -> int:
        return self.rows.count() if where is None else sum(len(part) for part in self.scan(SCAN_BATCH, where))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        for entries in self.rows.scan(batch_size):
            kept = [n for n in range(len(entries)) if where is None or where.matches(entries.fields(n))]
            if kept:
                yield entries.take(kept)

    def embeddings(self, where: Filter | None = None) -> Embeddings:
        with self.rows.looking():
            every = self.rows.embeddings()
            if where is None:
                return every
            kept = {id for part in self.scan(SCAN_BATCH, where) for id in part.ids}
            return every.take([n for n, id in enumerate(every.ids) if id in kept])

    def sample(self, count: int) -> tuple[str, ...]:
        return self.rows.sample(count)

    def records(self) -> tuple[Record, ...]:
        return self.rows.records()

    def contents(self) -> Contents:
        return self.rows.contents()

    def optimize(self) -> None:
        self.rows.vacuum()

    def info(self) -> Info:
        size = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        when = self.documents(OF_GALLERY)
        times = when.get(CREATED, ""), when.get(CHANGED, "")
        return Info(self.name, str(self.folder), self.refresh(), self.count(), 0, size, *times)

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
