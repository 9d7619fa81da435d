"""The task model of one modality: a head on a pretrained encoder, probed or fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states
from bioxbridge.lora import add_lora, merge_lora
from bioxbridge.metrics import classification_scores
from bioxbridge.stored import load_state, read_config, save_state, write_config
from bioxbridge.windows import UNLABELLED
from papers_shared.errors import require_positive
from papers_shared.measure import count_parameters
from papers_shared.seeds import seeded

_HEAD = "bioxbridge.Head"

Mode = Literal["probe", "tune", "lora"]


@dataclass(kw_only=True)
class TaskOptions:
    """How task models are trained: in each mode asked for, the best one on the val subjects stays.

    Args:
        modes: `probe` fits a head on the frozen encoder, `tune` trains both, `lora` trains the head
            and low-rank terms of the encoder's linear layers.
        probe_epochs: passes of the probe.
        probe_learning_rate: Adam's.
        tune_epochs: passes of the other two.
        tune_learning_rate: Adam's.
        lora_rank: rank of the added terms.
        class_weights: whether the loss weighs classes by inverse frequency.
        batch_size: windows per step.
    """

    modes: tuple[Mode, ...] = ("probe", "tune")
    probe_epochs: int = 30
    probe_learning_rate: float = 1e-2
    tune_epochs: int = 12
    tune_learning_rate: float = 3e-4
    lora_rank: int = 8
    class_weights: bool = True
    batch_size: int = 64

    def __post_init__(self) -> None:
        positive = ("probe_epochs", "probe_learning_rate", "tune_epochs", "tune_learning_rate")
        require_positive("task", self, *positive, "lora_rank", "batch_size")
        if not self.modes:
            raise ValueError("task.modes: names no mode")
        if len(set(self.modes)) < len(self.modes):
            raise ValueError(f"task.modes: {list(self.modes)} names one twice")


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
) -> FittedTask:
    """Train a task model in each mode and keep the one that is best on `val`.

    Args:
        encoder: pretrained; left as it is.
        train: (N, T, F) inputs and (N,) labels; label -1 is left out.
        val: the same of other subjects, with at least one label.
        options: modes and budgets.
        classes: number of classes.
        stage: name for the log.
        seed: of weights and order.
        new_trainer: makes a trainer from a stage name and options.
    """
    (inputs, labels), (val_inputs, val_labels) = _labelled(*train), _labelled(*val)
    weights = inverse_frequency(labels, classes) if options.class_weights else None
    fitted: dict[Mode, FittedTask] = {}
    scores: dict[Mode, float] = {}
    for mode in options.modes:
        probe = mode == "probe"
        with seeded(seed):
            own = BlockModel(_clone(encoder), "blocks")
            task = TaskModel(own, nn.Linear(encoder.sizes["width"], classes))
            if mode == "lora":
                add_lora(own, rank=options.lora_rank, seed=seed)
            x, x_val = inputs, val_inputs
            if probe:
                own.freeze()
                x, x_val = (pooled_states(own, side, [own.depth])[0] for side in (x, x_val))
            best = KeepBest("val_bacc")
            epochs = options.probe_epochs if probe else options.tune_epochs
            trainer = new_trainer(f"{stage} {mode}", epochs=epochs, callbacks=[best])
            trainer.fit(
                ClassifierModule(
                    task.head if probe else task,
                    learning_rate=(
                        options.probe_learning_rate if probe else options.tune_learning_rate
                    ),
                    class_weights=weights,
                ),
                row_loader(x, labels, batch_size=options.batch_size, shuffle=True, seed=seed),
                row_loader(x_val, val_labels, batch_size=512),
            )
        parameters = count_parameters(task, trainable=True)
        if mode == "lora":
            merge_lora(own)
        scores[mode] = float(best.best or 0.0)
        fitted[mode] = FittedTask(task.freeze(), mode, parameters, scores)
    return fitted[max(scores, key=lambda mode: scores[mode])]


class FittedTask(NamedTuple):
    """A trained task model, frozen.

    Attributes:
        model: the task model.
        mode: how it was trained.
        parameters: number of trained ones.
        scores: balanced accuracy on the val subjects by mode, percent.
    """

    model: TaskModel
    mode: Mode
    parameters: int
    scores: dict[Mode, float]


def save_task_model(task: TaskModel, folder: Path) -> None:
    """Write a task model over a `SignalEncoder`."""
    task.encoder.module.save_pretrained(folder)
    sizes = {"features": task.head.in_features, "classes": task.head.out_features}
    save_state(task.head, write_config(folder / "head", _HEAD, sizes) / "head.safetensors")


def load_task_model(folder: Path) -> TaskModel:
    """Load what `save_task_model` wrote, frozen.

    Raises:
        ValueError: a file is damaged or of another kind.
        FileNotFoundError: a file is missing.
    """
    encoder = SignalEncoder.from_pretrained(folder)
    sizes = read_config(folder / "head", _HEAD)
    try:
        head = nn.Linear(sizes["features"], sizes["classes"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'head/config.json'}: describes no head ({error})") from error
    load_state(head, folder / "head/head.safetensors")
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
