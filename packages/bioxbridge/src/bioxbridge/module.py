"""Lightning modules: what is trained, on which batches, by which loss."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import lightning
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationKind
from bioxbridge.bridge import (
    OutputInit,
    PrototypeBridge,
    PrototypeInit,
    initialise_prototypes,
)
from bioxbridge.bridge_variants import BRIDGES
from bioxbridge.bridged import BridgedModel
from bioxbridge.encoder import SignalEncoder
from bioxbridge.losses import ALIGNMENT_LOSSES, AlignmentLoss, infonce, logits_kl
from bioxbridge.metrics import classification_scores
from bioxbridge.selection import Positions


class PretrainModule(lightning.LightningModule):
    """Masked reconstruction: batches are tokens (B, T, F), no labels.

    AdamW with a one-cycle rate; the loss is the squared error on masked tokens alone.

    Args:
        encoder: trained in place.
        mask_probability: share of tokens that are masked, in (0, 1).
        learning_rate: highest rate of the cycle.
        weight_decay: AdamW's.
    """

    def __init__(
        self,
        encoder: SignalEncoder,
        *,
        mask_probability: float = 0.5,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-3,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.mask_probability = mask_probability
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        width, features = encoder.sizes["width"], encoder.sizes["features"]
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, features))

    def _errors(self, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Squared errors (M, F) on the masked tokens."""
        chance = torch.rand(tokens.shape[:2], device=tokens.device, generator=generator)
        masked = chance < self.mask_probability
        masked[0, 0] |= ~masked.any()
        reconstructed = self.decoder(self.encoder(tokens, masked)[masked])
        return (reconstructed - tokens[masked]).square()

    def training_step(self, batch: tuple[Tensor], batch_index: int) -> Tensor:
        """Loss of one batch."""
        loss = self._errors(batch[0]).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW and a one-cycle schedule over the whole training."""
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.learning_rate, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    @torch.no_grad()
    def relative_error(self, tokens: Tensor, *, seed: int = 0) -> float:
        """Reconstruction error over the variance of the tokens; 1 means nothing was learned."""
        generator = torch.Generator(tokens.device).manual_seed(seed)
        error = self._errors(tokens, generator).mean()
        return float(error / tokens.var(dim=(0, 1), correction=0).mean())


class ClassifierModule(lightning.LightningModule):
    """Supervised training of a model that returns logits: batches are (inputs, labels).

    Args:
        model: trained in place, in so far as it requires gradients.
        learning_rate: Adam's, constant.
        class_weights: (C,) weights of the cross-entropy; none by default.
    """

    def __init__(
        self, model: nn.Module, *, learning_rate: float, class_weights: Tensor | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.learning_rate = learning_rate
        self.register_buffer("class_weights", class_weights, persistent=False)
        self._seen: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> Tensor:
        """Loss of one batch."""
        inputs, labels = batch
        loss = F.cross_entropy(self.model(inputs), labels, weight=self.class_weights)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        """Note predictions."""
        inputs, labels = batch
        self._seen.append((labels.cpu(), self.model(inputs).argmax(dim=-1).cpu()))

    def on_validation_epoch_end(self) -> None:
        """Log balanced accuracy, in percent."""
        labels, predicted = (torch.cat(column).numpy() for column in zip(*self._seen, strict=True))
        self._seen.clear()
        self.log("val_bacc", classification_scores(labels, predicted)["balanced_accuracy"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over what requires gradients."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, lr=self.learning_rate)


def inverse_frequency(labels: Tensor, classes: int) -> Tensor:
    """Class weights proportional to 1 / count with mean 1 over the classes that occur, (C,)."""
    counts = torch.bincount(labels, minlength=classes).float()
    weights = torch.where(counts > 0, 1 / counts.clamp(min=1), 0)
    return weights * (counts > 0).sum() / weights.sum()


class DistillationModule(lightning.LightningModule):
    """A full student of the new modality taught by the frozen old model, the bridge's rival.

    Batches are (new inputs, teacher's pooled features, teacher's logits).

    Args:
        student: task model of the new modality; every weight is trained.
        kind: `logits` matches the teacher's logits (KL at temperature 2); `contrast` matches
            pooled features by InfoNCE, and the teacher's head reads the projected student.
        learning_rate: Adam's, constant.
        temperature: of the logits loss.
    """

    def __init__(
        self,
        student: TaskModel,
        *,
        kind: DistillationKind = "logits",
        learning_rate: float = 1e-3,
        temperature: float = 2.0,
    ) -> None:
        super().__init__()
        self.student = student
        self.kind: DistillationKind = kind
        self.learning_rate = learning_rate
        self.temperature = temperature

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> Tensor:
        """Loss of one batch."""
        inputs, teacher_pooled, teacher_logits = batch
        if self.kind == "contrast":
            projected = self.student.head[0](self.student.encoder(inputs).mean(dim=1))
            loss = infonce(projected.unsqueeze(1), teacher_pooled.unsqueeze(1))
        else:
            loss = logits_kl(self.student(inputs), teacher_logits, self.temperature)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> None:
        """Agreement with the teacher, in percent: needs no label."""
        inputs, _, teacher_logits = batch
        log_agreement(self, self.student(inputs), teacher_logits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over the student."""
        trained = [p for p in self.student.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, lr=self.learning_rate)


