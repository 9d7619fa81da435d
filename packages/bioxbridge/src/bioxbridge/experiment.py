"""One split by subject: encoders, task models, the transfer problem between them, and its bridge.

Every preparatory step is a stage of the run folder, so an interrupted run does not repeat it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer

from bioxbridge.adapters import TaskModel
from bioxbridge.baselines.training import BaselineOptions
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import BiosignalData
from bioxbridge.encoder import SignalEncoder
from bioxbridge.fitting import fit_bridge
from bioxbridge.frozen import FrozenFeatures, Transfer, frozen_encoder
from bioxbridge.module import BridgeModule
from bioxbridge.pretraining import PretrainOptions, pretrain_encoder
from bioxbridge.selection import Positions
from bioxbridge.task import TaskOptions, load_task_model, save_task_model, train_task_model
from papers_shared.errors import UserError, bad_input
from papers_shared.measure import Cost
from papers_shared.run_folder import RunFolder
from papers_shared.seeds import derive_seed


@dataclass(kw_only=True)
class Experiment:
    """What all splits of a run have in common.

    Attributes:
        data: recordings of the two modalities.
        pretrain: how the encoders are pretrained.
        task: how the task models are trained.
        baselines: what the bridge is compared with.
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
    baselines: BaselineOptions
    run: RunFolder
    seed: int
    stage_trainer: Callable[..., Trainer]
    bridge_trainer: Callable[[str], Trainer]
    checkpoint_of: Callable[[str], Path | None]
    leader: bool = True


