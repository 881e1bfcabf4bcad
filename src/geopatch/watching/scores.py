"""Windows of a stream, encoded together and compared with patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geopatch.data.front_end import FrontEnd
from geopatch.signal import Signal

if TYPE_CHECKING:
    from torch import Tensor

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
        """Windows of one length are scaled and resampled together, those of all lengths encoded together.

        No tokens and no objects of single windows, which would take more time than the kernels themselves.
        """
        import torch

        rows: dict[int, list[int]] = {}
        for n, window in enumerate(windows):
            rows.setdefault(len(window), []).append(n)
        kernels = self.model.encoder_.kernels
        assert kernels is not None
        with torch.inference_mode():
            read = torch.cat([self._read([windows[n] for n in part]) for part in rows.values()])
            vectors = kernels.embed(_whole(read)).cpu().numpy()
        ordered = np.empty_like(vectors)
        ordered[[n for part in rows.values() for n in part]] = vectors
        return ordered

    def _read(self, windows: Sequence[Values]) -> Tensor:
        """Windows of one length at the places (B, T, C) that the kernels read."""
        import torch

        from geopatch.kernels.half import resampled
        from geopatch.patches import fill_gaps

        encoder = self.model.encoder_
        values = torch.from_numpy(np.stack(windows)).to(encoder.level.device)
        if bool(values.isnan().any()):
            values = fill_gaps(values, torch.full((len(values),), values.shape[1], device=values.device))
        treated = encoder.treated(encoder.scale(_whole(values)))
        return resampled(treated, encoder.config.length, encoder.config.channels).transpose(1, 2)

    def _signal(self, window: Values) -> Signal:
        return Signal(window, "window", self.model.rate_hz_, tuple(self.model.channels_))

    def _filtered(self, window: Values) -> Values:
        return window if self._band is None else self._band.query(self._signal(window)).values


def _whole(values: Tensor) -> WindowBatch:
    """Windows (B, T, C) without gaps, all of one length."""
    import torch

    from geopatch.patches import WindowBatch

    lengths = torch.full((len(values),), values.shape[1], device=values.device)
    return WindowBatch(values, torch.ones(values.shape[:2], device=values.device), lengths, padded=False)


def ends_between(first: int, last: int, stride: int, length: int) -> range:
    """Multiples of the stride above `first` and up to `last` at which a window of this length may end."""
    begin = max(first + 1, length)
    return range(-(-begin // stride) * stride, last + 1, stride)
