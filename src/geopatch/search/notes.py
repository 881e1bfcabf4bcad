"""What makes a query a doubtful one: it is flat, mostly missing, or looks like noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.model.encoder import Encoder

MISSING = 0.5  # more than this share of the values
FLAT = 1e-3  # of the spread of the training data, or of the level where there is no model
FEWEST = 32  # samples from which noise is told apart
LAGS = 10
WHITE = 23.2  # 99 % of chi-square with LAGS degrees of freedom

Values = npt.NDArray[np.float64]


def query_notes(window: Signal | None, encoder: Encoder | None = None) -> tuple[str, ...]:
    """A sentence for each doubt; none where the values of the query are not known."""
    if window is None:
        return ()
    values = window.values.astype(np.float64)
    missing = float(np.isnan(values).mean())
    notes = [f"{missing:.0%} of the query is missing: its hits rest on the little that is there"]
    notes = notes if missing > MISSING else []
    spreads = np.ones(values.shape[1]) if encoder is None else np.asarray(encoder.spread.tolist())
    if all(_flat(channel, spread) for channel, spread in zip(values.T, spreads, strict=True)):
        return (*notes, "the query is a flat line: its hits have no shape to agree with")
    if all(_noise(channel) for channel in values.T):
        return (*notes, "the query looks like white noise: its hits are as rough as it is, no more")
    return tuple(notes)


def _flat(channel: Values, spread: float) -> bool:
    known = channel[~np.isnan(channel)]
    return not len(known) or bool(np.ptp(known) <= FLAT * spread + 1e-6 * abs(float(known.mean())))


def _noise(channel: Values) -> bool:
    """Whether no sample says anything of those after it: the test of Ljung and Box. What is constant says nothing."""
    known = channel[~np.isnan(channel)]
    if len(known) < FEWEST:
        return False
    centred, count = known - known.mean(), len(known)
    power = float(centred @ centred)
    if power == 0.0:
        return True
    lags = np.arange(1, LAGS + 1)
    correlation = np.asarray([centred[lag:] @ centred[:-lag] for lag in lags]) / power
    return bool(count * (count + 2) * (correlation**2 / (count - lags)).sum() < WHITE)
