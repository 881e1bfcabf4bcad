"""Windows of a stream, encoded together and compared with patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.data.front_end import FrontEnd
from geopatch.patches import stack
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

Values = npt.NDArray[np.float32]
BATCH = 256


class WindowEncoder:
    """The embeddings of windows that are cut from streams, made as those of a gallery are."""

    def __init__(self, model: GeoPatch) -> None:
        self.model = model
        front = FrontEnd.of(model)
        self._band = front if front is not None and front.band_hz is not None else None

    def embed(self, windows: Sequence[Values]) -> Values:
        """Unit vectors (N, D) of windows (T, C) at the gallery's rate; NaN where nothing was measured."""
        known = [n for n, window in enumerate(windows) if not np.isnan(window).all()]
        vectors = np.full((len(windows), self.model.encoder_.config.embedding_width), np.nan, dtype=np.float32)
        if known:
            vectors[known] = self._vectors([self._signal(windows[n], str(n)) for n in known])
        return vectors

    def _vectors(self, signals: Sequence[Signal]) -> Values:
        """Without the tokens where the fixed kernels are all there is, which takes a quarter less."""
        encoder = self.model.encoder_
        if encoder.learned is not None or encoder.kernels is None:
            return self.model.encode(signals).embedding
        import torch

        parts = []
        with torch.inference_mode():
            for start in range(0, len(signals), BATCH):
                windows = stack(signals[start : start + BATCH]).to(encoder.level.device)
                parts.append(encoder.kernels.embed(encoder.treated(encoder.scale(windows))).cpu().numpy())
        return np.concatenate(parts)

    def _signal(self, window: Values, id: str) -> Signal:
        signal = Signal(window, id, self.model.rate_hz_, tuple(self.model.channels_))
        return signal if self._band is None else self._band.query(signal)


def ends_between(first: int, last: int, stride: int, length: int) -> range:
    """Multiples of the stride above `first` and up to `last` at which a window of this length may end."""
    begin = max(first + 1, length)
    return range(-(-begin // stride) * stride, last + 1, stride)
