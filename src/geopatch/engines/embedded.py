"""The engine for a folder: rows in SQLite, an index for large galleries, the newest entries compared one by one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.engines import embedded_tokens
from geopatch.engines.embedded_tokens import EmbeddedTokens, room_for_tokens
from geopatch.engines.engine import Embeddings, Info, Shortlist, check_queries
from geopatch.engines.entry import Entries
from geopatch.engines.exact import Exact
from geopatch.engines.filters import All, Either, Equal, Filter, Not, kind
from geopatch.engines.index import Index, Numbers, UnindexedRows, Vectors, build_index, top
from geopatch.engines.packing import Row
from geopatch.engines.rows import Rows, chunks, marks, tag_value
from geopatch.engines.tokens import check_token_queries
from geopatch.errors import StorageError

INDEX_FROM = 100_000  # below, comparing all entries takes a few milliseconds and is exact
LARGEST_LIMIT = 5_000  # a filter that leaves fewer entries than this is answered by comparing those
SPARE = 2  # the index rounds its vectors: so many times k are taken from it and scored anew
LOAD_BATCH = 10_000
ROOM_PER_VALUE = 12  # bytes on disk while an index is being built, for each number of a vector
ROOM_AT_LEAST = 200_000_000
NUMBER = "typeof(value) IN ('integer', 'real')"  # to SQLite any text is larger than any number


class Embedded(Exact):
    """Engine over a folder. The rows are what the gallery holds; the index only finds them sooner."""

    name = "embedded"

    def __init__(self, place: str | Path, *, read_only: bool = False) -> None:
        super().__init__(place, read_only=read_only)
        self._generation, self._indexed, self._seen_gone = -1, 0, 0
        self._index: Index | None = None
        self._gone: set[int] = set()
        self._unindexed = UnindexedRows(self.about.widths.embedding)
        self._tokens = EmbeddedTokens(self.rows)
        if not read_only:
            _remove_others(self.folder, self.rows.read("SELECT generation FROM indexed")[0][0])

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        with self.rows.looking():
            check_queries(embedding, self.about)
            self._refresh()
            allowed = None if where is None else numbers_passing(self.rows, where)
            newest = self._unindexed.best(embedding, k, allowed)
            nearest = [self._nearest(query, k, allowed, *new) for query, new in zip(embedding, newest, strict=True)]
            ids = self._ids(np.concatenate([numbers for numbers, _ in nearest]))
        return [Shortlist(tuple(ids[n] for n in numbers.tolist()), scores) for numbers, scores in nearest]

    def token_shortlist(
        self,
        tokens: Vectors,
        valid: npt.NDArray[np.bool_],
        k: int,
        where: Filter | None = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        with self.rows.looking():
            check_token_queries(tokens, valid, self.about)
            generation = self.rows.read("SELECT generation FROM indexed")[0][0]
            self._tokens.refresh(_index_folder(self.folder, generation), generation)
            allowed = None if where is None else numbers_passing(self.rows, where)
            queries = [query[known] for query, known in zip(tokens, valid, strict=True)]
            nearest = [self._tokens.best(query, k, allowed, ordered) for query in queries]
            ids = self._ids(np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _ in nearest)]))
        return [Shortlist(tuple(ids[n] for n in numbers.tolist()), scores) for numbers, scores in nearest]

    def count(self, where: Filter | None = None) -> int:
        return self.rows.count() if where is None else len(self._passing(where))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        return (
            self.rows.scan(batch_size) if where is None else self.rows.pick(self._passing(where).tolist(), batch_size)
        )

    def embeddings(self, where: Filter | None = None) -> Embeddings:
        with self.rows.looking():
            return self.rows.embeddings(None if where is None else numbers_passing(self.rows, where).tolist())

    def optimize(self) -> None:
        self.rows.vacuum()
        if self.count() >= INDEX_FROM or self._tokens_held() >= embedded_tokens.INDEX_FROM:
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
            self._index = Index(_index_folder(self.folder, generation)) if last else None
            self._generation, self._indexed, self._seen_gone, self._gone = generation, last, 0, set()
            self._unindexed = UnindexedRows(self.about.widths.embedding)
        for numbers, vectors in self._embeddings(max(self._indexed, self._unindexed.last)):
            self._unindexed.append(numbers, vectors)
        if gone := self.rows.read("SELECT at, n FROM gone WHERE at > ? ORDER BY at", (self._seen_gone,)):
            self._seen_gone = gone[-1][0]
            self._gone.update(n for _, n in gone if n <= self._indexed)
            self._unindexed.forget(np.asarray([n for _, n in gone], dtype=np.int64))

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
            return numbers_passing(self.rows, where)

    def _nearest(
        self, query: Vectors, k: int, allowed: Numbers | None, numbers: Numbers, scores: Vectors
    ) -> tuple[Numbers, Vectors]:
        """The best of the newest entries, which are `numbers` with `scores`, and of those that the index covers."""
        if self._index is not None:
            others, other_scores = self._from_index(query, k, allowed)
            numbers, scores = np.concatenate([others, numbers]), np.concatenate([other_scores, scores])
        chosen = top(scores, min(k, len(scores)))
        return numbers[chosen], scores[chosen]

    def _from_index(self, query: Vectors, k: int, allowed: Numbers | None) -> tuple[Numbers, Vectors]:
        """Searches the index with a growing limit until enough of its hits are there still and pass the filter."""
        if allowed is not None:
            allowed = allowed[allowed <= self._indexed]
            if len(allowed) <= LARGEST_LIMIT:
                return self._scored(query, allowed)
        assert self._index is not None
        wanted = SPARE * k
        limit = wanted + min(len(self._gone), k)
        while limit <= LARGEST_LIMIT:
            hits = self._index.search(query, limit)
            kept = self._usable(hits, allowed)
            if len(kept) >= wanted or len(hits) < limit:
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
        ids: dict[int, str] = {}
        for chunk in chunks(np.unique(numbers).tolist()):
            ids.update(self.rows.read(f"SELECT n, id FROM entry WHERE n IN ({marks(chunk)})", chunk))
        return ids

    def _build(self) -> None:
        """A new index beside the old one; from the change of `indexed` on, it is the one that counts.

        The old folder stays until the next time: a reader may be about to open it.
        """
        windows, widths, last = self.count(), self.about.widths, self.rows.next_number()
        by_vectors, by_tokens = windows >= INDEX_FROM, self._tokens_held() >= embedded_tokens.INDEX_FROM
        room = room_for_tokens(windows, widths) if by_tokens else 0
        _check_room(self.folder, room + (ROOM_PER_VALUE * windows * widths.embedding if by_vectors else 0))
        old, seen = self.rows.read("SELECT generation, (SELECT coalesce(max(at), 0) FROM gone) FROM indexed")[0]
        _remove_others(self.folder, old)
        folder, covered = _index_folder(self.folder, old + 1), Covered()
        try:
            if by_vectors:
                build_index(folder, covered.counted(self._embeddings(0)), widths.embedding)
            if by_tokens:
                self._tokens.build(folder, last)
            with self.rows.writing() as connection:
                values = (old + 1, covered.last, covered.windows)
                connection.execute("UPDATE indexed SET generation = ?, last = ?, windows = ?", values)
                connection.execute("DELETE FROM gone WHERE at <= ?", (seen,))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _tokens_held(self) -> int:
        return self.count() * self.about.widths.patches

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
    for other in folder.glob("index-*"):
        if other != _index_folder(folder, generation):
            shutil.rmtree(other, ignore_errors=True)


def _index_folder(folder: Path, generation: int) -> Path:
    return folder / f"index-{generation}"


def _check_room(folder: Path, index_bytes: int) -> None:
    """An index maps its files into memory, where a full disk would end the process instead of raising an error."""
    needed, free = ROOM_AT_LEAST + index_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise StorageError(
            f"gallery {folder}: building the index needs {needed / 1e6:.0f} MB on disk, {free / 1e6:.0f} MB are free; "
            "free some space, the gallery can be used without"
        )


def numbers_passing(rows: Rows, where: Filter) -> Numbers:
    """The n of every entry that passes a filter, sorted: each comparison is an index lookup, the rest set algebra."""
    if isinstance(where, Not):
        return np.setdiff1d(_everyone(rows), numbers_passing(rows, where.part), assume_unique=True)
    if isinstance(where, Either):
        return _union([numbers_passing(rows, part) for part in where.parts])
    if isinstance(where, All):
        parts = [numbers_passing(rows, part) for part in where.parts]
        return reduce(_both, parts) if parts else _everyone(rows)
    if isinstance(where, Equal):
        return _equal(rows, where)
    return _numbers(rows, f"tag WHERE name = ? AND value {where.sign} ? AND {NUMBER}", [where.name, where.value])


def _equal(rows: Rows, where: Equal) -> Numbers:
    if where.name == "id":  # the one field that is no tag
        texts = [value for value in where.values if kind(value) == "text"]
        return _union([_numbers(rows, f"entry WHERE id IN ({marks(chunk)})", chunk) for chunk in chunks(texts)])
    values = [tag_value(value) for value in where.values]
    source = "tag WHERE name = ? AND value IN"
    return _union([_numbers(rows, f"{source} ({marks(chunk)})", [where.name, *chunk]) for chunk in chunks(values)])


def _everyone(rows: Rows) -> Numbers:
    return _numbers(rows, "entry", [])


def _both(first: Numbers, second: Numbers) -> Numbers:
    return np.intersect1d(first, second, assume_unique=True)


def _union(parts: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))


def _numbers(rows: Rows, source: str, values: Sequence[Any]) -> Numbers:
    """As one text, which is read ten times faster than a row for each number."""
    text = rows.read(f"SELECT group_concat(n) FROM {source}", values)[0][0]
    return np.sort(np.fromstring(text or "", dtype=np.int64, sep=","))
