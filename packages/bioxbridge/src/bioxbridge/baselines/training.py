"""Training of every baseline on one transfer problem, by one budget and one choice of epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import lightning
from torch import Tensor, nn

from bioxbridge.baselines.distillation import DistillationModule, new_student
from bioxbridge.baselines.probe import PseudoLabelProbe
from bioxbridge.baselines.translation import TranslatedModel, TranslationModule, Translator
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.frozen import Transfer
from bioxbridge.lora import add_lora
from papers_shared.errors import require_positive
from papers_shared.seeds import seeded

Baseline = Literal["probe", "logits", "feature", "contrast", "lora", "translation"]


@dataclass(kw_only=True)
class BaselineOptions:
    """The methods that the bridge is compared with, and their budget.

    Args:
        arms: `probe` on pseudo labels, students taught by `logits`, `feature` or `contrast`, the
            `lora` student taught by logits, `translation` of the data; any of them.
        epochs: passes over the pairs; the default equals the bridge's own.
        learning_rate: Adam's.
        batch_size: windows per step.
        lora_rank: rank of the LoRA student's added weights.
    """

    arms: tuple[Baseline, ...] = ("logits", "feature", "contrast", "lora", "translation", "probe")
    epochs: int = 25
    learning_rate: float = 1e-3
    batch_size: int = 64
    lora_rank: int = 8

    def __post_init__(self) -> None:
        positive = ("epochs", "learning_rate", "batch_size", "lora_rank")
        require_positive("baselines", self, *positive)
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"baselines.arms: {list(self.arms)} names one twice")


def train_baseline(
    arm: Baseline,
    transfer: Transfer,
    options: BaselineOptions,
    *,
    stage: str,
    seed: int,
    new_trainer: Callable[..., lightning.Trainer],
) -> nn.Module:
    """Train one baseline; its best epoch is that of highest agreement with the teacher on `val`.

    Args:
        arm: which one.
        transfer: the models and the pairs.
        options: budget.
        stage: name for the log.
        seed: of weights and order.
        new_trainer: makes a trainer from a stage name and options.

    Returns:
        A model from new inputs to logits (B, C), in evaluation mode; what was trained of it
        requires gradients.

    Raises:
        ValueError: the teacher predicts one class only, or `lora` lacks its library.
    """
    pair = transfer.features["pair"]
    if arm == "probe":
        block = transfer.positions.new_block
        probe = PseudoLabelProbe(transfer.new, block)
        pooled, classes = pair.new_pooled[block], pair.logits.shape[1]
        return probe.fit(pooled, pair.pseudo_labels, classes).eval()
    with seeded(seed):
        module, model = _module(arm, transfer, options, seed)
        trainer = new_trainer(stage, epochs=options.epochs, callbacks=[KeepBest("val_agreement")])
        train, val = (_rows(arm, transfer, part) for part in ("pair", "val"))
        trainer.fit(
            module,
            row_loader(*train, batch_size=options.batch_size, shuffle=True, seed=seed),
            row_loader(*val, batch_size=512),
        )
    return model.eval()


def _module(
    arm: Baseline, transfer: Transfer, options: BaselineOptions, seed: int
) -> tuple[lightning.LightningModule, nn.Module]:
    rate = options.learning_rate
    if arm == "translation":
        old = transfer.pairs["pair"].old
        translator = Translator(
            features=transfer.pairs["pair"].new.shape[2],
            out_features=old.shape[2],
            out_tokens=old.shape[1],
        )
        model = TranslatedModel(translator, transfer.old)
        return TranslationModule(model, learning_rate=rate), model
    kind = "logits" if arm == "lora" else arm
    student = new_student(kind, transfer, seed=seed)
    if arm == "lora":
        student.encoder = add_lora(student.encoder, rank=options.lora_rank, seed=seed)
    return DistillationModule(student, kind=kind, learning_rate=rate), student


def _rows(arm: Baseline, transfer: Transfer, part: str) -> tuple[Tensor, ...]:
    pairs, features = transfer.pairs[part], transfer.features[part]
    target = pairs.old if arm == "translation" else features.last_pooled
    return pairs.new, target, features.logits
