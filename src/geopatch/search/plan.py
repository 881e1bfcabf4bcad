"""What a search is asked to do, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from geopatch.engines.filters import Filter
from geopatch.errors import ConfigError, at_least, one_of
from geopatch.protocol import Protocol
from geopatch.scoring import SCORERS as EMBEDDED_SCORERS
from geopatch.scoring import SHORTLIST
from geopatch.search.dtw import BAND

SCORERS = (*EMBEDDED_SCORERS, "dtw")


@dataclass(frozen=True)
class Plan:
    """A cosine shortlist, ranked by the scorer; then what overlaps or scores too little falls out; then the first k."""

    k: int = 10
    scorer: str = "fused"
    shortlist: int | None = None  # candidates that the scorer ranks; None: 50, or k where that is more
    where: Filter | None = None
    protocol: Protocol | None = None  # None: all candidates, but a stored query does not find itself
    min_gap_s: float = 0.0  # hits of one record start at least this far apart
    min_score: float | None = None
    band: float = BAND  # of dtw
    certify: bool = False
    tempos: bool = False  # the query at other tempos too; each candidate keeps its best score
    windows: bool = True  # hits bring their values
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)
        one_of("scorer", self.scorer, SCORERS)
        at_least("min_gap_s", self.min_gap_s, 0)
        at_least("band", self.band, 0)
        if self.min_score is not None and math.isnan(self.min_score):
            raise ConfigError("min_score must be a number, got nan")
        if self.shortlist is not None and self.shortlist < self.k:
            raise ConfigError(f"shortlist must be at least k = {self.k}, got {self.shortlist}")
        object.__setattr__(self, "depth", self.shortlist or max(SHORTLIST, self.k))

    @property
    def needs_windows(self) -> bool:
        """Whether candidates are compared by their values."""
        return self.scorer == "dtw"
