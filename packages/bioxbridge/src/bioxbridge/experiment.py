"""One split by subject: encoders, task models, selection, bridge, baselines, scores.

Every preparatory step is a stage of the run folder, so an interrupted run does not repeat it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Trainer
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationKind, DistillationOptions, distil
from bioxbridge.baselines.probe import PseudoLabelProbe
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import BiosignalData
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import token_states
from bioxbridge.frozen import FrozenFeatures, frozen_encoder
from bioxbridge.metrics import agreement, classification_scores, confusion
from bioxbridge.module import BridgeModule, predict
from bioxbridge.pretraining import PretrainOptions, pretrain_encoder
from bioxbridge.selection import Positions
from bioxbridge.task import TaskOptions, load_task_model, save_task_model, train_task_model
from bioxbridge.windows import Pairs
from papers_shared.errors import UserError, bad_input
from papers_shared.measure import Cost, count_parameters
from papers_shared.run_folder import RunFolder
from papers_shared.seeds import derive_seed, seeded


@dataclass(kw_only=True)
class Experiment:
    """What all splits of a run have in common.

    Attributes:
        data: recordings of the two modalities.
        pretrain: how the encoders are pretrained.
        task: how the task models are trained.
        distillation: how the students are trained.
        run: folder that keeps the stages.
        seed: of the run; every step derives its own.
        stage_trainer: makes the trainer of a preparatory step.
        bridge_trainer: makes the trainer of the bridge from a stage name.
        checkpoint_of: checkpoint from which a stage's bridge goes on, or None.
        leader: false in the processes of a distributed run that follow the first one.
    """

    data: BiosignalData
    pretrain: PretrainOptions
    task: TaskOptions
    distillation: DistillationOptions
    run: RunFolder
    seed: int
    stage_trainer: Callable[..., Trainer]
    bridge_trainer: Callable[[str], Trainer]
    checkpoint_of: Callable[[str], Path | None]
    leader: bool = True

    def run_split(self, number: int, model: BridgeModule) -> dict[str, Any]:
        """Everything on one split.

        Args:
            number: seed of the split.
            model: the bridge, not yet connected.

        Returns:
            `rows` (scores and cost by method), `positions`, and what the report says of the
            split; empty in a process that is not the leader.

        Raises:
            UserError: the recordings cannot be used, or an encoder did not pretrain.
        """
        return _Split(self, number).compare(model)


class _Split:
    """The state of one split, filled from top to bottom by `compare`."""

    parts: dict[str, Pairs]
    new: BlockModel
    old: TaskModel
    features: dict[str, FrozenFeatures]
    positions: Positions

    def __init__(self, experiment: Experiment, number: int) -> None:
        self.experiment = experiment
        self.number = number
        self.data = experiment.data
        with bad_input():
            self.parts = self.data.split(number)
        self.classes = self.data.pairs().classes
        self.content = {part: pairs.fingerprint() for part, pairs in self.parts.items()}

    def compare(self, model: BridgeModule) -> dict[str, Any]:
        old_name, new_name = self.data.old, self.data.new
        new_encoder, new_error = self._encoder("new")
        old_encoder, old_error = self._encoder("old")
        reconstruction = {old_name: old_error, new_name: new_error}
        self._check_encoders(reconstruction)
        self.old, old_cost = self._task_model("old", old_encoder)
        oracle, oracle_cost = self._task_model("new", new_encoder)
        self.new = frozen_encoder(new_encoder)
        self.features = {
            part: FrozenFeatures.of(self.parts[part], new=self.new, old=self.old)
            for part in ("pair", "val", "test")
        }
        self.positions, selection_seconds = self._select("positions", self.features["pair"])
        bridge = self._bridge(model, selection_seconds)
        if not self.experiment.leader:
            return {}
        test = self.parts["test"]
        guess = np.random.RandomState(self.number).randint(self.classes, size=len(test))
        arms = {
            "Random": {"predicted": guess, "parameters": 0},
            f"Oracle {old_name} (task model)": {
                "predicted": predict(self.old, test.old),
                **old_cost,
            },
            f"Oracle {new_name} (supervised)": {
                "predicted": predict(oracle, test.new),
                **oracle_cost,
            },
            **{f"Distillation, {k}": self._student(k) for k in self.experiment.distillation.kinds},
            "Probe on pseudo labels": self._probe(),
            "Bridge": bridge,
            "Bridge, untrained encoder": self._untrained(model),
        }
        return {
            "split": self.number,
            "rows": {name: self._scores(**arm) for name, arm in arms.items()},
            "positions": self.positions.as_dict(),
            "describe": self.positions.describe(),
            "reconstruction": reconstruction,
            "classes": self.classes,
        }

    def _scores(self, predicted: np.ndarray, **cost: Any) -> dict[str, Any]:
        labels = self.parts["test"].labels.numpy()
        with bad_input():
            return {
                **classification_scores(labels, predicted),
                "agreement": agreement(predicted, self.features["test"].pseudo_labels),
                "confusion": confusion(labels, predicted, self.classes).tolist(),
                **cost,
            }

    def _seed(self, *names: str) -> int:
        return derive_seed(self.experiment.seed, self.number, *names)

    def _stage(self, name: str, options: list[Any], compute: Any, load: Any) -> Any:
        settings = {
            "seed": self.experiment.seed,
            "data": self.data.settings(),
            "content": self.content,
            **{type(option).__name__: asdict(option) for option in options},
        }
        return self.experiment.run.stage(
            f"split-{self.number}/{name}",
            settings,
            compute,
            load,
            leader=self.experiment.leader,
        )

    def _encoder(self, side: str) -> tuple[SignalEncoder, float]:
        def compute(folder: Path) -> None:
            tokens = [getattr(self.parts[part], side) for part in ("train", "pair")]
            with bad_input():
                encoder, error = pretrain_encoder(
                    torch.cat(tokens),
                    getattr(self.parts["val"], side),
                    self.experiment.pretrain,
                    stage=f"split {self.number} pretrain {getattr(self.data, side)}",
                    seed=self._seed("pretrain", side),
                    new_trainer=self.experiment.stage_trainer,
                )
            encoder.save_pretrained(folder)
            (folder / "facts.json").write_text(json.dumps({"relative_error": error}))

        def load(folder: Path) -> tuple[SignalEncoder, float]:
            facts = json.loads((folder / "facts.json").read_text())
            return SignalEncoder.from_pretrained(folder), facts["relative_error"]

        return self._stage(f"encoder-{side}", [self.experiment.pretrain], compute, load)

    def _check_encoders(self, errors: dict[str, float]) -> None:
        worst = self.experiment.pretrain.worst_error
        for modality, error in errors.items():
            if worst is not None and not error < worst:
                raise UserError(
                    f"the {modality} encoder did not pretrain: reconstruction error {error:.2f} of "
                    f"the variance (at most {worst}), so a transfer number would mean nothing; "
                    "raise pretrain.epochs or look at the recordings"
                )

    def _task_model(self, side: str, encoder: SignalEncoder) -> tuple[TaskModel, dict[str, Any]]:
        def compute(folder: Path) -> None:
            with bad_input(), Cost() as cost:
                task, scores = train_task_model(
                    encoder,
                    (getattr(self.parts["train"], side), self.parts["train"].labels),
                    (getattr(self.parts["val"], side), self.parts["val"].labels),
                    self.experiment.task,
                    classes=self.classes,
                    stage=f"split {self.number} task {getattr(self.data, side)}",
                    seed=self._seed("task", side),
                    new_trainer=self.experiment.stage_trainer,
                )
            save_task_model(task, folder)
            tuned = max(scores, key=lambda arm: scores[arm]) == "tune"
            facts = {
                "parameters": count_parameters(task if tuned else task.head),
                "seconds": cost.seconds,
                "memory": cost.memory,
            }
            (folder / "facts.json").write_text(json.dumps(facts))

        def load(folder: Path) -> tuple[TaskModel, dict[str, Any]]:
            facts = json.loads((folder / "facts.json").read_text())
            return load_task_model(folder), facts

        options = [self.experiment.pretrain, self.experiment.task]
        return self._stage(f"task-{side}", options, compute, load)

    def _select(self, name: str, pair: FrozenFeatures) -> tuple[Positions, float]:
        """The bridge's place, and the seconds that finding it took.

        Kept as a stage: a flat curve may be ranked otherwise by another machine's rounding.
        """

        def compute(folder: Path) -> None:
            with Cost() as cost:
                positions = pair.select(self.parts["pair"].subjects)
            facts = {"positions": positions.as_dict(), "seconds": cost.seconds}
            (folder / "facts.json").write_text(json.dumps(facts))

        def load(folder: Path) -> tuple[Positions, float]:
            facts = json.loads((folder / "facts.json").read_text())
            return Positions(**facts["positions"]), facts["seconds"]

        options = [self.experiment.pretrain, self.experiment.task]
        return self._stage(name, options, compute, load)

    def _bridge(self, model: BridgeModule, selection_seconds: float) -> dict[str, Any]:
        """The run's own training: `--trainer.*`, checkpoints, any number of processes."""
        name = f"split-{self.number}"
        arm = self._fit_bridge(
            model,
            self.experiment.bridge_trainer(name),
            self.new,
            self.features,
            self.positions,
            self.experiment.checkpoint_of(name),
        )
        if self.experiment.leader:
            with self.experiment.run.replacing(f"models/{name}") as folder:
                model.bridged.save_pretrained(folder)
        arm["seconds"] += selection_seconds
        return arm

    def _untrained(self, model: BridgeModule) -> dict[str, Any]:
        """Control: the same bridge, at its own place, on a new encoder that was never trained."""
        with seeded(self._seed("untrained")):
            new = frozen_encoder(SignalEncoder(**self.new.module.sizes))
        features = {
            part: own.of_new(new, self.parts[part].new) for part, own in self.features.items()
        }
        positions, seconds = self._select("positions-untrained", features["pair"])
        trainer = self.experiment.stage_trainer(
            f"split {self.number} untrained control", epochs=model.trainer.max_epochs
        )
        arm = self._fit_bridge(copy.deepcopy(model), trainer, new, features, positions)
        arm["seconds"] += seconds
        return arm

    def _fit_bridge(
        self,
        model: BridgeModule,
        trainer: Trainer,
        new: BlockModel,
        features: dict[str, FrozenFeatures],
        positions: Positions,
        checkpoint: Path | None = None,
    ) -> dict[str, Any]:
        seed = self._seed("bridge")
        pooled = {part: own.new_pooled[positions.new_block] for part, own in features.items()}
        encoder = self.old.encoder
        aligned = encoder.depth if model.align_at == "last" else positions.old_block
        with Cost() as cost, bad_input():
            replaced, target = token_states(
                encoder, self.parts["pair"].old, [positions.old_block, aligned]
            )
            (val_target,) = token_states(encoder, self.parts["val"].old, [aligned])
            model.connect(
                new=new,
                old=self.old,
                positions=positions,
                new_pooled=pooled["pair"],
                old_hidden=replaced,
                seed=seed,
            )
            self.data.attach(
                train=(pooled["pair"], target, features["pair"].logits),
                val=(pooled["val"], val_target, features["val"].logits),
                seed=seed,
            )
            trainer.callbacks.insert(0, KeepBest("val_agreement"))
            trainer.fit(model, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
        bridged = model.bridged.cpu().eval()
        return self._arm(predict(bridged, self.parts["test"].new), bridged, cost)

    def _student(self, kind: DistillationKind) -> dict[str, Any]:
        with Cost() as cost:
            student = distil(
                kind,
                (self.parts["pair"], self.features["pair"]),
                (self.parts["val"], self.features["val"]),
                self.experiment.distillation,
                new=self.new,
                old=self.old,
                stage=f"split {self.number} distil {kind}",
                seed=self._seed("distil"),
                new_trainer=self.experiment.stage_trainer,
            )
        return self._arm(predict(student, self.parts["test"].new), student, cost)

    def _probe(self) -> dict[str, Any]:
        block = self.positions.new_block
        pair = self.features["pair"]
        with Cost() as cost, bad_input():
            probe = PseudoLabelProbe().fit(pair.new_pooled[block], pair.pseudo_labels)
        predicted = probe.predict(self.features["test"].new_pooled[block])
        return self._arm(predicted, probe.parameters, cost)

    @staticmethod
    def _arm(predicted: np.ndarray, trained: nn.Module | int, cost: Cost) -> dict[str, Any]:
        if isinstance(trained, nn.Module):
            trained = count_parameters(trained, trainable=True)
        return {
            "predicted": predicted,
            "parameters": trained,
            "seconds": cost.seconds,
            "memory": cost.memory,
        }
