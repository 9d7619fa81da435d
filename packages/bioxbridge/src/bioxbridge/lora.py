"""Low-rank adaptation of an encoder's linear layers (Hu et al. 2021, arXiv 2106.09685), by peft.

For a task model that is fine-tuned and for a distilled student, where training all weights of a
foundation model costs too much: W x becomes W x + (alpha / r) B A x with A (r, d_in) and
B (d_out, r), B zero at first, and only A and B are trained.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from bioxbridge.adapters import BlockModel


def add_lora(
    model: BlockModel,
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    layers: Iterable[str] | None = None,
    seed: int = 0,
) -> BlockModel:
    """Adapt linear layers in place, and freeze everything else.

    Each adapted layer adds r (d_in + d_out) trainable parameters; the output is at first unchanged.

    Args:
        model: no longer frozen afterwards; it is not to be shared with a bridge.
        rank: r, at least 1.
        alpha: scale of the added term, as alpha / r; 2 r by default.
        dropout: on what the added term reads, in [0, 1).
        layers: last parts of the names of the linear layers, as `q_proj`; all linear layers inside
            the blocks by default.
        seed: of A.

    Returns:
        The same model.

    Raises:
        ValueError: the model is adapted already, no layer fits, a name fits no layer, or a number
            is out of its range.
    """
    if rank < 1:
        raise ValueError(f"rank: {rank} is below 1")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: {dropout} is outside [0, 1)")
    from peft import LoraConfig, inject_adapter_in_model

    if _adapted(model.module):
        raise ValueError(f"model: {type(model.module).__name__} has LoRA layers already")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=_targets(model, layers),
    )
    places = _names_of_blocks(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model.module)
    model.set_blocks([model.module.get_submodule(name) for name in places])
    model.frozen = False
    for name, parameter in model.module.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model


def merge_lora(model: BlockModel) -> BlockModel:
    """Add the trained terms to the weights and take the extra layers out, in place.

    The outputs stay the same up to rounding, and the state dict has its old names again.

    Raises:
        ValueError: the model has no LoRA layers.
    """
    adapted = _adapted(model.module)
    if not adapted:
        raise ValueError(f"model: {type(model.module).__name__} has no LoRA layers to merge")
    places = _names_of_blocks(model)
    for name, layer in adapted.items():
        layer.merge()
        parent, _, own = name.rpartition(".")
        setattr(model.module.get_submodule(parent), own, layer.get_base_layer())
    if hasattr(model.module, "peft_config"):
        del model.module.peft_config
    model.set_blocks([model.module.get_submodule(name) for name in places])
    return model


def _targets(model: BlockModel, layers: Iterable[str] | None) -> list[str]:
    """Full names of the linear layers inside the blocks whose name ends as asked for."""
    inside = {id(module) for block in model.blocks for module in block.modules()}
    # Exactly `Linear`: kinds of it, as the output map of torch's attention, are read by their
    # weights and never called, so that an added term would be lost.
    linear = [
        name
        for name, module in model.module.named_modules()
        if type(module) is nn.Linear and id(module) in inside
    ]
    if layers is None:
        if not linear:
            raise ValueError(f"layers: {type(model.module).__name__} has no linear ones in blocks")
        return linear
    chosen = []
    for ending in layers:
        fitting = [n for n in linear if n == ending or n.endswith(f".{ending}")]
        if not fitting:
            known = ", ".join(sorted({n.rpartition(".")[2] for n in linear}))
            raise ValueError(f"layers: no linear layer is named {ending!r}; there are {known}")
        chosen += fitting
    return chosen


def _adapted(module: nn.Module) -> dict[str, nn.Module]:
    from peft.tuners.lora import LoraLayer

    return {n: m for n, m in module.named_modules() if isinstance(m, LoraLayer)}


def _names_of_blocks(model: BlockModel) -> list[str]:
    names = {id(module): name for name, module in model.module.named_modules()}
    return [names[id(block)] for block in model.blocks]
