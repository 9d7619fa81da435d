"""What the benchmarks share: one run folder, so that encoders train once, and intervals."""

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bioxbridge.metrics import interval_text, t_interval
from papers_shared.readme import write_results
from papers_shared.run_folder import RunFolder

# Split seeds that no choice was made on.
SEEDS = range(10, 15)
EPOCHS = 25
RESULTS = Path(__file__).with_name("results.json")

_FOLDER = os.environ.get("BENCH_RUNS") or tempfile.mkdtemp(prefix="bioxbridge-bench-")
write = functools.partial(write_results, RESULTS, package="bioxbridge")


def folder_of(name: str) -> Path:
    """A run folder of the benchmarks."""
    return Path(_FOLDER) / name


def run(main: Callable[[list[str]], int], *options: str, name: str = "watch") -> Path:
    """Run a verb, on the benchmark's splits unless told otherwise; returns the run folder."""
    splits = ["--data.split_seed", str(SEEDS[0]), "--splits", str(len(SEEDS))]
    epochs = ["--trainer.max_epochs", str(EPOCHS)]
    if main([*splits, *epochs, "--run.dir", str(folder_of(name)), *options]) != 0:
        raise SystemExit(1)
    return folder_of(name)


def metrics(folder: Path, verb: str) -> dict[str, float]:
    """The numbers that a verb left in a folder."""
    name = RunFolder(folder, verb).own("metrics.json")
    return json.loads((folder / name).read_text())["metrics"]


def points(differences: np.ndarray) -> str:
    """A mean and its interval, as the tables print them."""
    return f"{interval_text(np.asarray(differences))} points"


def above(differences: np.ndarray, bound: float = 0.0) -> bool | None:
    """Whether the whole interval lies above a bound; False when all lies below, None otherwise."""
    _, low, high = t_interval(np.asarray(differences))
    return True if low > bound else False if high < bound else None
