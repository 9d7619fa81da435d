"""Bridges that the prototype bridge is ablated against (BioX-Bridge, arXiv 2510.02276, section 4).

Each takes the place of `PrototypeBridge`: pooled (B, d_m) in, hidden state (B, T, d_l) out, but
`PerTokenBridge` reads all tokens (B, T_m, d_m). Biases are left out as there, and the last map
starts at zero.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bioxbridge.bridge import PrototypeBridge, Reads
from bioxbridge.layouts import pool_segments

Pooled = Float[Tensor, "batch width"]
Tokens = Float[Tensor, "batch tokens_new width"]
Hidden = Float[Tensor, "batch tokens out"]


class FullRankBridge(nn.Module):
    """One linear map d_m to T d_l: d_m T d_l parameters, the naive alternative of section 3.3.

    >>> FullRankBridge(input_width=4, tokens=3, output_width=5)(torch.ones(2, 4)).shape
    torch.Size([2, 3, 5])
    """

    reads: ClassVar[Reads] = "pooled"

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

    reads: ClassVar[Reads] = "pooled"

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

    reads: ClassVar[Reads] = "pooled"

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


class PerTokenBridge(PrototypeBridge):
    r"""A prototype bridge for one token, applied along time: outputs follow the signal in time.

    Token t of the old model is $\tilde h_t = h_t A B P$, with the new model's tokens $h$ brought to
    the old model's T by linear interpolation along time. d_m r + r N + N d_l parameters, whatever
    T is. The published bridge pools the new model over time first, which suits labels of whole
    windows but not labels along time. Both models' tokens must lie along time, then: LaBraM's and
    NormWear's, one for each sensor channel and moment, do not.

    Args:
        input_width: $d_m$.
        tokens: T, tokens of the old model.
        output_width: $d_l$.
        rank: $r$.
        prototypes: N.
        segments: read the mean tokens of that many equal stretches of time in place of all tokens;
            interpolation alone passes tokens over where the new model has many times T of them.
        settings: the others of `PrototypeBridge`; statistics are shared by all tokens.

    Raises:
        ValueError: a size below 1.

    >>> bridge = PerTokenBridge(input_width=4, tokens=3, output_width=5, rank=2, prototypes=6)
    >>> bridge(torch.ones(2, 7, 4)).shape
    torch.Size([2, 3, 5])
    """

    reads: ClassVar[Reads] = "tokens"

    def __init__(
        self,
        *,
        input_width: int,
        tokens: int,
        output_width: int,
        rank: int = 16,
        prototypes: int = 50,
        segments: int | None = None,
        **settings: Any,
    ) -> None:
        for name, size in (("tokens", tokens), ("segments", segments)):
            if size is not None and size < 1:
                raise ValueError(f"{name}: {size} is below 1")
        super().__init__(
            input_width=input_width,
            tokens=1,
            output_width=output_width,
            rank=rank,
            prototypes=prototypes,
            **settings,
        )
        self.settings |= {"tokens": tokens, "segments": segments}
        self.output_tokens = tokens

    def forward(self, tokens: Tokens) -> Hidden:
        """(B, T_m, d_m) to (B, T, d_l)."""
        if self.settings["segments"] is not None:
            tokens = pool_segments(tokens, self.settings["segments"])
        tokens = resample_tokens(tokens, self.output_tokens)
        each = super().forward(tokens.flatten(0, 1))  # (B T, 1, d_l)
        return each.squeeze(1).unflatten(0, (-1, self.output_tokens))

    def calibrate(self, tokens: Tokens, hidden: Float[Tensor, "windows tokens out"]) -> None:
        """Set the statistics of `standardise_input` and `mean_output` over all tokens.

        Args:
            tokens: (N, T_m, d_m) tokens of the new model.
            hidden: (M, T, d_l) hidden states of the old model at the bridge's place.
        """
        super().calibrate(tokens.flatten(0, 1), hidden.flatten(0, 1).unsqueeze(1))


def resample_tokens(tokens: Tokens, count: int) -> Float[Tensor, "batch count width"]:
    """Tokens (B, T, D) at `count` equally spaced moments, by linear interpolation along time.

    Moments are the middles of equal stretches; the first and last values go on to both ends.

    >>> resample_tokens(torch.tensor([[[0.0], [1.0]]]), 4).flatten().tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    if tokens.shape[1] == count:
        return tokens
    return nn.functional.interpolate(tokens.transpose(1, 2), count, mode="linear").transpose(1, 2)


Bridge = PrototypeBridge | LowRankBridge | FullRankBridge | MLPBridge

BRIDGES: dict[str, type[Bridge]] = {
    "prototype": PrototypeBridge,
    "low_rank": LowRankBridge,
    "full_rank": FullRankBridge,
    "mlp": MLPBridge,
    "per_token": PerTokenBridge,
}


def bridge_kind(bridge: Bridge) -> str:
    """Name of a bridge's class in `BRIDGES`."""
    return next(kind for kind, member in BRIDGES.items() if type(bridge) is member)
