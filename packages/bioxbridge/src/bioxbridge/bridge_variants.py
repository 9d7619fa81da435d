"""Bridges that the prototype bridge is ablated against (BioX-Bridge, arXiv 2510.02276, section 4).

Each takes the place of `PrototypeBridge`: pooled (B, d_m) in, hidden state (B, T, d_l) out. Biases
are left out as there, and the last map starts at zero.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bioxbridge.bridge import PrototypeBridge

Pooled = Float[Tensor, "batch width"]
Hidden = Float[Tensor, "batch tokens out"]


class FullRankBridge(nn.Module):
    """One linear map d_m to T d_l: d_m T d_l parameters, the naive alternative of section 3.3.

    >>> FullRankBridge(input_width=4, tokens=3, output_width=5)(torch.ones(2, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, *, input_width: int, tokens: int, output_width: int) -> None:
        super().__init__()
        self.settings = {
            "input_width": input_width,
            "tokens": tokens,
            "output_width": output_width,
        }
        self.tokens = tokens
        self.weight = nn.Parameter(torch.zeros(input_width, tokens * output_width))

    def forward(self, pooled: Pooled) -> Hidden:
        """(B, d_m) to (B, T, d_l)."""
        return (pooled @ self.weight).unflatten(-1, (self.tokens, -1))


class LowRankBridge(nn.Module):
    """Two linear maps through rank r: r (d_m + T d_l) parameters, no prototypes.

    >>> LowRankBridge(input_width=4, tokens=3, output_width=5, rank=2)(torch.ones(2, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, *, input_width: int, tokens: int, output_width: int, rank: int = 16) -> None:
        super().__init__()
        self.settings = {
            "input_width": input_width,
            "tokens": tokens,
            "output_width": output_width,
            "rank": rank,
        }
        self.tokens = tokens
        self.down = nn.Parameter(torch.empty(input_width, rank))
        self.up = nn.Parameter(torch.zeros(rank, tokens * output_width))
        nn.init.uniform_(self.down, -(input_width**-0.5), input_width**-0.5)

    def forward(self, pooled: Pooled) -> Hidden:
        """(B, d_m) to (B, T, d_l)."""
        return (pooled @ self.down @ self.up).unflatten(-1, (self.tokens, -1))


class MLPBridge(nn.Module):
    """A hidden layer of GELU units between the maps of `LowRankBridge`.

    >>> MLPBridge(input_width=4, tokens=3, output_width=5, hidden=6)(torch.ones(2, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self, *, input_width: int, tokens: int, output_width: int, hidden: int = 64
    ) -> None:
        super().__init__()
        self.settings = {
            "input_width": input_width,
            "tokens": tokens,
            "output_width": output_width,
            "hidden": hidden,
        }
        self.tokens = tokens
        self.expand = nn.Linear(input_width, hidden, bias=False)
        self.project = nn.Linear(hidden, tokens * output_width, bias=False)
        nn.init.zeros_(self.project.weight)

    def forward(self, pooled: Pooled) -> Hidden:
        """(B, d_m) to (B, T, d_l)."""
        hidden = nn.functional.gelu(self.expand(pooled))
        return self.project(hidden).unflatten(-1, (self.tokens, -1))


Bridge = PrototypeBridge | LowRankBridge | FullRankBridge | MLPBridge

BRIDGES: dict[str, type[Bridge]] = {
    "prototype": PrototypeBridge,
    "low_rank": LowRankBridge,
    "full_rank": FullRankBridge,
    "mlp": MLPBridge,
}


def bridge_kind(bridge: Bridge) -> str:
    """Name of a bridge's class in `BRIDGES`."""
    return next(kind for kind, member in BRIDGES.items() if type(bridge) is member)
