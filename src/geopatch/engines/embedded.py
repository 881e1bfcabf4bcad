"""The engine for a folder: rows in SQLite, an index for large galleries, the newest entries compared one by one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Info, Shortlist
from geopatch.engines.entry import Entries
from geopatch.engines.exact import Exact
from geopatch.engines.filters import Filter
from geopatch.engines.index import Index, Numbers, Vectors, build_index
from geopatch.engines.packing import Row
from geopatch.engines.passing import passing
from geopatch.engines.rows import chunks, marks
from geopatch.engines.tail import Tail, top
from geopatch.errors import GalleryError

INDEX_FROM = 100_000  # below, comparing all entries takes a few milliseconds and is exact
LARGEST_LIMIT = 5_000  # a filter that leaves fewer entries than this is answered by comparing those
SPARE = 2  # the index rounds its vectors: so many times k are taken from it and scored anew
LOAD_BATCH = 10_000
ROOM_PER_VALUE = 12  # bytes on disk while an index is being built, for each number of a vector
ROOM_AT_LEAST = 200_000_000


class Embedded(Exact):
    """What stands in the rows is what the gallery holds; index and tail only find it sooner."""

    name = "embedded"

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        super().__init__(folder, read_only=read_only)
        self._generation, self._indexed, self._seen_gone = -1, 0, 0
        self._index: Index | None = None
        self._gone: set[int] = set()
        self._tail = Tail(self.about.widths.embedding)

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        with self.rows.looking():
            self._refresh()
            allowed = None if where is None else passing(self.rows, where)
            newest = self._tail.best(embedding, k, allowed)
            found = [self._nearest(query, k, allowed, *new) for query, new in zip(embedding, newest, strict=True)]
            ids = self._ids(np.concatenate([numbers for numbers, _ in found]))
        return [Shortlist(tuple(ids[n] for n in numbers.tolist()), scores) for numbers, scores in found]

    def count(self, where: Filter | None = None) -> int:
        return self.rows.count() if where is None else len(self._passing(where))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        return (
            self.rows.scan(batch_size) if where is None else self.rows.pick(self._passing(where).tolist(), batch_size)
        )

    def optimize(self) -> None:
        self.rows.vacuum()
        if self.count() >= INDEX_FROM:
            self._build()

    def info(self) -> Info:
        return replace(super().info(), indexed=int(self.rows.read("SELECT windows FROM indexed")[0][0]))

    def close(self) -> None:
        self._drop_index()
        super().close()

    def _refresh(self) -> None:
        """Take up what was written since the last look, by this process or by another."""
        generation, last, _ = self.rows.read("SELECT generation, last, windows FROM indexed")[0]
        if generation != self._generation:
            self._drop_index()
            self._index = Index(_index_folder(self.folder, generation)) if generation else None
            self._generation, self._indexed, self._seen_gone, self._gone = generation, last, 0, set()
            self._tail = Tail(self.about.widths.embedding)
        for numbers, vectors in self._embeddings(max(self._indexed, self._tail.last)):
            self._tail.append(numbers, vectors)
        if gone := self.rows.read("SELECT at, n FROM gone WHERE at > ? ORDER BY at", (self._seen_gone,)):
            self._seen_gone = gone[-1][0]
            self._gone.update(n for _, n in gone if n <= self._indexed)
            self._tail.forget(np.asarray([n for _, n in gone], dtype=np.int64))

    def _embeddings(self, after: int) -> Iterator[tuple[Numbers, Vectors]]:
        query = "SELECT n, embedding FROM entry WHERE n > ? ORDER BY n LIMIT ?"
        while rows := self.rows.read(query, (after, LOAD_BATCH)):
            after = rows[-1][0]
            yield np.asarray([row[0] for row in rows], dtype=np.int64), self._vectors(rows)

    def _vectors(self, rows: list[Row]) -> Vectors:
        joined = b"".join(row[1] for row in rows)
        return np.frombuffer(joined, dtype="<f4").reshape(len(rows), self.about.widths.embedding)

    def _passing(self, where: Filter) -> Numbers:
        with self.rows.looking():
            return passing(self.rows, where)

    def _nearest(
        self, query: Vectors, k: int, allowed: Numbers | None, numbers: Numbers, scores: Vectors
    ) -> tuple[Numbers, Vectors]:
        """What was found among the newest entries together with what the index finds."""
        if self._index is not None:
            others, other_scores = self._from_index(query, k, allowed)
            numbers, scores = np.concatenate([others, numbers]), np.concatenate([other_scores, scores])
        chosen = top(scores, min(k, len(scores)))
        return numbers[chosen], scores[chosen]

    def _from_index(self, query: Vectors, k: int, allowed: Numbers | None) -> tuple[Numbers, Vectors]:
        """The index is asked for more and more until enough of its answers are there still and pass the filter."""
        if allowed is not None:
            allowed = allowed[allowed <= self._indexed]
            if len(allowed) <= LARGEST_LIMIT:
                return self._scored(query, allowed)
        assert self._index is not None
        wanted = SPARE * k
        limit = wanted + min(len(self._gone), k)
        while limit <= LARGEST_LIMIT:
            found = self._index.search(query, limit)
            kept = self._usable(found, allowed)
            if len(kept) >= wanted or len(found) < limit:
                return self._scored(query, kept[:wanted])
            limit *= 4
        return self._compared(query, k, allowed)

    def _usable(self, numbers: Numbers, allowed: Numbers | None) -> Numbers:
        there = np.asarray([n not in self._gone for n in numbers.tolist()], dtype=np.bool_)
        return numbers[there if allowed is None else there & np.isin(numbers, allowed)]

    def _compared(self, query: Vectors, k: int, allowed: Numbers | None) -> tuple[Numbers, Vectors]:
        """Every indexed entry that is allowed, one by one."""
        numbers, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        for more, vectors in self._embeddings(0):
            inside = more <= self._indexed if allowed is None else (more <= self._indexed) & np.isin(more, allowed)
            numbers = np.concatenate([numbers, more[inside]])
            scores = np.concatenate([scores, vectors[inside] @ query])
            chosen = top(scores, min(k, len(scores)))
            numbers, scores = numbers[chosen], scores[chosen]
            if more[-1] >= self._indexed:
                break
        return numbers, scores

    def _scored(self, query: Vectors, numbers: Numbers) -> tuple[Numbers, Vectors]:
        """Scores from the rows: the index rounds its vectors."""
        rows: list[Row] = []
        for chunk in chunks(numbers.tolist()):
            rows += self.rows.read(f"SELECT n, embedding FROM entry WHERE n IN ({marks(chunk)})", chunk)
        return np.asarray([row[0] for row in rows], dtype=np.int64), self._vectors(rows) @ query

    def _ids(self, numbers: Numbers) -> dict[int, str]:
        found: dict[int, str] = {}
        for chunk in chunks(np.unique(numbers).tolist()):
            found.update(self.rows.read(f"SELECT n, id FROM entry WHERE n IN ({marks(chunk)})", chunk))
        return found

    def _build(self) -> None:
        """A new index beside the old one; from the change of `indexed` on, it is the one that counts.

        The old folder stays until the next time: a reader may be about to open it.
        """
        _check_room(self.folder, self.count() * self.about.widths.embedding)
        old, seen = self.rows.read("SELECT generation, (SELECT coalesce(max(at), 0) FROM gone) FROM indexed")[0]
        _remove_others(self.folder, old)
        folder, covered = _index_folder(self.folder, old + 1), Covered()
        try:
            build_index(folder, covered.counted(self._embeddings(0)), self.about.widths.embedding)
            with self.rows.writing() as connection:
                values = (old + 1, covered.last, covered.windows)
                connection.execute("UPDATE indexed SET generation = ?, last = ?, windows = ?", values)
                connection.execute("DELETE FROM gone WHERE at <= ?", (seen,))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _drop_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None


@dataclass
class Covered:
    """Which entries went into an index."""

    windows: int = 0
    last: int = 0

    def counted(self, batches: Iterator[tuple[Numbers, Vectors]]) -> Iterator[tuple[Numbers, Vectors]]:
        for numbers, vectors in batches:
            self.windows, self.last = self.windows + len(numbers), int(numbers[-1])
            yield numbers, vectors


def _remove_others(folder: Path, generation: int) -> None:
    """Indexes that were replaced, or left by a process that was killed."""
    for found in folder.glob("index-*"):
        if found != _index_folder(folder, generation):
            shutil.rmtree(found, ignore_errors=True)


def _index_folder(folder: Path, generation: int) -> Path:
    return folder / f"index-{generation}"


def _check_room(folder: Path, values: int) -> None:
    """An index maps its files into memory, where a full disk would end the process instead of raising an error."""
    needed, free = ROOM_AT_LEAST + ROOM_PER_VALUE * values, shutil.disk_usage(folder).free
    if free < needed:
        raise GalleryError(
            f"gallery {folder}: building the index needs {needed / 1e6:.0f} MB on disk, {free / 1e6:.0f} MB are free; "
            "free some space, the gallery can be used without"
        )
