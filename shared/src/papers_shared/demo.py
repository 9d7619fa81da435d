"""Run the packages' main jobs one after the other, and show what came out side by side."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.box
import rich.table
from rich.text import Text

from papers_shared.console import console, stderr
from papers_shared.errors import UserError
from papers_shared.report import HELD, HELD_STYLES, print_whole, render_page
from papers_shared.results import check_metrics, now
from papers_shared.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Job:
    """A main job that has ended.

    Attributes:
        package: import name.
        run: its run folder.
        link: path of the run folder below the root, with forward slashes.
        document: content of `metrics.json`; None when the job failed.
        problem: why it failed, empty when it did not.
    """

    package: str
    run: RunFolder
    link: str
    document: dict[str, Any] | None
    problem: str = ""

    @property
    def verdict(self) -> str:
        """One or two words on the claim, or `failed`."""
        return "failed" if self.document is None else HELD[self.document["claim"]["held"]]

    @property
    def page(self) -> Path:
        """The report, or the run folder where there is none."""
        return self.run.path if self.document is None else self.run.path / "report.html"


def run_demo(packages: list[str], root: str | Path = "runs") -> int:
    """Run `python -m PACKAGE.train` for each package, print one table, write `index.html`.

    Args:
        packages: import names.
        root: folder that receives the run folders and `index.html`.

    Returns:
        The exit code: 0, 1 when a main job failed, 2 when there is no package to run.

    Raises:
        UserError: a name is no import name, or `root` cannot be written.
    """
    if not packages:
        stderr.print("no package is built yet, so there is nothing to run")
        return 2
    if wrong := [package for package in packages if not package.isidentifier()]:
        raise UserError(f"demo: {wrong[0]!r} is not the import name of a package")
    jobs = []
    for number, package in enumerate(packages, 1):
        console.print(Text(f"\n{package} ({number} of {len(packages)})", "bold"))
        jobs.append(_run(package, Path(root)))
    print_whole(_table(jobs))
    page = render_page("gallery.html.j2", jobs=jobs, created=now())
    console.print(f"all reports: {RunFolder(root).write_text('index.html', page)}", markup=False)
    return int(any(job.document is None for job in jobs))


def main(argv: list[str]) -> int:
    """`python -m papers_shared demo PACKAGE...`."""
    parser = argparse.ArgumentParser(prog="python -m papers_shared demo")
    parser.add_argument("packages", nargs="*", help="import names, run in this order")
    return run_demo(parser.parse_args(argv).packages)


def _run(package: str, root: Path) -> Job:
    run = RunFolder.create(package, root)
    command = [sys.executable, "-m", f"{package}.train", "--run.dir", str(run.path)]
    code = subprocess.run(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
    link = run.path.relative_to(root).as_posix()
    try:
        if code != 0:
            raise UserError(f"python -m {package}.train ended with exit code {code}")
        document = run.read_json("metrics.json")
        check_metrics(document)
    except UserError as error:
        return Job(package=package, run=run, link=link, document=None, problem=str(error))
    return Job(package=package, run=run, link=link, document=document)


def _table(jobs: list[Job]) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, leading=1)
    table.add_column("Package", min_width=max(len(job.package) for job in jobs))
    width = max(72, *(len(word) for job in jobs for word in f"{job.problem} {job.page}".split()))
    table.add_column("Claim and report", min_width=24, max_width=width, overflow="fold")
    table.add_column("Verdict", min_width=len("undecided"))
    table.add_column("Seconds", justify="right", min_width=len("Seconds"))
    table.add_column("Peak MB", justify="right", min_width=len("Peak MB"))
    for job in jobs:
        lines, costs = [job.problem], ["", ""]
        if job.document is not None:
            claim, memory = job.document["claim"], job.document["peak_memory_mb"]
            lines = [claim["text"], f"paper: {claim['paper']}", f"here: {claim['ours']}"]
            costs = [f"{job.document['seconds']:.0f}", f"{max(memory.values()):,.0f}"]
        verdict = Text(job.verdict, HELD_STYLES.get(job.verdict, "bold red"))
        text = Text("\n".join([*lines, str(job.page)]))
        table.add_row(job.package, text, verdict, *costs)
    return table
