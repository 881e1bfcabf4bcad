"""Dynamic time warping of a query with the windows of its shortlist, in units of the training data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from geopatch.errors import MissingExtraError

if TYPE_CHECKING:  # numpy and torch are loaded by who calls: the names of the scorers are known without them
    import numpy as np
    import numpy.typing as npt

    from geopatch.model.encoder import Encoder
    from geopatch.signal import Signal

BAND = 0.1  # how far the path may leave the diagonal, as a share of the longer signal
WEIGHT = 0.02  # of the distance beside the fused score; chosen on patients kept aside, see docs/search.md

Samples: TypeAlias = "npt.NDArray[np.float64]"
Path: TypeAlias = "npt.NDArray[np.int64]"


def scaled(encoder: Encoder, signals: Sequence[Signal]) -> list[Samples]:
    """Values (T, C) as the encoder sees them: gaps bridged, in units of the training data, z-scored if it does that."""
    import numpy as np
    import torch

    from geopatch.model.encoder import zscore
    from geopatch.patches import stack

    device = encoder.level.device
    with torch.inference_mode():
        windows = encoder.scale(stack(signals).to(device))
        if encoder.config.amplitude == "zscore":
            windows = zscore(windows)[0]
        values = windows.values.cpu().numpy().astype(np.float64)
    return [np.ascontiguousarray(values[n, : signal.length]) for n, signal in enumerate(signals)]


def dtw_distance(query: Samples, candidate: Samples, band: float = BAND) -> float:
    """Euclidean length of the best path inside the band, over all channels together."""
    return float(_library().distance(*_columns(query, candidate), **_settings(query, candidate, band)))


def mean_distance(query: Samples, candidate: Samples, band: float = BAND) -> float:
    """The same for one value: root mean square, so that length and number of channels do not count."""
    return dtw_distance(query, candidate, band) / math.sqrt(max(len(query), len(candidate)) * query.shape[1])


def dtw_path(query: Samples, candidate: Samples, band: float = BAND) -> Path:
    """That path: pairs of samples (P, 2) of query and candidate, from both starts to both ends."""
    import numpy as np

    path = _library().warping_path(*_columns(query, candidate), **_settings(query, candidate, band))
    return np.asarray(path, dtype=np.int64)


def _columns(*signals: Samples) -> list[Samples]:
    """As the library takes them: one channel as (T,), several as (T, C), in C order."""
    return [(values[:, 0] if values.shape[1] == 1 else values).copy(order="C") for values in signals]


def _settings(query: Samples, candidate: Samples, band: float) -> dict[str, Any]:
    """The width is in samples with the diagonal counted: 1 is no warping. Unequal lengths widen it by as much."""
    width = 1 + math.ceil(band * max(len(query), len(candidate)))
    return {"window": width, "use_c": True, "use_ndim": query.shape[1] > 1}


def _library() -> Any:
    try:
        from dtaidistance import dtw
    except ImportError as error:
        raise MissingExtraError("dtaidistance", "dtw", "scoring by dtw") from error
    return dtw
