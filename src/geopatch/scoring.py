"""Scorers: how near a query is to a candidate. Each is declared once, and runs on numpy arrays and torch tensors alike.

A score is better when it is bigger. Tokens are unit vectors; a padded token fills with -inf and can never win. Search
scores one query against its shortlist in numpy, evaluation scores batches of queries in torch, by the same functions.
Similarities have the axes (..., I, N, J): I tokens of a query, N candidates, J tokens of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan

from geopatch.aligned import aligned, aligned_parts
from geopatch.dtw import WEIGHT, dtw_path, mean_distance
from geopatch.errors import ConfigError, one_of
from geopatch.namespace import Array, is_numpy, largest, like, namespace

SHORTLIST = 50
SHARPNESS = 10.0
DEFAULT_SCORER = "fused"  # of a search
SOUND_SCORER = "aligned"  # of a search in sound: what is said is in the order of its sounds
DEFAULT_SCORERS = (DEFAULT_SCORER, "cosine")  # of an evaluation


def similarities(query: Array, query_valid: Array, tokens: Array, valid: Array) -> Array:
    """Cosines (..., I, N, J) of query tokens (..., I, d) with candidate tokens (..., N, J, d), -inf at padding.

    Padded tokens of a single query are left out, so that its I is the number of its valid tokens, if it has any.
    """
    *batch, count, patches, width = tokens.shape
    flat = tokens.reshape(*batch, count * patches, width).swapaxes(-1, -2)
    if query.ndim == 2 and len(known := query[query_valid]):
        cosine = known @ flat
        if not valid.all():
            cosine[:, ~valid.reshape(-1)] = -inf
        return cosine.reshape(len(known), count, patches)
    cosine = query @ flat
    both = query_valid[..., :, None, None] & valid[..., None, :, :]
    return namespace(cosine).where(both, cosine.reshape(*cosine.shape[:-1], count, patches), -inf)


def best_of_candidate(similarity: Array) -> Array:
    """The best candidate token for each query token (..., I, N)."""
    return largest(_leading(similarity), 0)


def soft_best_of_candidate(similarity: Array, sharpness: float = SHARPNESS) -> Array:
    """log(mean(exp(b s))) / b over the candidate's tokens, for each query token (..., I, N)."""
    xp = namespace(similarity)
    turned = _leading(similarity)  # (J, ..., I, N)
    level, valid = largest(turned, 0), turned > -inf
    if valid.all():
        return level + xp.log(xp.exp(sharpness * (turned - level)).mean(0)) / sharpness
    known, count = level > -inf, valid.sum(0)
    level = xp.where(known, level, 0.0)
    total = xp.exp(sharpness * (turned - level)).sum(0)
    smooth = level + xp.log(xp.where(known, total, 1.0) / (count + ~known)) / sharpness  # no division by 0
    return like(xp.where(known, smooth, -inf), similarity)


def mean_known(best: Array, axis: int) -> Array:
    """The mean over what is no padding; -inf where all is."""
    valid = best > -inf
    if valid.all():
        return best.mean(axis)
    xp, known = namespace(best), valid.any(axis)
    mean = xp.where(valid, best, 0.0).sum(axis) / (valid.sum(axis) + ~known)  # no division by 0
    return like(xp.where(known, mean, -inf), best)


def maxsim(similarity: Array) -> Array:
    """Mean over valid query tokens of the best valid candidate token (..., N); -inf where there is none."""
    return mean_known(best_of_candidate(similarity), -2)


def symmetric_maxsim(similarity: Array) -> Array:
    """The mean of MaxSim in both directions."""
    reverse = mean_known(largest(similarity, -3), -1)
    return (maxsim(similarity) + reverse) / 2


def bridge(similarity: Array, sharpness: float = SHARPNESS) -> Array:
    """Between mean and max: the mean over valid query tokens of log(mean(exp(b s))) / b over the candidate's (..., N).

    Towards 0 sharpness takes the mean over the candidate's tokens, towards infinity the best of them: MaxSim.
    """
    return mean_known(soft_best_of_candidate(similarity, sharpness), -2)


