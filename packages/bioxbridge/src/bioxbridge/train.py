"""The main job: `python -m bioxbridge.train`.

On each split by subject: pretrain an encoder per modality without labels, train a task model on
the old modality, select the bridge's place, train the bridge on unlabelled pairs, and test it on
the new modality alone beside its baselines.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from bioxbridge.arms import compare
from bioxbridge.data import BiosignalData
from bioxbridge.job import BridgeJob
from bioxbridge.module import BridgeModule
from papers_shared.command import run_command


class TrainJob(BridgeJob):
    """Bridge two frozen biosignal encoders and compare with the baselines."""

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Run every split, then write the report."""
        splits = self.splits(datamodule, model)
        self.finish_splits(compare(split, copy.deepcopy(model)) for split in splits)


def main(argv: list[str] | None = None) -> int:
    """Run the main job; returns the exit code."""
    return run_command(lambda: TrainJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
