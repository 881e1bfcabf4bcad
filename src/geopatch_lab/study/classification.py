"""Classification of an archive's test split by what was trained on its train split, to compare with published figures.

Accuracy of the nearest training window by the method's own score, and of a ridge classifier on its embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from geopatch.data.collection import Collection
from geopatch.evaluate.rows import Row
from geopatch_lab.baselines.method import Embedder, Floats, Method
from geopatch_lab.baselines.ridge import Ridge
from geopatch_lab.rival import Rival

PROTOCOL, NEAREST, LINEAR, ACCURACY = "classification", "nearest", "linear", "accuracy"


def classified(rival: Rival, kept: Collection, queries: Collection) -> Iterator[Row]:
    """A row for the nearest training window and, where there are embeddings, one for a linear classifier."""
    yield _row(rival, queries, NEAREST, neighbour_accuracy(rival.method, kept, queries))
    if isinstance(rival.method, Embedder):
        yield _row(rival, queries, LINEAR, linear_accuracy(rival.method, kept, queries))


def _row(rival: Rival, queries: Collection, scorer: str, accuracy: float) -> Row:
    return Row(
        data=queries.name,
        data_digest=queries.digest()[:12],
        preset=rival.name,
        config_digest="",
        seed=rival.seed,
        protocol=PROTOCOL,
        protocol_digest="",
        scorer=scorer,
        stress="clean",
        scores={ACCURACY: accuracy},
        queries=len(queries),
        without_positive=0,
        fit_s=rival.fit_s,
        encode_s=0.0,
        peak_memory_mb=None,
        device=rival.device,
    )


def neighbour_accuracy(method: Method, kept: Collection, queries: Collection) -> float:
    known, right = _labels(kept), _labels(queries)
    return float((known[method.scores(queries.signals, kept.signals).argmax(1)] == right).mean())


def linear_accuracy(method: Embedder, kept: Collection, queries: Collection) -> float:
    classes, numbers = np.unique(_labels(kept), return_inverse=True)
    known, new = _standardised(method.embed(kept.signals), method.embed(queries.signals))
    scores = Ridge.fit(known, torch.from_numpy(numbers)).scores(new)
    return float((classes[scores.argmax(1).numpy()] == _labels(queries)).mean())


def _labels(collection: Collection) -> npt.NDArray[np.str_]:
    assert collection.labels is not None
    return collection.labels


def _standardised(known: Floats, new: Floats) -> tuple[torch.Tensor, torch.Tensor]:
    level, spread = known.mean(0), known.std(0) + 1e-8
    return torch.from_numpy((known - level) / spread), torch.from_numpy((new - level) / spread)
