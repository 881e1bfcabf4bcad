"""The fixed half of the encoder: kernels, then one linear map to a unit vector a window and one a token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import ModelConfig
from geopatch.kernels.band_tokens import BAND_FEATURES, band_features
from geopatch.kernels.bank import (
    FEATURES,
    GROUPS,
    SPAN,
    TOKEN_FEATURES,
    TRIPLES,
    Layout,
    copies,
    mix_count,
)
from geopatch.kernels.transform import features, window_features
from geopatch.patches import WindowBatch
from geopatch.scaffold import Scaffold, fixed_scaffold

EPSILON = 1e-12
PART = 2**14  # samples a thread takes at a time: features of many windows are memory that has to be had first
COARSE = 1.5  # samples a place of the resampled window, from which on a place is a mean and not a reading


class KernelHalf(nn.Module):
    """Fixed kernels and the map that closed form gives them.

    Parameters
    ----------
    config : ModelConfig
        Channels, length, and the sizes of embedding and tokens.
    """

    mixes: Tensor
    bias: Tensor
    map: Tensor
    origin: Tensor
    token_map: Tensor
    token_origin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.layout = config, Layout.of(config.length)
        self.register_buffer("mixes", torch.zeros(GROUPS, mix_count(config.channels), config.channels))
        self.register_buffer("bias", torch.zeros(GROUPS, len(TRIPLES)))
        self.register_buffer("map", torch.zeros(FEATURES, config.embedding))
        self.register_buffer("origin", torch.zeros(config.embedding))
        self.register_buffer("token_map", torch.zeros(token_features(config), config.width))
        self.register_buffer("token_origin", torch.zeros(config.width))

    def scaffold(self, lengths: Tensor) -> Scaffold:
        """Where the tokens of windows of these lengths lie."""
        return fixed_scaffold(lengths, self.config.patch_length, self.config.patches, self.config.stride)

    def forward(self, windows: WindowBatch, scaffold: Scaffold) -> tuple[Tensor, Tensor]:
        """Unit vectors (B, D) and unit tokens (B, K, d) of windows, which come as `Encoder.patch` leaves them."""
        values = resampled(windows, self.layout.length, self.config.channels)
        if self.config.bands:
            tokens = band_features(values, scaffold.valid) @ self.token_map - self.token_origin
            return self._embedded(values), _unit(tokens) * scaffold.valid[..., None]
        starts, stops = token_spans(scaffold, windows.lengths, self.layout.length)
        size = self._part(values)
        parts = zip(values.split(size), starts.split(size), stops.split(size), strict=True)
        embedding, shares = zip(*(self._mapped(*part) for part in parts), strict=True)
        return _unit(torch.cat(embedding)), _unit(torch.cat(shares)) * scaffold.valid[..., None]

    def embed(self, windows: WindowBatch) -> Tensor:
        """Unit vectors (B, D) alone."""
        return self._embedded(resampled(windows, self.layout.length, self.config.channels))

    def _embedded(self, values: Tensor) -> Tensor:
        held = (copies(part, self.layout) for part in values.split(self._part(values)))
        shares = [features(part, self.mixes, self.bias, self.layout) @ self.map for part in held]
        return _unit(torch.cat(shares) - self.origin)

    def _part(self, values: Tensor) -> int:
        """Windows worked on at a time: on a CPU as many as its caches hold."""
        size = PART * torch.get_num_threads() // self.layout.length
        return max(size, 1) if values.device.type == "cpu" else max(len(values), 1)

    def _mapped(self, values: Tensor, starts: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
        held = copies(values, self.layout)
        shares, token_shares = window_features(held, self.mixes, self.bias, self.layout, starts, stops)
        return shares @ self.map - self.origin, token_shares @ self.token_map - self.token_origin


def token_features(config: ModelConfig) -> int:
    """Features that the map of tokens takes."""
    return BAND_FEATURES if config.bands else TOKEN_FEATURES


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=-1, eps=EPSILON)


def resampled(windows: WindowBatch, length: int, channels: int) -> Tensor:
    """The first channels of windows at `length` places (B, C, T), evenly from the first sample to the last."""
    values = windows.values[..., :channels]
    if values.shape[1] == length and not windows.padded:
        return values.transpose(1, 2).contiguous()
    last = (windows.lengths[:, None] - 1).to(values.dtype)
    places = torch.arange(length, device=values.device, dtype=values.dtype)
    times = (last / max(length - 1, 1)) * places  # (B, T) to the bit the samples themselves at their own length
    left = times.floor().long()
    right = torch.minimum(left + 1, windows.lengths[:, None] - 1)
    share = (times - left)[..., None]
    low, high = _at(values, left), _at(values, right)
    read = low + (high - low) * share
    coarse = windows.lengths > COARSE * length
    if bool(coarse.any()):
        read = torch.where(coarse[:, None, None], _means(values, windows.lengths, times), read)
    return read.transpose(1, 2).contiguous()


def _means(values: Tensor, lengths: Tensor, times: Tensor) -> Tensor:
    """Means over the samples that lie nearer to a place than to any other, so that nothing between places is lost."""
    step = (lengths[:, None] - 1) / max(times.shape[1] - 1, 1)
    start = (times - step / 2).ceil().long().clamp(min=0)
    stop = torch.minimum((times + step / 2).ceil().long(), lengths[:, None])
    stop = torch.maximum(stop, start + 1)
    total = F.pad(values.double().cumsum(1), (0, 0, 1, 0))
    return ((_at(total, stop) - _at(total, start)) / (stop - start)[..., None]).to(values.dtype)


def _at(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))


def token_spans(scaffold: Scaffold, lengths: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """First and last place (B, K) of the span round the centre of each patch, in samples of the resampled window."""
    centre = scaffold.centres / (lengths[:, None] - 1).clamp(min=1)
    return spans_round(centre * (length - 1), length)


def spans_round(centre: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Spans of `SPAN` of the window round centres, cut off at its ends."""
    side = SPAN * length / 2
    start = (centre - side).round().long().clamp(0, length - 1)
    stop = torch.maximum((centre + side).round().long().clamp(max=length), start + 1)
    return start, stop
