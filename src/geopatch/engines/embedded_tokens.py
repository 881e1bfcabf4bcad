"""Shortlists from tokens for a folder: an index where there is one, and the newest windows compared one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from geopatch.engines.about import Widths
from geopatch.engines.index import Numbers, Vectors, top
from geopatch.engines.packing import Row, token_arrays
from geopatch.engines.rows import Rows, chunks, marks
from geopatch.engines.token_index import Batch, TokenIndex, build_token_index
from geopatch.engines.tokens import SPARE, TokenRows, token_scores

INDEX_FROM = 50_000  # tokens; below, comparing all of them takes a few milliseconds
LOAD_BATCH = 2_000
BYTES_BESIDE = 6  # of each token in an index, beside one for each of its numbers: its scale and its centroid
FOLDER = "tokens"  # within the folder of an index


class EmbeddedTokens:
    """What of a folder's tokens is in memory, for the shortlists of one process; nothing before the first of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._generation, self._seen_gone = -1, 0
        self._index: TokenIndex | None = None
        self._unindexed = TokenRows(rows.about)

    def refresh(self, folder: Path, generation: int) -> None:
        """Take up what was written since the last look. `folder` is that of the present index, if there is one."""
        if generation != self._generation:
            place = folder / FOLDER
            self._index = TokenIndex(place) if place.is_dir() else None
            self._generation, self._seen_gone = generation, 0
            self._unindexed = TokenRows(self._rows.about)
        for batch in self._batches(max(0 if self._index is None else self._index.last, self._unindexed.last)):
            self._unindexed.append(*batch)
        if gone := self._rows.read("SELECT at, n FROM gone WHERE at > ? ORDER BY at", (self._seen_gone,)):
            self._seen_gone = gone[-1][0]
            for part in self._parts():
                part.forget(np.asarray([n for _, n in gone], dtype=np.int64))

    def best(self, query: Vectors, k: int, allowed: Numbers | None, ordered: bool) -> tuple[Numbers, Vectors]:
        """Numbers and scores of the k windows that are most like a query's tokens (I, d), best first."""
        near = [part.best(query, SPARE * k, allowed, ordered)[0] for part in self._parts()]
        return self._scored(query, np.concatenate(near), k, ordered)

    def build(self, folder: Path, last: int) -> None:
        """Write an index of all windows up to a number into the folder of an index."""
        windows = self._rows.read("SELECT count(*) FROM entry WHERE n <= ?", (last,))[0][0]
        folder.mkdir(exist_ok=True)
        patches = self._rows.about.widths.patches
        build_token_index(folder / FOLDER, lambda: self._batches(0, last), int(windows), patches)

    def _parts(self) -> Sequence[TokenIndex | TokenRows]:
        return (self._unindexed,) if self._index is None else (self._index, self._unindexed)

    def _scored(self, query: Vectors, numbers: Numbers, k: int, ordered: bool) -> tuple[Numbers, Vectors]:
        """Scores from the rows: tokens in memory are rounded."""
        rows: list[Row] = []
        for chunk in chunks(numbers.tolist()):
            rows += self._rows.read(f"SELECT n, tokens, valid FROM detail WHERE n IN ({marks(chunk)})", chunk)
        numbers, tokens, valid = token_arrays(sorted(rows), self._rows.about)
        scores = token_scores(query, tokens, valid, ordered)
        chosen = top(scores, min(k, len(scores)))
        return numbers[chosen], scores[chosen]

    def _batches(self, after: int, last: int | None = None) -> Iterator[Batch]:
        query = "SELECT n, tokens, valid FROM detail WHERE n > ? AND n <= ? ORDER BY n LIMIT ?"
        while rows := self._rows.read(query, (after, 2**62 if last is None else last, LOAD_BATCH)):
            after = rows[-1][0]
            yield token_arrays(rows, self._rows.about)


def room_for_tokens(windows: int, widths: Widths) -> int:
    """Bytes on disk that an index takes."""
    return windows * widths.patches * (widths.token + BYTES_BESIDE)
