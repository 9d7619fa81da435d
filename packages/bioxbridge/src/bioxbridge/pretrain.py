"""`python -m bioxbridge.pretrain`: the encoders alone, without a label.

They are stages of the run folder: `python -m bioxbridge.train --run.dir` of the same folder goes
on with them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bioxbridge.data import BiosignalData
from bioxbridge.job import BridgeJob
from bioxbridge.module import BridgeModule
from papers_shared.command import run_command
from papers_shared.measure import count_parameters
from papers_shared.results import Column, Results, Table


class PretrainJob(BridgeJob):
    """Pretrain an encoder per modality by masked reconstruction."""

    verb = "pretrain"

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Pretrain on every split, then write the report."""
        rows = []
        for split in self.splits(datamodule):
            encoders, errors = split.encoders()
            for side, encoder in encoders.items():
                modality = getattr(datamodule, side)
                rows.append(
                    {
                        "modality": modality,
                        "split": split.number,
                        "error": 100 * errors[modality],
                        "parameters": count_parameters(encoder),
                    }
                )
        if self.leader:
            self.finish(self._results(rows, datamodule))

    def _results(self, rows: list[dict[str, Any]], data: BiosignalData) -> Results:
        means = {
            modality: float(np.mean([r["error"] for r in rows if r["modality"] == modality]))
            for modality in (data.new, data.old)
        }
        return Results(
            package=self.package,
            verb=self.verb,
            title=f"Encoders of {data.old} and {data.new}",
            table=Table(
                columns=[
                    Column(key="modality", label="Modality", digits=None),
                    Column(key="split", label="Split", digits=0),
                    Column(key="error", label="Reconstruction error %"),
                    Column(key="parameters", label="Parameters", digits=0),
                ],
                rows=rows,
                caption=(
                    "Masked tokens of the validation split, percent of their variance: 100 "
                    "means that nothing was learned."
                ),
            ),
            metrics={f"{modality}/error": mean for modality, mean in means.items()},
        )


def main(argv: list[str] | None = None) -> int:
    """Pretrain; returns the exit code."""
    return run_command(lambda: PretrainJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
