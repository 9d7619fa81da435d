"""The rows of the results table: every method on one split, scored and priced alike."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from bioxbridge.baselines.training import Baseline, train_baseline
from bioxbridge.encoder import SignalEncoder
from bioxbridge.experiment import Split
from bioxbridge.frozen import Transfer, frozen_encoder
from bioxbridge.metrics import agreement, classification_scores, confusion
from bioxbridge.module import BridgeModule, predict
from papers_shared.errors import bad_input
from papers_shared.measure import Cost, count_flops, count_parameters
from papers_shared.seeds import seeded

RANDOM = "Random"
BRIDGE = "Bridge"
UNTRAINED = "Bridge, untrained encoder"
BASELINES: dict[Baseline, str] = {
    "logits": "Distillation, logits",
    "feature": "Distillation, feature",
    "contrast": "Distillation, contrast",
    "lora": "Distillation, LoRA",
    "translation": "Data translation",
    "probe": "Probe on pseudo labels",
}


@dataclass(kw_only=True)
class Arm:
    """What one method predicts for the test windows, and what that cost.

    Attributes:
        predicted: classes, (N,).
        parameters: trained ones.
        flops: floating-point operations of one window at test time.
        seconds: of training.
        memory: that training added at its highest, MB.
    """

    predicted: np.ndarray
    parameters: int
    flops: int | None = None
    seconds: float | None = None
    memory: float | None = None

    @classmethod
    def of(cls, model: nn.Module, inputs: Tensor, cost: Cost) -> Arm:
        """A trained model on test inputs."""
        return cls(
            predicted=predict(model, inputs),
            parameters=count_parameters(model, trainable=True),
            flops=count_flops(model, inputs[:1]),
            seconds=cost.seconds,
            memory=cost.memory,
        )


def compare(split: Split, model: BridgeModule | None) -> dict[str, Any]:
    """Every method on one split.

    Args:
        split: of an experiment.
        model: the bridge, not yet connected; None leaves its rows out.

    Returns:
        `rows` (scores and cost by method), `positions`, and what the report says of the split, as
        JSON values; empty in a process that is not the leader.

    Raises:
        UserError: the recordings cannot be used, or an encoder did not pretrain.
    """
    encoders, errors = split.encoders()
    old, old_cost = split.task_model("old", encoders["old"])
    supervised, new_cost = split.task_model("new", encoders["new"])
    transfer, selection_seconds = split.transfer(encoders["new"], old)
    bridges = {}
    if model is not None:
        bridges[BRIDGE] = _bridge(split, transfer, model, selection_seconds)
    if not split.experiment.leader:
        return {}
    test, names = split.parts["test"], split.data
    guess = np.random.RandomState(split.number).randint(split.classes, size=len(test))
    arms = {
        RANDOM: Arm(predicted=guess, parameters=0),
        f"Oracle {names.old} (task model)": _oracle(old, test.old, old_cost),
        f"Oracle {names.new} (supervised)": _oracle(supervised, test.new, new_cost),
        **{
            BASELINES[arm]: baseline(split, transfer, arm)
            for arm in split.experiment.baselines.arms
        },
        **bridges,
    }
    if model is not None:
        arms[UNTRAINED] = _untrained(split, transfer, model)
    teacher = predict(old, test.old)
    return {
        "split": split.number,
        "old": names.old,
        "new": names.new,
        "unit": names.unit,
        "recordings": names.pairs().fingerprint(),
        "rows": {name: scores(split, arm, teacher) for name, arm in arms.items()},
        "positions": transfer.positions.as_dict(),
        "reconstruction": errors,
        "classes": split.classes,
        "class_names": list(names.class_names),
    }


def scores(split: Split, arm: Arm, teacher: np.ndarray) -> dict[str, Any]:
    """A method's row: scores on the labelled test windows, agreement, confusion, cost."""
    labels = split.parts["test"].labels.numpy()
    with bad_input():
        return {
            **classification_scores(labels, arm.predicted),
            "agreement": agreement(arm.predicted, teacher),
            "confusion": confusion(labels, arm.predicted, split.classes).tolist(),
            "parameters": arm.parameters,
            "kiloflops": None if arm.flops is None else arm.flops / 1000,
            "seconds": arm.seconds,
            "memory": arm.memory,
        }


