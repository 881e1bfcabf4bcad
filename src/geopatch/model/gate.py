"""The gate a_k = m_k sigmoid(W2 GELU(W1 xi_k + b1) + b2), nearly shut at the start."""

from __future__ import annotations

import torch
from torch import Tensor, nn

OPENING = -2.0  # b2 at the start: sigmoid(-2) = 0.119


class Gate(nn.Module):
    def __init__(self, evidence: int = 4, width: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(evidence, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, OPENING)

    def forward(self, xi: Tensor, valid: Tensor) -> Tensor:
        opening: Tensor = torch.sigmoid(self.out(nn.functional.gelu(self.hidden(xi)))).squeeze(-1)
        return opening * valid  # (B, K)
