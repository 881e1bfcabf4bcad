"""How near a query is to a candidate: cosine of embeddings, or late interaction over tokens.

A score is better when it is bigger. Tokens are unit vectors; a padded token fills with -inf and can never win.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geopatch.errors import one_of

SCORERS = ("cosine", "maxsim", "fused")
SHORTLIST = 50


def similarities(query: Tensor, query_valid: Tensor, candidates: Tensor, valid: Tensor) -> Tensor:
    """Cosines of every query token with every candidate token (Q, N, K, K), -inf where either is padding."""
    cosine = torch.einsum("qid,qnjd->qnij", query, candidates)
    both = query_valid[:, None, :, None] & valid[:, :, None, :]
    return cosine.masked_fill(~both, -torch.inf)


def maxsim(similarity: Tensor) -> Tensor:
    """Mean over valid query tokens of the best valid candidate token (Q, N); -inf where there is none."""
    best = similarity.amax(-1)  # (Q, N, K)
    known = best > -torch.inf
    total = torch.where(known, best, 0.0).sum(-1)
    return torch.where(known.any(-1), total / known.sum(-1).clamp(min=1), -torch.inf)


def symmetric_maxsim(similarity: Tensor) -> Tensor:
    """The mean of MaxSim in both directions."""
    return (maxsim(similarity) + maxsim(similarity.mT)) / 2


def rerank(
    cosine: Tensor, query: Tensor, query_valid: Tensor, tokens: Tensor, valid: Tensor, scorer: str, shortlist: int
) -> Tensor:
    """Cosines (Q, N) with the best `shortlist` of each row ordered anew by `scorer`; they stay above all the rest."""
    one_of("scorer", scorer, SCORERS)
    if scorer == "cosine":
        return cosine
    count = min(shortlist, cosine.shape[1])
    top = cosine.topk(count, dim=1)
    similarity = similarities(query, query_valid, tokens[top.indices], valid[top.indices])
    local = maxsim(similarity) if scorer == "maxsim" else top.values + symmetric_maxsim(similarity)
    above = local - LOWEST[scorer] + 1  # at least 1, the most a cosine can be
    kept = top.values > -torch.inf
    return cosine.scatter(1, top.indices, torch.where(kept, above, top.values))


LOWEST = {"maxsim": -1.0, "fused": -2.0}
