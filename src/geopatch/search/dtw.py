"""Dynamic time warping of a query with the windows of its shortlist, in units of the training data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from geopatch.errors import MissingExtraError
from geopatch.model.encoder import Encoder, zscore
from geopatch.patches import stack
from geopatch.signal import Signal

BAND = 0.1  # how far the path may leave the diagonal, as a share of the longer signal

Samples = npt.NDArray[np.float64]
Path = npt.NDArray[np.int64]


def scaled(encoder: Encoder, signals: Sequence[Signal]) -> list[Samples]:
    """Values (T, C) as the encoder sees them: gaps bridged, in units of the training data, z-scored if it does that."""
    device = encoder.level.device
    with torch.inference_mode():
        windows = encoder.scale(stack(signals).to(device))
        if encoder.config.amplitude == "zscore":
            windows = zscore(windows)[0]
        values = windows.values.cpu().numpy().astype(np.float64)
    return [np.ascontiguousarray(values[n, : signal.length]) for n, signal in enumerate(signals)]


def dtw_distance(query: Samples, candidate: Samples, band: float = BAND) -> float:
    """Euclidean length of the best path inside the band, over all channels together."""
    distance = _library().distance(query, candidate, window=_width(query, candidate, band), use_c=True)
    return float(distance)


def dtw_path(query: Samples, candidate: Samples, band: float = BAND) -> Path:
    """That path: pairs of samples (P, 2) of query and candidate, from both starts to both ends."""
    path = _library().warping_path(query, candidate, window=_width(query, candidate, band), use_c=True)
    return np.asarray(path, dtype=np.int64)


def _width(query: Samples, candidate: Samples, band: float) -> int:
    """Samples between path and diagonal, the diagonal counted: 1 is no warping. Unequal lengths widen it by as much."""
    return 1 + math.ceil(band * max(len(query), len(candidate)))


def _library() -> Any:
    try:
        from dtaidistance import dtw_ndim
    except ImportError as error:
        raise MissingExtraError("dtaidistance", "dtw", "scoring by dtw") from error
    return dtw_ndim
