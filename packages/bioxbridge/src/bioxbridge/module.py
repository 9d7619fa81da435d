"""The Lightning module of the bridge: what is trained, on which batches, by which loss."""

from __future__ import annotations

from typing import Any, Literal

import lightning
import numpy as np
import torch
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.bridge import (
    OutputInit,
    PrototypeBridge,
    PrototypeInit,
    initialise_prototypes,
)
from bioxbridge.bridge_variants import BRIDGES
from bioxbridge.bridged import BridgedModel
from bioxbridge.losses import ALIGNMENT_LOSSES, AlignmentLoss, logits_kl
from bioxbridge.selection import Positions
from papers_shared.errors import require_positive


class BridgeModule(lightning.LightningModule):
    """Trains the bridge alone: batches are (pooled new features, old last hidden state, logits).

    Both come from one pass over the frozen models, so a step runs the bridge and the old model's
    tail and nothing else. Call `connect` before fitting.

    Args:
        bridge: `prototype` is the paper's; `low_rank`, `full_rank` and `mlp` are ablations that
            write the hidden state directly; `per_token` reads tokens and not their mean, for
            outputs along time.
        rank: rank of the aggregation weights, or of the low-rank bridge.
        hidden: units of the MLP bridge.
        prototypes: number of prototypes.
        prototype_init: `real` draws tokens of the old model on the pairs (as in the paper's text),
            `normal` draws noise (as in the published scripts), `kmeans` takes cluster centres.
        output_init: `zeros` starts at a hidden state of zero (published), `small` does not.
        standardise_input: z-score what the bridge reads over the pairs (not in the paper).
        mean_output: start from the old model's mean hidden state (not in the paper).
        loss: alignment loss, see `bioxbridge.losses`.
        align_at: compare at the old model's `last` block (published), or at the `bridge` output.
        kl_weight: weight of an added KL between the bridged and the teacher's logits; 0 is
            published.
        temperature: of that KL.
        learning_rate: Adam's, constant.
    """

    def __init__(
        self,
        *,
        bridge: Literal["prototype", "low_rank", "full_rank", "mlp", "per_token"] = "prototype",
        rank: int = 16,
        hidden: int = 64,
        prototypes: int = 50,
        prototype_init: PrototypeInit = "real",
        output_init: OutputInit = "zeros",
        standardise_input: bool = False,
        mean_output: bool = False,
        loss: AlignmentLoss = "cosine",
        align_at: Literal["last", "bridge"] = "last",
        kl_weight: float = 0.0,
        temperature: float = 2.0,
        learning_rate: float = 1e-3,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if kl_weight < 0:
            raise ValueError(f"model.kl_weight: {kl_weight} is below 0")
        prototype = {
            "rank": rank,
            "prototypes": prototypes,
            "output_init": output_init,
            "standardise_input": standardise_input,
            "mean_output": mean_output,
        }
        self.own_settings: dict[str, Any] = {
            "prototype": prototype,
            "per_token": prototype,
            "low_rank": {"rank": rank},
            "full_rank": {},
            "mlp": {"hidden": hidden},
        }[bridge]
        self.kind = bridge
        self.reads = BRIDGES[bridge].reads
        self.prototype_init: PrototypeInit = prototype_init
        self.align_at = align_at
        self.alignment = ALIGNMENT_LOSSES[loss]
        self.kl_weight = kl_weight
        self.rank = rank
        self.hidden = hidden
        self.prototypes = prototypes
        self.temperature = temperature
        self.learning_rate = learning_rate
        positive = ("rank", "hidden", "prototypes", "temperature", "learning_rate")
        require_positive("model", self, *positive)
        # A checkpoint holds the bridge; the frozen models come from their own folders.
        self.strict_loading = False

    def connect(
        self,
        *,
        new: BlockModel,
        old: TaskModel,
        positions: Positions,
        read: Tensor,
        old_hidden: Tensor,
        seed: int = 0,
    ) -> BridgeModule:
        """Build the bridge between two frozen models.

        Args:
            new: model of the new modality.
            old: task model of the old modality.
            positions: where the bridge reads and writes.
            read: output of the new block on the pairs: pooled (N, d_m), or tokens (N, T_m, d_m)
                for a bridge that reads those.
            old_hidden: (N, T, D) input of the old block on the pairs, or on a part of them.
            seed: of the bridge's initial weights.

        Raises:
            ValueError: fewer old tokens than prototypes, or models that do not fit.
        """
        self.check_prototypes(old_hidden.shape[0] * old_hidden.shape[1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            bridge = BRIDGES[self.kind](
                input_width=read.shape[-1],
                tokens=old_hidden.shape[1],
                output_width=old_hidden.shape[2],
                **self.own_settings,
            )
        if isinstance(bridge, PrototypeBridge):
            bridge.calibrate(read, old_hidden)
            initialise_prototypes(bridge, old_hidden, self.prototype_init, seed=seed)
        self.positions = positions
        self.bridged = BridgedModel(
            new=new,
            old=old,
            bridge=bridge,
            new_block=positions.new_block,
            old_block=positions.old_block,
        )
        return self

    def check_prototypes(self, tokens: int) -> None:
        """Refuse more prototypes than there are tokens of the old model to draw them from.

        Raises:
            ValueError: there are fewer.
        """
        drawn = "prototypes" in self.own_settings and self.prototype_init != "normal"
        if drawn and self.prototypes > tokens:
            raise ValueError(
                f"model.prototypes: {self.prototypes} are more than the {tokens} tokens of pairs"
            )

    def _loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Loss, and the logits where they were needed for it."""
        pooled, target, teacher_logits = batch
        produced = self.bridged.bridge(pooled)
        if self.align_at == "bridge" and not self.kl_weight:
            return self.alignment(produced, target), None
        last = self.bridged.old.encoder.forward_from(produced, self.bridged.old_block)
        loss = self.alignment(last if self.align_at == "last" else produced, target)
        if not self.kl_weight:
            return loss, None
        logits = self.bridged.old.read_out(last)
        return loss + self.kl_weight * logits_kl(logits, teacher_logits, self.temperature), logits

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> Tensor:
        """Loss of one batch."""
        loss, _ = self._loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> None:
        """Alignment loss and agreement with the teacher: neither needs a label."""
        loss, logits = self._loss(batch)
        logits = self.bridged.from_pooled(batch[0]) if logits is None else logits
        self.log("val_loss", loss, sync_dist=True)
        log_agreement(self, logits, batch[2])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over the bridge."""
        return torch.optim.Adam(self.bridged.bridge.parameters(), lr=self.learning_rate, fused=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the bridge and its place, not the frozen models."""
        checkpoint["state_dict"] = {
            name: value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("bridged.bridge.")
        }
        checkpoint["positions"] = self.positions.as_dict()
        checkpoint["frozen"] = self.bridged.fingerprint()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the checkpoint of another bridge.

        Raises:
            ValueError: it was trained between other blocks, or has other sizes.
        """
        stored, own = checkpoint.get("positions"), self.positions
        if stored is None:
            raise ValueError("ckpt_path: is no checkpoint of a bridge")
        for name in ("new_block", "old_block"):
            if stored[name] != getattr(own, name):
                raise ValueError(
                    f"ckpt_path: trained at {name} {stored[name]}, this run selected "
                    f"{getattr(own, name)}"
                )
        if checkpoint.get("frozen") != self.bridged.fingerprint():
            raise ValueError("ckpt_path: was trained between other frozen models")
        weights = self.state_dict()
        for name, value in checkpoint["state_dict"].items():
            if name not in weights or weights[name].shape != value.shape:
                here = tuple(weights[name].shape) if name in weights else "nothing"
                raise ValueError(f"ckpt_path: {name} is {tuple(value.shape)}, here {here}")
        for name in weights:
            if name.startswith("bridged.bridge.") and name not in checkpoint["state_dict"]:
                raise ValueError(f"ckpt_path: lacks {name}")


def log_agreement(module: lightning.LightningModule, logits: Tensor, teacher: Tensor) -> None:
    """Log `val_agreement`, the share of windows on which two sets of logits agree, in percent."""
    same = (logits.argmax(dim=-1) == teacher.argmax(dim=-1)).float().mean()
    module.log("val_agreement", 100 * same, batch_size=len(logits), sync_dist=True)


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor, *, batch_size: int = 512) -> np.ndarray:
    """Predicted classes (N,) of a model that returns logits."""
    return np.concatenate(
        [model(batch).argmax(dim=-1).cpu().numpy() for batch in inputs.split(batch_size)]
    )
