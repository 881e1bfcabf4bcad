"""An index over the tokens of a gallery in a folder: each token as bytes, with the centroid that it is nearest to.

It is built once from the rows and then only read, through the memory map: a search reads the centroids of all tokens,
two bytes each, and the tokens of the windows that these let through.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.index import Numbers, Vectors
from geopatch.engines.tokens import Codes, Mask, TokenBlock, mark_gone, passing, rounded
from geopatch.errors import StorageError

SAMPLE_PER_CENTROID = 32  # tokens that the centroids are fitted to
MOST_CENTROIDS = 2**14
ITERATIONS = 8  # of k-means; more change little
ASSIGN_BATCH = 4096  # tokens whose nearest centroid is looked for in one product
FILES = ("numbers", "tokens", "scale", "codes", "centroids")

Batch: TypeAlias = tuple[Numbers, Vectors, Mask]  # numbers (n,), tokens (n, K, d), which of them are valid (n, K)


class TokenIndex:
    """The index in a folder, and which of its windows are there still."""

    def __init__(self, folder: Path) -> None:
        try:
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in FILES}
        except (OSError, ValueError) as error:
            raise StorageError(f"the index {folder} cannot be read ({error}); optimize the gallery") from error
        self._numbers = np.array(arrays["numbers"])
        tokens, scale, codes = (arrays[name][: len(self._numbers)] for name in ("tokens", "scale", "codes"))
        self._block = TokenBlock(self._numbers, tokens, scale, codes, np.array(arrays["centroids"]))
        self._alive = np.ones(len(self._numbers), dtype=np.bool_)

    @property
    def last(self) -> int:
        return int(self._numbers[-1])

    def forget(self, numbers: Numbers) -> None:
        """Mark windows as gone; numbers that are not here do not matter."""
        mark_gone(self._numbers, self._alive, numbers)

    def best(self, query: Vectors, k: int, allowed: Numbers | None, ordered: bool) -> tuple[Numbers, Vectors]:
        """As `TokenBlock.best`, of the windows that are there still and allowed."""
        return self._block.best(query, k, passing(self._numbers, self._alive, allowed), ordered)


def build_token_index(folder: Path, batches: Callable[[], Iterator[Batch]], windows: int, patches: int) -> None:
    """Write an index of at most `windows` windows into a new folder. The batches are read twice."""
    try:
        folder.mkdir()
        _write(folder, batches, windows, patches)
    except OSError as error:
        raise StorageError(f"the index {folder} could not be built ({error}); is the disk full?") from error


def _write(folder: Path, batches: Callable[[], Iterator[Batch]], windows: int, patches: int) -> None:
    draw = np.random.default_rng(0)
    count = centroid_count(windows * patches)
    share = min(SAMPLE_PER_CENTROID * count / (windows * patches), 1.0)
    sample = [tokens[valid & (draw.uniform(size=valid.shape) < share)] for _, tokens, valid in batches()]
    centroids = fit_centroids(np.concatenate(sample), count)
    np.save(folder / "centroids.npy", centroids)
    written: list[Numbers] = []
    with ExitStack() as opened:
        files: dict[str, IO[bytes]] = {}
        for numbers, tokens, valid in batches():
            levels, scale = rounded(tokens, valid)
            parts: dict[str, npt.NDArray[Any]] = {"tokens": levels, "scale": scale}
            for name, part in (parts | {"codes": nearest(tokens, valid, centroids)}).items():
                if name not in files:
                    file = _started(folder / f"{name}.npy", (windows, *part.shape[1:]), part.dtype)
                    files[name] = opened.enter_context(file)
                files[name].write(part.tobytes())
            written.append(numbers)
    np.save(folder / "numbers.npy", np.concatenate(written))
    for name in FILES:
        with (folder / f"{name}.npy").open("rb+") as file:
            os.fsync(file.fileno())  # on disk before the gallery says that this index counts


def _started(place: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> IO[bytes]:
    """A file of an array, at its first number: written in parts, it never stands in memory whole."""
    np.lib.format.open_memmap(place, "w+", dtype, shape)  # type: ignore[no-untyped-call]
    file = place.open("rb+")
    file.seek(-int(np.prod(shape)) * dtype.itemsize, os.SEEK_END)
    return file


def centroid_count(tokens: int) -> int:
    """About the square root of the number of tokens, a power of two."""
    return int(min(2 ** np.ceil(np.log2(max(tokens, 1)) / 2), MOST_CENTROIDS))


def fit_centroids(sample: Vectors, count: int) -> Vectors:
    """Centroids (C, d) of tokens (n, d) by k-means."""
    from sklearn.cluster import KMeans

    means = KMeans(min(count, len(sample)), init="random", n_init=1, max_iter=ITERATIONS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where tokens are the same, so are some centroids
        return np.asarray(means.fit(sample).cluster_centers_, dtype=np.float32)


def nearest(tokens: Vectors, valid: Mask, centroids: Vectors) -> Codes:
    """The centroid (N, K) nearest to each token; at padding the number of centroids."""
    flat, half = tokens.reshape(-1, tokens.shape[2]), (centroids**2).sum(1) / 2
    codes = np.empty(len(flat), dtype=np.uint16)
    for start in range(0, len(flat), ASSIGN_BATCH):
        part = slice(start, start + ASSIGN_BATCH)
        codes[part] = (flat[part] @ centroids.T - half).argmax(1)
    return np.where(valid, codes.reshape(valid.shape), len(centroids)).astype(np.uint16)
