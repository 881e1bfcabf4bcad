"""How far embeddings may drift before a hit leaves the top R: the margin theorem, for cosines.

Drift is any vector of length at most r added to the query's embedding and, each its own, to every candidate's. These
are unit vectors, so with r < 1 none turns by more than t = asin r, and no angle between two changes by more than 2 t:

- A hit at angle a stays nearer than every candidate at angle b or more while a + 2 t < b - 2 t, that is for
  r <= sin((b - a) / 4), where b is the angle of the best candidate outside the top R. Some drift of just that length,
  along the great circle through hit, query and candidate, brings the two level, so no larger radius is sound for all.
- A cosine changes by 2 sin t = 2 r at most. So does a maximum, a mean or a log-mean-exp of cosines: with tokens that
  drift as embeddings do, MaxSim and bridge change by 2 r and fused by 4 r, and a margin m is safe while r < m / (4 L)
  with L = 1 or 2. The distance that dtw takes off is one of values, which do not drift.

The paper's form, margin > 4 r + 2 r^2, holds for dot products of embeddings that are not brought back to unit length.
It is the smaller of the two and stands beside as `product_radius`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUNDING = 4e-6  # what float32 may have added to a score, or taken from it
STEEPNESS = {"maxsim": 1, "bridge": 1, "fused": 2, "dtw": 2}  # how many cosines a score adds up; values do not drift


@dataclass(frozen=True)
class Certificate:
    """What is sure of one hit. Without a radius nothing is, and `covers` says why."""

    radius: float | None
    product_radius: float | None  # the same for dot products of vectors that are not brought back to unit length
    margin: float | None  # score of the hit less that of the best candidate outside the top R
    R: int
    covers: str


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
    steep = STEEPNESS[scorer]
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
