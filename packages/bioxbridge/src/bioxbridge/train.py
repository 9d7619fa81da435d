"""The main job: `python -m bioxbridge.train`.

On each split by subject: pretrain an encoder per modality without labels, train a task model on
the old modality, select the bridge's place, train the bridge on unlabelled pairs, and test it on
the new modality alone beside its baselines.
"""

from __future__ import annotations

import copy
import functools
import sys
import time
from typing import Any

import numpy as np
from lightning.pytorch.cli import LightningArgumentParser

from bioxbridge.baselines.distillation import DistillationOptions
from bioxbridge.data import BiosignalData
from bioxbridge.experiment import Experiment
from bioxbridge.module import BridgeModule
from bioxbridge.pretraining import PretrainOptions
from bioxbridge.report import summarise
from bioxbridge.task import TaskOptions
from papers_shared.cli import MainJob
from papers_shared.command import run_command
from papers_shared.console import stderr
from papers_shared.errors import UserError, bad_input
from papers_shared.progress import stage_trainer
from papers_shared.report import print_table, write_report


class TrainJob(MainJob):
    """Bridge two frozen biosignal encoders and compare with the baselines."""

    package = "bioxbridge"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options of the steps around the bridge."""
        super().add_arguments_to_parser(parser)
        parser.add_argument("--splits", type=int, default=3, help="Splits by subject to run.")
        parser.add_class_arguments(PretrainOptions, "pretrain")
        parser.add_class_arguments(TaskOptions, "task")
        parser.add_class_arguments(DistillationOptions, "distillation")

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Run every split, then write the report."""
        config = self.config["fit"]
        self._check(config)
        with bad_input():
            options = {
                "pretrain": PretrainOptions(**config["pretrain"].as_dict()),
                "task": TaskOptions(**config["task"].as_dict()),
                "distillation": DistillationOptions(**config["distillation"].as_dict()),
            }
            pairs = datamodule.pairs()
            for number in self._split_numbers(datamodule):
                datamodule.split(number)
        stderr.print(
            f"{len(pairs):,} windows of {len(np.unique(pairs.subjects))} subjects, "
            f"{pairs.old.shape[1]} tokens each, {pairs.classes} classes"
        )
        seed = int(config["seed_everything"])
        experiment = Experiment(
            data=datamodule,
            **options,
            run=self.run,
            seed=seed,
            stage_trainer=functools.partial(
                stage_trainer,
                run=self.run,
                accelerator=self.device.accelerator,
                precision=self.device.precision,
            ),
            bridge_trainer=self.new_trainer,
            checkpoint_of=self.checkpoint_of,
            leader=self.leader,
        )
        splits = [
            experiment.run_split(number, copy.deepcopy(model))
            for number in self._split_numbers(datamodule)
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
            command=self.command,
            seed=seed,
        )
        print_table(results)
        stderr.print(f"report: {report}", markup=False)

    def _check(self, config: Any) -> None:
        """Refuse before the recordings are read what would only fail after hours."""
        if config["splits"] < 1:
            raise UserError(f"splits: {config['splits']} is not a positive number of splits")
        epochs = config["trainer"]["max_epochs"]
        if epochs is not None and epochs < 1 and config["trainer"]["max_steps"] < 1:
            raise UserError(f"trainer.max_epochs: {epochs} trains no bridge")
        if config["splits"] > 1 and self.resume not in (None, "last"):
            raise UserError(
                f"ckpt_path {self.resume}: is the bridge of one split; add --splits 1, or "
                "resume all of them with --ckpt_path last"
            )

    def _split_numbers(self, data: BiosignalData) -> range:
        return range(data.split_seed, data.split_seed + self.config["fit"]["splits"])


def main(argv: list[str] | None = None) -> int:
    """Run the main job; returns the exit code."""
    return run_command(lambda: TrainJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
