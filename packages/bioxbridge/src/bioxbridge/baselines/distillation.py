"""Students of the new modality that a frozen old model teaches: the paper's main rivals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import lightning
import torch
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.frozen import FrozenFeatures
from bioxbridge.losses import infonce, logits_kl
from bioxbridge.module import log_agreement
from bioxbridge.windows import Pairs
from papers_shared.errors import require_positive
from papers_shared.seeds import seeded

DistillationKind = Literal["logits", "contrast"]


@dataclass(kw_only=True)
class DistillationOptions:
    """The students that the bridge is compared with.

    Args:
        kinds: `logits`, `contrast`, both or none.
        epochs: passes over the pairs; the default equals the bridge's own.
        learning_rate: Adam's.
        batch_size: windows per step.
    """

    kinds: tuple[DistillationKind, ...] = ("logits", "contrast")
    epochs: int = 40
    learning_rate: float = 1e-3
    batch_size: int = 64

    def __post_init__(self) -> None:
        require_positive("distillation", self, "epochs", "learning_rate", "batch_size")


class Rescale(nn.Module):
    """Bring every row (B, D) to one norm, so that a head reads features of the size it knows."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, pooled: Tensor) -> Tensor:
        """Rows of norm `norm`."""
        return self.norm * nn.functional.normalize(pooled, dim=-1)


def new_student(
    new: BlockModel,
    old: TaskModel,
    *,
    kind: DistillationKind,
    new_width: int,
    teacher_pooled: Tensor,
    teacher_logits: Tensor,
    seed: int,
) -> TaskModel:
    """A trainable copy of the new model with the head that its kind of distillation needs.

    Args:
        new: frozen model of the new modality; copied.
        old: the teacher.
        kind: `logits` adds a new linear head; `contrast` adds a projection onto the teacher's
            feature space, rescaled to its mean norm, and the teacher's own frozen head.
        new_width: width of the new model's last block.
        teacher_pooled: (N, D) pooled features of the teacher on the pairs.
        teacher_logits: (N, C).
        seed: of the new weights.
    """
    encoder = copy.deepcopy(new)
    encoder.frozen = False
    encoder.requires_grad_(True).train()
    with seeded(seed):
        if kind == "logits":
            head: nn.Module = nn.Linear(new_width, teacher_logits.shape[1])
        else:
            head = nn.Sequential(
                nn.Linear(new_width, teacher_pooled.shape[1]),
                Rescale(float(teacher_pooled.norm(dim=-1).mean())),
                copy.deepcopy(old.head).requires_grad_(False),
            )
    return TaskModel(encoder, head)


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


def distil(
    kind: DistillationKind,
    pairs: tuple[Pairs, FrozenFeatures],
    val: tuple[Pairs, FrozenFeatures],
    options: DistillationOptions,
    *,
    new: BlockModel,
    old: TaskModel,
    stage: str,
    seed: int,
    new_trainer: Callable[..., lightning.Trainer],
) -> TaskModel:
    """Train a student and keep its best epoch by agreement with the teacher on `val`."""
    student = new_student(
        new,
        old,
        kind=kind,
        new_width=pairs[1].new_pooled[-1].shape[1],
        teacher_pooled=pairs[1].last_pooled,
        teacher_logits=pairs[1].logits,
        seed=seed,
    )
    rows, val_rows = (
        (windows.new, features.last_pooled, features.logits) for windows, features in (pairs, val)
    )
    with seeded(seed):
        trainer = new_trainer(stage, epochs=options.epochs, callbacks=[KeepBest("val_agreement")])
        trainer.fit(
            DistillationModule(student, kind=kind, learning_rate=options.learning_rate),
            row_loader(*rows, batch_size=options.batch_size, shuffle=True, seed=seed),
            row_loader(*val_rows, batch_size=512),
        )
    return student.eval()
