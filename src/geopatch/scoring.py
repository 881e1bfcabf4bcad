"""How near a query is to a candidate: cosine of embeddings, or late interaction over tokens.

A score is better when it is bigger. Tokens are unit vectors; a padded token fills with -inf and can never win.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geopatch.errors import one_of

SHORTLIST = 50
SHARPNESS = 10.0


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


def bridge(similarity: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Between mean and max: the mean over valid query tokens of log(mean(exp(b s))) / b over the candidate's (Q, N).

    Towards 0 sharpness takes the mean over the candidate's tokens, towards infinity the best of them: MaxSim.
    """
    count = (similarity > -torch.inf).sum(-1)  # (Q, N, K)
    smooth = (torch.logsumexp(sharpness * similarity, -1) - count.clamp(min=1).to(similarity.dtype).log()) / sharpness
    known = count > 0
    total = torch.where(known, smooth, 0.0).sum(-1)
    return torch.where(known.any(-1), total / known.sum(-1).clamp(min=1), -torch.inf)


def fused(cosine: Tensor, similarity: Tensor) -> Tensor:
    """Cosine of the embeddings + the mean of MaxSim in both directions."""
    return cosine + symmetric_maxsim(similarity)


LOCAL: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {  # scorer, and the least it can give
    "maxsim": (lambda _, similarity: maxsim(similarity), -1.0),
    "fused": (fused, -2.0),
    "bridge": (lambda _, similarity: bridge(similarity), -1.0),
}
SCORERS = ("cosine", *LOCAL)


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
    local, lowest = LOCAL[scorer]
    above = local(top.values, similarity) - lowest + 1  # at least 1, the most a cosine can be
    kept = top.values > -torch.inf
    return cosine.scatter(1, top.indices, torch.where(kept, above, top.values))
