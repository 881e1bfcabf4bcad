"""Tokens of sound: what groups of neighbouring bands do round a place. Fine spectral detail is the voice, not the word.

No kernel and no view: a token is the mean of each group of bands, and of its change, in the thirds of a span two
tokens long. The closed form turns them to their leading directions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BAND_GROUPS = 8
PARTS = 3  # of a span
TOKENS_WIDE = 2  # how long a span is
REACH = 0.7  # how far on either side a change is measured, in tokens
CHANGE_WEIGHT = 1.375  # of a change a token, beside a mean
BAND_FEATURES = 2 * BAND_GROUPS * PARTS


def band_features(values: Tensor, valid: Tensor) -> Tensor:
    """Features (B, K, BAND_FEATURES) of the tokens of windows (B, C, T), of which `valid` (B, K) says how many.

    The window is shared out evenly: token k of K has its middle at (k + 1/2) T / K.
    """
    length, count = values.shape[2], valid.sum(1, keepdim=True).clamp(min=1)
    middles = (torch.arange(valid.shape[1], device=values.device) + 0.5) * length / count
    return part_means(band_tracks(values, length / valid.shape[1]), middles, TOKENS_WIDE * length / count)


def band_tracks(values: Tensor, token: float) -> Tensor:
    """Means of groups of bands, and their changes (B, 2 BAND_GROUPS, T), where a token has so many places."""
    groups = F.adaptive_avg_pool1d(values.transpose(1, 2), BAND_GROUPS).transpose(1, 2)  # (B, G, T)
    reach = max(round(REACH * token), 1)
    steps = torch.arange(-reach, reach + 1, device=values.device, dtype=values.dtype)
    held = F.pad(groups, (reach, reach), mode="replicate")
    change = F.conv1d(held.flatten(0, 1)[:, None], (steps / steps.square().sum())[None, None])
    return torch.cat([groups, CHANGE_WEIGHT * token * change.view_as(groups)], dim=1)


def part_means(tracks: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """Means (B, K, tracks x PARTS) of tracks (B, N, T) in the parts of spans of a width (B, 1) round centres (B, K)."""
    length = tracks.shape[2]
    edges = torch.linspace(-0.5, 0.5, PARTS + 1, device=tracks.device, dtype=tracks.dtype)
    places = centres[..., None] + width[..., None] * edges  # (B, K, PARTS + 1)
    start, stop = places[..., :-1].clamp(0, length - 1), places[..., 1:].clamp(1, length)
    stop = torch.maximum(stop, start + 0.5)
    total = F.pad(tracks.double().cumsum(2), (1, 0))  # (B, N, T + 1)
    mean = (_read(total, stop) - _read(total, start)) / (stop - start)[:, None]  # (B, N, K, PARTS)
    return mean.transpose(1, 2).flatten(2).to(tracks.dtype)


def _read(total: Tensor, places: Tensor) -> Tensor:
    """Sums up to fractional places (B, K, P), by straight lines."""
    size = total.shape[1]
    flat = places.flatten(1).to(total.dtype)
    left = flat.floor().long().clamp(max=total.shape[2] - 2)
    low, high = (total.gather(2, index[:, None].expand(-1, size, -1)) for index in (left, left + 1))
    mixed: Tensor = (low + (high - low) * (flat - left)[:, None]).unflatten(2, places.shape[1:])
    return mixed


def leading_directions(second_moment: Tensor, count: int) -> Tensor:
    """The map (BAND_FEATURES, count) to the leading directions; columns beyond the number of features are 0."""
    vector = torch.linalg.eigh(second_moment).eigenvectors.flip(1)[:, :count]
    return F.pad(vector, (0, max(count - vector.shape[1], 0)))
