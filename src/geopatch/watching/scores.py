"""Windows of a stream, encoded together and compared with patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.data.front_end import FrontEnd
from geopatch.signal import Signal

if TYPE_CHECKING:
    import torch

    from geopatch.estimator import GeoPatch
    from geopatch.patches import WindowBatch

Values = npt.NDArray[np.float32]
BATCH = 256


class WindowEncoder:
    """Vectors of windows that are cut from streams: their shape, as the rhythm round them is not known."""

    def __init__(self, model: GeoPatch) -> None:
        self.model = model
        front = FrontEnd.of(model)
        self._band = front if front is not None and front.band_hz is not None else None
        config = model.encoder_.config
        self.width = config.embedding_width - config.rhythm_width

    def embed(self, windows: Sequence[Values]) -> Values:
        """Unit vectors (N, D) of windows (T, C) at the gallery's rate; NaN where nothing was measured."""
        known = [n for n, window in enumerate(windows) if not np.isnan(window).all()]
        vectors = np.full((len(windows), self.width), np.nan, dtype=np.float32)
        for start in range(0, len(known), BATCH):
            part = known[start : start + BATCH]
            vectors[part] = self._vectors([self._filtered(windows[n]) for n in part])
        return vectors

    def _vectors(self, windows: Sequence[Values]) -> Values:
        encoder = self.model.encoder_
        if encoder.learned is not None or encoder.kernels is None:
            own = self.model.encode([self._signal(window) for window in windows]).embedding[:, : self.width]
            unit: Values = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
            return unit
        return self._by_kernels(windows)

    def _by_kernels(self, windows: Sequence[Values]) -> Values:
        """No tokens and no objects of single windows, which would take more time than the kernels themselves."""
        import torch

        encoder = self.model.encoder_
        assert encoder.kernels is not None
        with torch.inference_mode():
            treated = encoder.treated(encoder.scale(_batch(windows, encoder.level.device)))
            vectors: Values = encoder.kernels.embed(treated).cpu().numpy()
        return vectors

    def _signal(self, window: Values) -> Signal:
        return Signal(window, "window", self.model.rate_hz_, tuple(self.model.channels_))

    def _filtered(self, window: Values) -> Values:
        return window if self._band is None else self._band.query(self._signal(window)).values


def _batch(windows: Sequence[Values], device: torch.device) -> WindowBatch:
    """Windows of any lengths, their gaps bridged."""
    import torch

    from geopatch.patches import WindowBatch, fill_gaps

    sizes = [len(window) for window in windows]
    padded = np.zeros((len(windows), max(sizes), windows[0].shape[1]), dtype=np.float32)
    for row, window in zip(padded, windows, strict=True):
        row[: len(window)] = window
    values, lengths = torch.from_numpy(padded).to(device), torch.tensor(sizes, device=device)
    if np.isnan(padded).any():
        values = fill_gaps(values, lengths)
    return WindowBatch(values, torch.ones(values.shape[:2], device=device), lengths, padded=min(sizes) < max(sizes))


def ends_between(first: int, last: int, stride: int, length: int) -> range:
    """Multiples of the stride above `first` and up to `last` at which a window of this length may end."""
    begin = max(first + 1, length)
    return range(-(-begin // stride) * stride, last + 1, stride)