def maxsim_parts(pair: Array) -> Array:
    """What each pair of tokens (I, J) adds to MaxSim; NaN where the two were not matched."""
    return _matched(pair, pair.max(1))


def symmetric_parts(pair: Array) -> Array:
    """The same of MaxSim in both directions."""
    xp = namespace(pair)
    forward, reverse = maxsim_parts(pair) / 2, maxsim_parts(pair.T).T / 2
    both = xp.where(xp.isnan(forward), 0.0, forward) + xp.where(xp.isnan(reverse), 0.0, reverse)
    return xp.where(xp.isnan(forward) & xp.isnan(reverse), nan, both)


def bridge_parts(pair: Array) -> Array:
    """The same of bridge: each soft maximum counts for the best pair in it."""
    return _matched(pair, soft_best_of_candidate(pair[:, None, :])[:, 0])


@dataclass(frozen=True, eq=False)
class Scorer:
    """A way to rank candidates, with all that search, evaluation, certificate and explanation need to know of it.

    Parameters
    ----------
    name : str
        What users call it.
    note : str
        What its score is, in one sentence; explanations print it.
    lowest : float
        The least score it can give.
    steepness : int
        How many cosines of embeddings or tokens a score adds up: embeddings and tokens that drift by r change a score
        by at most 2 r times this. Certificates rest on it.
    tokens : callable, optional
        Token scores (..., N) from similarities (..., I, N, J); without it, tokens are not compared.
    adds_cosine : bool, default=False
        Whether the cosine of the embeddings is added to the token score.
    parts : callable, optional
        What each pair of valid tokens (I, J) adds to the token score, NaN for pairs that were not matched; by default
        that of MaxSim, as evidence beside the score.
    ordered : bool, default=False
        Whether these pairs are steps of one path, each later than the one before or as late.
    distance : callable, optional
        A distance of the values of query and candidate, (T, C) each, within a band; `weight` times it is subtracted.
    path : callable, optional
        The pairs of samples (P, 2) that the distance compares, for the explanation.
    weight : float, default=0.0
        How much the distance counts.
    """

    name: str
    note: str
    lowest: float = -1.0
    steepness: int = 1
    tokens: Callable[[Array], Array] | None = None
    adds_cosine: bool = False
    parts: Callable[[Array], Array] = maxsim_parts
    ordered: bool = False
    distance: Callable[[Array, Array, float], float] | None = None
    path: Callable[[Array, Array, float], Array] | None = None
    weight: float = 0.0

    @property
    def needs_windows(self) -> bool:
        """Whether candidates are compared by their values."""
        return self.distance is not None

    def score(self, cosine: Array, query: Array, query_valid: Array, tokens: Array, valid: Array) -> Array:
        """Scores (..., N) before any distance of values is taken off.

        Parameters
        ----------
        cosine : array of shape (..., N)
            Cosines of the embeddings.
        query : array of shape (..., I, d)
            Tokens of the query.
        query_valid : array of shape (..., I)
            Which of them are no padding.
        tokens : array of shape (..., N, J, d)
            Tokens of the candidates.
        valid : array of shape (..., N, J)
            Which of them are no padding.

        Returns
        -------
        array of shape (..., N)
            Bigger is nearer; -inf where there is nothing to compare.
        """
        if self.tokens is None:
            return cosine
        return self.combine(cosine, similarities(query, query_valid, tokens, valid))

    def combine(self, cosine: Array, similarity: Array) -> Array:
        """The same from similarities (..., I, N, J) that are known.

        Parameters
        ----------
        cosine : array of shape (..., N)
            Cosines of the embeddings.
        similarity : array of shape (..., I, N, J)
            Cosines of the tokens, -inf at padding.

        Returns
        -------
        array of shape (..., N)
            The scores.
        """
        if self.tokens is None:
            return cosine
        return cosine + self.tokens(similarity) if self.adds_cosine else self.tokens(similarity)


SCORERS: dict[str, Scorer] = {}


