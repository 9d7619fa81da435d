"""`python -m bioxbridge.report RUN [RUN ...]`: the splits of several runs in one report.

Splits may so run on several machines, each with its own `--data.split_seed`.
"""

from __future__ import annotations

import copy
import itertools
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bioxbridge.summary import summarise
from papers_shared.command import run_verb
from papers_shared.console import stderr
from papers_shared.errors import UserError
from papers_shared.report import print_table, write_report
from papers_shared.results import check_metrics
from papers_shared.run_folder import RunFolder, first_difference


@dataclass(kw_only=True)
class ReportOptions:
    """Put the splits of several runs into one report.

    Args:
        runs: folders of `train` runs, of the same two modalities and different splits.
        out: folder for the report; a new one under `runs` by default.
    """

    runs: list[str]
    out: str | None = None


# In what a run may differ from the others of its report.
_FREE = ("splits", "run", "data.split_seed", "data.path", "trainer.accelerator", "trainer.devices")


def report(options: ReportOptions) -> None:
    """Read the runs and write their common report.

    Raises:
        UserError: a folder holds no splits, they do not fit together, or `out` is a run itself.
    """
    if not options.runs:
        raise UserError("runs: name at least one run folder")
    runs = [_FinishedRun.read(folder) for folder in options.runs]
    splits: dict[int, dict[str, Any]] = {}
    sources: dict[int, str] = {}
    for run in runs:
        _check_alike(run, runs[0])
        for split in run.splits:
            number = split["split"]
            if number in splits:
                raise UserError(f"{run.folder}: split {number} is also in {sources[number]}")
            if split["recordings"] != runs[0].splits[0]["recordings"]:
                raise UserError(f"{run.folder}: ran on other recordings than {runs[0].folder}")
            if split["rows"].keys() != runs[0].splits[0]["rows"].keys():
                raise UserError(
                    f"{run.folder}: methods {list(split['rows'])} differ from the first's"
                )
            splits[number], sources[number] = split, run.folder
    if options.out and any(Path(options.out).glob("*config.yaml")):
        raise UserError(f"out: {options.out} is the folder of a run; its report would be replaced")
    out = RunFolder(options.out) if options.out else RunFolder.create("bioxbridge")
    results = summarise([splits[number] for number in sorted(splits)], verb="report", run=out)
    write_report(
        out,
        results,
        config_yaml=yaml.safe_dump(runs[0].config, sort_keys=False),
        seconds=sum(run.metrics["seconds"] for run in runs),
        device=runs[0].metrics["device"],
        command=shlex.join(["python", "-m", "bioxbridge.report", *options.runs]),
        seed=runs[0].metrics["seed"],
    )
    print_table(results)
    stderr.print(f"report: {out.path / 'report.html'}", markup=False)


@dataclass(frozen=True, kw_only=True)
class _FinishedRun:
    """What a run left: its options, the splits' rows, and where and how long it ran."""

    folder: str
    config: dict[str, Any]
    splits: list[dict[str, Any]]
    metrics: dict[str, Any]

    @classmethod
    def read(cls, folder: str) -> _FinishedRun:
        run = RunFolder.existing(folder)
        metrics = run.read_json("metrics.json")
        check_metrics(metrics)
        return cls(
            folder=folder,
            config=run.read_yaml("config.yaml"),
            splits=_read_splits(run),
            metrics=metrics,
        )


def _check_alike(run: _FinishedRun, first: _FinishedRun) -> None:
    """Refuse to average over runs that differ in more than their splits.

    Raises:
        UserError: names the first option in which they differ.
    """
    here, there = (_without(one.config, _FREE) for one in (run, first))
    difference = first_difference(here, there)
    if difference:
        difference = difference.replace("this run asks for", f"{first.folder} has")
        raise UserError(f"{run.folder}: ran with {difference}; no average of the two means much")


def _without(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    kept = copy.deepcopy(config)
    for name in names:
        *groups, last = name.split(".")
        inner = kept
        for group in groups:
            inner = inner.get(group) or {}
        inner.pop(last, None)
    return kept


def _read_splits(run: RunFolder) -> list[dict[str, Any]]:
    found = run.read_json("splits.json")
    needed = {"split", "recordings", "old", "new", "classes", "class_names", "rows", "positions"}
    if not isinstance(found, list) or not all(
        isinstance(split, dict) and needed <= split.keys() for split in found
    ):
        raise UserError(f"{run.path}/splits.json: holds no splits of a train run")
    return found


def main(argv: list[str] | None = None) -> int:
    """Write the common report; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    runs = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    flags = [f"--runs={json.dumps(runs)}"] * bool(runs) + arguments[len(runs) :]
    return run_verb("bioxbridge", "report", ReportOptions, report, flags)


if __name__ == "__main__":
    sys.exit(main())
