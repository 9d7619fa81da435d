"""Students of the new modality that a frozen old model teaches: the paper's main rivals."""

from __future__ import annotations

import copy
from typing import Literal

import lightning
import torch
from torch import Tensor, nn

from bioxbridge.adapters import TaskModel
from bioxbridge.frozen import Transfer
from bioxbridge.losses import cosine, infonce, logits_kl
from bioxbridge.module import log_agreement
from papers_shared.seeds import seeded

DistillationKind = Literal["logits", "feature", "contrast"]


class Rescale(nn.Module):
    """Bring every row (B, D) to one norm, so that a head reads features of the size it knows."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, pooled: Tensor) -> Tensor:
        """Rows of norm `norm`."""
        return self.norm * nn.functional.normalize(pooled, dim=-1)


def new_student(kind: DistillationKind, transfer: Transfer, *, seed: int) -> TaskModel:
    """A trainable copy of the new model with the head that its kind of distillation needs.

    Args:
        kind: `logits` adds a new linear head; `feature` and `contrast` add a projection onto the
            teacher's feature space, rescaled to its mean norm, and the teacher's own frozen head.
        transfer: the models and what they say of the pairs.
        seed: of the new weights.
    """
    encoder = copy.deepcopy(transfer.new)
    encoder.frozen = False
    encoder.requires_grad_(True).train()
    taught = transfer.features["pair"]
    width = taught.new_pooled[-1].shape[1]
    with seeded(seed):
        if kind == "logits":
            head: nn.Module = nn.Linear(width, taught.logits.shape[1])
        else:
            head = nn.Sequential(
                nn.Linear(width, taught.last_pooled.shape[1]),
                Rescale(float(taught.last_pooled.norm(dim=-1).mean())),
                copy.deepcopy(transfer.old.head).requires_grad_(False),
            )
    return TaskModel(encoder, head)


class DistillationModule(lightning.LightningModule):
    """A full student of the new modality taught by the frozen old model, the bridge's rival.

    Batches are (new inputs, teacher's pooled features, teacher's logits).

    Args:
        student: task model of the new modality; every weight is trained.
        kind: `logits` matches the teacher's logits (KL at temperature 2); `feature` matches its
            pooled features by cosine, `contrast` by InfoNCE, and there the teacher's head reads
            the projected student.
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
        if self.kind == "logits":
            loss = logits_kl(self.student(inputs), teacher_logits, self.temperature)
        else:
            projected = self.student.head[0](self.student.encoder(inputs).mean(dim=1))
            match = infonce if self.kind == "contrast" else cosine
            loss = match(projected.unsqueeze(1), teacher_pooled.unsqueeze(1))
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> None:
        """Agreement with the teacher, in percent: needs no label."""
        inputs, _, teacher_logits = batch
        log_agreement(self, self.student(inputs), teacher_logits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over the student."""
        trained = [p for p in self.student.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, lr=self.learning_rate, fused=True)
