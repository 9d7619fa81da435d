"""`python -m bioxbridge.report RUN [RUN ...]`: the splits of several runs in one report.

Splits may so run on several machines, each with its own `--data.split_seed`.
"""

from __future__ import annotations

import itertools
import json
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bioxbridge.summary import summarise
from papers_shared.command import run_verb
from papers_shared.console import stderr
from papers_shared.device import choose_device
from papers_shared.errors import UserError
from papers_shared.report import print_table, write_report
from papers_shared.run_folder import RunFolder


@dataclass(kw_only=True)
class ReportOptions:
    """Put the splits of several runs into one report.

    Args:
        runs: folders of `train` runs, of the same two modalities and different splits.
        out: folder for the report; a new one under `runs` by default.
    """

    runs: list[str]
    out: str | None = None


def report(options: ReportOptions) -> None:
    """Read the runs and write their common report.

    Raises:
        UserError: a folder holds no splits, or they do not fit together.
    """
    started = time.perf_counter()
    splits: dict[int, dict[str, Any]] = {}
    sources: dict[int, str] = {}
    for folder in options.runs:
        for split in _read_splits(folder):
            number = split["split"]
            if number in splits:
                raise UserError(f"{folder}: split {number} is also in {sources[number]}")
            first = next(iter(splits.values()), split)
            for key in ("old", "new", "classes"):
                if split[key] != first[key]:
                    raise UserError(f"{folder}: {key} {split[key]!r}, before {first[key]!r}")
            if split["rows"].keys() != first["rows"].keys():
                raise UserError(f"{folder}: methods {list(split['rows'])} differ from the first's")
            splits[number], sources[number] = split, folder
    if not splits:
        raise UserError("runs: name at least one run folder")
    run = RunFolder(options.out) if options.out else RunFolder.create("bioxbridge")
    results = summarise(list(splits.values()), verb="report", figures=run.figures)
    configs = [Path(folder, "config.yaml").read_text(encoding="utf-8") for folder in options.runs]
    write_report(
        run,
        results,
        config_yaml="---\n".join(configs),
        seconds=time.perf_counter() - started,
        device=choose_device("cpu"),
        command=shlex.join(["python", "-m", "bioxbridge.report", *options.runs]),
        seed=0,
    )
    print_table(results)
    stderr.print(f"report: {run.path / 'report.html'}", markup=False)


def _read_splits(folder: str) -> list[dict[str, Any]]:
    found = RunFolder.existing(folder).read_json("splits.json")
    needed = {"split", "old", "new", "classes", "class_names", "rows", "positions"}
    if not isinstance(found, list) or not all(
        isinstance(split, dict) and needed <= split.keys() for split in found
    ):
        raise UserError(f"{folder}/splits.json: holds no splits of a train run")
    return found


def main(argv: list[str] | None = None) -> int:
    """Write the common report; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    runs = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    flags = [f"--runs={json.dumps(runs)}"] * bool(runs) + arguments[len(runs) :]
    return run_verb("bioxbridge", "report", ReportOptions, report, flags)


if __name__ == "__main__":
    sys.exit(main())
