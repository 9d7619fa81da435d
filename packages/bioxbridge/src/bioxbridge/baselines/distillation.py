"""Students of the new modality that a frozen old model teaches: the paper's main rivals."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel

DistillationKind = Literal["logits", "contrast"]


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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "logits":
            head: nn.Module = nn.Linear(new_width, teacher_logits.shape[1])
        else:
            head = nn.Sequential(
                nn.Linear(new_width, teacher_pooled.shape[1]),
                Rescale(float(teacher_pooled.norm(dim=-1).mean())),
                copy.deepcopy(old.head).requires_grad_(False),
            )
    return TaskModel(encoder, head)
