"""Data translation: a small network writes the old modality's input, which the old model reads.

The idea of CardioGAN and its kin, without an adversary: with a thousand windows a squared error on
simultaneous pairs is what can be trained.
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bioxbridge.adapters import TaskModel
from bioxbridge.module import log_agreement


class Translator(nn.Module):
    """Three convolutions along time with a residual middle, (B, T, F) to (B, T', F').

    Args:
        features: F of the new modality's tokens (or channels of its signal).
        out_features: F' of the old modality's.
        out_tokens: T'; the output is interpolated along time where T differs.
        hidden: channels between the convolutions.
    """

    def __init__(
        self, *, features: int, out_features: int, out_tokens: int, hidden: int = 64
    ) -> None:
        super().__init__()
        self.out_tokens = out_tokens
        self.first = nn.Conv1d(features, hidden, 3, padding=1)
        self.middle = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.last = nn.Conv1d(hidden, out_features, 3, padding=1)

    def forward(
        self, inputs: Float[Tensor, "batch tokens features"]
    ) -> Float[Tensor, "batch out_tokens out_features"]:
        """The old modality's tokens."""
        hidden = F.gelu(self.first(inputs.transpose(1, 2)))
        hidden = self.last(hidden + F.gelu(self.middle(hidden)))
        if hidden.shape[-1] != self.out_tokens:
            hidden = F.interpolate(hidden, self.out_tokens, mode="linear", align_corners=False)
        return hidden.transpose(1, 2)


class TranslatedModel(nn.Module):
    """New inputs through a translator into the frozen old task model: logits (B, C)."""

    def __init__(self, translator: Translator, old: TaskModel) -> None:
        super().__init__()
        self.translator = translator
        self.old = old

    def forward(self, inputs: Tensor) -> Float[Tensor, "batch classes"]:
        """Logits (B, C)."""
        return self.old(self.translator(inputs))


class TranslationModule(lightning.LightningModule):
    """Trains a translator: batches are (new inputs, old inputs, teacher's logits).

    Args:
        model: its translator is trained.
        learning_rate: Adam's, constant.
    """

    def __init__(self, model: TranslatedModel, *, learning_rate: float = 1e-3) -> None:
        super().__init__()
        self.model = model
        self.learning_rate = learning_rate

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> Tensor:
        """Squared error on the old modality's tokens."""
        loss = F.mse_loss(self.model.translator(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_index: int) -> None:
        """Agreement with the teacher, in percent: needs no label."""
        log_agreement(self, self.model(batch[0]), batch[2])

    def configure_optimizers(self) -> Any:
        """Adam over the translator."""
        return torch.optim.Adam(
            self.model.translator.parameters(), lr=self.learning_rate, fused=True
        )
