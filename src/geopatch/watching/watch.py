"""A watch: what is looked for in streams, and how alike something must be to be reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.engines.filters import Where
from geopatch.errors import ConfigError, GalleryError
from geopatch.gallery import Gallery
from geopatch.search.levels import nearness
from geopatch.search.query import Query, encode_queries
from geopatch.signal import Signal, are_bands
from geopatch.watching.alarms import AlarmRate
from geopatch.watching.background import background
from geopatch.watching.levels import BLOCK_STRIDES, QUANTILE, StreamLevel, prior_of, score_at
from geopatch.watching.picking import HOLD, best_of_ends, peaks
from geopatch.watching.scores import WindowEncoder, ends_between

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

STEPS = 8  # windows in the time of one
SPEEDS = (0.8, 1.0, 1.25)  # at which what is watched for may happen
BACKGROUND_WINDOWS = 32_768  # that a threshold is set on, at most
BATCH = 512
LEAST_SAMPLES = 8
LEAST_LENGTHS, PART_LENGTHS = 4, 60  # of the pattern, in a part of a record that the threshold is set on

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Watch:
    """A pattern to watch streams for.

    Parameters
    ----------
    signal : Signal
        The pattern, at the gallery's rate.
    embedding : array of shape (D,)
        The vector of its shape.
    encoder : str
        Digest of the encoder that made it.
    rate : AlarmRate
        How often an excess over a stream's own level is passed on signal without the pattern.
    prior : tuple of float
        How near windows of the gallery are, as a rule: the level of a stream to begin with.
    false_alarms_per_hour : float
        How many are tolerated.
    notes : tuple of str, default=()
        What is doubtful about the pattern.

    Examples
    --------
    >>> watch = Watch.create(gallery, Span("119", 130.2, 132.2), false_alarms_per_hour=0.5)  # doctest: +SKIP
    """

    signal: Signal
    embedding: Values
    encoder: str
    rate: AlarmRate
    prior: tuple[float, ...]
    false_alarms_per_hour: float
    notes: tuple[str, ...] = ()

    @classmethod
    def create(
        cls, gallery: Gallery, query: Query, false_alarms_per_hour: float = 1.0, *, where: Where = None
    ) -> Watch:
        """Encode a query and set its threshold on signal of the gallery.

        The signal is drawn from all over the gallery, without the query's own record; the same windows are cut from it
        as from a stream.

        Parameters
        ----------
        gallery : Gallery
            The gallery, with its model.
        query : array, Signal, Span or str
            As `Gallery.search` takes it.
        false_alarms_per_hour : float, default=1.0
            How many alarms an hour are tolerated on signal without the pattern.
        where : str, mapping or Filter, optional
            Only windows that pass are what the threshold is set on, also those of the query's own record: signal that
            is known to lack the pattern.

        Returns
        -------
        Watch
            The watch.

        Raises
        ------
        ConfigError
            When the query is too short, or the gallery has too little signal.
        GalleryError
            When the gallery has no model, keeps no values, or is one of sound.
        """
        encoder, model = gallery.refresh().encoder, _checked(gallery)
        (encoded,) = encode_queries(gallery, [query], None)
        if encoded.window is None:
            raise GalleryError(f"a watch needs the values of its query, and the gallery keeps none of {encoded.id!r}")
        signal = encoded.window
        if signal.length < LEAST_SAMPLES:
            raise ConfigError(f"a watch needs a query of {LEAST_SAMPLES} samples or more, got {signal.length}")
        windows = WindowEncoder(model)
        embedding = windows.embed([signal.values])[0]
        if np.isnan(embedding).any():
            raise ConfigError("nothing was measured in the query of a watch; choose another part")
        new = cls(signal, embedding, encoder, AlarmRate(0, 1, 1, 0), (), false_alarms_per_hour)
        set_up = new._measured(gallery, windows, where)
        set_up.rate.threshold(false_alarms_per_hour)  # refused here where there can be none
        return set_up

    @cached_property
    def excess(self) -> float:
        """How far above a stream's own level the nearness of what is reported lies."""
        return self.rate.threshold(self.false_alarms_per_hour)

    @property
    def threshold(self) -> float:
        """The score from which on something is reported in a stream whose level is that of the gallery."""
        return score_at(max(float(np.quantile(self.prior, QUANTILE)) + self.excess, 0.0))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Samples of the windows that are compared with the pattern, one length for each speed."""
        return tuple(sorted({max(round(self.signal.length / speed), LEAST_SAMPLES) for speed in SPEEDS}))

    @property
    def stride(self) -> int:
        """Samples from one window to the next."""
        return max(self.signal.length // STEPS, 1)

    @property
    def hold(self) -> int:
        """Samples that nothing better may come in before a match is reported."""
        return max(round(HOLD * self.signal.length), 1)

    def level(self) -> StreamLevel:
        """The level of a stream of which nothing has come yet.

        Returns
        -------
        StreamLevel
            That of the gallery's signal.
        """
        return StreamLevel(self.prior, self.block)

    @property
    def block(self) -> int:
        """Samples of a block by which the level of a stream is learnt."""
        return BLOCK_STRIDES * self.stride

    def _measured(self, gallery: Gallery, encoder: WindowEncoder, where: Where) -> Watch:
        """The same with the rate of alarms on signal of the gallery."""
        clock_hz = gallery.about.clock_hz
        seconds = BACKGROUND_WINDOWS * self.stride / clock_hz / len(self.lengths)
        sizes_s = [count * max(self.lengths) / clock_hz for count in (LEAST_LENGTHS, PART_LENGTHS)]
        source, hours, parts = self.signal.record if where is None else "", 0.0, []
        for values in background(gallery, seconds, *sizes_s, apart_from=source, where=where):
            windows = [(ends, self._scores(encoder, values, ends, length)) for length, ends in self._ends(values)]
            starts, stops, scores = best_of_ends(windows, self.lengths)
            parts.append((starts, stops, np.where(np.isfinite(scores), nearness(scores), -np.inf)))
            hours += len(values) / clock_hz / 3600
        near = np.concatenate([one[2] for one in parts]) if parts else np.zeros(0)
        if not np.isfinite(near).any():
            raise GalleryError("the gallery keeps no values that the threshold of a watch could be set on")
        known = replace(self, prior=prior_of(near[np.isfinite(near)]))
        best = [peaks(starts, stops, known.level().excess(stops, own)) for starts, stops, own in parts]
        return replace(known, rate=AlarmRate.of_peaks(np.concatenate(best), hours))

    def _ends(self, values: Values) -> list[tuple[int, npt.NDArray[np.int64]]]:
        return [
            (length, np.asarray(ends_between(0, len(values), self.stride, length), dtype=np.int64))
            for length in self.lengths
        ]

    def _scores(
        self, encoder: WindowEncoder, values: Values, ends: npt.NDArray[np.int64], length: int
    ) -> npt.NDArray[np.float64]:
        parts = [
            encoder.embed([values[end - length : end] for end in ends[start : start + BATCH]])
            for start in range(0, len(ends), BATCH)
        ]
        scores = np.concatenate([part @ self.embedding for part in parts]) if parts else np.zeros(0)
        return np.where(np.isnan(scores), -np.inf, scores).astype(np.float64)


def _checked(gallery: Gallery) -> GeoPatch:
    model = gallery.model
    if model is None:
        raise GalleryError("a watch encodes streams with the gallery's model, and this gallery holds none")
    if are_bands(gallery.about.channels):
        raise GalleryError("streams of sound cannot be watched: a gallery of sound holds frames, not samples")
    if model.encoder_.config.geometry_source == "clock":
        raise GalleryError("streams have no anchors, which this model with clock geometry needs; fit one without")
    return model
