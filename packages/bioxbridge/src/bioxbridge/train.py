"""The main job: `python -m bioxbridge.train`.

On each split by subject: pretrain an encoder per modality without labels, train a task model on
the old modality, select the bridge's place, train the bridge on unlabelled pairs, and test it on
the new modality alone beside its baselines.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Trainer
from lightning.pytorch.cli import LightningArgumentParser

from bioxbridge import pipeline
from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.probe import PseudoLabelProbe
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import BiosignalData
from bioxbridge.encoder import SignalEncoder
from bioxbridge.metrics import agreement, classification_scores, confusion
from bioxbridge.module import BridgeModule, predict
from bioxbridge.pipeline import FrozenFeatures
from bioxbridge.report import summarise
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs
from papers_shared.cli import MainJob
from papers_shared.command import run_command
from papers_shared.console import stderr
from papers_shared.errors import UserError, bad_input
from papers_shared.measure import Cost, count_parameters
from papers_shared.progress import stage_trainer
from papers_shared.report import print_table, write_report
from papers_shared.seeds import derive_seed


class TrainJob(MainJob):
    """Bridge two frozen biosignal encoders and compare with the baselines."""

    package = "bioxbridge"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options of the steps around the bridge."""
        super().add_arguments_to_parser(parser)
        parser.add_argument("--splits", type=int, default=3, help="Splits by subject to run.")
        parser.add_class_arguments(pipeline.PretrainOptions, "pretrain")
        parser.add_class_arguments(pipeline.TaskOptions, "task")
        parser.add_class_arguments(pipeline.DistillationOptions, "distillation")

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Run every split, then write the report."""
        config = self.config["fit"]
        if config["splits"] < 1:
            raise UserError(f"splits: {config['splits']} is not a positive number of splits")
        self.seed = config["seed_everything"]
        self.pretrain = pipeline.PretrainOptions(**config["pretrain"].as_dict())
        self.task = pipeline.TaskOptions(**config["task"].as_dict())
        self.distillation = pipeline.DistillationOptions(**config["distillation"].as_dict())
        self.stage_trainer = functools.partial(
            stage_trainer,
            run=self.run,
            accelerator=self.device.accelerator,
            precision=self.device.precision,
        )
        with bad_input():
            pairs = datamodule.pairs()
        stderr.print(
            f"{len(pairs):,} windows of {len(np.unique(pairs.subjects))} subjects, "
            f"{pairs.old.shape[1]} tokens each, {pairs.classes} classes"
        )
        splits = [
            self._run_split(split, copy.deepcopy(model), datamodule)
            for split in range(datamodule.split_seed, datamodule.split_seed + config["splits"])
        ]
        if not self.leader:
            return
        results = summarise(
            splits, old=datamodule.old, new=datamodule.new, figures=self.run.figures
        )
        report = write_report(
            self.run,
            results,
            config_yaml=self.config_text(),
            seconds=time.perf_counter() - self.started,
            device=self.device,
            seed=self.seed,
        )
        print_table(results)
        stderr.print(f"report: {report}", markup=False)

    def _run_split(self, split: int, model: BridgeModule, data: BiosignalData) -> dict[str, Any]:
        """Everything on one split; finished steps of an interrupted run are not repeated."""
        with bad_input():
            parts = data.split(split)
        classes = data.pairs().classes
        new, new_error = self._encoder(split, "new", parts, data)
        old_encoder, old_error = self._encoder(split, "old", parts, data)
        self._check_encoders({data.old: old_error, data.new: new_error})
        old, old_task = self._task_model(split, "old", old_encoder, parts, classes, data)
        oracle, oracle_task = self._task_model(split, "new", new, parts, classes, data)
        new_blocks = pipeline.as_block_model(new)

        with Cost() as selection:
            features = {
                name: FrozenFeatures.of(parts[name], new=new_blocks, old=old)
                for name in ("val", "pair", "test")
            }
            positions = features["pair"].select(parts["pair"].subjects)
        stderr.print(f"split {split}: {positions.describe()}", markup=False)

        bridge = self._bridge(split, model, data, parts, features, new_blocks, old, positions)
        if not self.leader:
            return {}
        test = parts["test"]
        arms = {
            "Random": {
                "predicted": np.random.RandomState(split).randint(classes, size=len(test)),
                "parameters": 0,
            },
            f"Oracle {data.old} (task model)": {"predicted": predict(old, test.old), **old_task},
            f"Oracle {data.new} (supervised)": {
                "predicted": predict(oracle, test.new),
                **oracle_task,
            },
            **self._students(split, parts, features, new_blocks, old),
            "Probe on pseudo labels": _probe(features, positions),
            "Bridge": bridge,
            "Bridge, untrained encoder": self._untrained(split, model, data, parts, old, positions),
        }
        known = test.labels.numpy()
        rows = {}
        for name, arm in arms.items():
            predicted = arm.pop("predicted")
            rows[name] = {
                **classification_scores(known, predicted),
                "agreement": agreement(predicted, features["test"].pseudo_labels),
                "confusion": confusion(known, predicted, classes).tolist(),
                **arm,
            }
        return {
            "split": split,
            "rows": rows,
            "positions": positions.as_dict(),
            "describe": positions.describe(),
            "reconstruction": {data.old: old_error, data.new: new_error},
            "selection_seconds": selection.seconds,
            "classes": classes,
        }

    def _settings(self, data: BiosignalData, split: int, *options: Any) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "split": split,
            "data": data.settings(),
            **{type(o).__name__: asdict(o) for o in options},
        }

    def _encoder(
        self, split: int, side: str, parts: dict[str, Pairs], data: BiosignalData
    ) -> tuple[SignalEncoder, float]:
        def compute(folder: Path) -> None:
            tokens = torch.cat([getattr(parts[part], side) for part in ("train", "pair")])
            with bad_input():
                encoder, error = pipeline.pretrain_encoder(
                    tokens,
                    getattr(parts["val"], side),
                    self.pretrain,
                    stage=f"split {split} pretrain {getattr(data, side)}",
                    seed=derive_seed(self.seed, split, "pretrain", side),
                    new_trainer=self.stage_trainer,
                )
            encoder.save_pretrained(folder)
            _write_json(folder / "error.json", {"relative_error": error})

        return self.run.stage(
            f"split-{split}/encoder-{side}",
            self._settings(data, split, self.pretrain),
            compute,
            lambda folder: (
                SignalEncoder.from_pretrained(folder),
                _read_json(folder / "error.json")["relative_error"],
            ),
            leader=self.leader,
        )

    def _task_model(
        self,
        split: int,
        side: str,
        encoder: SignalEncoder,
        parts: dict[str, Pairs],
        classes: int,
        data: BiosignalData,
    ) -> tuple[TaskModel, dict[str, Any]]:
        def compute(folder: Path) -> None:
            with bad_input(), Cost() as cost:
                task, scores = pipeline.train_task_model(
                    encoder,
                    (getattr(parts["train"], side), parts["train"].labels),
                    (getattr(parts["val"], side), parts["val"].labels),
                    self.task,
                    classes=classes,
                    stage=f"split {split} task {getattr(data, side)}",
                    seed=derive_seed(self.seed, split, "task", side),
                    new_trainer=self.stage_trainer,
                )
            pipeline.save_task_model(task, folder)
            tuned = scores.get("tune", -1.0) >= scores["probe"]
            facts = {
                "parameters": count_parameters(task if tuned else task.head),
                "seconds": cost.seconds,
                "memory": cost.memory,
            }
            _write_json(folder / "cost.json", facts)

        return self.run.stage(
            f"split-{split}/task-{side}",
            self._settings(data, split, self.pretrain, self.task),
            compute,
            lambda folder: (pipeline.load_task_model(folder), _read_json(folder / "cost.json")),
            leader=self.leader,
        )

    def _check_encoders(self, errors: dict[str, float]) -> None:
        worst = self.pretrain.worst_error
        for modality, error in errors.items():
            if worst is not None and not error < worst:
                raise UserError(
                    f"the {modality} encoder did not pretrain: reconstruction error {error:.2f} of "
                    f"the variance (at most {worst}), so a transfer number would mean nothing; "
                    "raise pretrain.epochs or look at the recordings"
                )

    def _bridge(
        self,
        split: int,
        model: BridgeModule,
        data: BiosignalData,
        parts: dict[str, Pairs],
        features: dict[str, FrozenFeatures],
        new: BlockModel,
        old: TaskModel,
        positions: Positions,
    ) -> dict[str, Any]:
        """The run's own training: `--trainer.*`, checkpoints, any number of processes."""
        name = f"split-{split}"
        checkpoint = self.checkpoint_of(name)
        trainer = self.new_trainer(name)
        with Cost() as cost:
            self._fit_bridge(
                model, trainer, data, parts, features, new, old, positions, split, checkpoint
            )
        bridged = model.bridged.cpu().eval()
        if self.leader:
            with self.run.replacing(f"models/{name}") as folder:
                bridged.save_pretrained(folder)
        return {
            "predicted": predict(bridged, parts["test"].new),
            "parameters": count_parameters(bridged, trainable=True),
            "seconds": cost.seconds,
            "memory": cost.memory,
        }

    def _fit_bridge(
        self,
        model: BridgeModule,
        trainer: Trainer,
        data: BiosignalData,
        parts: dict[str, Pairs],
        features: dict[str, FrozenFeatures],
        new: BlockModel,
        old: TaskModel,
        positions: Positions,
        split: int,
        checkpoint: Path | None = None,
    ) -> None:
        seed = derive_seed(self.seed, split, "bridge")
        with bad_input():
            pipeline.connect_bridge(
                model, parts["pair"], new=new, old=old, positions=positions, seed=seed
            )
        rows = {
            part: pipeline.bridge_rows(
                parts[part], features[part], old=old, positions=positions, align_at=model.align_at
            )
            for part in ("pair", "val")
        }
        data.attach(train=rows["pair"], val=rows["val"], seed=seed)
        trainer.callbacks.insert(0, KeepBest("val_agreement"))
        with bad_input():
            trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)

    def _students(
        self,
        split: int,
        parts: dict[str, Pairs],
        features: dict[str, FrozenFeatures],
        new: BlockModel,
        old: TaskModel,
    ) -> dict[str, dict[str, Any]]:
        arms = {}
        for kind in self.distillation.kinds:
            with Cost() as cost:
                student = pipeline.distil(
                    kind,
                    (parts["pair"], features["pair"]),
                    (parts["val"], features["val"]),
                    self.distillation,
                    new=new,
                    old=old,
                    stage=f"split {split} distil {kind}",
                    seed=derive_seed(self.seed, split, "distil"),
                    new_trainer=self.stage_trainer,
                )
            arms[f"Distillation, {kind}"] = {
                "predicted": predict(student, parts["test"].new),
                "parameters": count_parameters(student, trainable=True),
                "seconds": cost.seconds,
                "memory": cost.memory,
            }
        return arms

    def _untrained(
        self,
        split: int,
        model: BridgeModule,
        data: BiosignalData,
        parts: dict[str, Pairs],
        old: TaskModel,
        positions: Positions,
    ) -> dict[str, Any]:
        """Control: the same bridge on a new encoder that was never pretrained."""
        control = copy.deepcopy(model)
        sizes = model.bridged.new.module.sizes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed, split, "untrained"))
            new = pipeline.as_block_model(SignalEncoder(**sizes))
        features = {
            name: FrozenFeatures.of(parts[name], new=new, old=old) for name in ("pair", "val")
        }
        trainer = self.stage_trainer(
            f"split {split} untrained control", epochs=self.trainer.max_epochs
        )
        with Cost() as cost:
            self._fit_bridge(control, trainer, data, parts, features, new, old, positions, split)
        bridged = control.bridged.cpu().eval()
        return {
            "predicted": predict(bridged, parts["test"].new),
            "parameters": count_parameters(bridged, trainable=True),
            "seconds": cost.seconds,
            "memory": cost.memory,
        }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _probe(features: dict[str, FrozenFeatures], positions: Positions) -> dict[str, Any]:
    with Cost() as cost, bad_input():
        pair = features["pair"]
        probe = PseudoLabelProbe().fit(pair.new_pooled[positions.new_block], pair.pseudo_labels)
    return {
        "predicted": probe.predict(features["test"].new_pooled[positions.new_block]),
        "parameters": probe.parameters,
        "seconds": cost.seconds,
        "memory": cost.memory,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the main job; returns the exit code."""
    return run_command(lambda: TrainJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
