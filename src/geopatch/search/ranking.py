"""One query's shortlist in the order of the scorer, and the hits that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Shortlist
from geopatch.engines.entry import Entries
from geopatch.errors import GalleryError
from geopatch.model.encoder import Encoder
from geopatch.search.candidates import Rows, let_in
from geopatch.search.certificate import Certificate
from geopatch.search.dtw import WEIGHT, dtw_path, mean_distance, scaled
from geopatch.search.explain import Tokens
from geopatch.search.hit import Evidence, Hit
from geopatch.search.late import Floats, late_scores, one_thread
from geopatch.search.plan import Plan
from geopatch.search.query import Asked
from geopatch.search.tempo import Variants
from geopatch.signal import Signal

Scores = npt.NDArray[np.float64]
Certify = Callable[[str], Certificate]  # by the id of a hit


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates of one query, best first. `rows` are their places among `entries`."""

    asked: Variants  # the query at each tempo
    entries: Entries
    rows: Rows  # (N,)
    won: Rows  # (N,) which of the tempos scored best; cosine and score are its
    cosine: Scores  # (N,)
    score: Scores  # (N,)

    @property
    def scores(self) -> dict[str, float]:
        """The score of each id."""
        return {self.entries.ids[row]: float(score) for row, score in zip(self.rows, self.score, strict=True)}


def rank(asked: Variants, near: Shortlist, entries: Entries, plan: Plan, encoder: Encoder | None) -> Ranking:
    """The shortlist in the order of the scorer, by the best tempo; equal scores in the order of their ids."""
    rows = np.asarray([entries.places[id] for id in near.ids[: plan.depth]], dtype=np.intp)
    rows = let_in(asked[0], entries, rows, plan.protocol)
    cosines = np.stack([entries.embedding[rows] @ query.embedding for query in asked])  # (tempos, N)
    scores = np.stack(_scores(asked, cosines, entries, rows, plan, encoder))
    won, every = scores.argmax(0), np.arange(len(rows))
    cosine, score = cosines[won, every].astype(np.float64), scores[won, every].astype(np.float64)
    best = sorted(range(len(rows)), key=lambda n: (-float(score[n]), entries.ids[rows[n]]))
    return Ranking(asked, entries, rows[best], won[best], cosine[best], score[best])


def _scores(
    asked: Variants, cosines: Floats, entries: Entries, rows: Rows, plan: Plan, encoder: Encoder | None
) -> list[Floats]:
    """The scores (N,) of the candidates with the query at each tempo."""
    if plan.scorer == "cosine":
        return list(cosines)
    given = entries.tokens[rows], entries.valid[rows]
    scorer = "fused" if plan.scorer == "dtw" else plan.scorer
    with one_thread():
        scores = [
            late_scores(scorer, cosine, query.tokens.tokens, query.tokens.valid, *given)
            for query, cosine in zip(asked, cosines, strict=True)
        ]
    if plan.scorer == "dtw":
        far = (_distances(query, entries, rows, plan.band, encoder) for query in asked)
        scores = [score - WEIGHT * distance for score, distance in zip(scores, far, strict=True)]
    return scores


def hits(ranking: Ranking, plan: Plan, certify: Certify | None, encoder: Encoder | None) -> list[Hit]:
    """The first k that score enough and lie far enough from better ones."""
    kept: list[int] = []
    for n in range(len(ranking.rows)):
        if len(kept) == plan.k or (plan.min_score is not None and ranking.score[n] < plan.min_score):
            break
        if not _too_near(ranking, kept, n, plan.min_gap_s):
            kept.append(n)
    return [_hit(ranking, n, place + 1, plan, certify, encoder) for place, n in enumerate(kept)]


def _too_near(ranking: Ranking, kept: Sequence[int], n: int, gap_s: float) -> bool:
    entries, row = ranking.entries, ranking.rows[n]
    return any(
        entries.records[other] == entries.records[row] and abs(entries.start_s[other] - entries.start_s[row]) < gap_s
        for other in ranking.rows[kept]
    )


def _hit(ranking: Ranking, n: int, place: int, plan: Plan, certify: Certify | None, encoder: Encoder | None) -> Hit:
    query, entries, row = ranking.asked[ranking.won[n]], ranking.entries, int(ranking.rows[n])
    window, path_s = entries.windows[row], None
    if plan.scorer == "dtw":
        path_s = _path_seconds(_window(query), _kept(entries, row), plan.band, encoder)
    tokens = Tokens(entries.tokens[row], entries.valid[row], entries.patch_s[row])
    return Hit(
        id=entries.ids[row],
        record=entries.records[row],
        start_s=float(entries.start_s[row]),
        stop_s=float(entries.stop_s[row]),
        score=float(ranking.score[n]),
        rank=place,
        scorer=plan.scorer,
        cosine=float(ranking.cosine[n]),
        metadata=entries.metadata[row],
        certificate=None if certify is None else certify(entries.ids[row]),
        evidence=Evidence(query.tokens, tokens, query.window, window, path_s),
        tempo=query.tempo,
    )


def _distances(
    query: Asked, entries: Entries, rows: Rows, band: float, encoder: Encoder | None
) -> npt.NDArray[np.float32]:
    windows = [_kept(entries, int(row)) for row in rows]
    asked, *given = scaled(_needed(encoder), [_window(query), *windows])
    return np.asarray([mean_distance(asked, values, band) for values in given], dtype=np.float32)


def _path_seconds(query: Signal, hit: Signal, band: float, encoder: Encoder | None) -> npt.NDArray[np.float64]:
    asked, given = scaled(_needed(encoder), [query, hit])
    seconds: npt.NDArray[np.float64] = dtw_path(asked, given, band) / np.asarray([query.clock_hz, hit.clock_hz])
    return seconds


def _window(query: Asked) -> Signal:
    if query.window is None:
        raise GalleryError(
            f"dtw needs the values of the query, and the gallery keeps none of {query.id!r}; give a signal"
        )
    return query.window


def _kept(entries: Entries, row: int) -> Signal:
    window = entries.windows[row]
    if window is None:
        raise GalleryError(
            f"dtw needs the values of every window, and the gallery keeps none of {entries.ids[row]!r}; "
            "add windows with keep_windows=True, or choose another scorer"
        )
    return window


def _needed(encoder: Encoder | None) -> Encoder:
    if encoder is None:
        raise GalleryError("dtw scales windows as the model does; give model=GeoPatch.load(folder)")
    return encoder
