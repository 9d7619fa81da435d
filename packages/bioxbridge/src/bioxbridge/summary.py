"""From the rows of every split to the table, the claim and the figures of a run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bioxbridge import plots
from bioxbridge.arms import BASELINES, BRIDGE, RANDOM, UNTRAINED
from bioxbridge.metrics import interval_text, t_interval
from bioxbridge.selection import Positions
from papers_shared.results import Claim, Column, Figure, Results, Table
from papers_shared.run_folder import RunFolder

STUDENT = BASELINES["logits"]
PROBE = BASELINES["probe"]

# The paper calls the bridge as good as distillation where it is at most 3.4 points behind
# (table 2, ISRUC ECG to EEG), and cuts 87.9 to 99.1 % of the trainable parameters.
LEVEL_WITHIN = 3.4
PARAMETER_CUT = 87.9
# Below this many points over chance a task model has little to transfer.
WEAK_TEACHER = 20.0

COLUMNS = [
    Column(key="method", label="Method", digits=None),
    Column(key="balanced_accuracy", label="Balanced accuracy %", higher_is_better=True),
    Column(key="macro_f1", label="Macro-F1 %", higher_is_better=True),
    Column(key="weighted_f1", label="Weighted-F1 %", higher_is_better=True),
    Column(key="agreement", label="Agrees with teacher %", higher_is_better=True),
    Column(key="parameters", label="Trainable", digits=0, higher_is_better=False),
    Column(key="kiloflops", label="kFLOP a window", digits=0, higher_is_better=False),
    Column(key="seconds", label="Seconds"),
    Column(key="memory", label="Memory MB"),
]


def summarise(splits: list[dict[str, Any]], *, verb: str, run: RunFolder) -> Results:
    """Average over splits and draw the figures.

    Args:
        splits: one dictionary a split, as `bioxbridge.arms.compare` returns them.
        verb: that ran them.
        run: folder that receives the figures.
    """
    old, new, classes = (splits[0][key] for key in ("old", "new", "classes"))
    methods = list(splits[0]["rows"])
    references = [m for m in methods if m in (RANDOM, UNTRAINED) or m.startswith("Oracle")]
    rows = [_average(name, splits, reference=name in references) for name in methods]
    by_method = {row["method"]: row for row in rows}
    chance = 100 / classes
    scores = {
        name: np.array([split["rows"][name]["balanced_accuracy"] for split in splits])
        for name in methods
    }
    bridged = BRIDGE in methods
    return Results(
        package="bioxbridge",
        verb=verb,
        title=f"BioX-Bridge: {old} to {new}",
        table=Table(
            columns=COLUMNS,
            rows=rows,
            ours=[BRIDGE],
            caption=(
                f"Test {_unit(splits)}, {new} alone except the {old} oracle; {_over(splits)}. "
                f"Chance is {chance:.1f} %. Seconds are those of training and, for the bridge, of "
                "finding its place; memory is what training added at its highest."
            ),
        ),
        claim=_claim(scores, by_method, chance) if bridged else None,
        metrics=_metrics(by_method, scores, splits),
        notes=_notes(splits, scores, chance),
        figures=_figures(splits, rows, scores, chance, run),
    )


def _figures(
    splits: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    scores: dict[str, np.ndarray],
    chance: float,
    run: RunFolder,
) -> list[Figure]:
    shown = [{**row, "splits": scores[row["method"]]} for row in rows]
    plots.plot_scores(run.figure("scores.png"), shown, ours=BRIDGE, chance=chance)
    captions = {"scores": "Balanced accuracy of each method; points are single splits."}
    sizes = {
        name: float(np.mean([split["rows"][name]["parameters"] for split in splits]))
        for name in scores
    }
    trained = [row | {"parameters": sizes[row["method"]]} for row in rows if not row["reference"]]
    if trained:
        plots.plot_cost(run.figure("cost.png"), trained, ours=BRIDGE)
        captions["cost"] = "What each method trains, and how well it then does."
    if BRIDGE in scores:
        curves = [{"split": split["split"], **split["positions"]} for split in splits]
        plots.plot_selection(run.figure("selection.png"), curves)
        captions["selection"] = "Two-stage selection of the bridge's place; the choice is ringed."
        plots.plot_confusion(
            run.figure("confusion.png"),
            np.sum([split["rows"][BRIDGE]["confusion"] for split in splits], axis=0),
            names=splits[0]["class_names"],
            title=f"Bridge, {splits[0]['new']} alone",
        )
        captions["confusion"] = (
            f"Confusion of the bridge on test {_unit(splits)}, percent of each true class."
        )
    return [Figure.at(run.figure(f"{name}.png"), caption) for name, caption in captions.items()]


def _average(name: str, splits: list[dict[str, Any]], *, reference: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"method": name, "reference": reference}
    for column in COLUMNS[1:]:
        values = [split["rows"][name].get(column.key) for split in splits]
        if any(value is None for value in values):
            row[column.key] = None
            continue
        if column.key == "parameters" and min(values) < max(values):
            # A task model is a probe on one split and fine-tuned on another: no mean of the two.
            row[column.key] = f"{min(values):,} to {max(values):,}"
            continue
        row[column.key] = float(np.mean(values))
        if column.label.endswith("%") and len(splits) > 1:
            row[f"{column.key}_spread"] = float(np.std(values, ddof=1))
    return row


def _claim(scores: dict[str, np.ndarray], rows: dict[str, dict[str, Any]], chance: float) -> Claim:
    text = "As accurate as distilling a whole student, with a fraction of its trainable parameters"
    paper = "-3.4 to +1.2 points, 87.9 to 99.1 % fewer parameters"
    if STUDENT not in scores:
        return Claim(text=text, paper=paper, ours="no student was trained", held=None)
    ahead = scores[BRIDGE] - scores[STUDENT]
    _, low, high = t_interval(ahead)
    sizes = [rows[name]["parameters"] for name in (BRIDGE, STUDENT)]
    if any(isinstance(size, str) for size in sizes):
        ours = f"sizes differ between the splits: {sizes[0]} against {sizes[1]}"
        return Claim(text=text, paper=paper, ours=ours, held=None)
    cut = 100 * (1 - sizes[0] / sizes[1])
    # A bridge at chance that is level with a student at chance decides nothing.
    learned = scores[BRIDGE].mean() >= chance + WEAK_TEACHER
    if not learned:
        ours = f"nothing to compare: the bridge is at {scores[BRIDGE].mean():.1f} %, chance at"
        return Claim(text=text, paper=paper, ours=f"{ours} {chance:.1f} %", held=None)
    held = level_with(low, high)
    if cut < PARAMETER_CUT:
        held = False
    return Claim(
        text=text,
        paper=paper,
        ours=f"{interval_text(ahead)} points, {cut:.1f} % fewer parameters",
        held=held,
    )


def _unit(splits: list[dict[str, Any]]) -> str:
    """What the splits do not share: subjects, blocks of time, or no more than windows."""
    return splits[0].get("unit", "subjects")


def _over(splits: list[dict[str, Any]]) -> str:
    by = f"by {_unit(splits).removesuffix('s')}"
    if len(splits) == 1:
        return f"one split {by}"
    return f"mean ± standard deviation over {len(splits)} splits {by}"


def better_than(low: float, high: float) -> bool | None:
    """Whether an interval of differences shows the bridge ahead: None when it holds zero."""
    if low > 0:
        return True
    return False if high < 0 else None


def level_with(low: float, high: float) -> bool | None:
    """Whether an interval of differences shows the bridge level with distillation.

    Returns:
        True when all of it lies above -`LEVEL_WITHIN`, False when all lies below, None otherwise.
    """
    if low >= -LEVEL_WITHIN:
        return True
    return False if high < -LEVEL_WITHIN else None


def _metrics(
    rows: dict[str, dict[str, Any]], scores: dict[str, np.ndarray], splits: list[dict[str, Any]]
) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {"splits": float(len(splits))}
    for name, row in rows.items():
        key = _key(name)
        for column in COLUMNS[1:]:
            value = row[column.key]
            metrics[f"{key}/{column.key}"] = None if isinstance(value, str) else value
    for rival in (RANDOM, *BASELINES.values(), UNTRAINED):
        if rival in scores and BRIDGE in scores:
            key = _key(rival)
            mean, low, high = t_interval(scores[BRIDGE] - scores[rival])
            metrics[f"bridge_minus_{key}"] = mean
            metrics[f"bridge_minus_{key}/low"] = low
            metrics[f"bridge_minus_{key}/high"] = high
    return metrics


def _key(method: str) -> str:
    """A method's name as part of a metric's name."""
    return re.sub(r"[^a-z0-9]+", "_", method.lower()).strip("_")


def _notes(
    splits: list[dict[str, Any]],
    scores: dict[str, np.ndarray],
    chance: float,
) -> list[str]:
    old = splits[0]["old"]
    errors = {
        side: float(np.mean([split["reconstruction"][side] for split in splits]))
        for side in splits[0]["reconstruction"]
    }
    notes = [
        f"Masked reconstruction error on the validation {_unit(splits)}, relative to the variance: "
        + ", ".join(f"{side} {error:.2f}" for side, error in errors.items())
        + "."
    ]
    if PROBE in scores and BRIDGE in scores:
        gain = interval_text(scores[BRIDGE] - scores[PROBE])
        notes.append(
            f"A linear probe on pseudo labels, which the paper's tables leave out, is the baseline "
            f"to beat: bridge minus probe {gain} points."
        )
    teacher = float(np.mean(scores[f"Oracle {old} (task model)"]))
    if teacher < chance + WEAK_TEACHER:
        notes.append(
            f"The {old} task model is at {teacher:.1f} %, chance at {chance:.1f} %: it has "
            "little to transfer, so the differences between methods mean little."
        )
    if BRIDGE in scores:
        collapsed = [s["split"] for s in splits if s["rows"][BRIDGE]["entropy"] < 0.5]
        if collapsed:
            notes.append(f"The bridge has collapsed to few classes on splits {collapsed}.")
        notes += [
            f"Split {split['split']}: {Positions(**split['positions']).describe()}."
            for split in splits
        ]
    if _unit(splits) == "blocks":
        notes.append(
            "Splits keep blocks of time apart, not people: nothing here is about a new person, and "
            "blocks that follow each other are alike."
        )
    if _unit(splits) == "windows":
        notes.append(
            "Windows were dealt out one by one: where they overlap, test windows share samples "
            "with training, and every score is too high."
        )
    if len(splits) == 1:
        notes.append(
            "One split: scores move by several points from one to the next, so the order of the "
            "methods here may be chance; --splits 5 runs five."
        )
    if len(splits) > 1:
        notes.append(
            f"Splits cut the same {_unit(splits)}, so they are not independent and intervals over "
            "splits are too narrow."
        )
    return notes
