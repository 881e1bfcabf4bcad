"""A hit: a window that a search found, where it lies, how near it is, and what it needs to explain itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.search.certificate import Certificate
from geopatch.search.explain import NOTES, Explanation, Tokens, explain_tokens
from geopatch.signal import Signal


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a hit keeps of the search: tokens of both sides, the windows where there are any, the path of a dtw."""

    query: Tokens
    hit: Tokens
    query_window: Signal | None = None
    hit_window: Signal | None = None
    path_s: npt.NDArray[np.float64] | None = None  # (P, 2) seconds from the start of each window


@dataclass(frozen=True)
class Hit:
    """One window of a gallery, found by a query. A score is better when it is bigger."""

    id: str
    record: str
    start_s: float
    stop_s: float
    score: float
    rank: int  # 1 is the best
    scorer: str
    cosine: float
    metadata: Mapping[str, Any] = field(hash=False)
    certificate: Certificate | None = None  # None where none was asked for
    evidence: Evidence | None = field(default=None, repr=False, compare=False)
    tempo: float = 0.0  # the warp of the query that scored best; 0 is the query as it is

    @property
    def window(self) -> Signal | None:
        """The values that were found, where the gallery keeps them."""
        return None if self.evidence is None else self.evidence.hit_window

    @property
    def query_window(self) -> Signal | None:
        """The values that were searched by, at the tempo that won, where they are known."""
        return None if self.evidence is None else self.evidence.query_window

    def with_window(self, window: Signal | None) -> Hit:
        """The same hit with its values."""
        assert self.evidence is not None, "a hit of a search has its evidence"
        return replace(self, evidence=replace(self.evidence, hit_window=window))

    def explain(self) -> Explanation:
        """Which patch of the query met which patch of this window."""
        assert self.evidence is not None, "a hit of a search has its evidence"
        token_score, matches = explain_tokens(self.scorer, self.evidence.query, self.evidence.hit)
        note = NOTES[self.scorer]
        return Explanation(
            self.scorer, self.score, self.cosine, token_score, matches, self.evidence.path_s, note, self.tempo
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        names = ("rank", "id", "record", "start_s", "stop_s", "score", "scorer", "cosine", "tempo")
        told = {name: getattr(self, name) for name in names}
        sure = None if self.certificate is None else vars(self.certificate)
        return {**told, "metadata": dict(self.metadata), "certificate": sure}
