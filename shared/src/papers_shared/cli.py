"""The command line of a main job: LightningCLI with packaged defaults and an implied `fit`."""

from __future__ import annotations

import gc
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from papers_shared.command import OneLineErrors, packaged_config, resolve_configs
from papers_shared.console import console, stderr
from papers_shared.device import DeviceChoice, choose_device
from papers_shared.errors import UserError, bad_input
from papers_shared.progress import StageLog
from papers_shared.report import print_table, write_report
from papers_shared.results import Results
from papers_shared.run_folder import RunFolder

_RUN_DIR_VARIABLE = "PAPERS_RUN_DIR"


@dataclass(kw_only=True)
class RunOptions:
    """Where a run leaves its files, and how many threads it takes.

    Args:
        dir: run folder; a new one under `root` when it is not given.
        root: folder that receives new run folders.
        threads: CPU threads within one operation; all available cores when it is not given.
    """

    dir: str | None = None
    root: str = "runs"
    threads: int | None = None


class _Parser(OneLineErrors, LightningArgumentParser):
    """LightningCLI's parser with one-line errors."""


class MainJob(LightningCLI):
    """Parse, settle device and run folder, then call `fit`, which each package defines.

    A subclass names its `package` (and its `verb` if that is not `train`) and defines
    `fit(model, datamodule, ckpt_path)`, which ends with `finish(results)`. It finds the
    run folder in `self.run`, the device in `self.device`, what was typed in `self.command`, and
    builds the trainer of each of its runs with `new_trainer`.

    Args:
        model_class: Lightning module whose arguments become `--model.*`.
        datamodule_class: Lightning data module whose arguments become `--data.*`.
        argv: arguments; None takes the command line.

    Raises:
        UserError: an option, configuration file or checkpoint that cannot be used.
    """

    package: ClassVar[str]
    verb: ClassVar[str] = "train"

    def __init__(
        self,
        model_class: type[LightningModule],
        datamodule_class: type[LightningDataModule],
        argv: list[str] | None = None,
    ) -> None:
        self.started = time.perf_counter()
        arguments = list(sys.argv[1:] if argv is None else argv)
        if arguments[:1] == ["fit"]:
            arguments.pop(0)
        program = f"python -m {self.package}.{self.verb}"
        self.command = shlex.join([*program.split(), *arguments])
        default = packaged_config(self.package, "default")
        if not gc.get_freeze_count():
            # What the imports left stays for good: later collections need not look at it again.
            gc.freeze()
        try:
            super().__init__(
                model_class,
                datamodule_class,
                args=["fit", *resolve_configs(self.package, arguments)],
                parser_class=_Parser,
                parser_kwargs={
                    "prog": program,
                    "usage": "%(prog)s [options]",
                    "fit": {
                        "default_config_files": [str(default)],
                        "usage": f"{program} [options]",
                        "description": type(self).__doc__,
                    },
                },
                save_config_callback=None,
                # The run folder keeps the values and `StageLog` shows them.
                trainer_defaults={
                    "logger": False,
                    "enable_progress_bar": False,
                    "enable_model_summary": False,
                },
                seed_everything_default=0,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
            )
        except UserError:
            if hasattr(self, "run") and self.leader:
                self.run.discard()
            raise
        if self.leader:
            # What a resumed run changed counts once it has ended well.
            self.run.write_text(self.run.own("config.yaml"), self.config_text())

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Only `fit`, which is therefore never typed."""
        skipped = {"model", "train_dataloaders", "val_dataloaders", "datamodule", "weights_only"}
        return {"fit": {*skipped, "ckpt_path"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add `--run.*` and `--ckpt_path`; a subclass adds its own and calls this."""
        parser.add_argument(
            "--ckpt_path",
            type=str | None,
            default=None,
            help="Go on with a run: `last` for the one in --run.dir, or the newest; or a file.",
        )
        parser.add_class_arguments(RunOptions, "run")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse without Lightning's warning about explicit arguments."""
        self.config = parser.parse_args(args)
        seed = self.config["fit"]["seed_everything"]
        if isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise UserError(f"seed_everything: {seed} is not between 0 and {2**32 - 1}")

    def _parse_ckpt_path(self) -> None:
        """Checkpoints carry weights and progress; options come from flags and files alone."""

    def before_instantiate_classes(self) -> None:
        """Settle the device and the run folder before anything is built."""
        config = self.config["fit"]
        self.leader = rank_zero_only.rank == 0
        console.quiet = stderr.quiet = not self.leader
        trainer = config["trainer"]
        self.device: DeviceChoice = choose_device(
            trainer["accelerator"], trainer["precision"], config["run"]["threads"]
        )
        trainer["accelerator"] = self.device.accelerator
        trainer["precision"] = self.device.precision
        devices = str(trainer["devices"])
        if self.device.accelerator == "cpu" and not (
            devices == "auto" or (devices.isdigit() and int(devices))
        ):
            raise UserError(f"trainer.devices: {devices} is no number of processes above zero")
        if trainer["enable_checkpointing"] is False:
            raise UserError("trainer.enable_checkpointing: false, but runs resume by checkpoints")
        self.resume = config["ckpt_path"]
        if self.resume not in (None, "last"):
            check_checkpoint(self.resume)
        self.run = self._open_run(**config["run"].as_dict())
        if self.leader:
            if not (self.run.path / self.run.own("config.yaml")).exists():
                self.run.write_text(self.run.own("config.yaml"), self.config_text())
            stderr.print(f"{self.package}: {self.device.reason}", markup=False)
            stderr.print(f"run folder: {self.run.path}", markup=False)

    def instantiate_classes(self) -> None:
        """Build data, model and trainer; values that they refuse are the caller's mistakes."""
        try:
            with bad_input():
                super().instantiate_classes()
        except MisconfigurationException as error:
            raise UserError(f"trainer: {error}") from error

    def config_text(self) -> str:
        """The configuration as YAML that `--config` takes; the run folder itself is left out."""
        config = self.config["fit"].clone()
        config["run"]["dir"] = None
        config["ckpt_path"] = None
        config.pop("config", None)
        return self._parser("fit").dump(config, skip_unset=False, skip_validation=True)

    def _open_run(self, dir: str | None, root: str, **_: Any) -> RunFolder:  # noqa: A002
        dir = dir or os.environ.get(_RUN_DIR_VARIABLE)  # noqa: A001
        if dir is not None:
            opened = RunFolder.existing if self.resume == "last" else RunFolder
            return opened(dir, self.verb)
        if int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))) > 1:
            raise UserError("run.dir: a launched run needs --run.dir, one folder for all processes")
        if self.resume == "last":
            return RunFolder.latest(self.package, root, self.verb)
        return RunFolder.create(self.package, root, self.verb)

    def new_trainer(self, stage: str, **options: Any) -> Trainer:
        """A trainer with `--trainer.*` that logs as `stage` and keeps `checkpoints/STAGE/last`.

        Args:
            stage: name of this training.
            options: arguments of `lightning.Trainer` that override the configuration.
        """
        if self.config["fit"]["trainer"]["devices"] not in (1, "1", "auto"):
            # The processes that Lightning starts run this command again, in this run's folder.
            os.environ[_RUN_DIR_VARIABLE] = str(self.run.path)
        callbacks = [
            StageLog(stage, self.run),
            # One file, replaced after every epoch.
            ModelCheckpoint(
                dirpath=self.run.checkpoints / stage, filename="last", enable_version_counter=False
            ),
        ]
        configured = list(self._get(self.config_init, "trainer")["callbacks"] or [])
        return self.instantiate_trainer(callbacks=[*configured, *callbacks], **options)

    def finish(self, results: Results) -> None:
        """Write the report of a run and print its table."""
        report = write_report(
            self.run,
            results,
            config_yaml=self.config_text(),
            seconds=time.perf_counter() - self.started,
            device=self.device.as_dict(),
            command=self.command,
            seed=int(self.config["fit"]["seed_everything"]),
        )
        print_table(results)
        stderr.print(f"report: {report}", markup=False)

    def checkpoint_of(self, stage: str) -> Path | None:
        """Checkpoint from which training `stage` goes on; None starts it anew."""
        if self.resume is None:
            return None
        if self.resume != "last":
            return Path(self.resume)
        last = self.run.checkpoints / stage / "last.ckpt"
        if not last.is_file():
            return None
        check_checkpoint(last)
        return last


def check_checkpoint(path: str | Path) -> None:
    """Refuse a file that is no Lightning checkpoint; nothing in it is executed.

    Raises:
        UserError: it is missing, not readable as tensors and plain values, or of another kind.
    """
    if not Path(path).is_file():
        raise UserError(f"ckpt_path {path}: no such file")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"ckpt_path {path}: not readable as a checkpoint") from error
    for key in ("state_dict", "pytorch-lightning_version"):
        if not isinstance(content, dict) or key not in content:
            raise UserError(f"ckpt_path {path}: holds no {key}, so it is no Lightning checkpoint")
