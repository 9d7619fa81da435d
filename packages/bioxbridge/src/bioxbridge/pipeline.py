"""The steps around the bridge: encoders, task models, students, and the frozen models' features."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import lightning
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationKind, new_student
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states, token_states
from bioxbridge.module import (
    BridgeModule,
    ClassifierModule,
    DistillationModule,
    PretrainModule,
    inverse_frequency,
)
from bioxbridge.selection import Positions, select_positions
from bioxbridge.windows import UNLABELLED, Pairs

NewTrainer = Callable[..., lightning.Trainer]


@dataclass(kw_only=True)
class PretrainOptions:
    """Masked reconstruction of each modality's encoder, on train and pair windows, no labels.

    Args:
        epochs: passes over the windows.
        width: encoder width.
        depth: encoder blocks.
        heads: attention heads.
        mask_probability: share of masked tokens.
        learning_rate: highest rate of the one-cycle schedule.
        batch_size: windows per step.
        worst_error: highest reconstruction error, relative to the variance, with which an encoder
            counts as pretrained; a run with a worse one stops. Null lets any pass.
    """

    epochs: int = 20
    width: int = 48
    depth: int = 4
    heads: int = 4
    mask_probability: float = 0.5
    learning_rate: float = 2e-3
    batch_size: int = 64
    worst_error: float | None = 0.95


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


def pretrain_encoder(
    tokens: Tensor,
    val_tokens: Tensor,
    options: PretrainOptions,
    *,
    stage: str,
    seed: int,
    new_trainer: NewTrainer,
) -> tuple[SignalEncoder, float]:
    """Pretrain one encoder.

    Args:
        tokens: (N, T, F) unlabelled windows.
        val_tokens: (M, T, F) windows of other subjects.
        options: sizes and budget.
        stage: name for the log.
        seed: of weights, masks and order.
        new_trainer: makes a trainer from a stage name and options.

    Returns:
        The encoder and its masked reconstruction error on `val_tokens`, relative to their variance.
    """
    with _seeded(seed):
        encoder = SignalEncoder(
            features=tokens.shape[2],
            tokens=tokens.shape[1],
            width=options.width,
            depth=options.depth,
            heads=options.heads,
        )
        module = PretrainModule(
            encoder,
            mask_probability=options.mask_probability,
            learning_rate=options.learning_rate,
        )
        trainer = new_trainer(stage, epochs=options.epochs, gradient_clip_val=1.0)
        trainer.fit(
            module, row_loader(tokens, batch_size=options.batch_size, shuffle=True, seed=seed)
        )
    return encoder, module.relative_error(val_tokens)


def train_task_model(
    encoder: SignalEncoder,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    options: TaskOptions,
    *,
    classes: int,
    stage: str,
    seed: int,
    new_trainer: NewTrainer,
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
        with _seeded(seed):
            own = _as_blocks(_clone(encoder))
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


@dataclass(kw_only=True)
class FrozenFeatures:
    """What the frozen models say of one set of pairs; each model has run once.

    Attributes:
        new_pooled: output of each new block, pooled, (N, D).
        old_pooled: input of each old block, pooled, (N, D).
        last_pooled: output of the last old block, pooled, (N, D).
        logits: the old task model's, (N, C).
    """

    new_pooled: list[Tensor]
    old_pooled: list[Tensor]
    last_pooled: Tensor
    logits: Tensor

    @classmethod
    def of(cls, pairs: Pairs, *, new: BlockModel, old: TaskModel) -> FrozenFeatures:
        """Run both models over the pairs."""
        old_states = pooled_states(old.encoder, pairs.old)
        with torch.no_grad():
            logits = old.head(old_states[-1])
        return cls(
            new_pooled=pooled_states(new, pairs.new, range(1, new.depth + 1)),
            old_pooled=old_states[:-1],
            last_pooled=old_states[-1],
            logits=logits,
        )

    @property
    def pseudo_labels(self) -> np.ndarray:
        """Classes that the old task model predicts, (N,)."""
        return self.logits.argmax(dim=-1).numpy()

    def select(self, subjects: np.ndarray) -> Positions:
        """Two-stage selection on these pairs."""
        return select_positions(
            new_features=self.new_pooled,
            old_features=self.old_pooled,
            pseudo_labels=self.pseudo_labels,
            groups=subjects,
        )


def bridge_rows(
    pairs: Pairs, features: FrozenFeatures, *, old: TaskModel, positions: Positions, align_at: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Batches' content for `BridgeModule`: pooled new features, alignment targets, logits."""
    place = old.encoder.depth if align_at == "last" else positions.old_block
    (target,) = token_states(old.encoder, pairs.old, [place])
    return features.new_pooled[positions.new_block], target, features.logits


def connect_bridge(
    module: BridgeModule,
    pairs: Pairs,
    features: FrozenFeatures,
    *,
    new: BlockModel,
    old: TaskModel,
    positions: Positions,
    seed: int,
) -> BridgeModule:
    """Build the bridge of `module` with prototypes and statistics from the pairs."""
    (old_hidden,) = token_states(old.encoder, pairs.old, [positions.old_block])
    return module.connect(
        new=new,
        old=old,
        positions=positions,
        new_pooled=features.new_pooled[positions.new_block],
        old_hidden=old_hidden,
        seed=seed,
    )


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
    new_trainer: NewTrainer,
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
    with _seeded(seed):
        trainer = new_trainer(stage, epochs=options.epochs, callbacks=[KeepBest("val_agreement")])
        trainer.fit(
            DistillationModule(student, kind=kind, learning_rate=options.learning_rate),
            row_loader(*rows, batch_size=options.batch_size, shuffle=True, seed=seed),
            row_loader(*val_rows, batch_size=512),
        )
    return student.eval()


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
    return TaskModel(_as_blocks(encoder), head).freeze()


def as_block_model(encoder: SignalEncoder) -> BlockModel:
    """A frozen `SignalEncoder` as a model of blocks."""
    return _as_blocks(encoder).freeze()


def _as_blocks(encoder: SignalEncoder) -> BlockModel:
    return BlockModel(encoder, "blocks")


def _clone(encoder: SignalEncoder) -> SignalEncoder:
    clone = SignalEncoder(**encoder.sizes)
    clone.load_state_dict(encoder.state_dict())
    return clone


def _labelled(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    known = labels != UNLABELLED
    if not known.any():
        raise ValueError("labels: no window of this split is labelled")
    return inputs[known], labels[known]


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from one seed inside, untouched outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
