"""An approximate index over the embeddings of a gallery, and the newest rows, which it does not cover yet.

The index is built once and then only read. It is made from the rows and can be made again from them, so nothing is lost
with it. Qdrant's engine keeps the graph; its write-ahead log is off, because a shard with one can be opened by a single
process only.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import GeoPatchError, MissingExtraError, StorageError

VECTOR = "embedding"
SEGMENTS, CONFIG = "segments", "edge_config.json"
EDGES, CANDIDATES_BUILDING, CANDIDATES_SEARCHING = 16, 128, 512  # recall@50 on 100,000 MITDB windows: .981 with 128
FIRST_ROWS = 1024
QUERY_BATCH = 32  # queries compared in one matrix product
DENSE_FRACTION = 0.5  # where a smaller share of the rows is wanted, they are copied out before they are compared
Numbers = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


class Index:
    """Finds numbers n of entries whose vectors have a large inner product with a query."""

    def __init__(self, folder: Path) -> None:
        edge = _edge()
        with tempfile.TemporaryDirectory(prefix="geopatch-index-", ignore_cleanup_errors=True) as view:
            try:
                _link(folder, Path(view))
                self._shard = edge.EdgeShard.load(view)
            except Exception as error:  # the engine has no errors of its own kind
                problem = f"the index {folder} cannot be read ({_line(error)}); optimize the gallery"
                raise StorageError(problem) from error

    def search(self, query: Vectors, limit: int) -> Numbers:
        """The n of the nearest entries, best first."""
        edge = _edge()
        params = edge.SearchParams(hnsw_ef=max(limit, CANDIDATES_SEARCHING))
        request = edge.SearchRequest(query=edge.Query.Nearest(query.tolist(), using=VECTOR), limit=limit, params=params)
        return np.asarray([point.id for point in self._shard.search(request)], dtype=np.int64)

    def close(self) -> None:
        self._shard.close()


class UnindexedRows:
    """Embeddings in memory, compared one by one. Removed rows stay, marked, until the next index is built."""

    def __init__(self, width: int) -> None:
        self._numbers = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._vectors = np.zeros(
            (width, FIRST_ROWS), dtype=np.float32
        )  # column-major: halves the time of small batches
        self._alive = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self._used = 0

    @property
    def last(self) -> int:
        return int(self._numbers[self._used - 1]) if self._used else 0

    def append(self, numbers: Numbers, vectors: Vectors) -> None:
        """Rows with numbers above all that are here, in order."""
        stop = self._used + len(numbers)
        if stop > len(self._numbers):
            self._grow(max(stop, 2 * len(self._numbers)))
        self._numbers[self._used : stop] = numbers
        self._vectors[:, self._used : stop] = vectors.T
        self._alive[self._used : stop] = True
        self._used = stop

    def forget(self, numbers: Numbers) -> None:
        """Mark rows as gone; numbers that are not here do not matter."""
        held = self._numbers[: self._used]
        places = np.searchsorted(held, numbers)
        inside = places < self._used
        places, numbers = places[inside], numbers[inside]
        self._alive[places[held[places] == numbers]] = False

    def best(self, queries: Vectors, k: int, allowed: Numbers | None) -> Iterator[tuple[Numbers, Vectors]]:
        """For each query (Q, D) the numbers and scores of the k rows of largest inner product, best first."""
        numbers, alive = self._numbers[: self._used], self._alive[: self._used]
        usable = alive if allowed is None else alive & np.isin(numbers, allowed)
        rows = np.flatnonzero(usable)
        vectors = self._vectors[:, : self._used]
        if len(rows) < DENSE_FRACTION * self._used:
            numbers, vectors, usable = numbers[rows], vectors[:, rows], usable[rows]
        all_usable = bool(usable.all())
        for start in range(0, len(queries), QUERY_BATCH):
            for scores in _product(queries[start : start + QUERY_BATCH], vectors):  # (N,)
                chosen = top(scores if all_usable else np.where(usable, scores, -np.inf), min(k, len(rows)))
                yield numbers[chosen], scores[chosen]

    def _grow(self, rows: int) -> None:
        for name in ("_numbers", "_vectors", "_alive"):
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], rows), dtype=old.dtype)
            new[..., : self._used] = old[..., : self._used]
            setattr(self, name, new)


def _product(queries: Vectors, vectors: Vectors) -> Vectors:
    """Inner products (Q, N). Torch takes a quarter to a half of numpy's time for two to four queries and 100,000 rows:
    it is used where it is loaded already, which takes longer than any search.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return queries @ vectors
    products: Vectors = (torch.tensor(queries) @ torch.from_numpy(vectors)).numpy()
    return products


def top(scores: Vectors, k: int) -> npt.NDArray[np.intp]:
    """Positions of the k largest scores, best first; of equal ones the earlier first."""
    if k < len(scores) and k > 0:
        floor = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= floor)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:k]


def build_index(folder: Path, batches: Iterable[tuple[Numbers, Vectors]], width: int) -> None:
    """Write an index of all vectors into a new folder."""
    edge = _edge()
    folder.mkdir()
    try:
        shard = edge.EdgeShard.create(str(folder), _config(edge, width))
        for numbers, vectors in batches:
            rows = zip(numbers.tolist(), vectors.tolist(), strict=True)
            points = [edge.Point(n, {VECTOR: vector}, {}) for n, vector in rows]
            shard.update(edge.UpdateOperation.upsert_points(points))
        shard.flush()
        shard.optimize()
        shard.flush()
        shard.close()
    except GeoPatchError:
        raise
    except Exception as error:  # the engine has no errors of its own kind
        raise StorageError(f"the index {folder} could not be built ({_line(error)}); is the disk full?") from error


def _config(edge: Any, width: int) -> Any:
    params = edge.EdgeVectorParams(
        width, edge.Distance.Dot, datatype=edge.VectorStorageDatatype.Float16, memory=edge.Memory.Cold
    )
    return edge.EdgeConfig(
        vectors={VECTOR: params},
        wal_enabled=False,
        hnsw_config=edge.HnswIndexConfig(EDGES, CANDIDATES_BUILDING, full_scan_threshold=10),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1, default_segment_number=1),
    )


def _link(folder: Path, view: Path) -> None:
    """Make a folder of this process lead to the index: opening rewrites the config, which others may be reading.

    Files that are open stay so when the view is gone.
    """
    shutil.copyfile(folder / CONFIG, view / CONFIG)
    try:
        os.symlink((folder / SEGMENTS).absolute(), view / SEGMENTS, target_is_directory=True)
    except OSError:  # a system where links need a privilege
        shutil.copytree(folder / SEGMENTS, view / SEGMENTS)


def _edge() -> Any:
    try:
        import qdrant_edge
    except ImportError as error:
        raise MissingExtraError("qdrant-edge-py", "gallery", "the index of a large gallery") from error
    return qdrant_edge


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
