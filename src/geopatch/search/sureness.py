"""Which certificate the hits of one search can have: what was compared decides what can be said.

A cosine ranking is sure or not by the best cosine outside the top k. A scorer that ranked every candidate there is, by
the best score outside the top k. A scorer that ranked a shortlist knows nothing of candidates that drift might bring
into it; of its hits it is only said how surely they stay in the shortlist.

At several tempos the same holds: a candidate has the best of several scores, and while none of them changes by more
than some amount, their maximum does not either, nor does the least of several angles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Shortlist
from geopatch.search.certificate import Certificate, cosine_certificate, no_certificate, token_certificate
from geopatch.search.plan import Plan
from geopatch.search.ranking import Ranking

ENGINE_ROUNDING = 2e-6  # an engine whose cosines are further off than this does not compute them in full


@dataclass(frozen=True, eq=False)
class Sureness:
    """The scores of all candidates that were compared, to certify one by."""

    plan: Plan
    cosine: dict[str, float]  # of the shortlist, and of the best candidate outside it
    score: dict[str, float]  # of the shortlist
    doubt: str = ""  # why nothing can be said

    def of(self, id: str) -> Certificate:
        sure = self._of(id)
        if sure.radius is None or not self.plan.tempos:
            return sure
        return replace(sure, covers=f"{sure.covers}; the query at each tempo drifts on its own")

    def _of(self, id: str) -> Certificate:
        plan, everything = self.plan, len(self.cosine) <= self.plan.depth
        if self.doubt:
            return no_certificate(plan.k, self.doubt)
        if plan.scorer == "cosine":
            return self._told(self._by_cosine(id, plan.k, f"stays among the {plan.k} best by cosine"))
        if not everything:
            stays = (
                f"stays among the {plan.depth} nearest by cosine, which {plan.scorer} ranks in an order not covered,"
            )
            return self._by_cosine(id, plan.depth, stays)
        outside = _outside(self.score, plan.k)
        if outside is None:
            return no_certificate(plan.k, _all_in(len(self.score), plan.k))
        return self._told(token_certificate(plan.scorer, self.score[id], outside, plan.k))

    def _by_cosine(self, id: str, R: int, stays: str) -> Certificate:
        outside = _outside(self.cosine, R)
        if outside is None:
            return no_certificate(R, _all_in(len(self.cosine), R))
        return cosine_certificate(self.cosine[id], outside, R, stays)

    def _told(self, sure: Certificate) -> Certificate:
        """Better neighbours in time can hide a hit whatever its score: that is not covered."""
        if sure.radius is None or not self.plan.min_gap_s:
            return sure
        return replace(sure, covers=f"{sure.covers}; before min_gap_s is applied")


def sureness(ranking: Ranking, near: Shortlist, plan: Plan, *, indexed: int) -> Sureness:
    """What there is to certify hits by. Cosines are taken anew, in full precision."""
    places = {id: n for n, id in enumerate(ranking.entries.ids)}
    vectors = ranking.entries.embedding[[places[id] for id in near.ids]].astype(np.float64)
    asked = [query.embedding.astype(np.float64) for query in ranking.asked]
    cosines = [vectors @ one / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(one)) for one in asked]
    cosine = np.max(cosines, axis=0)
    doubt = _doubt(cosine, near, indexed)
    return Sureness(plan, dict(zip(near.ids, cosine.tolist(), strict=True)), ranking.scores, doubt)


def _doubt(cosine: npt.NDArray[np.float64], near: Shortlist, indexed: int) -> str:
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
