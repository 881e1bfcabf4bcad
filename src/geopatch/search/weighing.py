"""Shape against rhythm: how much of a cosine relative tempo counts for, as a search wants it.

The last numbers of an embedding are relative tempo (`About.rhythm` of them). Fitting chose their weight; a search can
choose another, because the parts can be taken apart again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.errors import ConfigError
from geopatch.search.explain import Floats

Numbers = npt.NDArray[np.float64]
LEAST = 1e-12


def check_clock(clock: float | None, about: About) -> None:
    """Refuse a weight of relative tempo in a gallery whose model has none."""
    if clock and not about.rhythm:
        raise ConfigError(
            f"clock={clock:g} weighs relative tempo, and the model of this gallery has none: the windows it was "
            "fitted on had no anchors, or these did not help; leave clock out"
        )


def clock_for(query: Floats, clock: float | None, width: int) -> float | None:
    """What relative tempo counts for with one query's embeddings (tempos, D): nothing where none of it is known."""
    return 0.0 if width and not query[:, -width:].any() else clock


def weighed(vectors: Floats, clock: float | None, width: int) -> Floats:
    """Embeddings (N, D) in which relative tempo counts for the share `clock`; as they are where that is None."""
    if clock is None or not width:
        return vectors
    shape, rhythm = _parts(vectors, width)
    return _unit(np.concatenate([(1 - clock) ** 0.5 * _unit(shape), clock**0.5 * _unit(rhythm)], axis=1))


def probes(vectors: Floats, clock: float | None, width: int) -> Floats:
    """What finds the nearest among stored embeddings, whose weights cannot be changed: the query's carry both."""
    if clock is None or not width:
        return vectors
    shape, rhythm = _parts(vectors, width)
    own = [share * part / _squares(part) for share, part in ((1 - clock, shape), (clock, rhythm))]
    probe = _unit(np.concatenate(own, axis=1))
    lost = ~probe.any(axis=1, keepdims=True)  # rhythm alone, and none is known
    return np.where(lost, vectors, probe)


def rhythm_cosines(queries: Numbers, vectors: Numbers, width: int) -> Numbers:
    """What relative tempo adds to the cosines (Q, N)."""
    if not width:
        return np.zeros((len(queries), len(vectors)))
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
    added: Numbers = np.einsum("qd,nd->qn", queries[:, -width:], vectors[:, -width:]) / np.maximum(lengths, LEAST)
    return added


def with_rhythm_of(vectors: Floats, others: Floats, width: int) -> Floats:
    """Embeddings with the relative tempo of others, drawn at random: those have none of their own."""
    if not width:
        return vectors
    drawn = others[np.random.default_rng(0).integers(len(others), size=len(vectors)), -width:]
    rest = np.sqrt(np.maximum(1 - _squares(drawn, least=0.0), 0.0))
    mixed: Floats = np.concatenate([rest * _unit(vectors[:, :-width]), drawn], axis=1).astype(vectors.dtype)
    return mixed


def _parts(vectors: Floats, width: int) -> tuple[Floats, Floats]:
    return vectors[:, :-width], vectors[:, -width:]


def _squares(vectors: Floats, least: float = LEAST) -> Floats:
    squares: Floats = np.maximum(np.square(vectors).sum(1, keepdims=True), least)
    return squares


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.sqrt(_squares(vectors))
    return unit
