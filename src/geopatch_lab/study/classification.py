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


def classified(rival: Rival, kept: Collection, asked: Collection) -> Iterator[Row]:
    """A row for the nearest training window and, where there are embeddings, one for a linear classifier."""
    yield _row(rival, asked, NEAREST, neighbour_accuracy(rival.method, kept, asked))
    if isinstance(rival.method, Embedder):
        yield _row(rival, asked, LINEAR, linear_accuracy(rival.method, kept, asked))


def _row(rival: Rival, asked: Collection, scorer: str, accuracy: float) -> Row:
    return Row(
        data=asked.name,
        data_digest=asked.digest()[:12],
        preset=rival.name,
        config_digest="",
        seed=rival.seed,
        protocol=PROTOCOL,
        protocol_digest="",
        scorer=scorer,
        stress="clean",
        scores={ACCURACY: accuracy},
        queries=len(asked),
        without_positive=0,
        fit_s=rival.fit_s,
        encode_s=0.0,
        peak_memory_mb=None,
        device=rival.device,
    )


def neighbour_accuracy(method: Method, kept: Collection, asked: Collection) -> float:
    known, right = _labels(kept), _labels(asked)
    return float((known[method.scores(asked.signals, kept.signals).argmax(1)] == right).mean())


def linear_accuracy(method: Embedder, kept: Collection, asked: Collection) -> float:
    classes, numbers = np.unique(_labels(kept), return_inverse=True)
    known, new = _standardised(method.embed(kept.signals), method.embed(asked.signals))
    scores = Ridge.fit(known, torch.from_numpy(numbers)).scores(new)
    return float((classes[scores.argmax(1).numpy()] == _labels(asked)).mean())


def _labels(collection: Collection) -> npt.NDArray[np.str_]:
    assert collection.labels is not None
    return collection.labels


def _standardised(known: Floats, new: Floats) -> tuple[torch.Tensor, torch.Tensor]:
    level, spread = known.mean(0), known.std(0) + 1e-8
    return torch.from_numpy((known - level) / spread), torch.from_numpy((new - level) / spread)