class Split:
    """One split of an experiment.

    Args:
        experiment: what it belongs to.
        number: seed of the split.

    Attributes:
        parts: windows of `train`, `val`, `pair` and `test` subjects.
        classes: number of classes of the task.

    Raises:
        UserError: the recordings cannot be split.
    """

    def __init__(self, experiment: Experiment, number: int) -> None:
        self.experiment = experiment
        self.number = number
        self.data = experiment.data
        with bad_input():
            self.parts = self.data.split(number)
        self.classes = self.data.pairs().classes
        self._content = {part: pairs.fingerprint() for part, pairs in self.parts.items()}

    def seed(self, *names: str) -> int:
        """The seed of one step."""
        return derive_seed(self.experiment.seed, self.number, *names)

    @property
    def cache(self) -> Path:
        """Folder of the frozen models' hidden states, which every bridge of the run shares."""
        return self.experiment.run.path / "cache"

    def stage(self, name: str, options: list[Any], compute: Any, load: Any) -> Any:
        """A step of this split, kept in the run folder, see `RunFolder.stage`.

        Args:
            name: of the step.
            options: dataclasses or dictionaries that its result depends on, besides seed and
                recordings.
            compute: see there.
            load: see there.
        """
        settings = {
            "seed": self.experiment.seed,
            "data": self.data.settings(),
            "content": self._content,
            **{
                type(option).__name__: option if isinstance(option, dict) else asdict(option)
                for option in options
            },
        }
        return self.experiment.run.stage(
            f"split-{self.number}/{name}",
            settings,
            compute,
            load,
            leader=self.experiment.leader,
        )

    def encoder(self, side: str) -> tuple[SignalEncoder, float]:
        """The pretrained encoder of `old` or `new`, and its relative reconstruction error."""

        def compute(folder: Path) -> None:
            tokens = [getattr(self.parts[part], side) for part in ("train", "pair")]
            with bad_input():
                encoder, error = pretrain_encoder(
                    torch.cat(tokens),
                    getattr(self.parts["val"], side),
                    self.experiment.pretrain,
                    stage=f"split {self.number} pretrain {getattr(self.data, side)}",
                    seed=self.seed("pretrain", side),
                    new_trainer=self.experiment.stage_trainer,
                )
            encoder.save_pretrained(folder)
            (folder / "facts.json").write_text(json.dumps({"relative_error": error}))

        def load(folder: Path) -> tuple[SignalEncoder, float]:
            facts = json.loads((folder / "facts.json").read_text())
            return SignalEncoder.from_pretrained(folder), facts["relative_error"]

        return self.stage(f"encoder-{side}", [self.experiment.pretrain], compute, load)

    def encoders(self) -> tuple[dict[str, SignalEncoder], dict[str, float]]:
        """Both encoders by side, and their reconstruction errors by modality.

        Raises:
            UserError: one did not pretrain, so that a transfer number would mean nothing.
        """
        encoders, errors = {}, {}
        worst = self.experiment.pretrain.worst_error
        for side in ("new", "old"):
            modality = getattr(self.data, side)
            encoders[side], error = self.encoder(side)
            errors[modality] = error
            if worst is not None and not error < worst:
                raise UserError(
                    f"the {modality} encoder did not pretrain: reconstruction error {error:.2f} of "
                    f"the variance (at most {worst}), so a transfer number would mean nothing; "
                    "raise pretrain.epochs or look at the recordings"
                )
        return encoders, errors

    def task_model(self, side: str, encoder: SignalEncoder) -> tuple[TaskModel, dict[str, Any]]:
        """The supervised model of `old` or `new`, and what it cost."""

        def compute(folder: Path) -> None:
            with bad_input(), Cost() as cost:
                fitted = train_task_model(
                    encoder,
                    (getattr(self.parts["train"], side), self.parts["train"].labels),
                    (getattr(self.parts["val"], side), self.parts["val"].labels),
                    self.experiment.task,
                    classes=self.classes,
                    stage=f"split {self.number} task {getattr(self.data, side)}",
                    seed=self.seed("task", side),
                    new_trainer=self.experiment.stage_trainer,
                )
            save_task_model(fitted.model, folder)
            facts = {
                "parameters": fitted.parameters,
                "seconds": cost.seconds,
                "memory": cost.memory,
            }
            (folder / "facts.json").write_text(json.dumps(facts))

        def load(folder: Path) -> tuple[TaskModel, dict[str, Any]]:
            facts = json.loads((folder / "facts.json").read_text())
            return load_task_model(folder), facts

        options = [self.experiment.pretrain, self.experiment.task]
        return self.stage(f"task-{side}", options, compute, load)

    def select(self, pair: FrozenFeatures, name: str = "positions") -> tuple[Positions, float]:
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
        return self.stage(name, options, compute, load)

    def transfer(self, encoder: SignalEncoder, old: TaskModel) -> tuple[Transfer, float]:
        """The problem between a new encoder and an old task model, and seconds of selection."""
        new = frozen_encoder(encoder)
        pairs = {part: self.parts[part] for part in ("pair", "val")}
        features = {
            part: FrozenFeatures.of(own, new=new, old=old, cache=self.cache)
            for part, own in pairs.items()
        }
        positions, seconds = self.select(features["pair"])
        transfer = Transfer(new=new, old=old, pairs=pairs, features=features, positions=positions)
        return transfer, seconds

    def fit_bridge(
        self,
        model: BridgeModule,
        transfer: Transfer,
        trainer: Trainer,
        checkpoint: Path | None = None,
    ) -> Cost:
        """Connect a bridge and train it; its best epoch is kept.

        Args:
            model: not yet connected; `model.bridged` is the result.
            transfer: what it bridges.
            trainer: of the bridge alone.
            checkpoint: where to go on.

        Returns:
            What it cost.
        """
        with Cost() as cost, bad_input():
            fit_bridge(
                model,
                transfer,
                trainer,
                batch_size=self.data.batch_size,
                seed=self.seed("bridge"),
                cache=self.cache,
                checkpoint=checkpoint,
            )
        # What a resumed training took before it was interrupted is in its checkpoint.
        (kept,) = (one for one in trainer.callbacks if isinstance(one, KeepBest))
        cost.seconds += kept.seconds_before
        return cost
