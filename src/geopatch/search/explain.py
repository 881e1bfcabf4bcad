"""Why a hit was found: which patch of the query met which patch of the hit, when, and how much that counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.search.dtw import WEIGHT
from geopatch.search.late import (
    Floats,
    Mask,
    best_of_candidate,
    similarities,
    smooth_of_candidate,
)

Span = tuple[float, float]
NOTES = {
    "cosine": "the score is the cosine of the embeddings; the patch matches are evidence beside it, not its parts",
    "maxsim": "the score is the mean over query patches of the similarity with the best patch of the hit",
    "fused": "the score is the cosine of the embeddings plus the mean of MaxSim in both directions",
    "bridge": "the score is the mean over query patches of a soft maximum over the patches of the hit",
    "dtw": f"the score is that of fused less {WEIGHT:g} times the root mean square distance along the warping path",
}


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of one window and where their patches lie."""

    tokens: Floats  # (K, d)
    valid: Mask  # (K,)
    patch_s: Floats  # (K, 2) seconds from the start of the window


@dataclass(frozen=True)
class Match:
    """A patch of the query and the patch of the hit that it met; times in seconds from the start of each window."""

    query_patch: int
    hit_patch: int
    query_s: Span
    hit_s: Span
    similarity: float
    weight: float  # its share of the token score; all shares, taken as positive, add up to 1


@dataclass(frozen=True, eq=False)
class Explanation:
    """The score of a hit taken apart. Matches come in the order of the query's patches."""

    scorer: str
    score: float
    cosine: float  # of the embeddings
    token_score: float  # what the matches add up to
    matches: tuple[Match, ...]
    path_s: npt.NDArray[np.float64] | None  # (P, 2) for dtw: seconds in query and hit that the path brings together
    note: str
    tempo: float = 0.0  # the query's times are those of the query warped by this

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        told = {name: getattr(self, name) for name in ("scorer", "score", "cosine", "tempo", "token_score", "note")}
        matches = [
            {**vars(match), "query_s": list(match.query_s), "hit_s": list(match.hit_s)} for match in self.matches
        ]
        return {**told, "matches": matches, "path_s": None if self.path_s is None else self.path_s.tolist()}

    def __str__(self) -> str:
        warp = f", query warped by {self.tempo:+g}" if self.tempo else ""
        lines = [f"{self.scorer} {self.score:.4f}, cosine {self.cosine:.4f}{warp}: {self.note}"]
        for match in self.matches:
            query, hit = (f"{start:.2f}-{stop:.2f} s" for start, stop in (match.query_s, match.hit_s))
            lines.append(f"query {query} ~ hit {hit}  similarity {match.similarity:.3f}  weight {match.weight:.3f}")
        return "\n".join(lines)


def explain_tokens(scorer: str, query: Tokens, hit: Tokens) -> tuple[float, tuple[Match, ...]]:
    """The token score of a pair of windows and the matches that make it up."""
    asked, given = np.flatnonzero(query.valid), np.flatnonzero(hit.valid)
    if not len(asked) or not len(given):
        return float("-inf"), ()
    similarity = similarities(query.tokens[asked], hit.tokens[None], hit.valid[None])
    pair = similarity[:, 0, :][:, given]  # (I, J)
    parts = _parts(scorer, similarity, pair)
    total = sum(abs(part) for part in parts.values()) or 1.0
    matches = tuple(
        Match(
            query_patch=int(asked[i]),
            hit_patch=int(given[j]),
            query_s=_span(query.patch_s[asked[i]]),
            hit_s=_span(hit.patch_s[given[j]]),
            similarity=float(pair[i, j]),
            weight=part / total,
        )
        for (i, j), part in sorted(parts.items())
    )
    return sum(parts.values()), matches


def _parts(scorer: str, similarity: Floats, pair: Floats) -> dict[tuple[int, int], float]:
    """What each matched pair of patches adds to the token score."""
    smooth = scorer == "bridge"
    forward = (smooth_of_candidate(similarity) if smooth else best_of_candidate(similarity))[0]  # (I,)
    both = scorer in ("fused", "dtw")
    parts: dict[tuple[int, int], float] = {}
    for i, j in enumerate(pair.argmax(1)):
        parts[i, int(j)] = float(forward[i]) / len(pair) / (2 if both else 1)
    for j, i in enumerate(pair.argmax(0) if both else ()):
        parts[int(i), j] = parts.get((int(i), j), 0.0) + float(pair[i, j]) / pair.shape[1] / 2
    return parts


def _span(seconds: Floats) -> Span:
    return round(float(seconds[0]), 6), round(float(seconds[1]), 6)
