"""One query's shortlist in the order of the scorer, and the hits that come of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.dtw import scaled
from geopatch.engines.engine import Shortlist
from geopatch.engines.entry import Entries
from geopatch.errors import GalleryError
from geopatch.search.certificate import Certificate
from geopatch.search.explain import Tokens
from geopatch.search.hit import Evidence, Hit
from geopatch.search.options import SearchOptions
from geopatch.search.query import EncodedQuery
from geopatch.search.weighing import clock_for, rhythm_cosines, weighed
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.model.encoder import Encoder

Rows: TypeAlias = npt.NDArray[np.intp]
Numbers: TypeAlias = npt.NDArray[np.float64]
Certify: TypeAlias = Callable[[str], Certificate]  # by the id of a hit

_THREADS_LOCK = threading.Lock()


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates of one query, best first. `rows` are their places among `entries`."""

    query: EncodedQuery
    entries: Entries
    rows: Rows  # (N,)
    tempo: Rows  # (N,) which of the query's tempos scored best; cosine and score are its
    cosine: Numbers  # (N,)
    score: Numbers  # (N,)
    rhythm: Numbers  # (N,) what relative tempo adds to the cosine
    near_cosine: Numbers  # (M,) the best cosine of each entry of the shortlist, in its order

    def taken(self, order: Rows) -> Ranking:
        """The same candidates in another order."""
        columns = {name: getattr(self, name)[order] for name in ("rows", "tempo", "cosine", "score", "rhythm")}
        return replace(self, **columns)

    @property
    def scores(self) -> dict[str, float]:
        """The score of each id."""
        return {self.entries.ids[row]: float(score) for row, score in zip(self.rows, self.score, strict=True)}


def rank(
    query: EncodedQuery,
    near: Shortlist,
    entries: Entries,
    options: SearchOptions,
    encoder: Encoder | None,
    width: int = 0,
) -> Ranking:
    """The shortlist in the order of the scorer, by the best tempo; equal scores in the order of their ids.

    Cosines are computed here once more than by the engine, in float64: engines give those of the tempo that brought an
    entry in, and some round; scores and certificates need them of every tempo and to the last digits. The last `width`
    numbers of an embedding are relative tempo.
    """
    rows = np.asarray([entries.places[id] for id in near.ids], dtype=np.intp)
    embeddings = np.stack([one.embedding for one in query.tempos])
    clock = clock_for(embeddings, options.clock, width)
    queries = weighed(embeddings, clock, width).astype(np.float64)
    vectors = weighed(entries.embedding[rows], clock, width).astype(np.float64)
    cosines, by_rhythm = _cosines(queries, vectors), rhythm_cosines(queries, vectors, width)  # (tempos, M)
    best_cosine, rows, cosines = cosines.max(0, initial=-1.0), rows[: options.depth], cosines[:, : options.depth]
    scores = _scores(query, cosines, entries, rows, options, encoder)  # (tempos, N)
    tempo, every = scores.argmax(0), np.arange(len(rows))
    cosine, score, rhythm = (of_tempos[tempo, every] for of_tempos in (cosines, scores, by_rhythm[:, : len(rows)]))
    order = sorted(range(len(rows)), key=lambda n: (-float(score[n]), entries.ids[rows[n]]))
    return Ranking(query, entries, rows[order], tempo[order], cosine[order], score[order], rhythm[order], best_cosine)


def _cosines(queries: Numbers, vectors: Numbers) -> Numbers:
    """Of every query with every candidate (Q, N). Each by itself: equal vectors have equal cosines to the last bit."""
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
    cosines: Numbers = np.einsum("qd,nd->qn", queries, vectors) / lengths
    return cosines


def _scores(
    query: EncodedQuery,
    cosines: Numbers,
    entries: Entries,
    rows: Rows,
    options: SearchOptions,
    encoder: Encoder | None,
) -> Numbers:
    """The scores (tempos, N) of the candidates with the query at each tempo."""
    scorer = options.ranking
    if scorer.tokens is None:
        return cosines
    tokens, valid = entries.tokens[rows], entries.valid[rows]
    with one_thread():
        scores = np.stack(
            [
                scorer.score(cosine, one.tokens.tokens, one.tokens.valid, tokens, valid)
                for one, cosine in zip(query.tempos, cosines, strict=True)
            ]
        ).astype(np.float64)
    if scorer.distance is None:
        return scores
    windows = [_candidate_window(entries, int(row), options) for row in rows]
    for n, one in enumerate(query.tempos):
        first, *others = scaled(_needed(encoder, options), [_query_window(one, options), *windows])
        scores[n] -= scorer.weight * np.asarray([scorer.distance(first, other, options.band) for other in others])
    return scores


def hits_of(
    ranking: Ranking,
    options: SearchOptions,
    certify: Certify | None,
    encoder: Encoder | None,
    chances: Numbers | None = None,
    placer: Placer | None = None,
) -> list[Hit]:
    """The first k that score enough and lie far enough from better ones. `chances` are of all of the ranking."""
    kept: dict[int, Placed] = {}
    for n in range(len(ranking.rows)):
        if len(kept) == options.k:
            break
        if _too_far(ranking, chances, n, options):
            continue
        placed = _on_grid(ranking, n) if placer is None else placer.place(n)
        if not _too_near(placed, kept.values(), options.min_gap_s) and (placer is None or placer.is_free(placed, kept)):
            kept[n] = placed
    return [
        _hit(ranking, n, rank + 1, options, certify, encoder, placed, None if chances is None else float(chances[n]))
        for rank, (n, placed) in enumerate(kept.items())
    ]


