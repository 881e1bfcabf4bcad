"""How many windows of a gallery would be this near by chance: the scores of windows that have nothing to do with it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.dtw import scaled
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Entries, entries_from
from geopatch.engines.filters import Filter
from geopatch.errors import GalleryError, NotFoundError
from geopatch.search.options import SearchOptions
from geopatch.search.query import TEMPOS
from geopatch.search.ranking import one_thread
from geopatch.search.references import reference_signals
from geopatch.search.weighing import weighed, with_rhythm_of

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

SAMPLE = 256  # stored windows that the reference windows are compared with
DISTANCE_REFERENCES, DISTANCE_SAMPLE = 64, 32  # where values are compared, which takes far longer than tokens
EXCESS_SHARE, EXCESS_LEAST = 0.003, 100  # the largest scores, by which the rest of the distribution is extrapolated
GROWTH = 1.5  # by which a gallery grows or shrinks before its sample is drawn anew
MOST_FILTERS = 64  # whose counts are remembered
CLOSEST = 1e-9  # below this, a score is the largest that there can be

Numbers = npt.NDArray[np.float64]


class NullScores:
    """The distribution of scores between windows that have nothing to do with each other.

    The share of scores above s is counted where enough were seen. Beyond, it falls as a power of 1 - (s / largest)², as
    that of directions drawn at random does; the power is that of the largest scores seen.

    Parameters
    ----------
    scores : array
        Scores of unrelated pairs.
    largest : float
        The largest score that there can be.
    """

    def __init__(self, scores: npt.ArrayLike, largest: float) -> None:
        self.largest = largest
        known = np.asarray(scores, dtype=np.float64).ravel()
        self.nearness = np.sort(self._nearness(known[known > -math.inf]))
        count = len(self.nearness)
        self.exceeding = min(
            max(round(EXCESS_SHARE * count), EXCESS_LEAST), count // 2
        )  # by how many scores it is extrapolated
        self.threshold = float(self.nearness[count - self.exceeding - 1]) if self.exceeding else math.inf
        beyond = self.nearness[count - self.exceeding :] - self.threshold
        self.scale = max(float(beyond.mean()), CLOSEST) if self.exceeding else math.nan

    def share(self, scores: npt.ArrayLike) -> Numbers:
        """The share of unrelated pairs that score at least this much; NaN where too few were seen."""
        nearness = self._nearness(np.asarray(scores, dtype=np.float64))
        count = len(self.nearness)
        if not self.exceeding:
            return np.full(nearness.shape, math.nan)
        seen = (count - np.searchsorted(self.nearness, nearness)) / count
        with np.errstate(under="ignore"):
            beyond = np.exp(-np.maximum(nearness - self.threshold, 0.0) / self.scale) * self.exceeding / count
        return np.where(nearness > self.threshold, beyond, np.maximum(seen, self.exceeding / count))

    def _nearness(self, scores: Numbers) -> Numbers:
        """Cosines s of directions drawn at random in d dimensions exceed a value about as (1 - s²)^((d - 1) / 2)."""
        part = scores / self.largest
        return np.where(part > 0, -np.log(np.maximum(1 - np.maximum(part, 0.0) ** 2, CLOSEST)), part)


@dataclass(frozen=True, eq=False)
class Chance:
    """What scores mean in a gallery of so many windows."""

    null: NullScores
    windows: int

    def of(self, scores: npt.ArrayLike) -> Numbers:
        """How many windows would score at least this much by chance."""
        return self.windows * self.null.share(scores)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Stored windows drawn from all of a gallery, and what it was when they were drawn."""

    encoder: str
    windows: int  # in the gallery
    entries: Entries | None  # without values; None of an empty gallery
    nulls: dict[tuple[str, float, float | None], NullScores] = field(default_factory=dict)  # by scorer, band, clock


