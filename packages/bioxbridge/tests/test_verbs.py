"""The verbs beside `train`, on the stages of one run."""

import csv
import json
import shutil

import numpy as np
import pytest
import yaml

from bioxbridge import evaluate, pretrain, report, select, sweep, train
from bioxbridge.baselines import __main__ as baselines

FOREIGN = b'{"kind": "bioxbridge.BridgedModel"}'
ENCODER = b'{"kind": "bioxbridge.SignalEncoder", "features": 1, "tokens": 1, "wings": 2}'
SMOKE = ["--config", "smoke", "--run.threads", "1", "--baselines.arms", "[probe]"]


def document(folder, verb="train"):
    prefix = "" if verb in ("train", "report") else f"{verb}-"
    return json.loads((folder / f"{prefix}metrics.json").read_text())


def metrics(folder, verb="train"):
    return document(folder, verb)["metrics"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert train.main([*SMOKE, "--run.dir", str(folder)]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy, to add to or to damage."""
    return shutil.copytree(trained, tmp_path / "run")


def test_pretrain_leaves_the_encoders_for_training(tmp_path, capsys):
    options = [*SMOKE, "--run.dir", str(tmp_path)]
    assert pretrain.main(options) == 0
    found = metrics(tmp_path, "pretrain")
    assert set(found) == {"ACC/error", "GYR/error"}
    assert 50 < found["ACC/error"] < 200
    before = {path: path.read_bytes() for path in tmp_path.rglob("stages/*/encoder-*/*")}
    assert len(before) == 8
    assert train.main(options) == 0
    assert "split 0 pretrain" not in capsys.readouterr().err.split("tokens each")[2]
    assert all(path.read_bytes() == content for path, content in before.items())


def test_select_trains_nothing_more_than_asked(run, trained):
    assert select.main([*SMOKE, "--run.dir", str(run)]) == 0
    found = document(run, "select")
    assert [row["method"] for row in found["table"]["rows"]] == ["Two-stage"]
    assert found["claim"] is None
    assert len(list(run.glob("stages/split-0/bridges/place-*"))) == 1


def test_select_compares_with_every_place(run):
    assert select.main([*SMOKE, "--run.dir", str(run), "--places", "all"]) == 0
    rows = document(run, "select")["table"]["rows"]
    by_method = {row["method"]: row["balanced_accuracy"] for row in rows}
    assert len(list(run.glob("stages/split-0/bridges/place-*"))) == 4
    assert by_method["Best of all"] >= max(by_method.values())
    # Two blocks each: the nine fixed places are all four.
    assert by_method["Mean of nine fixed"] == pytest.approx(by_method["A place at random"])
    assert 1 <= metrics(run, "select")["mean_rank"] <= 4
    assert (run / "figures/select-places.png").is_file()


def test_baselines_alone_are_those_of_training(run, trained):
    assert baselines.main([*SMOKE, "--run.dir", str(run)]) == 0
    key = "probe_on_pseudo_labels/balanced_accuracy"
    found = metrics(run, "baselines")
    assert found[key] == metrics(trained)[key]
    assert not any(name.startswith("bridge") for name in found)


def test_sweep_trains_every_combination(run):
    vary = "{rank: [1, 4], pairs: [0.5, 1]}"
    assert sweep.main([*SMOKE, "--run.dir", str(run), "--vary", vary]) == 0
    found = metrics(run, "sweep")
    assert len({name.split("/")[0] for name in found}) == 4
    # d r + r N T + N d with d 16, N 10, T 7.
    assert found["rank=1 pairs=1/parameters"] == 16 + 70 + 160
    assert found["rank=4 pairs=0.5/parameters"] == 4 * 16 + 4 * 70 + 160
    assert (run / "figures/sweep-accuracy.png").is_file()


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("{rnak: [1]}", "vary: 'rnak' is not one of pairs, bridge, rank"),
        ("{rank: []}", "vary.rank: holds no value"),
        ("{rank: [2, 2]}", "vary.rank: [2, 2] names a value twice"),
        ("{rank: [0]}", "model.rank: 0 is not above zero"),
        ("{pairs: [2]}", "vary.pairs: 2 is no share in (0, 1]"),
        ("{loss: [l7]}", "vary: loss: expected one of"),
        ("{rank: [many]}", "vary: rank: expected int, got many"),
        ("{prototypes: [100000000]}", "model.prototypes: 100000000 are more than"),
        ("{}", "vary: names no option"),
    ],
)
def test_a_sweep_over_nothing_real_is_refused(vary, message, tmp_path, capsys):
    assert sweep.main([*SMOKE, "--run.root", str(tmp_path), "--vary", vary]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
    assert message in line
    assert not list(tmp_path.rglob("*.yaml"))


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_evaluate_scores_the_test_subjects(trained, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    assert evaluate.main([str(trained), "--out", str(out)]) == 0
    rows = rows_of(out)
    scored = metrics(trained)["bridge/balanced_accuracy"]
    assert f"{scored:.1f}" in capsys.readouterr().out
    labels, predicted = (np.array([int(r[c]) for r in rows]) for c in ("label", "predicted"))
    recall = [np.mean(predicted[labels == k] == k) for k in np.unique(labels)]
    assert 100 * np.mean(recall) == pytest.approx(scored)
    probabilities = [sum(float(r[f"probability_{k}"]) for k in range(7)) for r in rows]
    assert probabilities == pytest.approx([1.0] * len(rows), abs=1e-3)


def test_evaluate_needs_the_new_modality_alone(trained, tmp_path):
    signal = np.random.RandomState(0).randn(3, 3000).astype(np.float32)
    np.savez(tmp_path / "someone_1.npz", GYR=signal, GYR_rate=50.0)
    out = tmp_path / "out" / "predictions.csv"
    options = ["--source", "npz", "--path", str(tmp_path), "--out", str(out)]
    assert evaluate.main([str(trained), *options]) == 0
    rows = rows_of(out)
    assert [row["start_seconds"] for row in rows] == [f"{8.0 * i}" for i in range(8)]
    assert {row["subject"] for row in rows} == {"someone"}
    assert {row["label"] for row in rows} == {""}


def test_evaluate_drops_what_training_would_drop(run, tmp_path, capsys):
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["quality"] = "drop"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    signal = np.random.RandomState(0).randn(3, 3000).astype(np.float32)
    signal[1, 400:800] = 0.0
    np.savez(tmp_path / "someone_1.npz", GYR=signal, GYR_rate=50.0)
    out = tmp_path / "predictions.csv"
    options = ["--source", "npz", "--path", str(tmp_path / "someone_1.npz"), "--out", str(out)]
    assert evaluate.main([str(run), *options]) == 0
    assert "8.0" not in [row["start_seconds"] for row in rows_of(out)]
    np.savez(tmp_path / "someone_1.npz", GYR=0 * signal, GYR_rate=50.0)
    assert evaluate.main([str(run), *options]) == 2
    assert "every window is flat or clipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["/nowhere"], "run folder /nowhere: holds no stages"),
        (["RUN", "--split", "7"], "holds a bridge of 0, not 7"),
        (["RUN", "--path", "/nowhere", "--source", "npz"], "/nowhere: no such file"),
    ],
)
def test_evaluate_says_what_is_missing(options, message, trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [str(trained) if option == "RUN" else option for option in options]
    assert evaluate.main(options) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_report_joins_the_splits_of_several_runs(trained, tmp_path, capsys):
    other = tmp_path / "other"
    assert train.main([*SMOKE, "--run.dir", str(other), "--data.split_seed", "1"]) == 0
    both = tmp_path / "both"
    assert report.main([str(trained), str(other), "--out", str(both)]) == 0
    found = metrics(both)
    assert found["splits"] == 2
    parts = [metrics(run)["bridge/balanced_accuracy"] for run in (trained, other)]
    assert found["bridge/balanced_accuracy"] == pytest.approx(np.mean(parts))
    assert report.main([str(trained), str(trained), "--out", str(both)]) == 2
    assert "split 0 is also in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("models/split-0/bridge.safetensors", b"x", r"bridge.safetensors: not readable"),
        ("models/split-0/config.json", b"x", r"config.json: not readable as JSON"),
        ("models/split-0/config.json", b"[]", r"config.json: holds no values by name"),
        ("models/split-0/config.json", FOREIGN, r"config.json: describes no bridge ('bridge')"),
        ("stages/split-0/encoder-new/encoder.safetensors", b"x", r"encoder.safetensors: not read"),
        ("stages/split-0/encoder-new/config.json", ENCODER, r"unexpected keyword argument 'wings'"),
        ("stages/split-0/task-old/head/head.safetensors", b"x", r"head.safetensors: not readable"),
        ("config.yaml", b"a: [", r"config.yaml: not readable"),
        ("config.yaml", b"a: 1", r"config.yaml: holds no options of `data`"),
    ],
)
def test_a_damaged_run_is_named(run, tmp_path, capsys, file, content, message):
    (run / file).write_bytes(content)
    assert evaluate.main([str(run), "--out", str(tmp_path / "out.csv")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out.csv").exists()


def test_verbs_leave_each_others_files_alone(run, trained):
    assert sweep.main([*SMOKE, "--run.dir", str(run), "--vary", "{rank: [1, 2]}"]) == 0
    assert baselines.main([*SMOKE, "--run.dir", str(run)]) == 0
    for name in ("config.yaml", "metrics.json", "report.html", "splits.json", "figures/scores.png"):
        assert (run / name).read_bytes() == (trained / name).read_bytes()
    with pytest.raises(SystemExit) as ended:
        train.main(["--config", str(run / "config.yaml"), "--print_config"])
    assert ended.value.code == 0


def test_runs_of_other_options_have_no_common_report(trained, tmp_path, capsys):
    other = tmp_path / "other"
    options = ["--run.dir", str(other), "--data.split_seed", "1", "--model.rank", "2"]
    assert train.main([*SMOKE, *options]) == 0
    assert report.main([str(other), str(trained), "--out", str(tmp_path / "both")]) == 2
    assert "ran with model.rank = 4, " in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_runs_on_other_recordings_have_no_common_report(trained, run, tmp_path, capsys):
    splits = json.loads((run / "splits.json").read_text())
    splits[0] |= {"split": 1, "recordings": "others"}
    (run / "splits.json").write_text(json.dumps(splits))
    assert report.main([str(trained), str(run), "--out", str(tmp_path / "both")]) == 2
    assert f"{run}: ran on other recordings than {trained}" in capsys.readouterr().err


def test_a_report_is_of_the_runs_device_and_seed_and_replaces_none(run, tmp_path, capsys):
    changed = document(run)
    changed["seed"] = 7
    changed["device"]["name"] = "another machine"
    (run / "metrics.json").write_text(json.dumps(changed))
    assert report.main([str(run), "--out", str(tmp_path / "one")]) == 0
    one = document(tmp_path / "one")
    assert (one["seed"], one["device"]) == (7, changed["device"])
    assert one["seconds"] == changed["seconds"]
    assert report.main([str(run), "--out", str(run)]) == 2
    assert "is the folder of a run" in capsys.readouterr().err
    (run / "config.yaml").unlink()
    assert report.main([str(run), "--out", str(tmp_path / "two")]) == 2
    assert "config.yaml: no such file" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()


def test_splits_that_are_none_are_named(run, tmp_path, capsys):
    (run / "splits.json").write_text("[1]")
    assert report.main([str(run), "--out", str(tmp_path / "both")]) == 2
    assert "splits.json: holds no splits of a train run" in capsys.readouterr().err