def baseline(split: Split, transfer: Transfer, arm: Baseline) -> Arm:
    """One baseline, kept as a stage."""
    experiment = split.experiment

    def compute(folder: Path) -> None:
        with Cost() as cost, bad_input():
            model = train_baseline(
                arm,
                transfer,
                experiment.baselines,
                stage=f"split {split.number} {BASELINES[arm].lower()}",
                seed=split.seed("baseline", arm),
                new_trainer=experiment.stage_trainer,
            )
        _write(folder, Arm.of(model, split.parts["test"].new, cost))

    # The other arms' being there or not changes nothing for this one.
    options = replace(experiment.baselines, arms=(arm,))
    folder = f"baselines/{arm}-{_key(asdict(options))}"
    return split.stage(folder, [experiment.pretrain, experiment.task, options], compute, _read)


def _oracle(task: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> Arm:
    return Arm(predicted=predict(task, inputs), flops=count_flops(task, inputs[:1]), **facts)


def _bridge(split: Split, transfer: Transfer, model: BridgeModule, selection_seconds: float) -> Arm:
    """The run's own training: `--trainer.*`, checkpoints, any number of processes."""
    experiment, name = split.experiment, f"split-{split.number}"
    trainer = experiment.bridge_trainer(name)
    cost = split.fit_bridge(model, transfer, trainer, experiment.checkpoint_of(name))
    cost.seconds += selection_seconds
    if experiment.leader:
        with experiment.run.replacing(f"models/{name}") as folder:
            model.bridged.save_pretrained(folder)
    return Arm.of(model.bridged, split.parts["test"].new, cost)


def another_bridge(
    split: Split, transfer: Transfer, model: BridgeModule, *, name: str, epochs: int
) -> Arm:
    """A further bridge beside the run's own, kept as a stage.

    Args:
        split: of an experiment.
        transfer: what it bridges, at its place.
        model: a bridge; a copy of it is trained.
        name: of the stage.
        epochs: passes over the pairs.
    """
    experiment = split.experiment

    def compute(folder: Path) -> None:
        trainer = experiment.stage_trainer(f"split {split.number} {name}", epochs=epochs)
        own = copy.deepcopy(model)
        cost = split.fit_bridge(own, transfer, trainer)
        _write(folder, Arm.of(own.bridged, split.parts["test"].new, cost))

    facts = {
        "bridge": dict(model.hparams),
        "epochs": epochs,
        "batch_size": split.data.batch_size,
        "pairs": len(transfer.pairs["pair"]),
        "new_block": transfer.positions.new_block,
        "old_block": transfer.positions.old_block,
    }
    options = [experiment.pretrain, experiment.task, facts]
    folder = f"bridges/{name.replace(' ', '-')}-{_key(facts)}"
    return split.stage(folder, options, compute, _read)


def _untrained(split: Split, transfer: Transfer, model: BridgeModule) -> Arm:
    """Control: the same bridge, at its own place, on a new encoder that was never trained."""
    with seeded(split.seed("untrained")):
        new = frozen_encoder(SignalEncoder(**transfer.new.module.sizes))
    transfer = transfer.with_new(new, split.cache)
    positions, seconds = split.select(transfer.features["pair"], "positions-untrained")
    epochs = model.trainer.max_epochs
    arm = another_bridge(
        split, transfer.at(positions), model, name="untrained control", epochs=epochs
    )
    return replace(arm, seconds=arm.seconds + seconds)


def _key(settings: dict[str, Any]) -> str:
    """A short name of settings: with others it is another stage, not the same one anew."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _write(folder: Path, arm: Arm) -> None:
    facts = vars(arm).copy()
    np.save(folder / "predicted.npy", facts.pop("predicted"))
    (folder / "facts.json").write_text(json.dumps(facts))


def _read(folder: Path) -> Arm:
    predicted = np.load(folder / "predicted.npy", allow_pickle=False)
    return Arm(predicted=predicted, **json.loads((folder / "facts.json").read_text()))
