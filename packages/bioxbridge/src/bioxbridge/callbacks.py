"""Callbacks of bioxbridge's trainings."""

from __future__ import annotations

import time
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class KeepBest(Callback):
    """End training with the weights of the epoch that scored best on the validation split.

    Only parameters that require gradients are kept. The best weights travel in checkpoints, so a
    resumed training ends with the same ones.

    Args:
        monitor: name of a logged validation value.
        mode: whether `max` or `min` of it is best; the later epoch wins a tie.

    Attributes:
        seconds_before: that a resumed training had taken when it was interrupted.
    """

    def __init__(self, monitor: str, mode: Literal["max", "min"] = "max") -> None:
        self.monitor = monitor
        self.mode = mode
        self.best: float | None = None
        self.best_epoch = -1
        self.weights: dict[str, Tensor] = {}
        self.seconds_before = 0.0
        self._started = 0.0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare this epoch with the best so far."""
        if trainer.sanity_checking or self.monitor not in trainer.callback_metrics:
            return
        value = float(trainer.callback_metrics[self.monitor])
        sign = 1 if self.mode == "max" else -1
        if self.best is None or sign * value >= sign * self.best:
            self.best = value
            self.best_epoch = trainer.current_epoch
            self.weights = {
                name: parameter.detach().clone()
                for name, parameter in pl_module.named_parameters()
                if parameter.requires_grad
            }

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the best weights back."""
        for name, parameter in pl_module.named_parameters():
            if name in self.weights:
                parameter.copy_(self.weights[name])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "weights": self.weights,
            "seconds": self.seconds_before + time.perf_counter() - self._started,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a checkpoint's values."""
        self.best = state_dict["best"]
        self.best_epoch = state_dict["best_epoch"]
        self.weights = state_dict["weights"]
        self.seconds_before = state_dict["seconds"]