class Chances:
    """What a gallery knows of chance: kept in memory, by scorer, and drawn anew when the gallery has grown by half."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._state = (-1, -1)  # the number of the last entry, and how many there were, when windows were counted
        self._counts: dict[Filter | None, int] = {}
        self._sample: _Sample | None = None
        self._references: Entries | None = None

    def measure(self, options: SearchOptions, model: GeoPatch | None) -> Chance | None:
        """What the scores of a search mean; None without a model, and where nothing that it compares is stored."""
        if model is None:
            if options.max_chance is not None:
                raise GalleryError(
                    "max_chance needs a model, and this gallery holds none; give model=GeoPatch.load(folder)"
                )
            return None
        with self._lock:
            try:
                null = self._null(options, model)
            except NotFoundError:  # a writer beside us removed a window of the sample
                self._sample = None
                null = self._null(options, model)
            tempos = len(TEMPOS) if options.tempos else 1
            return None if null is None or not null.exceeding else Chance(null, self._count(options.filter) * tempos)

    def _count(self, where: Filter | None) -> int:
        """How many windows pass a filter; counted anew after entries were written or removed."""
        state = self._engine.next_number(), self._engine.count(None)
        if state != self._state or len(self._counts) > MOST_FILTERS:
            self._state, self._counts = state, {None: state[1]}
        if where not in self._counts:
            self._counts[where] = self._engine.count(where)
        return self._counts[where]

    def _null(self, options: SearchOptions, model: GeoPatch) -> NullScores | None:
        band = options.band if options.ranking.needs_windows else 0.0
        sample, key = self._refreshed(), (options.ranking.name, band, options.clock)
        if key not in sample.nulls and sample.entries is not None:
            scores = self._scores(sample.entries, options, model)
            sample.nulls[key] = NullScores(scores, options.ranking.steepness)
        return sample.nulls.get(key)

    def _refreshed(self) -> _Sample:
        """The sample, drawn anew where the gallery is another one by now or of another size."""
        encoder, windows, old = self._engine.about.encoder, self._count(None), self._sample
        if old is not None and old.encoder == encoder and old.windows / GROWTH <= windows <= old.windows * GROWTH:
            return old
        if old is None or old.encoder != encoder:
            self._references = None
        ids = self._engine.sample(SAMPLE)
        entries = self._engine.fetch(ids, with_windows=False) if ids else None
        self._sample = _Sample(encoder, windows, entries)
        return self._sample

    def _scores(self, entries: Entries, options: SearchOptions, model: GeoPatch) -> Numbers:
        """The scores of reference windows with stored ones (R, N)."""
        references, scorer, width = self._encoded(model), options.ranking, self._engine.about.rhythm
        unrelated = with_rhythm_of(references.embedding, entries.embedding, width)
        cosine = weighed(unrelated, options.clock, width) @ weighed(entries.embedding, options.clock, width).T
        with one_thread():
            rows = [
                scorer.score(cosine[n], references.tokens[n], references.valid[n], entries.tokens, entries.valid)
                for n in range(len(references))
            ]
        scores = np.asarray(rows, dtype=np.float64)
        if scorer.distance is None:
            return scores
        some = references.take(range(min(len(references), DISTANCE_REFERENCES)))
        distances = _distances(some, self._engine.fetch(entries.ids[:DISTANCE_SAMPLE]), options, model)
        completed: Numbers = scores - scorer.weight * _completed(distances, scores)
        return completed

    def _encoded(self, model: GeoPatch) -> Entries:
        if self._references is None:
            about, encoder = self._engine.about, model.encoder_
            signals = reference_signals(about.length, encoder.level.tolist(), encoder.spread.tolist(), about.rate_hz)
            self._references = entries_from(model.encode(signals), signals, about, keep_windows=True)
        return self._references


def _completed(distances: Numbers, scores: Numbers) -> Numbers:
    """Distances of all pairs, as the known ones go with the scores and scatter round that; NaN where none is known."""
    first = scores[: distances.shape[0], : distances.shape[1]]
    known = ~np.isnan(distances) & np.isfinite(first)
    if not known.any():
        return np.full(scores.shape, np.nan)
    level, spread = float(first[known].mean()), max(float(first[known].var()), CLOSEST)
    slope = float(((first[known] - level) * distances[known]).mean()) / spread
    expected = float(distances[known].mean()) + slope * (scores - level)
    scatter = distances[known] - expected[: first.shape[0], : first.shape[1]][known]
    return np.maximum(expected + np.random.default_rng(0).choice(scatter, size=scores.shape), 0.0)


def _distances(references: Entries, entries: Entries, options: SearchOptions, model: GeoPatch) -> Numbers:
    """Of the values of each reference window and each stored one that has any; NaN of those that have none."""
    distance = options.ranking.distance
    assert distance is not None
    firsts = scaled(model.encoder_, [window for window in references.windows if window is not None])
    known = [n for n, window in enumerate(entries.windows) if window is not None]
    others = scaled(model.encoder_, [window for window in entries.windows if window is not None]) if known else []
    distances = np.full((len(references), len(entries)), np.nan)
    for row, first in enumerate(firsts):
        distances[row, known] = [distance(first, other, options.band) for other in others]
    return distances
