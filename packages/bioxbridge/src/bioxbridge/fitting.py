"""A bridge from two frozen models and pairs: connect it, train it, keep its best epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lightning import Trainer
from torch import Tensor

from bioxbridge.adapters import BlockModel
from bioxbridge.bridged import BridgedModel
from bioxbridge.cache import cached_states
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import RowData
from bioxbridge.features import token_states
from bioxbridge.frozen import Transfer
from bioxbridge.module import BridgeModule


def fit_bridge(
    model: BridgeModule,
    transfer: Transfer,
    trainer: Trainer,
    *,
    batch_size: int = 64,
    seed: int = 0,
    keep: Literal["val_agreement", "val_loss"] = "val_agreement",
    cache: Path | None = None,
    checkpoint: Path | None = None,
) -> BridgedModel:
    """Train a bridge; the frozen models run once, before the first step.

    Args:
        model: not yet connected.
        transfer: what it bridges.
        trainer: a fresh Lightning trainer of any number of processes.
        batch_size: windows per step, over all processes together.
        seed: of the bridge's weights and the order of windows.
        keep: which epoch stays: that of highest agreement with the teacher on `val`, or of lowest
            alignment loss there, which asks nothing of the teacher's head.
        cache: folder of `cached_states`; without one hidden states are held in memory.
        checkpoint: where to go on.

    Returns:
        The bridged model, in evaluation mode on the CPU.

    Raises:
        ValueError: fewer old tokens than prototypes, a checkpoint of another bridge, a trainer that
            has trained before, or a training that diverged.
    """
    if trainer.state.fn is not None:
        raise ValueError("trainer: has trained before; each bridge needs one of its own")
    old, positions = transfer.old, transfer.positions
    aligned = old.encoder.depth if model.align_at == "last" else positions.old_block
    places = [positions.old_block, aligned]
    rows, replaced = {}, {}
    for part, pairs in transfer.pairs.items():
        replaced[part], target = _tokens(old.encoder, pairs.old, places, cache)
        if model.reads == "pooled":
            read = transfer.features[part].new_pooled[positions.new_block]
        else:
            (read,) = _tokens(transfer.new, pairs.new, [positions.new_block + 1], cache)
        rows[part] = (read, target, transfer.features[part].logits)
    model.connect(
        new=transfer.new,
        old=old,
        positions=positions,
        read=rows["pair"][0],
        old_hidden=replaced["pair"],
        seed=seed,
    )
    data = RowData(train=rows["pair"], val=rows["val"], batch_size=batch_size, seed=seed)
    trainer.callbacks.insert(0, KeepBest(keep, "min" if keep == "val_loss" else "max"))
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    if not all(value.isfinite().all() for value in model.bridged.bridge.parameters()):
        raise ValueError("bridge: training diverged to weights that are not finite")
    return model.bridged.cpu().eval()


def _tokens(
    model: BlockModel, inputs: Tensor, places: list[int], cache: Path | None
) -> list[Tensor]:
    if cache is None:
        return token_states(model, inputs, places)
    return cached_states(model, inputs, cache, pooled=(), tokens=places).tokens
