"""Why a hit was found: which patch of the query met which patch of the hit, when, and how much that counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.errors import GalleryError
from geopatch.scoring import SCORERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from geopatch.plot.alignment import DrawnHit

Floats: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Seconds: TypeAlias = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of one window and where their patches lie."""

    tokens: Floats  # (K, d)
    valid: Mask  # (K,)
    patch_s: Floats  # (K, 2) seconds from the start of the window


@dataclass(frozen=True)
class Match:
    """A patch of the query and the patch of the hit that it met.

    Parameters
    ----------
    query_patch, hit_patch : int
        The numbers of the two patches, from 0.
    query_s, hit_s : tuple of float
        Where they start and stop, in seconds from the start of each window.
    similarity : float
        The cosine of their tokens.
    weight : float
        The share of the token score; all shares, taken as positive, add up to 1.
    """

    query_patch: int
    hit_patch: int
    query_s: Seconds
    hit_s: Seconds
    similarity: float
    weight: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """The score of a hit taken apart.

    Parameters
    ----------
    scorer : str
        What ranked the hits.
    score : float
        The score of the hit.
    cosine : float
        The cosine of the embeddings.
    token_score : float
        What the matches add up to.
    matches : tuple of Match
        In the order of the query's patches, and of the hit's where `ordered`.
    path_s : array of shape (P, 2) or None
        For dtw: seconds in query and hit that the path brings together.
    note : str
        What the score is, in one sentence.
    tempo : float, default=0.0
        The query's times are those of the query warped by this.
    ordered : bool, default=False
        Whether the matches are the steps of one path through query and hit, as those of `aligned` are.
    hit : Hit, optional
        The hit that it explains, to draw both.
    rhythm : float, default=0.0
        What relative tempo adds to the cosine; the rest is shape.
    """

    scorer: str
    score: float
    cosine: float
    token_score: float
    matches: tuple[Match, ...]
    path_s: npt.NDArray[np.float64] | None
    note: str
    tempo: float = 0.0
    ordered: bool = False
    hit: DrawnHit | None = field(default=None, repr=False)
    rhythm: float = 0.0

    def plot(self) -> Figure:
        """Draw the query above, the hit below, and between them what met what.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        GalleryError
            When the values of query or hit are not known.
        """
        from geopatch.plot.alignment import alignment

        query = None if self.hit is None else self.hit.query_window
        if self.hit is None or query is None:
            raise GalleryError("there is nothing to draw: the values of the query are not known")
        return alignment(query, self.hit)

    def _repr_html_(self) -> str:
        from geopatch.notebook import table

        rows = [
            {"query_s": str(one.query_s), "hit_s": str(one.hit_s), "similarity": one.similarity, "weight": one.weight}
            for one in self.matches
        ]
        return table(rows, f"{self.scorer} {self.score:.4f}, {self._cosine_text()}: {self.note}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Returns
        -------
        dict
            A value for each field; matches as dicts, the path as lists.
        """
        names = ("scorer", "score", "cosine", "tempo", "token_score", "note", "ordered", "rhythm")
        plain = {name: getattr(self, name) for name in names}
        matches = [
            {**vars(match), "query_s": list(match.query_s), "hit_s": list(match.hit_s)} for match in self.matches
        ]
        return {**plain, "matches": matches, "path_s": None if self.path_s is None else self.path_s.tolist()}

    def __str__(self) -> str:
        warp = f", query warped by {self.tempo:+g}" if self.tempo else ""
        lines = [f"{self.scorer} {self.score:.4f}, {self._cosine_text()}{warp}: {self.note}"]
        for match in self.matches:
            query, hit = (f"{start:.2f}-{stop:.2f} s" for start, stop in (match.query_s, match.hit_s))
            lines.append(f"query {query} ~ hit {hit}  similarity {match.similarity:.3f}  weight {match.weight:.3f}")
        return "\n".join(lines)

    def _cosine_text(self) -> str:
        parts = f" (shape {self.cosine - self.rhythm:.4f}, rhythm {self.rhythm:.4f})" if self.rhythm else ""
        return f"cosine {self.cosine:.4f}{parts}"


def explain_tokens(scorer: str, query: Tokens, hit: Tokens) -> tuple[float, tuple[Match, ...]]:
    """The token score of a pair of windows and the matches that make it up."""
    query_patches, hit_patches = np.flatnonzero(query.valid), np.flatnonzero(hit.valid)
    if not len(query_patches) or not len(hit_patches):
        return float("-inf"), ()
    pair = query.tokens[query_patches] @ hit.tokens[hit_patches].T  # (I, J)
    parts = SCORERS[scorer].parts(pair)
    total = float(np.nansum(np.abs(parts))) or 1.0
    matches = tuple(
        Match(
            query_patch=int(query_patches[i]),
            hit_patch=int(hit_patches[j]),
            query_s=_seconds(query.patch_s[query_patches[i]]),
            hit_s=_seconds(hit.patch_s[hit_patches[j]]),
            similarity=float(pair[i, j]),
            weight=float(parts[i, j]) / total,
        )
        for i, j in np.argwhere(~np.isnan(parts))
    )
    return float(np.nansum(parts)), matches


def _seconds(patch_s: Floats) -> Seconds:
    return round(float(patch_s[0]), 6), round(float(patch_s[1]), 6)
