"""Late interaction of one query with its shortlist, in numpy on one thread: a gather, one matrix product, two maxima.

The same scores as `geopatch.scoring`, which works on batches in torch. Tokens are unit vectors; a padded token fills
with -inf and can never win.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import one_of
from geopatch.scoring import SHARPNESS

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_ONE_AT_A_TIME = threading.Lock()


def similarities(query: Floats, tokens: Floats, valid: Mask) -> Floats:
    """Cosines (I, N, K) of I valid query tokens (I, d) with the tokens (N, K, d) of N candidates, -inf at padding."""
    count, patches, width = tokens.shape
    cosine = query @ tokens.reshape(-1, width).T  # (I, N K)
    if not valid.all():
        cosine[:, ~valid.reshape(-1)] = -np.inf
    return cosine.reshape(len(query), count, patches)


def best_of_candidate(similarity: Floats) -> Floats:
    """The best candidate token for each query token (N, I)."""
    turned = np.ascontiguousarray(similarity.transpose(2, 1, 0))  # (K, N, I): a maximum down the columns is fast
    best: Floats = turned.max(0)
    return best


def best_of_query(similarity: Floats) -> Floats:
    """The best query token for each candidate token (N, K)."""
    best: Floats = similarity.max(0, initial=-np.inf)
    return best


def smooth_of_candidate(similarity: Floats, sharpness: float = SHARPNESS) -> Floats:
    """log(mean(exp(b s))) / b over the candidate's tokens, for each query token (N, I)."""
    turned = np.ascontiguousarray(similarity.transpose(2, 1, 0))
    top = turned.max(0)
    known = top > -np.inf
    level = np.where(known, top, np.float32(0))
    total = np.exp(sharpness * (turned - level)).sum(0)
    count = (turned > -np.inf).sum(0)
    smooth = level + np.log(np.where(known, total, 1) / np.maximum(count, 1)) / sharpness
    return np.where(known, smooth, -np.inf).astype(np.float32)


def mean_known(best: Floats) -> Floats:
    """The mean (N,) over what is no padding; -inf where all is."""
    known = best > -np.inf
    if known.all() and best.shape[1]:
        mean: Floats = best.mean(1)
        return mean
    total = np.where(known, best, np.float32(0)).sum(1)
    return np.where(known.any(1), total / np.maximum(known.sum(1), 1), -np.inf).astype(np.float32)


def maxsim(similarity: Floats) -> Floats:
    return mean_known(best_of_candidate(similarity))


def symmetric_maxsim(similarity: Floats) -> Floats:
    """The mean of MaxSim in both directions."""
    both: Floats = (maxsim(similarity) + mean_known(best_of_query(similarity))) / np.float32(2)
    return both


def bridge(similarity: Floats) -> Floats:
    return mean_known(smooth_of_candidate(similarity))


TOKEN_SCORES: dict[str, Callable[[Floats], Floats]] = {
    "maxsim": maxsim,
    "fused": symmetric_maxsim,
    "bridge": bridge,
}


def late_scores(scorer: str, cosine: Floats, query: Floats, query_valid: Mask, tokens: Floats, valid: Mask) -> Floats:
    """Scores (N,) of a query (K, d) with candidates (N, K, d); `cosine` (N,) is that of the embeddings."""
    one_of("scorer", scorer, tuple(TOKEN_SCORES))
    token_score = TOKEN_SCORES[scorer](similarities(query[query_valid], tokens, valid))
    return cosine + token_score if scorer == "fused" else token_score


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold numpy's matrix product to one thread: these are too small to share out, and waking threads costs more.

    The limit is the process's, so two threads must not put it on and take it off across each other. The libraries are
    set directly: threadpoolctl's own context takes ten times as long.
    """
    with _ONE_AT_A_TIME:
        before = [(library, library.get_num_threads()) for library in _libraries()]
        many = [(library, count) for library, count in before if count is not None and count > 1]
        for library, _ in many:
            library.set_num_threads(1)
        try:
            yield
        finally:
            for library, count in many:
                library.set_num_threads(count)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The libraries that numpy multiplies with: its own, or all that there are where it brings none."""
    from threadpoolctl import ThreadpoolController

    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    own = [library for library in found if "numpy" in library.filepath]
    return tuple(own or found)
