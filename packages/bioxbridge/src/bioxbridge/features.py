"""Hidden states of frozen models over a whole data set, each model run once."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from bioxbridge.adapters import BlockModel


@torch.no_grad()
def pooled_states(
    model: BlockModel,
    inputs: Float[Tensor, "batch ..."],
    positions: Iterable[int] | None = None,
    *,
    batch_size: int = 512,
) -> list[Float[Tensor, "batch _"]]:
    """Mean token of every position in one pass over the data.

    Args:
        model: the model; it runs in its present mode on its own device.
        inputs: (N, ...) model inputs.
        positions: see `BlockModel.hidden_states`.
        batch_size: windows per pass; bounds the memory.

    Returns:
        One (N, D) tensor a position, on the CPU.
    """
    wanted = list(range(model.depth + 1)) if positions is None else list(positions)
    batches = []
    device = device_of(model)
    for batch in inputs.split(batch_size):
        states = model.hidden_states(batch.to(device), wanted)
        batches.append([state.mean(dim=1).cpu() for state in states])
    return [torch.cat(column) for column in zip(*batches, strict=True)]


@torch.no_grad()
def token_states(
    model: BlockModel,
    inputs: Float[Tensor, "batch ..."],
    positions: Iterable[int],
    *,
    batch_size: int = 512,
) -> list[Float[Tensor, "batch _ _"]]:
    """Unpooled hidden states (N, T, D) at several positions in one pass, on the CPU."""
    wanted = list(positions)
    device = device_of(model)
    batches = [
        [state.cpu() for state in model.hidden_states(batch.to(device), wanted)]
        for batch in inputs.split(batch_size)
    ]
    return [torch.cat(column) for column in zip(*batches, strict=True)]


def device_of(model: BlockModel) -> torch.device:
    """Where a model's parameters are; the CPU for one without any."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
