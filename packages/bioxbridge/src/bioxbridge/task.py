"""The task model of one modality: a head on a pretrained encoder, probed or fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lightning
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states
from bioxbridge.metrics import classification_scores
from bioxbridge.windows import UNLABELLED
from papers_shared.errors import require_positive
from papers_shared.seeds import seeded


@dataclass(kw_only=True)
class TaskOptions:
    """The task model: a linear probe and a fine-tuned model, the better one on the val subjects.

    Args:
        probe_epochs: passes of the probe on the frozen encoder.
        probe_learning_rate: Adam's.
        tune_epochs: passes of fine-tuning encoder and head; 0 leaves it out.
        tune_learning_rate: Adam's.
        batch_size: windows per step.
    """

    probe_epochs: int = 30
    probe_learning_rate: float = 1e-2
    tune_epochs: int = 12
    tune_learning_rate: float = 3e-4
    batch_size: int = 64

    def __post_init__(self) -> None:
        positive = ("probe_epochs", "probe_learning_rate", "tune_learning_rate", "batch_size")
        require_positive("task", self, *positive)
        if self.tune_epochs < 0:
            raise ValueError(f"task.tune_epochs: {self.tune_epochs} is below 0")


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
        return torch.optim.Adam(trained, lr=self.learning_rate, fused=True)


def inverse_frequency(labels: Tensor, classes: int) -> Tensor:
    """Class weights proportional to 1 / count with mean 1 over the classes that occur, (C,)."""
    counts = torch.bincount(labels, minlength=classes).float()
    weights = torch.where(counts > 0, 1 / counts.clamp(min=1), 0)
    return weights * (counts > 0).sum() / weights.sum()


def train_task_model(
    encoder: SignalEncoder,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    options: TaskOptions,
    *,
    classes: int,
    stage: str,
    seed: int,
    new_trainer: Callable[..., lightning.Trainer],
) -> tuple[TaskModel, dict[str, float]]:
    """Fit a head on a frozen encoder and a fine-tuned model; keep the better on `val`.

    Args:
        encoder: pretrained; left as it is.
        train: (N, T, F) inputs and (N,) labels; label -1 is left out.
        val: the same of other subjects, with at least one label.
        options: budgets.
        classes: number of classes.
        stage: name for the log.
        seed: of weights and order.
        new_trainer: makes a trainer from a stage name and options.

    Returns:
        The task model and the two validation scores, balanced accuracy in percent.
    """
    (inputs, labels), (val_inputs, val_labels) = _labelled(*train), _labelled(*val)
    weights = inverse_frequency(labels, classes)
    scores: dict[str, float] = {}
    candidates: dict[str, TaskModel] = {}
    arms = {"probe": (options.probe_epochs, options.probe_learning_rate)}
    if options.tune_epochs:
        arms["tune"] = (options.tune_epochs, options.tune_learning_rate)
    for arm, (epochs, learning_rate) in arms.items():
        with seeded(seed):
            own = BlockModel(_clone(encoder), "blocks")
            task = TaskModel(own, nn.Linear(encoder.sizes["width"], classes))
            if arm == "probe":
                own.freeze()
                (x,) = pooled_states(own, inputs, [own.depth])
                (x_val,) = pooled_states(own, val_inputs, [own.depth])
                trained: nn.Module = task.head
            else:
                x, x_val, trained = inputs, val_inputs, task
            best = KeepBest("val_bacc")
            trainer = new_trainer(f"{stage} {arm}", epochs=epochs, callbacks=[best])
            trainer.fit(
                ClassifierModule(trained, learning_rate=learning_rate, class_weights=weights),
                row_loader(x, labels, batch_size=options.batch_size, shuffle=True, seed=seed),
                row_loader(x_val, val_labels, batch_size=512),
            )
        scores[arm] = float(best.best or 0.0)
        candidates[arm] = task
    chosen = max(scores, key=lambda arm: scores[arm])
    return candidates[chosen].freeze(), scores


def save_task_model(task: TaskModel, folder: Path) -> None:
    """Write a task model over a `SignalEncoder`."""
    task.encoder.module.save_pretrained(folder)
    save_file(task.head.state_dict(), folder / "head.safetensors")


def load_task_model(folder: Path) -> TaskModel:
    """Load what `save_task_model` wrote, frozen."""
    encoder = SignalEncoder.from_pretrained(folder)
    weights = load_file(folder / "head.safetensors")
    head = nn.Linear(weights["weight"].shape[1], weights["weight"].shape[0])
    head.load_state_dict(weights)
    return TaskModel(BlockModel(encoder, "blocks"), head).freeze()


def _clone(encoder: SignalEncoder) -> SignalEncoder:
    clone = SignalEncoder(**encoder.sizes)
    clone.load_state_dict(encoder.state_dict())
    return clone


def _labelled(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    known = labels != UNLABELLED
    if not known.any():
        raise ValueError("labels: no window of this split is labelled")
    return inputs[known], labels[known]
