"""`python -m bioxbridge.sweep`: many bridges on the same frozen models, one option after another.

`--vary "{rank: [1, 4, 16, 32], prototypes: [5, 50]}"` trains every combination; any option of
`--model` may vary, and `pairs` (share of the pairs, at an equal number of updates).
"""

from __future__ import annotations

import inspect
import itertools
import sys
from typing import Any

import numpy as np
from lightning.pytorch.cli import LightningArgumentParser

from bioxbridge import plots
from bioxbridge.arms import another_bridge, scores
from bioxbridge.data import BiosignalData
from bioxbridge.experiment import Split
from bioxbridge.job import BridgeJob
from bioxbridge.metrics import interval_text
from bioxbridge.module import BridgeModule, predict
from papers_shared.command import OneLineErrors, run_command
from papers_shared.errors import UserError
from papers_shared.results import Column, Figure, Results, Table

MODEL_OPTIONS = tuple(inspect.signature(BridgeModule).parameters)
PAIRS = "pairs"


class SweepJob(BridgeJob):
    """Train many bridges on the same frozen models, varying options."""

    verb = "sweep"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add `--vary`."""
        super().add_arguments_to_parser(parser)
        names = f"{PAIRS}, {', '.join(MODEL_OPTIONS)}"
        parser.add_argument(
            "--vary",
            type=dict[str, list],
            default={"rank": [1, 4, 16, 32]},
            help=f"Values by option; every combination is trained. Options: {names}.",
        )

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Run every combination on every split, then write the report."""
        vary = dict(self.config["fit"]["vary"])
        models = self._models(model, vary)
        rows = [
            self._run(split, models) for split in self.splits(datamodule, *(m for _, m in models))
        ]
        if self.leader:
            by_combination = [
                {"values": combination, "splits": found}
                for (combination, _), found in zip(models, zip(*rows, strict=True), strict=True)
            ]
            self.run.write_json("sweep.json", by_combination)
            self.finish(self._results(rows, vary, datamodule))

    def _models(self, model: BridgeModule, vary: dict[str, list]) -> list[tuple[dict, Any]]:
        """Each combination with its module; bad values are refused here."""
        if not vary:
            raise UserError("vary: names no option, like {rank: [1, 4]}")
        for name, values in vary.items():
            if name not in (PAIRS, *MODEL_OPTIONS):
                raise UserError(f"vary: {name!r} is not one of {PAIRS}, {', '.join(MODEL_OPTIONS)}")
            if not values:
                raise UserError(f"vary.{name}: holds no value")
            if any(value in values[:i] for i, value in enumerate(values)):
                raise UserError(f"vary.{name}: {values} names a value twice")
            for value in values if name == PAIRS else ():
                if not isinstance(value, int | float) or not 0 < value <= 1:
                    raise UserError(f"vary.{PAIRS}: {value!r} is no share in (0, 1]")
        parser = OneLineErrors()
        parser.add_class_arguments(BridgeModule)
        models = []
        for values in itertools.product(*vary.values()):
            combination = dict(zip(vary, values, strict=True))
            options = {k: v for k, v in combination.items() if k != PAIRS}
            try:
                parsed = parser.parse_object({**model.hparams, **options})
                models.append((combination, BridgeModule(**parsed.as_dict())))
            except (UserError, ValueError) as error:
                raise UserError(f"vary: {error}") from error
        return models

    def _run(self, split: Split, models: list[tuple[dict, Any]]) -> list[dict[str, Any]]:
        encoders, _ = split.encoders()
        old, _ = split.task_model("old", encoders["old"])
        transfer, _ = split.transfer(encoders["new"], old)
        teacher = predict(old, split.parts["test"].old)
        epochs = self.config["fit"]["trainer"]["max_epochs"]
        rows = []
        for combination, model in models:
            share = float(combination.get(PAIRS, 1))
            thinned = transfer.with_pairs(share, seed=split.seed("pairs"))
            name = " ".join(f"{key} {value}" for key, value in combination.items())
            arm = another_bridge(
                split, thinned, model, name=name, epochs=max(1, round(epochs / share))
            )
            rows.append(scores(split, arm, teacher))
        return rows

    def _results(
        self, splits: list[list[dict[str, Any]]], vary: dict[str, list], data: BiosignalData
    ) -> Results:
        combinations = list(itertools.product(*vary.values()))
        table, metrics = [], {}
        for index, values in enumerate(combinations):
            rows = [rows[index] for rows in splits]
            row: dict[str, Any] = dict(zip(vary, map(str, values), strict=True))
            for key in ("balanced_accuracy", "macro_f1", "agreement", "parameters", "seconds"):
                found = np.array([one[key] for one in rows], float)
                row[key] = float(found.mean())
                if key in ("balanced_accuracy", "macro_f1", "agreement") and len(found) > 1:
                    row[f"{key}_spread"] = float(found.std(ddof=1))
                metrics[f"{_named(vary, values)}/{key}"] = row[key]
            table.append(row)
        accuracy = [[rows[i]["balanced_accuracy"] for rows in splits] for i in range(len(table))]
        figure = self.run.figure("accuracy.png")
        plots.plot_sweep(
            figure,
            list(vary),
            combinations,
            accuracy,
            chance=100 / data.pairs().classes,
        )
        notes = []
        if len(splits) > 1:
            first = np.array(accuracy[0])
            for values, found in list(zip(combinations, accuracy, strict=True))[1:]:
                gain = interval_text(np.array(found) - first)
                notes.append(
                    f"{_named(vary, values)} minus {_named(vary, combinations[0])}: {gain} points."
                )
        return Results(
            package=self.package,
            verb=self.verb,
            title=f"BioX-Bridge, {data.old} to {data.new}: bridges by {', '.join(vary)}",
            table=Table(
                columns=[
                    *(Column(key=name, label=name, digits=None) for name in vary),
                    Column(
                        key="balanced_accuracy",
                        label="Balanced accuracy %",
                        higher_is_better=True,
                    ),
                    Column(key="macro_f1", label="Macro-F1 %", higher_is_better=True),
                    Column(key="agreement", label="Agrees with teacher %", higher_is_better=True),
                    Column(key="parameters", label="Trainable", digits=0, higher_is_better=False),
                    Column(key="seconds", label="Seconds"),
                ],
                rows=table,
                caption=f"Test {data.unit}, {data.new} alone; {len(splits)} split(s).",
            ),
            metrics=metrics,
            notes=notes,
            figures=[Figure.at(figure, caption="Balanced accuracy; points are splits.")],
        )


def _named(vary: dict[str, list], values: tuple) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(vary, values, strict=True))


def main(argv: list[str] | None = None) -> int:
    """Run a sweep; returns the exit code."""
    return run_command(lambda: SweepJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