class Placer(Protocol):
    """Says where hits lie, by their places in a ranking."""

    def place(self, n: int) -> Placed: ...

    def is_free(self, placed: Placed, kept: Mapping[int, Placed]) -> bool: ...


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a hit lies, how fast it goes and its values, where these are known."""

    record: str
    start_s: float
    stop_s: float
    speed: float | None = None
    segment: Signal | None = None
    window: Signal | None = None  # the values of the stored window
    fit: float | None = None  # the correlation with the query


def _on_grid(ranking: Ranking, n: int) -> Placed:
    entries, row = ranking.entries, int(ranking.rows[n])
    return Placed(entries.records[row], float(entries.start_s[row]), float(entries.stop_s[row]))


def _too_far(ranking: Ranking, chances: Numbers | None, n: int, options: SearchOptions) -> bool:
    """Whether this one scores too little."""
    if options.min_score is not None and ranking.score[n] < options.min_score:
        return True
    return options.max_chance is not None and (chances is None or not chances[n] <= options.max_chance)


def _too_near(placed: Placed, kept: Iterable[Placed], gap_s: float) -> bool:
    if not gap_s:
        return False
    return any(other.record == placed.record and abs(other.start_s - placed.start_s) < gap_s for other in kept)


def _hit(
    ranking: Ranking,
    n: int,
    rank: int,
    options: SearchOptions,
    certify: Certify | None,
    encoder: Encoder | None,
    placed: Placed,
    chance: float | None,
) -> Hit:
    query, entries, row = ranking.query.tempos[ranking.tempo[n]], ranking.entries, int(ranking.rows[n])
    tokens = Tokens(entries.tokens[row], entries.valid[row], entries.patch_s[row])
    path_s = _path_seconds(query, entries, row, options, encoder)
    return Hit(
        id=entries.ids[row],
        record=entries.records[row],
        start_s=placed.start_s,
        stop_s=placed.stop_s,
        score=float(ranking.score[n]),
        rank=rank,
        chance=chance,
        scorer=options.ranking.name,
        cosine=float(ranking.cosine[n]),
        metadata=entries.metadata[row],
        certificate=None if certify is None else certify(entries.ids[row]),
        evidence=Evidence(query.tokens, tokens, query.window, entries.windows[row] or placed.window, path_s),
        tempo=query.tempo,
        speed=placed.speed,
        window_start_s=float(entries.start_s[row]),
        window_stop_s=float(entries.stop_s[row]),
        fit=placed.fit,
        segment=placed.segment,
        rhythm=float(ranking.rhythm[n]),
    )


def _path_seconds(
    query: EncodedQuery, entries: Entries, row: int, options: SearchOptions, encoder: Encoder | None
) -> Numbers | None:
    """Times (P, 2) in query and candidate that the scorer's path brings together; None where it has none."""
    if options.ranking.path is None:
        return None
    windows = [_query_window(query, options), _candidate_window(entries, row, options)]
    first, other = scaled(_needed(encoder, options), windows)
    path = options.ranking.path(first, other, options.band)
    seconds: Numbers = path / np.asarray([window.clock_hz for window in windows])
    return seconds


def _query_window(query: EncodedQuery, options: SearchOptions) -> Signal:
    if query.window is None:
        raise GalleryError(
            f"{options.ranking.name} needs the values of the query, and the gallery keeps none of {query.id!r}; "
            "give a signal"
        )
    return query.window


def _candidate_window(entries: Entries, row: int, options: SearchOptions) -> Signal:
    window = entries.windows[row]
    if window is None:
        raise GalleryError(
            f"{options.ranking.name} needs the values of every window, and the gallery keeps none of "
            f"{entries.ids[row]!r}; add windows with keep_windows=True, or choose another scorer"
        )
    return window


def _needed(encoder: Encoder | None, options: SearchOptions) -> Encoder:
    if encoder is None:
        raise GalleryError(f"{options.ranking.name} scales windows as the model does; give model=GeoPatch.load(folder)")
    return encoder


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold numpy's matrix product to one thread: these are too small to share out, and waking threads costs more.

    The limit is the process's, so two threads must not put it on and take it off across each other. The libraries are
    set directly: threadpoolctl's own context takes ten times as long.
    """
    with _THREADS_LOCK:
        before = [(library, library.get_num_threads()) for library in _libraries()]
        many = [(library, count) for library, count in before if count is not None and count > 1]
        for library, _ in many:
            library.set_num_threads(1)
        try:
            yield
        finally:
            for library, count in many:
                library.set_num_threads(count)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The libraries that numpy multiplies with: its own, or all that there are where it brings none."""
    from threadpoolctl import ThreadpoolController

    blas = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    own = [library for library in blas if "numpy" in library.filepath]
    return tuple(own or blas)
