"""What answers searches: queries that came together are encoded together, whatever each asks for besides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geopatch.engines.filters import Filter
from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.search.hit import Hit
from geopatch.search.query import Asked, Span, ask
from geopatch.search.run import search_batch
from geopatch.signal import Signal


@dataclass(frozen=True)
class Wish:
    """What a search asks for besides its query; the names are those of `search`."""

    k: int = 10
    scorer: str = "fused"
    shortlist: int | None = None
    where: Filter | None = None
    protocol: str | None = None
    guard_s: float = 0.0
    min_gap_s: float = 0.0
    min_score: float | None = None
    band: float = 0.1
    certify: bool = False

    def as_keywords(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Question:
    query: str | Span | Signal
    wish: Wish


@dataclass(frozen=True, eq=False)
class Found:
    """The query as it was encoded, and what it found."""

    asked: Asked
    hits: list[Hit]
    together: int = 1  # searches that were answered in the same batch


Outcome = Found | GeoPatchError


class Searcher:
    """Answers a batch of questions on the thread that calls it."""

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery

    def answer(self, questions: Sequence[Question]) -> list[Outcome]:
        """An answer for each question; one that cannot be answered spoils no other."""
        asked = self._encoded([question.query for question in questions])
        groups: dict[str, list[int]] = defaultdict(list)
        for n, question in enumerate(questions):
            groups[repr(question.wish)].append(n)  # as text, where 1 is not True
        found: dict[int, Outcome] = {}
        for members in groups.values():
            part = self._searched([asked[n] for n in members], questions[members[0]].wish, len(questions))
            found.update(zip(members, part, strict=True))
        return [found[n] for n in range(len(questions))]

    def _encoded(self, queries: Sequence[str | Span | Signal]) -> list[Asked | GeoPatchError]:
        """Queries of like lengths in one batch: the shorter are padded to the longest."""
        groups: dict[int, list[int]] = defaultdict(list)
        for n, query in enumerate(queries):
            groups[_samples(query, self.gallery.about.rate_hz).bit_length()].append(n)
        found: dict[int, Asked | GeoPatchError] = {}
        for members in groups.values():
            found.update(zip(members, self._asked([queries[n] for n in members]), strict=True))
        return [found[n] for n in range(len(queries))]

    def _asked(self, queries: Sequence[str | Span | Signal]) -> list[Asked | GeoPatchError]:
        try:
            return [*ask(self.gallery, queries, self.gallery.model)]
        except GeoPatchError as error:
            return [error] if len(queries) == 1 else [self._asked([query])[0] for query in queries]

    def _searched(self, asked: Sequence[Asked | GeoPatchError], wish: Wish, together: int) -> list[Outcome]:
        good = [one for one in asked if isinstance(one, Asked)]
        found = iter(self._hits(good, wish, together) if good else ())
        return [next(found) if isinstance(one, Asked) else one for one in asked]

    def _hits(self, asked: Sequence[Asked], wish: Wish, together: int) -> list[Outcome]:
        try:
            hits = search_batch(self.gallery, asked, **wish.as_keywords())
            return [Found(*pair, together) for pair in zip(asked, hits, strict=True)]
        except GeoPatchError as error:
            return [error] if len(asked) == 1 else [self._hits([one], wish, together)[0] for one in asked]


def _samples(query: str | Span | Signal, rate_hz: float) -> int:
    if isinstance(query, Signal):
        return query.length
    return round((query.stop_s - query.start_s) * rate_hz) if isinstance(query, Span) else 0
