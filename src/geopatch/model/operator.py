"""Back from tokens to samples: a plain reconstruction head, or the conditional operator Proj_out(Phi(h || psi(c)))."""

from __future__ import annotations

import torch
from torch import Tensor, nn

RECONSTRUCTIONS = ("none", "head", "operator")


class ReconstructionHead(nn.Module):
    """Token -> patch."""

    def __init__(self, width: int, patch_length: int, channels: int) -> None:
        super().__init__()
        self.shape = (patch_length, channels)
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, patch_length * channels)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        patch: Tensor = self.layers(tokens).unflatten(-1, self.shape)
        return patch  # (B, K, L, C)


class ConditionalOperator(nn.Module):
    """Content and condition -> patch."""

    def __init__(self, width: int, patch_length: int, channels: int) -> None:
        super().__init__()
        self.condition = nn.Linear(width, width)
        self.head = ReconstructionHead(2 * width, patch_length, channels)

    def forward(self, content: Tensor, condition: Tensor) -> Tensor:
        patch: Tensor = self.head(torch.cat([content, self.condition(condition)], dim=-1))
        return patch
