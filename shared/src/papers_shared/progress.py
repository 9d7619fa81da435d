"""Progress of training: a bar on a terminal, a few lines elsewhere, every epoch in a file."""

from __future__ import annotations

import math
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from papers_shared.console import stderr
from papers_shared.errors import UserError
from papers_shared.run_folder import RunFolder

_LINES_PER_STAGE = 4


class StageLog(Callback):
    """Report one stage of training by name, and stop it when it diverges.

    Every epoch's logged values go to the run folder's `metrics.csv`. A terminal shows a bar that
    leaves one line behind; anything else gets about four lines and no control characters.

    Args:
        stage: name as it appears on the screen and in `metrics.csv`.
        run: run folder; None writes no file.

    Raises:
        UserError: a logged value of an epoch is NaN or infinite.
    """

    def __init__(self, stage: str, run: RunFolder | None = None) -> None:
        self.stage = stage
        self.run = run
        self._progress: Progress | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar."""
        self._started = time.perf_counter()
        if not (trainer.is_global_zero and stderr.is_terminal):
            return
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[values]}"),
            console=stderr,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(
            self.stage, total=trainer.max_epochs, completed=trainer.current_epoch, values=""
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the epoch."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        epoch = trainer.current_epoch + 1
        for name, value in values.items():
            if not math.isfinite(value):
                raise UserError(
                    f"{self.stage}: {name} is {value} after epoch {epoch}: training diverged; "
                    "lower its learning rate or look at the data"
                )
        if not trainer.is_global_zero:
            return
        if self.run is not None:
            self.run.log(self.stage, epoch, values)
        text = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        if self._progress is not None:
            self._progress.update(self._task, completed=epoch, values=text)
            return
        total = trainer.max_epochs or 0
        every = max(1, total // _LINES_PER_STAGE)
        if epoch % every == 0 or epoch == total:
            self._line(epoch, total, text)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar and leave its last line."""
        if self._progress is None:
            return
        self._close()
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        text = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._line(trainer.current_epoch, trainer.max_epochs or 0, text)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: Any) -> None:
        """Close the bar when training is interrupted."""
        self._close()

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _line(self, epoch: int, total: int, text: str) -> None:
        seconds = time.perf_counter() - self._started
        line = f"{self.stage:<28} epoch {epoch:>3}/{total}  {text}  {seconds:.1f} s"
        stderr.print(line, markup=False)


def stage_trainer(
    stage: str,
    *,
    epochs: int,
    run: RunFolder | None = None,
    accelerator: str = "auto",
    precision: str = "32-true",
    **options: Any,
) -> Trainer:
    """A Trainer for a preparatory stage: one device, no logger, no checkpoints, one `StageLog`.

    Args:
        stage: name for the log.
        epochs: passes over the data.
        run: run folder that receives the epochs' values.
        accelerator: Lightning's accelerator.
        precision: Lightning's precision.
        options: further arguments of `lightning.Trainer`; `callbacks` are added to.
    """
    callbacks = [StageLog(stage, run), *options.pop("callbacks", [])]
    return Trainer(
        max_epochs=epochs,
        accelerator=accelerator,
        precision=precision,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=callbacks,
        **options,
    )
