"""The encoder: scaled windows -> patches -> tokens and one unit vector a window, by two halves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geopatch.config import ModelConfig
from geopatch.errors import SignalError
from geopatch.kernels.half import KernelHalf
from geopatch.model.learned import LearnedHalf, LearnedOutput
from geopatch.model.rhythm_columns import RhythmColumns
from geopatch.patches import LazyWindows, PatchBatch, WindowBatch, bare_patches, patchify

FLAT = 1e-6  # a spread below this is none: the channel is constant


@dataclass(frozen=True, eq=False)
class EncoderOutput:
    """What the encoder makes of a batch."""

    embedding: Tensor  # (B, D) unit
    tokens: Tensor  # (B, K, d) unit, 0 where not valid
    valid: Tensor  # (B, K)


class Encoder(nn.Module):
    """Both halves: `scale`, `patch` and `forward` are stages of their own, so that training can act between them.

    Parameters
    ----------
    config : ModelConfig
        What the encoder is.
    """

    level: Tensor
    spread: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("level", torch.zeros(config.channels))
        self.register_buffer("spread", torch.ones(config.channels))
        self.kernels = KernelHalf(config) if config.has_kernels else None
        self.learned = LearnedHalf(config) if config.is_trained else None
        self.rhythm = RhythmColumns(config) if config.rhythm else None

    def learn_scale(self, windows: WindowBatch | LazyWindows) -> None:
        """Take level and spread of each channel, and of relative tempo, from training windows.

        Parameters
        ----------
        windows : WindowBatch or LazyWindows
            The training windows.
        """
        level, spread = level_and_spread(windows)
        self.level.copy_(level)
        self.spread.copy_(spread)
        if self.rhythm is not None:
            self.rhythm.learn([part.rhythm for part in windows.parts() if part.rhythm is not None])

    def scale(self, windows: WindowBatch) -> WindowBatch:
        """Bring windows to units of the training data.

        Parameters
        ----------
        windows : WindowBatch
            Windows in their own units.

        Returns
        -------
        WindowBatch
            The same windows in units of the training data.

        Raises
        ------
        SignalError
            When they have another number of channels.
        """
        if windows.values.shape[2] != self.config.channels:
            raise SignalError(
                f"this model was trained on {self.config.channels} channel(s), these signals have "
                f"{windows.values.shape[2]}; give the same channels in the same order"
            )
        values = (windows.values - self.level) / self.spread
        return replace(windows, values=values * windows.inside[..., None])

    def treated(self, scaled: WindowBatch) -> WindowBatch:
        """Scaled windows under the treatment of amplitude, as the fixed kernels see them.

        Parameters
        ----------
        scaled : WindowBatch
            What `scale` returns.

        Returns
        -------
        WindowBatch
            The same windows, or each at mean 0 and spread 1.
        """
        return scaled if self.config.amplitude == "keep" else zscore(scaled)[0]

    def patch(self, scaled: WindowBatch) -> PatchBatch:
        """Cut scaled windows into patches with their geometry, under the treatment of amplitude.

        Parameters
        ----------
        scaled : WindowBatch
            What `scale` returns.

        Returns
        -------
        PatchBatch
            What `forward` takes.
        """
        if self.learned is None:
            return bare_patches(self.treated(scaled), self.config)
        if self.config.amplitude == "keep":
            return patchify(scaled, self.config)
        shaped, level, spread = zscore(scaled)
        batch = patchify(shaped, self.config)
        if self.config.amplitude == "zscore":
            return batch
        extra = torch.cat([level, spread.log()], dim=1)[:, None] * batch.valid[..., None]  # (B, K, 2C)
        geometry = replace(batch.geometry, descriptors=torch.cat([batch.geometry.descriptors, extra], dim=-1))
        return replace(batch, geometry=geometry)

    def forward(self, batch: PatchBatch) -> EncoderOutput:
        """Encode patches.

        Parameters
        ----------
        batch : PatchBatch
            What `patch` returns.

        Returns
        -------
        EncoderOutput
            Embeddings and tokens.
        """
        output = self._halves(batch)
        if self.rhythm is None:
            return output
        return replace(output, embedding=self.rhythm.beside(output.embedding, batch.windows.rhythm))

    def _halves(self, batch: PatchBatch) -> EncoderOutput:
        if self.learned is None:
            assert self.kernels is not None
            embedding, tokens = self.kernels(batch.windows, batch.scaffold)
            return EncoderOutput(embedding, tokens, batch.valid)
        learned: LearnedOutput = self.learned(batch)
        if self.kernels is None:
            return EncoderOutput(learned.embedding, learned.tokens, learned.valid)
        if self.config.bands:  # learned tokens are of the voices that trained
            fixed, tokens = self.kernels(batch.windows, batch.scaffold)
        else:
            fixed, tokens = self.kernels.embed(batch.windows), learned.tokens
        share = self.config.kernel_share
        both = torch.cat([share**0.5 * fixed, (1 - share) ** 0.5 * learned.embedding], dim=1)
        return EncoderOutput(F.normalize(both, dim=1), tokens, learned.valid)

    def encode(self, windows: WindowBatch) -> EncoderOutput:
        """Scale, patch and encode windows.

        Parameters
        ----------
        windows : WindowBatch
            Windows in their own units.

        Returns
        -------
        EncoderOutput
            Embeddings and tokens.
        """
        encoded: EncoderOutput = self(self.patch(self.scale(windows)))
        return encoded


def level_and_spread(windows: WindowBatch | LazyWindows) -> tuple[Tensor, Tensor]:
    """Of each channel (C,), over all that was measured; a constant channel has spread 1."""
    total = level = torch.zeros((), dtype=torch.float64)
    for part in windows.parts():
        weights = _weights(part)
        total, level = total + weights.sum((0, 1)), level + (part.values * weights).sum((0, 1))
    level = level / total
    square = torch.zeros_like(level)
    for part in windows.parts():
        square += ((part.values - level).square() * _weights(part)).sum((0, 1))
    spread = (square / total).sqrt()
    return level, torch.where(spread > FLAT * (1 + level.abs()), spread, 1.0)


def _weights(windows: WindowBatch) -> Tensor:
    return windows.confidence[..., None].double()


def zscore(windows: WindowBatch) -> tuple[WindowBatch, Tensor, Tensor]:
    """Each channel of each window to mean 0 and spread 1, and its level and spread (B, C). What is flat stays flat."""
    inside = windows.inside[..., None]
    count = windows.lengths[:, None, None]
    level = (windows.values * inside).sum(1, keepdim=True) / count
    centred = (windows.values - level) * inside
    spread = (centred.square().sum(1, keepdim=True) / count).sqrt()
    flat = spread <= FLAT * (1 + level.abs())  # what rounding leaves of a constant is no spread
    scaled = centred / torch.where(flat, 1.0, spread)
    return replace(windows, values=scaled), level.squeeze(1), torch.where(flat, FLAT, spread).squeeze(1)
