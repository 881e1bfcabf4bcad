"""How far embeddings may drift before a hit leaves the top R: the margin theorem, for cosines.

Drift is any vector of length at most r added to the query's embedding and, each its own, to every candidate's. These
are unit vectors, so with r < 1 none turns by more than t = asin r, and no angle between two changes by more than 2 t:

- A hit at angle a stays nearer than every candidate at angle b or more while a + 2 t < b - 2 t, that is for
  r <= sin((b - a) / 4), where b is the angle of the best candidate outside the top R. Some drift of just that length,
  along the great circle through hit, query and candidate, brings the two level, so no larger radius is sound for all.
- A cosine changes by 2 sin t = 2 r at most. So does a maximum, a mean or a log-mean-exp of cosines: with tokens that
  drift as embeddings do, MaxSim and bridge change by 2 r and fused by 4 r, and a margin m is safe while r < m / (4 L)
  with L = 1 or 2. The distance that dtw takes off is one of values, which do not drift. `aligned` is a maximum of
  means of cosines, over paths that depend on the numbers of tokens alone, with weights that add up to 1: it changes by
  2 r as MaxSim does, and `fused-aligned` by 4 r.

The paper's form, margin > 4 r + 2 r^2, holds for dot products of embeddings that are not brought back to unit length.
It is the smaller of the two and stands beside as `product_radius`.

What was compared decides what can be said. A cosine ranking is sure or not by the best cosine outside the top k. A
scorer that ranked every candidate there is, by the best score outside the top k. A scorer that ranked a shortlist knows
nothing of candidates that drift might bring into it; of its hits it is only said how surely they stay in the shortlist.
Of a shortlist that comes from tokens not even that is said: what lies outside it was compared in rounded numbers.
At several tempos the same holds: a candidate has the best of several scores, and while none of them changes by more
than some amount, their maximum does not either, nor does the least of several angles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from geopatch.engines.engine import Shortlist
from geopatch.scoring import SCORERS
from geopatch.search.options import SearchOptions

if TYPE_CHECKING:
    import numpy.typing as npt

OUTSIDE_TOKENS = "the shortlist comes from tokens, and of windows outside it no score is known"
FITTED = "; of overlapping windows only the best counts, and how well the query fits is not covered"
ROUNDING = 4e-6  # what float32 may have added to a score, or taken from it
ENGINE_ROUNDING = 2e-6  # an engine whose cosines are further off than this does not compute them in full


@dataclass(frozen=True)
class Certificate:
    """How far embeddings may drift before a hit leaves the top R.

    Parameters
    ----------
    radius : float or None
        The length of the drift that the hit survives, as a share of the unit length of embeddings; None where nothing
        can be said, and `covers` says why.
    product_radius : float or None
        The same for dot products of vectors that are not brought back to unit length.
    margin : float or None
        The score of the hit less that of the best candidate outside the top R.
    R : int
        How many hits the top has.
    covers : str
        What is certified, in one sentence.
    """

    radius: float | None
    product_radius: float | None
    margin: float | None
    R: int
    covers: str


@dataclass(frozen=True, eq=False)
class Certifier:
    """The scores of all candidates that one search compared, to certify its hits by."""

    options: SearchOptions
    cosine: dict[str, float]  # of the shortlist, and of the best candidate outside it
    score: dict[str, float]  # of the shortlist
    doubt: str = ""  # why nothing can be said
    placed: bool = False  # whether hits were moved to where the query fits best

    def certify(self, id: str) -> Certificate:
        """The certificate of the hit with this id."""
        certificate = self._at_one_tempo(id)
        if certificate.radius is None or not self.options.tempos:
            return certificate
        return replace(certificate, covers=f"{certificate.covers}; the query at each tempo drifts on its own")

    def _at_one_tempo(self, id: str) -> Certificate:
        k, depth, scorer = self.options.k, self.options.depth, self.options.ranking.name
        if self.doubt:
            return no_certificate(k, self.doubt)
        if self.options.by_tokens and len(self.cosine) > depth:
            return no_certificate(k, OUTSIDE_TOKENS)
        if self.options.ranking.tokens is None:
            return self._before_gap(self._by_cosine(id, k, f"stays among the {k} best by cosine"))
        if len(self.cosine) > depth:
            stays = f"stays among the {depth} nearest by cosine, which {scorer} ranks in an order not covered,"
            return self._by_cosine(id, depth, stays)
        outside = _outside(self.score, k)
        if outside is None:
            return no_certificate(k, _all_in(len(self.score), k))
        return self._before_gap(token_certificate(scorer, self.score[id], outside, k))

    def _by_cosine(self, id: str, R: int, stays: str) -> Certificate:
        outside = _outside(self.cosine, R)
        if outside is None:
            return no_certificate(R, _all_in(len(self.cosine), R))
        return cosine_certificate(self.cosine[id], outside, R, stays)

    def _before_gap(self, certificate: Certificate) -> Certificate:
        """Better neighbours in time can hide a hit whatever its score, and so can what fits better: not covered."""
        if certificate.radius is None:
            return certificate
        gap = "; before min_gap_s is applied" if self.options.min_gap_s else ""
        return replace(certificate, covers=f"{certificate.covers}{FITTED * self.placed}{gap}")


def cosine_doubt(cosine: npt.NDArray[np.float64], near: Shortlist, indexed: int) -> str:
    """Why the shortlist of an engine cannot be relied on, by its cosines in full precision; "" where it can."""
    if indexed:
        return "the index is approximate, so the best candidate outside the top is not known for sure"
    off = float(np.abs(cosine - near.scores).max(initial=0.0))
    if off > ENGINE_ROUNDING:
        return f"the engine's cosines are off by up to {off:.1e}, so the best candidate outside is not known for sure"
    return ""


def _outside(scores: dict[str, float], R: int) -> float | None:
    """The best score outside the top R."""
    return sorted(scores.values(), reverse=True)[R] if len(scores) > R else None


def _all_in(count: int, R: int) -> str:
    return f"there are {count} candidates, so every one of them is in the top {R}"


def no_certificate(R: int, why: str, margin: float | None = None) -> Certificate:
    return Certificate(None, None, margin, R, f"no certificate: {why}")


def cosine_certificate(cosine: float, outside: float, R: int, stays: str) -> Certificate:
    """For a hit of this cosine, where `outside` is the best cosine of all candidates outside the top R."""
    near, far = _angle(cosine - ROUNDING), _angle(outside + ROUNDING)
    if far <= near:
        return _level(cosine, outside, R)
    covers = (
        f"the hit {stays} while the embeddings of the query and of each candidate drift by less than the radius, "
        "as long as no candidate is added"
    )
    return Certificate(math.sin((far - near) / 4), _product_radius(cosine - outside, 1), cosine - outside, R, covers)


def token_certificate(scorer: str, score: float, outside: float, R: int) -> Certificate:
    """For a hit that `scorer` ranked among all candidates there are: embeddings and tokens may drift."""
    steep = SCORERS[scorer].steepness
    margin = score - outside
    safe = margin - 2 * steep * ROUNDING
    if not safe > 0 or not math.isfinite(safe):
        return _level(score, outside, R)
    covers = (
        f"the hit stays among the {R} best by {scorer} while embeddings and tokens, of the query and of each "
        "candidate, drift by less than the radius, as long as no candidate is added"
    )
    return Certificate(safe / (4 * steep), _product_radius(margin, steep), margin, R, covers)


def _product_radius(margin: float, steep: int) -> float | None:
    """The r that solves margin = steep (4 r + 2 r^2)."""
    safe = margin - 2 * steep * ROUNDING
    return math.sqrt(1 + safe / (2 * steep)) - 1 if safe > 0 else None


def _level(score: float, outside: float, R: int) -> Certificate:
    why = f"its margin over the best candidate outside the top {R} is not positive beyond rounding"
    return no_certificate(R, why, score - outside)


def _angle(cosine: float) -> float:
    return math.acos(min(max(cosine, -1.0), 1.0))
