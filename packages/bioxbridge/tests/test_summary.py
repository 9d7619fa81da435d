"""The claim of a run is decided by its interval, never by a mean alone."""

import pytest

from bioxbridge.summary import better_than, level_with, summarise
from papers_shared.run_folder import RunFolder

METHODS = [
    "Random",
    "Oracle A (task model)",
    "Distillation, logits",
    "Probe on pseudo labels",
    "Bridge",
    "Bridge, untrained encoder",
]


@pytest.mark.parametrize(
    ("low", "high", "held"),
    [
        (-3.4, 1.0, True),
        (0.5, 2.0, True),
        (-9.0, -3.5, False),
        (-3.5, 9.0, None),
        (float("-inf"), float("inf"), None),
    ],
)
def test_level_is_a_matter_of_the_whole_interval(low, high, held):
    assert level_with(low, high) is held


def split(number, **scores):
    """A split on which every method scores 70 % unless told otherwise."""
    rows = {}
    for method in METHODS:
        score = scores.get(method.split(",")[0], 70.0)
        rows[method] = {
            **dict.fromkeys(("balanced_accuracy", "macro_f1", "weighted_f1", "agreement"), score),
            "parameters": 100 if method.startswith("Bridge") else 1000,
            "kiloflops": 1.0,
            "seconds": 1.0,
            "memory": 1.0,
            "entropy": 1.0,
            "confusion": [[1, 0], [0, 1]],
        }
    return {
        "split": number,
        "old": "A",
        "new": "B",
        "rows": rows,
        "positions": {
            "new_block": 0,
            "old_block": 1,
            "probe_scores": [0.5, 0.4],
            "cka_scores": [0.1, 0.2],
        },
        "reconstruction": {"A": 0.5, "B": 0.6},
        "classes": 2,
        "class_names": ["rest", "stress"],
    }


@pytest.mark.parametrize(
    ("bridge", "held"),
    [([70.5, 71.0, 70.0], True), ([50.5, 51.0, 51.5], None), ([90.0, 50.0, 70.0], None)],
)
def test_the_claim_and_its_figures(tmp_path, bridge, held):
    splits = [split(i, Bridge=score) for i, score in enumerate(bridge)]
    results = summarise(splits, verb="train", run=RunFolder(tmp_path))
    assert results.claim.held is held
    learned = bridge[0] > 70
    shown = "90.0 % fewer parameters" if learned else "nothing to compare: the bridge is at 51.0 %"
    assert shown in results.claim.ours
    assert {tmp_path / f.path for f in results.figures} == set(tmp_path.glob("figures/*.png"))


def test_task_models_of_two_kinds_have_no_mean_size(tmp_path):
    splits = [split(0), split(1)]
    splits[1]["rows"]["Oracle A (task model)"]["parameters"] = 79_000
    results = summarise(splits, verb="train", run=RunFolder(tmp_path))
    assert results.table.rows[1]["parameters"] == "1,000 to 79,000"
    assert results.metrics["oracle_a_task_model/parameters"] is None


def test_a_claim_clearly_missed_is_not_held(tmp_path):
    splits = [split(i, Bridge=80.0 + i, Distillation=95.0 + i) for i in range(3)]
    assert summarise(splits, verb="train", run=RunFolder(tmp_path)).claim.held is False


def test_a_collapsed_bridge_and_a_weak_teacher_are_noted(tmp_path):
    splits = [split(i, Oracle=60.0) for i in range(2)]
    for one in splits:
        one["rows"]["Oracle A (task model)"]["balanced_accuracy"] = 60.0
    splits[1]["rows"]["Bridge"]["entropy"] = 0.1
    notes = " ".join(summarise(splits, verb="train", run=RunFolder(tmp_path)).notes)
    assert "at 60.0 %, chance at 50.0 %: it has little" in notes
    assert "collapsed to few classes on splits [1]" in notes


def test_a_split_by_windows_is_said_to_leak(tmp_path):
    splits = [split(i) | {"unit": "windows"} for i in range(2)]
    notes = " ".join(summarise(splits, verb="train", run=RunFolder(tmp_path)).notes)
    assert "test windows share samples with training" in notes


def test_a_split_by_blocks_of_time_is_called_that(tmp_path):
    splits = [split(i) | {"unit": "blocks"} for i in range(2)]
    results = summarise(splits, verb="train", run=RunFolder(tmp_path))
    assert results.table.caption.startswith("Test blocks, B alone")
    assert "over 2 splits by block" in results.table.caption
    assert "nothing here is about a new person" in " ".join(results.notes)
    results = summarise([split(0)], verb="train", run=RunFolder(tmp_path))
    assert "one split by subject" in results.table.caption
    assert "new person" not in " ".join(results.notes)


def test_better_is_a_matter_of_the_whole_interval():
    assert better_than(0.1, 5.0) is True
    assert better_than(-5.0, -0.1) is False
    assert better_than(-0.1, 5.0) is None
