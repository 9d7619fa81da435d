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

from bioxbridge.data import BiosignalData
from bioxbridge.experiment import Experiment
from bioxbridge.module import BridgeModule
from bioxbridge.pipeline import DistillationOptions, PretrainOptions, TaskOptions
from bioxbridge.report import summarise
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
        if config["splits"] < 1:
            raise UserError(f"splits: {config['splits']} is not a positive number of splits")
        if config["splits"] > 1 and self.resume not in (None, "last"):
            raise UserError(
                f"ckpt_path {self.resume}: is the bridge of one split; add --splits 1, or "
                "resume all of them with --ckpt_path last"
            )
        seed = int(config["seed_everything"])
        with bad_input():
            pairs = datamodule.pairs()
        stderr.print(
            f"{len(pairs):,} windows of {len(np.unique(pairs.subjects))} subjects, "
            f"{pairs.old.shape[1]} tokens each, {pairs.classes} classes"
        )
        experiment = Experiment(
            data=datamodule,
            pretrain=PretrainOptions(**config["pretrain"].as_dict()),
            task=TaskOptions(**config["task"].as_dict()),
            distillation=DistillationOptions(**config["distillation"].as_dict()),
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
        first = datamodule.split_seed
        splits = [
            experiment.run_split(number, copy.deepcopy(model))
            for number in range(first, first + config["splits"])
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
            seed=seed,
        )
        print_table(results)
        stderr.print(f"report: {report}", markup=False)


def main(argv: list[str] | None = None) -> int:
    """Run the main job; returns the exit code."""
    return run_command(lambda: TrainJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
