"""What answers searches: queries that arrive together are encoded together, whatever the options of each."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic_core import to_json

from geopatch.engines.partial import partial_answers
from geopatch.errors import GeoPatchError
from geopatch.gallery import Gallery
from geopatch.search.hit import Hits
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery, Span, encode_queries
from geopatch.search.run import search_batch, with_one_encoder
from geopatch.server.answers import hit_out, query_out
from geopatch.server.refusal import RefusedError
from geopatch.signal import Signal, are_bands

Outcome = bytes | GeoPatchError

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SearchRequest:
    """One search. With `hit`, the answer is that hit alone, explained."""

    query: str | Span | Signal
    options: SearchOptions
    explain: bool = False
    hit: str | None = None


class Searcher:
    """Answers a batch of requests on the thread that calls it, as JSON."""

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
                values = np.zeros((about.length, model.encoder_.config.channels), dtype=np.float32)
                marks = np.linspace(0, about.length - 1, 4)  # for models with clock geometry
                model.encode([Signal(values, "warm-up", about.rate_hz, anchors=marks)])
                self.gallery.chances.measure(SearchOptions().completed(sound=are_bands(about.channels)), model)
        except GeoPatchError:
            log.exception("the gallery cannot be searched yet")
        self.ready = True

    def close(self) -> None:
        self.gallery.close()

    def answer(self, requests: Sequence[SearchRequest]) -> list[Outcome]:
        """An outcome for each request; one that cannot be answered spoils no other."""
        return with_one_encoder(self.gallery, lambda: self._outcomes(requests))

    def _outcomes(self, requests: Sequence[SearchRequest]) -> list[Outcome]:
        _ = self.gallery.model  # loaded here, so that hits of a stored window have their chance from the first one on
        queries = self._encode([request.query for request in requests])
        groups: dict[str, list[int]] = defaultdict(list)
        for n, request in enumerate(requests):
            groups[repr((request.options, request.explain, request.hit))].append(n)  # as text, where 1 is not True
        outcomes: dict[int, Outcome] = {}
        for members in groups.values():
            part = self._search([queries[n] for n in members], requests[members[0]], len(requests))
            outcomes.update(zip(members, part, strict=True))
        return [outcomes[n] for n in range(len(requests))]

    def _encode(self, queries: Sequence[str | Span | Signal]) -> list[EncodedQuery | GeoPatchError]:
        """Queries of like lengths in one batch: the shorter are padded to the longest."""
        groups: dict[int, list[int]] = defaultdict(list)
        for n, query in enumerate(queries):
            groups[_samples(query, self.gallery.about.clock_hz).bit_length()].append(n)
        encoded: dict[int, EncodedQuery | GeoPatchError] = {}
        for members in groups.values():
            encoded.update(zip(members, self._encode_group([queries[n] for n in members]), strict=True))
        return [encoded[n] for n in range(len(queries))]

    def _encode_group(self, queries: Sequence[str | Span | Signal]) -> list[EncodedQuery | GeoPatchError]:
        try:
            with partial_answers():  # a stored query is there, or it is not; the search says what it missed
                return [*encode_queries(self.gallery, queries, None)]
        except GeoPatchError as error:
            return [error] if len(queries) == 1 else [self._encode_group([query])[0] for query in queries]

    def _search(
        self, queries: Sequence[EncodedQuery | GeoPatchError], request: SearchRequest, together: int
    ) -> list[Outcome]:
        good = [query for query in queries if isinstance(query, EncodedQuery)]
        outcomes = iter(self._search_group(good, request, together) if good else ())
        return [next(outcomes) if isinstance(query, EncodedQuery) else query for query in queries]

    def _search_group(self, queries: Sequence[EncodedQuery], request: SearchRequest, together: int) -> list[Outcome]:
        try:
            results = search_batch(self.gallery, queries, request.options)
            return [_answer(query, hits, request, together) for query, hits in zip(queries, results, strict=True)]
        except GeoPatchError as error:
            if len(queries) == 1:
                return [error]
            return [self._search_group([query], request, together)[0] for query in queries]


def _answer(query: EncodedQuery, hits: Hits, request: SearchRequest, together: int) -> Outcome:
    windows = request.options.windows
    if request.hit is None:
        rows = [hit_out(hit, explain=request.explain, windows=windows) for hit in hits]
        notes = list(hits.notes)
        return to_json({"query": query_out(query, windows=windows), "hits": rows, "notes": notes, "together": together})
    hit = next((hit for hit in hits if hit.id == request.hit), None)
    if hit is None:
        return RefusedError(404, f"{request.hit[:100]!r} is not among the hits of this search; give the id of one")
    return to_json({"query": query_out(query, windows=True), "hit": hit_out(hit, explain=True, windows=True)})


def _samples(query: str | Span | Signal, rate_hz: float) -> int:
    if isinstance(query, Signal):
        return query.length
    return round((query.stop_s - query.start_s) * rate_hz) if isinstance(query, Span) else 0


def one_thread() -> None:
    """Each worker computes on one core: threads of a library would compete with the other workers."""
    import torch

    torch.set_num_threads(1)
