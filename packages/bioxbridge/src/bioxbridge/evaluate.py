"""`python -m bioxbridge.evaluate RUN`: a trained bridge on recordings of the new modality alone.

Without `--path` it scores the test subjects of the run's own recordings; with it, any recordings
that hold the new modality, labelled or not. Every window's prediction goes to a CSV file.
"""

from __future__ import annotations

import csv
import io
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bioxbridge.bridged import BridgedModel
from bioxbridge.data import BiosignalData, Windows
from bioxbridge.encoder import SignalEncoder
from bioxbridge.frozen import frozen_encoder
from bioxbridge.metrics import classification_scores
from bioxbridge.task import load_task_model
from bioxbridge.windows import SPLITS, UNLABELLED
from papers_shared.command import run_verb
from papers_shared.console import stderr
from papers_shared.errors import UserError, bad_input
from papers_shared.report import print_results_table
from papers_shared.results import Column, Table
from papers_shared.run_folder import RunFolder


@dataclass(kw_only=True)
class EvaluateOptions:
    """Use a trained bridge on recordings of the new modality alone.

    Args:
        run: folder of a `train` run.
        split: which of its bridges; the first by default.
        path: recordings to predict; the test subjects of the run by default.
        source: their reader, see `--data.source`; that of the run by default.
        out: CSV file for the predictions, one row a window; `predictions.csv` by default.
    """

    run: str
    split: int | None = None
    path: str | None = None
    source: str | None = None
    out: str = "predictions.csv"


def evaluate(options: EvaluateOptions) -> None:
    """Predict, write the CSV file, and print a table by subject.

    A run that dropped flat and clipped windows (`--data.quality drop`) drops them here too.

    Raises:
        UserError: the run, its bridge or the recordings cannot be used.
    """
    run = RunFolder.existing(options.run)
    data_options = run.read_yaml("config.yaml").get("data")
    if not isinstance(data_options, dict):
        raise UserError(f"{run.path / 'config.yaml'}: holds no options of `data`")
    number = data_options.get("split_seed", 0) if options.split is None else options.split
    with bad_input():
        model = load_bridge(run.path, number)
        data = BiosignalData(**data_options | _elsewhere(options))
        windows = data.windows(data.new)
        kept = np.ones(len(windows.labels), bool)
        if options.path is None:
            kept = data.masks(data.groups(windows), number)[SPLITS[-1]]
        if data.quality == "drop":
            kept = kept & ~(windows.quality.flat | windows.quality.clipped)
        if not kept.any():
            raise ValueError("data.quality: every window is flat or clipped")
        probabilities = _predict(model, windows, kept)
        _write(Path(options.out), windows, kept, probabilities)
        print_results_table("Predictions by subject", _by_subject(windows, kept, probabilities))
    stderr.print(f"predictions: {options.out}", markup=False)


def load_bridge(run: str | Path, split: int) -> BridgedModel:
    """The bridged model of a `train` run, ready for inputs of the new modality.

    Raises:
        ValueError: the run holds no bridge of that split, or one that cannot be read.
    """
    run = Path(run)
    folder, stages = run / f"models/split-{split}", run / f"stages/split-{split}"
    if not folder.is_dir():
        there = sorted(path.name.removeprefix("split-") for path in run.glob("models/split-*"))
        raise ValueError(
            f"split: {run} holds a bridge of {', '.join(there) or 'none'}, not {split}"
        )
    new = frozen_encoder(SignalEncoder.from_pretrained(stages / "encoder-new"))
    old = load_task_model(stages / "task-old")
    return BridgedModel.from_pretrained(folder, new=new, old=old).eval()


def _elsewhere(options: EvaluateOptions) -> dict[str, Any]:
    named = {"path": options.path, "source": options.source}
    return {name: value for name, value in named.items() if value is not None}


@torch.no_grad()
def _predict(model: BridgedModel, windows: Windows, kept: np.ndarray) -> np.ndarray:
    """Class probabilities (N, C) of the kept windows."""
    inputs = windows.tokens[torch.from_numpy(kept)]
    return torch.cat([model(batch).softmax(dim=-1) for batch in inputs.split(512)]).numpy()


def _write(path: Path, windows: Windows, kept: np.ndarray, probabilities: np.ndarray) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    classes = [f"probability_{k}" for k in range(probabilities.shape[1])]
    writer.writerow(["recording", "subject", "start_seconds", "label", "predicted", *classes])
    labels = [("" if label == UNLABELLED else label) for label in windows.labels.numpy()[kept]]
    rows = zip(
        windows.recordings[kept],
        windows.subjects[kept],
        windows.starts[kept],
        labels,
        probabilities.argmax(axis=1),
        *probabilities.T.round(4),
        strict=True,
    )
    writer.writerows(rows)
    RunFolder(path.parent).write_text(path.name, text.getvalue())


def _by_subject(windows: Windows, kept: np.ndarray, probabilities: np.ndarray) -> Table:
    labels, subjects = windows.labels.numpy()[kept], windows.subjects[kept]
    predicted = probabilities.argmax(axis=1)
    rows = []
    groups = [(name, subjects == name) for name in np.unique(subjects)]
    for name, mask in [*groups, ("all", np.ones(len(labels), bool))]:
        row: dict[str, Any] = {"subject": name, "windows": int(mask.sum())}
        shares = np.bincount(predicted[mask], minlength=probabilities.shape[1]) / mask.sum()
        row["classes"] = " ".join(f"{share:.2f}" for share in shares)
        if (labels[mask] != UNLABELLED).any():
            row |= classification_scores(labels[mask], predicted[mask])
        rows.append(row)
    return Table(
        columns=[
            Column(key="subject", label="Subject", digits=None),
            Column(key="windows", label="Windows", digits=0),
            Column(key="balanced_accuracy", label="Balanced accuracy %"),
            Column(key="macro_f1", label="Macro-F1 %"),
            Column(key="classes", label="Shares of the predicted classes", digits=None),
        ],
        rows=rows,
        ours=["all"],
    )


def main(argv: list[str] | None = None) -> int:
    """Evaluate; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    first = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))[:1]
    flags = [f"--run={run}" for run in first] + arguments[len(first) :]
    return run_verb("bioxbridge", "evaluate", EvaluateOptions, evaluate, flags)


if __name__ == "__main__":
    sys.exit(main())
