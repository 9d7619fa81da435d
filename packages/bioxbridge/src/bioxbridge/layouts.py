"""Layouts of hidden states: what a model passes from block to block, and (B, T, D).

A layout is a tag that whoever wraps a model gives once. It is never guessed from sizes: batch,
tokens and width may be equal.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Layout = Literal["BTD", "TBD", "BDT", "GTD"]
Hidden = Float[Tensor, "batch tokens width"]


def to_canonical(hidden: Tensor, layout: Layout, groups: int = 1) -> Hidden:
    """A model's own hidden state as (B, T, D).

    Args:
        hidden: in the model's layout.
        layout: `BTD`; `TBD` (fairseq); `BDT` (convolutions: channels are features); `GTD`
            (B x groups, T, D: each sensor channel runs by itself, their tokens are joined).
        groups: sensor channels of a `GTD` layout.
    """
    if layout == "TBD":
        return hidden.transpose(0, 1)
    if layout == "BDT":
        return hidden.transpose(1, 2)
    if layout == "GTD":
        return hidden.unflatten(0, (-1, groups)).flatten(1, 2)
    return hidden


def from_canonical(hidden: Hidden, layout: Layout, groups: int = 1) -> Tensor:
    """(B, T, D) as the model's own layout; inverse of `to_canonical`."""
    if layout == "TBD":
        return hidden.transpose(0, 1)
    if layout == "BDT":
        return hidden.transpose(1, 2)
    if layout == "GTD":
        return hidden.unflatten(1, (groups, -1)).flatten(0, 1)
    return hidden


def pool_segments(hidden: Hidden, segments: int) -> Float[Tensor, "batch segments width"]:
    """Mean token of each of `segments` equal stretches of (B, T, D), as `adaptive_avg_pool1d` cuts.

    >>> pool_segments(torch.tensor([[[1.0], [3.0], [5.0], [9.0]]]), 2).flatten().tolist()
    [2.0, 7.0]
    """
    return F.adaptive_avg_pool1d(hidden.transpose(1, 2), segments).transpose(1, 2)


def hidden_tensor(output: Any) -> Tensor:
    """The hidden state among what a block takes or returns: the first item, however deep.

    Raises:
        TypeError: it is no tensor.
    """
    while isinstance(output, tuple | list):
        output = output[0]
    if not torch.is_tensor(output):
        raise TypeError(f"a block passes on {type(output).__name__}, not a tensor")
    return output
