"""Where in a stream a match really lies: the one place where its span is refined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geopatch.search.refine import best_fit

Values = npt.NDArray[np.float32]

AROUND = 0.5  # of a match's length on either side, that is looked at
LEAST_CORRELATION = 0.5  # below, the window is as good a guess


def refined_span(query: Values, around: Values, window: tuple[int, int]) -> tuple[int, int]:
    """The span of a match within the samples round it; that of its window where nothing fits better."""
    if np.isnan(around).any() or np.isnan(query).any():
        return window
    fit = best_fit(query, around, window)
    return window if fit is None or fit.correlation < LEAST_CORRELATION else (fit.start, fit.stop)
