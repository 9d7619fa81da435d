"""A small transformer over signal tokens, pretrained by masked reconstruction.

It stands where a published foundation model would: BioX-Bridge (arXiv 2510.02276) freezes one
encoder per modality, and no such weights can be shipped with a package.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bioxbridge.stored import load_state, read_config, save_state, write_config

_KIND = "bioxbridge.SignalEncoder"

Tokens = Float[Tensor, "batch tokens features"]
Hidden = Float[Tensor, "batch tokens width"]


class EncoderBlock(nn.Module):
    """Pre-norm transformer block without dropout, (B, T, D) to (B, T, D)."""

    def __init__(self, *, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_feedforward = nn.LayerNorm(width)
        self.expand = nn.Linear(width, feedforward)
        self.contract = nn.Linear(feedforward, width)

    def forward(self, hidden: Hidden) -> Hidden:
        """One block."""
        qkv = self.query_key_value(self.norm_attention(hidden))
        query, key, value = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)  # (B, H, T, D/H)
        hidden = hidden + self.project(attended.transpose(1, 2).flatten(2))
        return hidden + self.contract(F.gelu(self.expand(self.norm_feedforward(hidden))))


class SignalEncoder(nn.Module):
    """Linear embedding, learned positions, pre-norm blocks, no final norm.

    Args:
        features: values per token.
        tokens: tokens per window.
        width: D, a multiple of `heads`.
        depth: number of blocks.
        heads: attention heads.
        feedforward: hidden width of each block's two-layer network; twice the width by default.

    Raises:
        ValueError: the width is no multiple of the heads.
    """

    def __init__(
        self,
        *,
        features: int,
        tokens: int,
        width: int = 48,
        depth: int = 4,
        heads: int = 4,
        feedforward: int | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: {width} is no multiple of {heads} heads")
        feedforward = 2 * width if feedforward is None else feedforward
        self.sizes = {
            "features": features,
            "tokens": tokens,
            "width": width,
            "depth": depth,
            "heads": heads,
            "feedforward": feedforward,
        }
        self.embedding = nn.Linear(features, width)
        self.mask_vector = nn.Parameter(0.02 * torch.randn(width))
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.ModuleList(
            EncoderBlock(width=width, heads=heads, feedforward=feedforward) for _ in range(depth)
        )

    def forward(self, inputs: Tokens, masked: Bool[Tensor, "batch tokens"] | None = None) -> Hidden:
        """Hidden state after the last block.

        Args:
            inputs: (B, T, F).
            masked: (B, T); where true, the token is replaced by the learned mask vector.
        """
        hidden = self.embedding(inputs)
        if masked is not None:
            hidden = torch.where(masked.unsqueeze(-1), self.mask_vector, hidden)
        hidden = hidden + self.positions
        for block in self.blocks:
            hidden = block(hidden)
        return hidden

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `encoder.safetensors` and `config.json`."""
        folder = write_config(folder, _KIND, self.sizes)
        save_state(self, folder / "encoder.safetensors")

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> SignalEncoder:
        """Load what `save_pretrained` wrote.

        Raises:
            ValueError: the folder is not of this kind, or damaged.
            FileNotFoundError: the folder lacks `config.json` or `encoder.safetensors`.
        """
        sizes = read_config(folder, _KIND)
        try:
            encoder = cls(**sizes)
        except TypeError as error:
            raise ValueError(f"{Path(folder) / 'config.json'}: {error}") from error
        load_state(encoder, Path(folder) / "encoder.safetensors")
        return encoder
