"""What answers searches: queries that came together are encoded together, whatever each asks for besides."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import to_json

from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.search.hit import Hit
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery, Span, encode_queries
from geopatch.search.run import search_batch
from geopatch.server import answers
from geopatch.server.refusal import RefusedError
from geopatch.signal import Signal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """What a search asks for besides its query, as JSON holds it; most names are those of `search`."""

    k: int = 10
    scorer: str = "fused"
    shortlist: int | None = None
    where: str | dict[str, Any] | None = None
    protocol: str | None = None
    guard_s: float = 0.0
    min_gap_s: float = 0.0
    min_score: float | None = None
    band: float = 0.1
    certify: bool = False
    tempos: bool = False
    explain: bool = False
    windows: bool = False
    hit: str | None = None  # only this one is told, explained

    def as_keywords(self) -> dict[str, Any]:
        """Those of `search`."""
        told = {name: value for name, value in vars(self).items() if name not in ("explain", "hit")}
        return {**told, "windows": self.windows or self.hit is not None}


@dataclass(frozen=True, eq=False)
class Question:
    query: str | Span | Signal
    wish: Wish


Outcome = bytes | GeoPatchError


class Searcher:
    """Answers a batch of questions on the thread that calls it, as JSON."""

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery
        self.ready = False

    def begin(self) -> None:
        """The first search loads what later ones find in memory."""
        if self.ready:
            return
        one_thread()
        try:
            about, model = self.gallery.about, self.gallery.model
            self.gallery.shortlist(np.zeros((1, about.widths.embedding), dtype=np.float32), 1)
            if model is not None:
                model.encode(np.zeros((1, about.length, model.encoder_.config.channels), dtype=np.float32))
        except GeoPatchError:
            log.exception("the gallery cannot be searched yet")
        self.ready = True

    def close(self) -> None:
        self.gallery.close()

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

    def _encoded(self, queries: Sequence[str | Span | Signal]) -> list[EncodedQuery | GeoPatchError]:
        """Queries of like lengths in one batch: the shorter are padded to the longest."""
        groups: dict[int, list[int]] = defaultdict(list)
        for n, query in enumerate(queries):
            groups[_samples(query, self.gallery.about.clock_hz).bit_length()].append(n)
        found: dict[int, EncodedQuery | GeoPatchError] = {}
        for members in groups.values():
            found.update(zip(members, self._asked([queries[n] for n in members]), strict=True))
        return [found[n] for n in range(len(queries))]

    def _asked(self, queries: Sequence[str | Span | Signal]) -> list[EncodedQuery | GeoPatchError]:
        try:
            return [*encode_queries(self.gallery, queries, self.gallery.model)]
        except GeoPatchError as error:
            return [error] if len(queries) == 1 else [self._asked([query])[0] for query in queries]

    def _searched(self, asked: Sequence[EncodedQuery | GeoPatchError], wish: Wish, together: int) -> list[Outcome]:
        good = [one for one in asked if isinstance(one, EncodedQuery)]
        found = iter(self._hits(good, wish, together) if good else ())
        return [next(found) if isinstance(one, EncodedQuery) else one for one in asked]

    def _hits(self, asked: Sequence[EncodedQuery], wish: Wish, together: int) -> list[Outcome]:
        try:
            found = search_batch(self.gallery, asked, SearchOptions(**wish.as_keywords()))
            return [_told(one, hits, wish, together) for one, hits in zip(asked, found, strict=True)]
        except GeoPatchError as error:
            return [error] if len(asked) == 1 else [self._hits([one], wish, together)[0] for one in asked]


def _told(asked: EncodedQuery, hits: Sequence[Hit], wish: Wish, together: int) -> Outcome:
    if wish.hit is None:
        told = [answers.hit_out(hit, explain=wish.explain, windows=wish.windows) for hit in hits]
        return to_json({"query": answers.asked_out(asked, windows=wish.windows), "hits": told, "together": together})
    hit = next((hit for hit in hits if hit.id == wish.hit), None)
    if hit is None:
        return RefusedError(404, f"this search does not find {wish.hit[:100]!r}; give the id of one of its hits")
    explained = answers.hit_out(hit, explain=True, windows=True)
    return to_json({"query": answers.asked_out(asked, windows=True), "hit": explained})


def _samples(query: str | Span | Signal, rate_hz: float) -> int:
    if isinstance(query, Signal):
        return query.length
    return round((query.stop_s - query.start_s) * rate_hz) if isinstance(query, Span) else 0


def one_thread() -> None:
    """Each worker computes on one core: threads of a library would get into the way of the other workers."""
    import torch

    torch.set_num_threads(1)
