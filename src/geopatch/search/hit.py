"""A hit: a window that a search found, where it lies, how near it is, and what it needs to explain itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import GalleryError, MissingExtraError
from geopatch.scoring import SCORERS
from geopatch.search.certificate import Certificate
from geopatch.search.explain import Explanation, Tokens, explain_tokens
from geopatch.signal import Signal
from geopatch.times import time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a hit keeps of the search: tokens of both sides, the windows where there are any, the path of a dtw."""

    query: Tokens
    hit: Tokens
    query_window: Signal | None = None
    hit_window: Signal | None = None
    path_s: npt.NDArray[np.float64] | None = None  # (P, 2) seconds from the start of each window


@dataclass(frozen=True, repr=False)
class Hit:
    """A window of a gallery that a search returned.

    Parameters
    ----------
    id : str
        The id of the window.
    record : str
        The record it belongs to.
    start_s, stop_s : float
        Where it lies in its record, in seconds; in a gallery of recordings, where the query fits best.
    score : float
        How near it is; bigger is nearer.
    rank : int
        Its place among the hits; 1 is the best.
    scorer : str
        What ranked the hits.
    cosine : float
        The cosine of its embedding and the query's.
    metadata : mapping
        What the gallery knows of it.
    certificate : Certificate, optional
        How far embeddings may drift before it leaves the top k; only where the search certifies.
    evidence : Evidence, optional
        What `explain` works from.
    tempo : float, default=0.0
        The warp of the query that scored best; 0 is the query as it is.
    chance : float, optional
        How many windows of a gallery of this size would score as much by chance: much less than 1 for a hit that has
        something to do with the query. None where the search had no model, which one by a stored id does not load.
    start_time : datetime, optional
        The wall-clock time at which it starts, where that of its record is known.
    speed : float, optional
        How many times faster than the query it goes, 0.5 for half as fast; None where it is not known.
    window_start_s, window_stop_s : float, optional
        Where the stored window lies that was nearest to the query; by default the same as `start_s` and `stop_s`.
    fit : float, optional
        The correlation of its values with the query stretched onto them, at most 1; None where it is not known.
    segment : Signal, optional
        The values from `start_s` to `stop_s`, where these are not those of the window.
    rhythm : float, default=0.0
        What relative tempo adds to the cosine; the rest is shape.
    """

    id: str
    record: str
    start_s: float
    stop_s: float
    score: float
    rank: int
    scorer: str
    cosine: float
    metadata: Mapping[str, Any] = field(hash=False)
    certificate: Certificate | None = None
    evidence: Evidence | None = field(default=None, compare=False)
    tempo: float = 0.0
    chance: float | None = None
    start_time: datetime | None = None
    speed: float | None = None
    window_start_s: float | None = None
    window_stop_s: float | None = None
    fit: float | None = None
    segment: Signal | None = field(default=None, compare=False)
    rhythm: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("window_start_s", self.start_s), ("window_stop_s", self.stop_s)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Hit({self.rank}, {self.id!r}, {self.scorer} {self.score:.4f}, {self.start_s:g}-{self.stop_s:g} s)"

    def _repr_html_(self) -> str:
        from geopatch.notebook import sparkline, table

        names = ("rank", "id", "record", "start_s", "stop_s", "score", "chance")
        when = {} if self.start_time is None else {"time": time_text(self.start_time)}
        row = {**{name: getattr(self, name) for name in names}, **when, **self.metadata}
        return table([row if self.window is None else {**row, "window": sparkline(self.window.values)}])

    @property
    def window(self) -> Signal | None:
        """The values of the hit, where the gallery keeps them."""
        return None if self.evidence is None else self.evidence.hit_window

    @property
    def query_window(self) -> Signal | None:
        """The values that were searched by, at the tempo that won, where they are known."""
        return None if self.evidence is None else self.evidence.query_window

    def with_window(self, window: Signal | None) -> Hit:
        """The same hit with its values.

        Parameters
        ----------
        window : Signal or None
            The values; None where the gallery keeps none.

        Returns
        -------
        Hit
            A hit that differs in nothing else.
        """
        assert self.evidence is not None, "a hit of a search has its evidence"
        return replace(self, evidence=replace(self.evidence, hit_window=window))

    def explain(self) -> Explanation:
        """Take the score apart: which patch of the query met which patch of this window.

        Returns
        -------
        Explanation
            The matches with their times and weights; prints as text.
        """
        assert self.evidence is not None, "a hit of a search has its evidence"
        token_score, matches = explain_tokens(self.scorer, self.evidence.query, self.evidence.hit)
        scorer, path_s = SCORERS[self.scorer], self.evidence.path_s
        return Explanation(
            self.scorer,
            self.score,
            self.cosine,
            token_score,
            matches,
            path_s,
            scorer.note,
            self.tempo,
            scorer.ordered,
            self,
            self.rhythm,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them.

        Returns
        -------
        dict
            A value for each field but the evidence.
        """
        place = ("start_s", "stop_s", "speed", "fit", "window_start_s", "window_stop_s")
        names = ("rank", "id", "record", *place, "score", "chance", "scorer", "cosine", "tempo", "rhythm")
        certificate = None if self.certificate is None else vars(self.certificate)
        plain = {name: getattr(self, name) for name in names}
        when = None if self.start_time is None else self.start_time.isoformat()
        return {**plain, "start_time": when, "metadata": dict(self.metadata), "certificate": certificate}


class Hits(list[Hit]):
    """The hits of one query, best first: a list, with what there is to say of the query.

    Parameters
    ----------
    hits : iterable of Hit
        The hits, best first.
    notes : iterable of str, optional
        What makes the query a doubtful one: that it is flat, mostly missing, or looks like noise.

    Attributes
    ----------
    notes : tuple of str
        A sentence for each doubt; empty for most queries.

    Examples
    --------
    >>> Hits([], ["the query is a flat line"]).notes
    ('the query is a flat line',)
    """

    def __init__(self, hits: Iterable[Hit] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(hits)
        self.notes = tuple(notes)

    def to_frame(self) -> Any:
        """The hits as a table.

        Returns
        -------
        polars.DataFrame
            A row for each hit: rank, id, record, start and stop in seconds, wall-clock time, speed, score, chance, and
            a column for each name of the metadata.

        Raises
        ------
        MissingExtraError
            When polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise MissingExtraError("polars", "frames", "hits as a frame") from error
        names = ("rank", "id", "record", "start_s", "stop_s", "start_time", "speed", "score", "chance")
        fields = dict.fromkeys(name for hit in self for name in hit.metadata if name not in names)
        columns = {name: [getattr(hit, name) for hit in self] for name in names}
        columns |= {name: [hit.metadata.get(name) for hit in self] for name in fields}
        return polars.DataFrame(columns, strict=False)

    def plot(self, k: int = 9, title: str = "", *, aligned: bool = True) -> Figure:
        """Draw the query and the best hits over it, all channels.

        Parameters
        ----------
        k : int, default=9
            How many hits to draw.
        title : str, optional
            What stands above; by default what ranked them.
        aligned : bool, default=True
            Whether hits are drawn moved and stretched onto the query; else the stored windows as they are.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        GalleryError
            When there is no hit, or the values of the query or of a hit are not known.
        """
        from geopatch.plot.alignment import search_hits

        query = self[0].query_window if self else None
        if query is None:
            raise GalleryError("there is nothing to draw: no hit, or the gallery keeps no values of the query")
        return search_hits(query, self[:k], title or f"nearest by {self[0].scorer}", aligned=aligned)

    def _repr_html_(self) -> str:
        from geopatch.notebook import sparkline, table

        rows = [
            {
                **{name: getattr(hit, name) for name in ("rank", "record", "start_s", "stop_s", "score", "chance")},
                "time": None if hit.start_time is None else time_text(hit.start_time),
                "window": "" if hit.window is None else sparkline(hit.window.values),
                **hit.metadata,
            }
            for hit in self
        ]
        return table(rows, "; ".join(self.notes))
