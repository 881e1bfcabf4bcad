"""The embeddings that no index covers, held in memory and compared one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
FIRST_ROWS = 1024
AT_ONCE = 32  # queries compared in one matrix product
FEW = 0.5  # a smaller share of the rows is copied out before it is compared


class Tail:
    """Rows that only grow at the end; those that are gone stay, marked, until the next index."""

    def __init__(self, width: int) -> None:
        self._numbers = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._vectors = np.zeros((width, FIRST_ROWS), dtype=np.float32)  # so, few queries take half the time
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
        import torch  # its product of two to four queries with 100,000 rows took a quarter to a half of numpy's time

        numbers, alive = self._numbers[: self._used], self._alive[: self._used]
        usable = alive if allowed is None else alive & np.isin(numbers, allowed)
        rows = np.flatnonzero(usable)
        vectors = self._vectors[:, : self._used]
        if len(rows) < FEW * self._used:
            numbers, vectors, usable = numbers[rows], vectors[:, rows], usable[rows]
        all_usable = bool(usable.all())
        for start in range(0, len(queries), AT_ONCE):
            asked = torch.tensor(queries[start : start + AT_ONCE])
            for scores in (asked @ torch.from_numpy(vectors)).numpy():  # (N,)
                chosen = top(scores if all_usable else np.where(usable, scores, -np.inf), min(k, len(rows)))
                yield numbers[chosen], scores[chosen]

    def _grow(self, rows: int) -> None:
        for name in ("_numbers", "_vectors", "_alive"):
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], rows), dtype=old.dtype)
            new[..., : self._used] = old[..., : self._used]
            setattr(self, name, new)


def top(scores: Vectors, k: int) -> npt.NDArray[np.intp]:
    """Positions of the k largest scores, best first; of equal ones the earlier first."""
    if k < len(scores) and k > 0:
        floor = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= floor)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:k]