def register(scorer: Scorer) -> None:
    """Make a scorer known under its name to search, evaluation, command line and server.

    Parameters
    ----------
    scorer : Scorer
        The scorer; its name must be new.

    Raises
    ------
    ConfigError
        When there is a scorer of that name.
    """
    if scorer.name in SCORERS:
        raise ConfigError(f"there is a scorer {scorer.name!r} already; give another name")
    SCORERS[scorer.name] = scorer


def default_scorer(*, sound: bool) -> str:
    """What ranks where nobody says it."""
    return SOUND_SCORER if sound else DEFAULT_SCORER


def scorer_names() -> tuple[str, ...]:
    """The names of all scorers."""
    return tuple(SCORERS)


def encoded_scorers() -> tuple[str, ...]:
    """The names of those that need embeddings and tokens only, and no values."""
    return tuple(name for name, scorer in SCORERS.items() if not scorer.needs_windows)


for _scorer in (
    Scorer(
        "cosine",
        "the score is the cosine of the embeddings; the patch matches are evidence beside it, not its parts",
    ),
    Scorer(
        "maxsim",
        "the score is the mean over query patches of the similarity with the best patch of the hit",
        tokens=maxsim,
    ),
    Scorer(
        "fused",
        "the score is the cosine of the embeddings plus the mean of MaxSim in both directions",
        lowest=-2.0,
        steepness=2,
        tokens=symmetric_maxsim,
        adds_cosine=True,
        parts=symmetric_parts,
    ),
    Scorer(
        "bridge",
        "the score is the mean over query patches of a soft maximum over the patches of the hit",
        tokens=bridge,
        parts=bridge_parts,
    ),
    Scorer(
        "dtw",
        f"the score is that of fused less {WEIGHT:g} times the root mean square distance along the warping path",
        lowest=-inf,
        steepness=2,  # that of fused: values do not drift
        tokens=symmetric_maxsim,
        adds_cosine=True,
        parts=symmetric_parts,
        distance=mean_distance,
        path=dtw_path,
        weight=WEIGHT,
    ),
    Scorer(
        "aligned",
        "the score is the mean similarity along the best path through the patches of both in the order of time",
        tokens=aligned,
        parts=aligned_parts,
        ordered=True,
    ),
    Scorer(
        "fused-aligned",
        "the score is the cosine of the embeddings plus the mean similarity along the best path through the patches of "
        "both in the order of time",
        lowest=-2.0,
        steepness=2,
        tokens=aligned,
        adds_cosine=True,
        parts=aligned_parts,
        ordered=True,
    ),
):
    register(_scorer)


def rerank(
    cosine: Array, query: Array, query_valid: Array, tokens: Array, valid: Array, scorer: str, shortlist: int
) -> Array:
    """Cosines (Q, N), torch tensors, with the best `shortlist` of each row ordered anew; they stay above the rest."""
    one_of("scorer", scorer, encoded_scorers())
    if SCORERS[scorer].tokens is None:
        return cosine
    top = cosine.topk(min(shortlist, cosine.shape[1]), dim=1)
    scores = SCORERS[scorer].score(top.values, query, query_valid, tokens[top.indices], valid[top.indices])
    above = scores - SCORERS[scorer].lowest + 1  # at least 1, the most a cosine can be
    kept = top.values > -inf
    return cosine.scatter(1, top.indices, namespace(cosine).where(kept, above, top.values))


def _matched(pair: Array, value: Array) -> Array:
    """`value` (I,) over the number of query tokens, at the best candidate token of each; NaN elsewhere."""
    rows, columns = pair.shape
    best = pair.argmax(1)[:, None] == namespace(pair).arange(columns)[None]
    return namespace(pair).where(best, value[:, None] / rows, nan)


def _leading(array: Array) -> Array:
    """The last axis moved to the front; in numpy as a copy, because maxima down the first axis of contiguous data take
    a tenth of the time of maxima over 16 numbers at the end."""
    axes = (array.ndim - 1, *range(array.ndim - 1))
    return array.transpose(axes).copy() if is_numpy(array) else array.permute(axes)
