"""`python -m bioxbridge.select`: where the bridge reads and writes, and what other places give.

Two-stage selection alone takes seconds once the encoders stand. `--places nine` also trains a
bridge at nine fixed places (first, middle, last of both models), `--places all` at every one.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from lightning.pytorch.cli import LightningArgumentParser

from bioxbridge import plots
from bioxbridge.arms import another_bridge, scores
from bioxbridge.data import BiosignalData
from bioxbridge.experiment import Split
from bioxbridge.job import BridgeJob
from bioxbridge.metrics import interval_text, t_interval
from bioxbridge.module import BridgeModule, predict
from bioxbridge.selection import fixed_positions
from papers_shared.command import run_command
from papers_shared.results import Claim, Column, Figure, Results, Table

SELECTED, RANDOM, NINE, BEST = "Two-stage", "A place at random", "Mean of nine fixed", "Best of all"


class SelectJob(BridgeJob):
    """Select the bridge's place, and compare it with others."""

    verb = "select"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add `--places`."""
        super().add_arguments_to_parser(parser)
        parser.add_argument(
            "--places",
            type=Literal["selected", "nine", "all"],
            default="selected",
            help="Where bridges are trained: nowhere but at the selected place, at nine fixed "
            "places as well, or everywhere.",
        )

    def fit(self, model: BridgeModule, datamodule: BiosignalData, **_: Any) -> None:
        """Select on every split, train where asked for, then write the report."""
        splits = [self._run(split, model) for split in self.splits(datamodule, model)]
        if self.leader:
            self.finish(self._results(splits, datamodule))

    def _run(self, split: Split, model: BridgeModule) -> dict[str, Any]:
        encoders, _ = split.encoders()
        old, _ = split.task_model("old", encoders["old"])
        transfer, seconds = split.transfer(encoders["new"], old)
        chosen = transfer.positions
        depths = (transfer.new.depth, old.encoder.depth)
        places = {(chosen.new_block, chosen.old_block)}
        if self.config["fit"]["places"] == "nine":
            places |= set(fixed_positions(*depths))
        elif self.config["fit"]["places"] == "all":
            places |= set(itertools.product(*map(range, depths)))
        teacher = predict(old, split.parts["test"].old)
        accuracy = {}
        for new_block, old_block in sorted(places):
            moved = transfer.at(replace(chosen, new_block=new_block, old_block=old_block))
            arm = another_bridge(
                split,
                moved,
                model,
                name=f"place {new_block} {old_block}",
                epochs=self.config["fit"]["trainer"]["max_epochs"],
            )
            row = scores(split, arm, teacher)
            accuracy[new_block, old_block] = (row["balanced_accuracy"], row["seconds"])
        return {
            "split": split.number,
            "positions": chosen,
            "seconds": seconds,
            "accuracy": accuracy,
            "depths": depths,
        }

    def _results(self, splits: list[dict[str, Any]], data: BiosignalData) -> Results:
        arms = {SELECTED: [_at_selected(s) for s in splits]}
        seconds = {SELECTED: [s["seconds"] for s in splits]}
        depths, trained = splits[0]["depths"], self.config["fit"]["places"]
        if trained != "selected":
            nine = fixed_positions(*depths)
            arms[NINE] = [np.mean([s["accuracy"][p][0] for p in nine]) for s in splits]
        if trained == "all":
            everything = [[a for a, _ in s["accuracy"].values()] for s in splits]
            arms[RANDOM] = [float(np.mean(found)) for found in everything]
            arms[BEST] = [max(found) for found in everything]
            seconds[BEST] = [sum(t for _, t in s["accuracy"].values()) for s in splits]
        rows = []
        for name, found in arms.items():
            row: dict[str, Any] = {"method": name, "balanced_accuracy": float(np.mean(found))}
            if len(found) > 1:
                row["balanced_accuracy_spread"] = float(np.std(found, ddof=1))
            row["seconds"] = float(np.mean(seconds[name])) if name in seconds else None
            row["reference"] = name == BEST
            rows.append(row)
        notes = [f"Split {s['split']}: {s['positions'].describe()}." for s in splits]
        metrics: dict[str, float | None] = {
            f"{row['method']}/balanced_accuracy": row["balanced_accuracy"] for row in rows
        }
        claim = None
        if trained != "selected":
            gain = np.array(arms[SELECTED]) - np.array(arms[NINE])
            mean, low, high = t_interval(gain)
            metrics |= {"gain": mean, "gain/low": low, "gain/high": high}
            claim = Claim(
                text="Two-stage selection beats fixed places",
                paper="+3.7 points over the mean of nine (WESAD, PPG to ECG)",
                ours=f"{interval_text(gain)} points",
                held=True if low > 0 else False if high < 0 else None,
            )
        selection = self.run.figure("selection.png")
        plots.plot_selection(
            selection, [{"split": s["split"], **s["positions"].as_dict()} for s in splits]
        )
        figures = [
            Figure.at(
                selection,
                caption="Two-stage selection of the bridge's place; the choice is ringed.",
            )
        ]
        if trained == "all":
            notes += [_rank(s) for s in splits]
            metrics["grid_over_selection"] = float(
                np.mean(seconds[BEST]) / np.mean(seconds[SELECTED])
            )
            notes.append(
                "Training a bridge at every place takes "
                f"{metrics['grid_over_selection']:.3g} times as long."
            )
            ranks = [_rank_of_selected(s) for s in splits]
            metrics["mean_rank"] = float(np.mean(ranks))
            places = self.run.figure("places.png")
            plots.plot_places(places, splits, depths)
            figures.append(
                Figure.at(
                    places,
                    caption="Balanced accuracy of a bridge at every place; the selected is ringed.",
                )
            )
        return Results(
            package=self.package,
            verb=self.verb,
            title=f"The bridge's place, {data.old} to {data.new}",
            table=Table(
                columns=[
                    Column(key="method", label="Place", digits=None),
                    Column(
                        key="balanced_accuracy", label="Balanced accuracy %", higher_is_better=True
                    ),
                    Column(key="seconds", label="Seconds to find it"),
                ],
                rows=rows,
                ours=[SELECTED],
                caption=(
                    f"Test {data.unit}, {data.new} alone; {len(splits)} split(s). The best "
                    "of all is known only from test labels."
                ),
            ),
            claim=claim,
            metrics=metrics,
            notes=notes,
            figures=figures,
        )


def _at_selected(split: dict[str, Any]) -> float:
    chosen = split["positions"]
    return split["accuracy"][chosen.new_block, chosen.old_block][0]


def _rank_of_selected(split: dict[str, Any]) -> int:
    return 1 + sum(accuracy > _at_selected(split) for accuracy, _ in split["accuracy"].values())


def _rank(split: dict[str, Any]) -> str:
    return (
        f"Split {split['split']}: the selected place is number {_rank_of_selected(split)} of "
        f"{len(split['accuracy'])} by test accuracy."
    )


def main(argv: list[str] | None = None) -> int:
    """Run the selection; returns the exit code."""
    return run_command(lambda: SelectJob(BridgeModule, BiosignalData, argv))


if __name__ == "__main__":
    sys.exit(main())