class BridgeModule(lightning.LightningModule):
    """Trains the bridge alone: batches are (pooled new features, old last hidden state, logits).

    Both come from one pass over the frozen models, so a step runs the bridge and the old model's
    tail and nothing else. Call `connect` before fitting.

    Args:
        bridge: `prototype` is the paper's; `low_rank`, `full_rank` and `mlp` are ablations that
            write the hidden state directly.
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
        bridge: Literal["prototype", "low_rank", "full_rank", "mlp"] = "prototype",
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
        if kl_weight < 0 or learning_rate <= 0 or temperature <= 0:
            raise ValueError(
                f"kl_weight {kl_weight}, learning_rate {learning_rate} and temperature "
                f"{temperature} must be at least 0, above 0 and above 0"
            )
        self.own_settings: dict[str, Any] = {
            "prototype": {
                "rank": rank,
                "prototypes": prototypes,
                "output_init": output_init,
                "standardise_input": standardise_input,
                "mean_output": mean_output,
            },
            "low_rank": {"rank": rank},
            "full_rank": {},
            "mlp": {"hidden": hidden},
        }[bridge]
        self.kind = bridge
        self.prototype_init: PrototypeInit = prototype_init
        self.align_at = align_at
        self.alignment = ALIGNMENT_LOSSES[loss]
        self.kl_weight = kl_weight
        self.temperature = temperature
        self.learning_rate = learning_rate
        # A checkpoint holds the bridge; the frozen models come from their own folders.
        self.strict_loading = False

    def connect(
        self,
        *,
        new: BlockModel,
        old: TaskModel,
        positions: Positions,
        new_pooled: Tensor,
        old_hidden: Tensor,
        seed: int = 0,
    ) -> BridgeModule:
        """Build the bridge between two frozen models.

        Args:
            new: model of the new modality.
            old: task model of the old modality.
            positions: where the bridge reads and writes.
            new_pooled: (N, d_m) pooled output of the new block on the pairs.
            old_hidden: (N, T, D) input of the old block on the pairs, or on a part of them.
            seed: of the bridge's initial weights.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            bridge = BRIDGES[self.kind](
                input_width=new_pooled.shape[1],
                tokens=old_hidden.shape[1],
                output_width=old_hidden.shape[2],
                **self.own_settings,
            )
        if isinstance(bridge, PrototypeBridge):
            bridge.calibrate(new_pooled, old_hidden)
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
        return torch.optim.Adam(self.bridged.bridge.parameters(), lr=self.learning_rate)

    def fingerprint(self) -> str:
        """A hash of the frozen models' weights, between which alone a bridge means something."""
        digest = hashlib.sha256()
        for name, value in self.bridged.state_dict().items():
            if not name.startswith("bridge."):
                digest.update(name.encode())
                digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the bridge and its place, not the frozen models."""
        checkpoint["state_dict"] = {
            name: value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith("bridged.bridge.")
        }
        checkpoint["positions"] = self.positions.as_dict()
        checkpoint["frozen"] = self.fingerprint()

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
        if checkpoint.get("frozen") != self.fingerprint():
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
