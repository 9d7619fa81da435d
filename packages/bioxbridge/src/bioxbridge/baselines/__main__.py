"""`python -m bioxbridge.baselines`: the baselines alone, without a bridge."""

from __future__ import annotations

import sys
from typing import Any

from bioxbridge.arms import compare
from bioxbridge.data import BiosignalData
from bioxbridge.job import BridgeJob
from bioxbridge.module import BridgeModule
from papers_shared.command import run_command


class BaselinesJob(BridgeJob):
    """Train and score the baselines without a bridge."""

    verb = "baselines"

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Run every split, then write the report."""
        self.finish_splits(compare(split, None) for split in self.splits(datamodule))


def main(argv: list[str] | None = None) -> int:
    """Run the baselines; returns the exit code."""
    return run_command(lambda: BaselinesJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
