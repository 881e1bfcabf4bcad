"""An approximate index over the embeddings of a gallery, built once and then only read.

It is made from the rows and can be made again from them, so nothing is lost with it. Qdrant's engine keeps the graph;
its write-ahead log is off, because a shard with one can be opened by a single process only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import GalleryError, MissingExtraError

VECTOR = "embedding"
SEGMENTS, CONFIG = "segments", "edge_config.json"
EDGES, CANDIDATES_BUILDING, CANDIDATES_SEARCHING = 16, 128, 512  # recall@50 on 100,000 MITDB windows: .981 with 128
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
                told = f"the index {folder} cannot be read ({_line(error)}); optimize the gallery"
                raise GalleryError(told) from error

    def search(self, query: Vectors, limit: int) -> Numbers:
        """The n of the nearest entries, best first."""
        edge = _edge()
        params = edge.SearchParams(hnsw_ef=max(limit, CANDIDATES_SEARCHING))
        request = edge.SearchRequest(query=edge.Query.Nearest(query.tolist(), using=VECTOR), limit=limit, params=params)
        return np.asarray([point.id for point in self._shard.search(request)], dtype=np.int64)

    def close(self) -> None:
        self._shard.close()


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
    except GalleryError:
        raise
    except Exception as error:  # the engine has no errors of its own kind
        raise GalleryError(f"the index {folder} could not be built ({_line(error)}); is the disk full?") from error


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
