"""What the verbs that train have in common: their options, and the experiment built from them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from lightning.pytorch.cli import LightningArgumentParser

from bioxbridge.baselines.training import BaselineOptions
from bioxbridge.data import BiosignalData
from bioxbridge.experiment import Experiment, Split
from bioxbridge.module import BridgeModule
from bioxbridge.pretraining import PretrainOptions
from bioxbridge.summary import summarise
from bioxbridge.task import TaskOptions
from papers_shared.cli import MainJob
from papers_shared.console import stderr
from papers_shared.errors import UserError, bad_input
from papers_shared.progress import stage_trainer

PRECISIONS = ("32-true", "32", "16-mixed", "bf16-mixed")
# Options of the bridge's trainer that would make its training another than its rivals'.
_WHOLE: dict[str, tuple] = {
    "fast_dev_run": (False, 0),
    "overfit_batches": (0.0, 0),
    "limit_train_batches": (None, 1.0),
    "limit_val_batches": (None, 1.0),
    "max_steps": (-1,),
    "max_time": (None,),
    "accumulate_grad_batches": (1,),
}


class BridgeJob(MainJob):
    """A verb on splits by subject: parses, checks, and hands out the splits."""

    package = "bioxbridge"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options of the steps around the bridge."""
        super().add_arguments_to_parser(parser)
        parser.add_argument("--splits", type=int, default=1, help="Splits by subject to run.")
        parser.add_class_arguments(PretrainOptions, "pretrain")
        parser.add_class_arguments(TaskOptions, "task")
        parser.add_class_arguments(BaselineOptions, "baselines")
        # Equal budgets: what trains beside the bridge trains as long, by steps of the same size.
        parser.link_arguments("trainer.max_epochs", "baselines.epochs")
        parser.link_arguments("data.batch_size", "baselines.batch_size")

    def splits(self, data: BiosignalData, *models: BridgeModule) -> Iterator[Split]:
        """The splits that the options ask for; all options are checked before the first.

        Args:
            data: recordings.
            models: bridges that will be trained, not yet connected.

        Raises:
            UserError: an option or a recording that cannot be used.
        """
        config = self.config["fit"]
        numbers = range(data.split_seed, data.split_seed + config["splits"])
        with bad_input():
            options = {
                "pretrain": PretrainOptions(**config["pretrain"].as_dict()),
                "task": TaskOptions(**config["task"].as_dict()),
                "baselines": BaselineOptions(**config["baselines"].as_dict()),
            }
            pairs = data.pairs()
            for number in numbers:
                own = data.split(number)["pair"].old
                for model in models:
                    model.check_prototypes(own.shape[0] * own.shape[1])
        stderr.print(
            f"{len(pairs):,} windows of {len(np.unique(pairs.subjects))} {data.unit}, "
            f"{pairs.old.shape[1]} tokens each, {pairs.classes} classes"
        )
        experiment = Experiment(
            data=data,
            **options,
            run=self.run,
            seed=int(config["seed_everything"]),
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
        return (Split(experiment, number) for number in numbers)

    def finish_splits(self, compared: Iterable[dict[str, Any]]) -> None:
        """Compare on every split, keep the rows in `splits.json`, and write the report."""
        splits = list(compared)
        if self.leader:
            self.run.write_json(self.run.own("splits.json"), splits)
            self.finish(summarise(splits, verb=self.verb, run=self.run))

    def before_instantiate_classes(self) -> None:
        """Refuse at once what would only fail after hours, or end in a table that means little."""
        config = self.config["fit"]
        if config["splits"] < 1:
            raise UserError(f"splits: {config['splits']} is not a positive number of splits")
        epochs = config["trainer"]["max_epochs"]
        if epochs is None or epochs < 1:
            raise UserError(f"trainer.max_epochs: {epochs} is no number of epochs above zero")
        for name, whole in _WHOLE.items():
            value = config["trainer"][name]
            # One batch is 1, all of them are 1.0.
            if not any(type(value) is type(all_) and value == all_ for all_ in whole):
                raise UserError(
                    f"trainer.{name}: {value} would leave the bridge another budget than the "
                    "methods beside it; shorten with trainer.max_epochs or --config smoke"
                )
        precision = config["trainer"]["precision"]
        if precision is not None and str(precision) not in PRECISIONS:
            raise UserError(f"trainer.precision: {precision} is not one of {', '.join(PRECISIONS)}")
        if config["data"]["split_seed"] < 0:
            raise UserError(f"data.split_seed: {config['data']['split_seed']} is below 0")
        resume = config["ckpt_path"]
        if config["splits"] > 1 and resume not in (None, "last"):
            raise UserError(
                f"ckpt_path {resume}: is the bridge of one split; add --splits 1, or "
                "resume all of them with --ckpt_path last"
            )
        super().before_instantiate_classes()
