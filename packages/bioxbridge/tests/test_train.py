"""The main job from the command line: resume, processes, bad input."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml

from bioxbridge.train import main

# One thread, so that sums run in the same order in every process.
FAST = ["--config", "smoke", "--baselines.arms", "[]", "--run.threads", "1"]
CHECKPOINT = "checkpoints/split-0/last.ckpt"


def largest_difference(one, other):
    """Between the last weights of two runs' bridges."""
    first, second = (
        torch.load(folder / CHECKPOINT, weights_only=True)["state_dict"] for folder in (one, other)
    )
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of six epochs."""
    folder = tmp_path_factory.mktemp("whole")
    assert main([*FAST, "--run.dir", str(folder), "--trainer.max_epochs", "6"]) == 0
    return folder


def test_the_run_folder_repeats_the_run(whole, tmp_path):
    assert main(["--config", str(whole / "config.yaml"), "--run.dir", str(tmp_path / "again")]) == 0
    assert largest_difference(whole, tmp_path / "again") == 0
    first, second = (
        json.loads((folder / "metrics.json").read_text())["metrics"]
        for folder in (whole, tmp_path / "again")
    )
    measured = ("seconds", "memory")
    assert {k: v for k, v in first.items() if not k.endswith(measured)} == {
        k: v for k, v in second.items() if not k.endswith(measured)
    }


def test_resume_goes_on_where_training_ended(whole, tmp_path):
    options = [*FAST, "--run.dir", str(tmp_path)]
    assert main([*options, "--trainer.max_epochs", "3"]) == 0
    assert largest_difference(whole, tmp_path) > 0
    assert main([*options, "--trainer.max_epochs", "6", "--ckpt_path", "last"]) == 0
    assert largest_difference(whole, tmp_path) == 0


def test_last_without_a_folder_is_the_newest_run(tmp_path):
    root = ["--run.root", str(tmp_path)]
    assert main([*FAST, *root]) == 0
    assert main([*FAST, *root, "--ckpt_path", "last"]) == 0
    assert len(list((tmp_path / "bioxbridge").iterdir())) == 1


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_end(tmp_path):
    killed, uninterrupted = tmp_path / "killed", tmp_path / "uninterrupted"
    command = [sys.executable, "-m", "bioxbridge.train", *FAST, "--run.dir", str(killed)]
    process = subprocess.Popen(
        [*command, "--trainer.max_epochs", "2000"], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (killed / CHECKPOINT).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reached = torch.load(killed / CHECKPOINT, weights_only=True)["epoch"] + 1
    epochs = ["--trainer.max_epochs", str(reached + 2)]
    assert main([*FAST, *epochs, "--run.dir", str(killed), "--ckpt_path", "last"]) == 0
    assert main([*FAST, *epochs, "--run.dir", str(uninterrupted)]) == 0
    assert (killed / "report.html").exists()
    assert largest_difference(killed, uninterrupted) == 0


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(whole, tmp_path):
    command = [sys.executable, "-m", "bioxbridge.train", *FAST, "--run.dir", str(tmp_path)]
    command += ["--trainer.max_epochs", "6", "--trainer.devices", "2", "--trainer.strategy", "ddp"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    # Shares of a batch are averaged in another order.
    assert largest_difference(whole, tmp_path) < 1e-4


def test_stages_made_with_other_settings_are_refused(whole, capsys):
    options = [*FAST, "--run.dir", str(whole), "--pretrain.epochs", "2"]
    assert main(options) == 2
    assert "take another --run.dir" in capsys.readouterr().err


def write_recordings(folder, *, nan=False, flat=False, subjects=8):
    folder.mkdir()
    random = np.random.default_rng(0)
    for subject in range(subjects):
        a, b = random.normal(size=(2, 2, 2000)).astype(np.float32)
        if nan and subject == 3:
            b[1, 700] = np.nan
        labels = np.repeat([0, 1], 20)
        loud = np.repeat(1 + 4 * labels, 50)
        a, b = a * loud, b * loud
        if flat and subject == 3:
            b[1] = 0.5
        np.savez(
            folder / f"s{subject}_0.npz", A=a, A_rate=50.0, B=b, B_rate=50.0,
            labels=labels, label_rate=1.0,
        )  # fmt: skip
    return [
        "--data.source",
        "npz",
        "--data.path",
        str(folder),
        "--data.split_counts",
        "[2,2,2,2]",
        "--data.old",
        "A",
        "--data.new",
        "B",
    ]


def test_a_folder_of_npz_files_is_bridged(tmp_path):
    options = [*write_recordings(tmp_path / "data"), "--run.dir", str(tmp_path / "run")]
    assert main([*FAST, *options]) == 0
    saved = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert saved["data"]["split_counts"] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.rnak", "3"], "did you mean --model.rank?"),
        (["--model.rank", "many"], "model.rank: expected int, got many"),
        (["--model.rank", "0"], "model.rank: 0 is not above zero"),
        (["--model.loss", "l7"], "model.loss"),
        (["--model.prototypes", "999999"], "prototypes: 999999 are more than"),
        (["--data.source", "tape"], "'tape' is not one of"),
        (["--data.source", "npz"], "data.path: npz needs"),
        (["--data.source", "npz", "--data.path", "/nowhere"], "/nowhere: no such file"),
        (["--data.path", "/"], "reads no path"),
        (["--data.old", "PPG"], "has no 'PPG', only ACC, GYR"),
        (["--data.old", "GYR"], "'GYR' is also the old modality"),
        (["--data.window", "-1"], "data.window: -1.0 seconds is not positive"),
        (["--data.window", "900"], "is longer than any recording"),
        (["--data.frame", "9"], "watch series 0: ACC: data.frame: 9.0 s are 450 samples at 50 Hz"),
        (["--data.split_counts", "[9,9,9,9]"], "need 36 subjects, there are 10"),
        (["--data.split_counts", "[3,0,3,3]"], "data.split_counts: [3, 0, 3, 3] are not four"),
        (["--pretrain.epochs", "0"], "pretrain.epochs: 0 is not above zero"),
        (["--pretrain.mask_probability", "2"], "pretrain.mask_probability: 2.0 is not between"),
        (["--task.probe_epochs", "0"], "task.probe_epochs: 0 is not above zero"),
        (["--task.tune_epochs", "0"], "task.tune_epochs: 0 is not above zero"),
        (["--task.modes", "[]"], "task.modes: names no mode"),
        (["--trainer.max_epochs", "0"], "trainer.max_epochs: 0 is no number"),
        (["--trainer.fast_dev_run", "true"], "trainer.fast_dev_run: True would leave"),
        (["--trainer.limit_train_batches", "1"], "trainer.limit_train_batches: 1 would leave"),
        (["--trainer.max_steps", "3"], "trainer.max_steps: 3 would leave the bridge another"),
        (["--trainer.max_time", "00:00:01:00"], "trainer.max_time: "),
        (["--trainer.accumulate_grad_batches", "2"], "trainer.accumulate_grad_batches: 2 would"),
        (["--trainer.precision", "64-true"], "trainer.precision: 64-true is not one of 32-true"),
        (["--trainer.enable_checkpointing", "false"], "trainer.enable_checkpointing: false"),
        (["--trainer.devices", "-1"], "trainer.devices: -1 is no number of processes"),
        (["--data.split_seed", "-1"], "data.split_seed: -1 is below 0"),
        (["--baselines.arms", "[probe,probe]"], "baselines.arms: ['probe', 'probe'] names one"),
        (["--task.modes", "[probe,probe]"], "task.modes: ['probe', 'probe'] names one twice"),
        (["--splits", "0"], "splits: 0"),
        (["--config", "nowhere.yaml"], "no such file"),
        (["--ckpt_path", "/nowhere.ckpt"], "/nowhere.ckpt: no such file"),
        (["--run.threads", "0"], "threads: 0"),
        (["--pretrain.worst_error", "0.5"], "did not pretrain"),
        (["--pretrain.heads", "3"], "pretrain.heads: 3 do not divide width 16"),
        (["--trainer.devices", "0"], "trainer.devices: 0 is no number"),
    ],
)
def test_bad_input_ends_with_one_line(options, message, tmp_path, capsys):
    assert main([*FAST, "--run.root", str(tmp_path), *options]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(error) == 1
    assert message in error[0]
    # Only what cannot be known before the encoders are trained leaves a folder behind.
    assert "--pretrain.worst_error" in options or not list(tmp_path.rglob("*.yaml"))
    assert not list(tmp_path.rglob("metrics.json"))


def test_a_bridge_that_diverges_is_no_result(tmp_path, capsys):
    options = ["--run.dir", str(tmp_path), "--model.learning_rate", "1e30"]
    assert main([*FAST, *options]) == 2
    assert "is nan after epoch 1: training diverged" in capsys.readouterr().err
    assert not (tmp_path / "metrics.json").exists()


def test_mixed_precision_trains_everything(tmp_path):
    options = ["--config", "smoke", "--run.threads", "1", "--run.dir", str(tmp_path)]
    assert main([*options, "--trainer.precision", "bf16-mixed"]) == 0


def test_a_modality_that_never_varies_is_refused_before_anything_is_trained(tmp_path, capsys):
    options = write_recordings(tmp_path / "data")
    for file in (tmp_path / "data").glob("*.npz"):
        arrays = dict(np.load(file))
        np.savez(file, **(arrays | {"B": 0 * arrays["B"]}))
    assert main([*FAST, *options, "--run.root", str(tmp_path / "runs")]) == 2
    assert "B: never varies in any recording" in capsys.readouterr().err
    assert not list((tmp_path / "runs").rglob("stages"))


def test_a_resumed_bridge_costs_what_it_took_in_all(whole, tmp_path):
    options = [*FAST, "--run.dir", str(tmp_path)]
    assert main([*options, "--trainer.max_epochs", "3"]) == 0
    checkpoint = tmp_path / CHECKPOINT
    content = torch.load(checkpoint, weights_only=True)
    (name,) = (name for name in content["callbacks"] if "KeepBest" in name)
    assert content["callbacks"][name]["seconds"] > 0
    content["callbacks"][name]["seconds"] = 1000.0
    torch.save(content, checkpoint)
    assert main([*options, "--trainer.max_epochs", "6", "--ckpt_path", "last"]) == 0
    found = json.loads((tmp_path / "metrics.json").read_text())["metrics"]
    assert 1000 < found["bridge/seconds"] < 1100


def test_labels_of_one_class_are_refused_before_anything_is_trained(tmp_path, capsys):
    options = write_recordings(tmp_path / "data")
    for file in (tmp_path / "data").glob("*.npz"):
        arrays = dict(np.load(file))
        np.savez(file, **(arrays | {"labels": np.zeros_like(arrays["labels"])}))
    assert main([*FAST, *options, "--run.root", str(tmp_path / "runs")]) == 2
    assert "show class 0 alone" in capsys.readouterr().err
    assert not list((tmp_path / "runs").rglob("stages"))


def test_hidden_files_are_no_recordings(tmp_path):
    options = [*write_recordings(tmp_path / "data"), "--run.dir", str(tmp_path / "run")]
    (tmp_path / "data/._s0_0.npz").write_bytes(b"what a file manager leaves")
    assert main([*FAST, *options]) == 0


def test_more_epochs_are_other_baselines(tmp_path):
    options = ["--config", "smoke", "--run.threads", "1", "--run.dir", str(tmp_path)]
    options += ["--baselines.arms", "[logits]"]
    assert main([*options, "--trainer.max_epochs", "1"]) == 0
    assert main([*options, "--trainer.max_epochs", "2", "--ckpt_path", "last"]) == 0
    settings = [
        json.loads(x.read_text()) for x in tmp_path.glob("stages/*/baselines/*/settings.json")
    ]
    assert sorted(one["BaselineOptions"]["epochs"] for one in settings) == [1, 2]


def test_recordings_without_labels_are_refused_before_anything_is_trained(tmp_path, capsys):
    options = write_recordings(tmp_path / "data")
    for file in (tmp_path / "data").glob("*.npz"):
        arrays = dict(np.load(file))
        np.savez(file, **(arrays | {"labels": np.full_like(arrays["labels"], -1)}))
    assert main([*FAST, *options, "--run.root", str(tmp_path / "runs")]) == 2
    assert "no window of the train subjects of split 0 is labelled" in capsys.readouterr().err
    assert not list((tmp_path / "runs").rglob("stages"))


def test_a_refused_rerun_leaves_the_finished_run_as_it_was(whole, capsys):
    before = (whole / "config.yaml").read_bytes()
    assert main([*FAST, "--run.dir", str(whole), "--pretrain.epochs", "2"]) == 2
    assert "epochs = 1, this run asks for 2; take another" in capsys.readouterr().err
    assert (whole / "config.yaml").read_bytes() == before


def test_last_in_a_folder_without_a_run_is_refused(tmp_path, capsys):
    options = ["--run.dir", str(tmp_path / "new"), "--ckpt_path", "last"]
    assert main([*FAST, *options]) == 2
    assert "holds no stages or checkpoints" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_nan_is_named_by_file_channel_and_time(tmp_path, capsys):
    options = write_recordings(tmp_path / "data", nan=True)
    assert main([*FAST, *options, "--run.root", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert "s3_0.npz: B: channel 1, sample 700 (14.00 s) is nan" in error


def test_a_configuration_with_a_wrong_name_is_refused(whole, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    text = (whole / "config.yaml").read_text()
    for change, named in ((("splits:", "splitz:"), "splitz"), (("  rank:", "  rnak:"), "rnak")):
        config.write_text(text.replace(*change))
        assert main(["--config", str(config), "--run.root", str(tmp_path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert named in line


def test_a_channel_that_never_varies_is_noted(tmp_path, capsys):
    options = write_recordings(tmp_path / "data", flat=True)
    assert main([*FAST, *options, "--run.dir", str(tmp_path / "run")]) == 0
    assert "s3_0.npz: B: channel 1 never varies" in capsys.readouterr().err


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, capsys):
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"not a checkpoint")
    assert main([*FAST, "--run.root", str(tmp_path), "--ckpt_path", str(path)]) == 2
    assert "not readable as a checkpoint" in capsys.readouterr().err


def test_the_checkpoint_of_another_bridge_is_refused(whole, tmp_path, capsys):
    checkpoint = whole / CHECKPOINT
    options = [*FAST, "--run.root", str(tmp_path), "--ckpt_path", str(checkpoint)]
    assert main([*options, "--model.rank", "7"]) == 2
    assert "bridged.bridge." in capsys.readouterr().err


def test_a_launched_run_must_name_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([*FAST, "--run.root", str(tmp_path)]) == 2
    assert "--run.dir, one folder for all processes" in capsys.readouterr().err


def test_stages_of_other_recordings_are_refused(tmp_path, capsys):
    first = write_recordings(tmp_path / "first")
    run = ["--run.dir", str(tmp_path / "run")]
    assert main([*FAST, *first, *run]) == 0
    file = tmp_path / "first/s5_0.npz"
    arrays = dict(np.load(file))
    arrays["A"] = arrays["A"][:, ::-1]
    np.savez(file, **arrays)
    assert main([*FAST, *first, *run]) == 2
    assert "take another --run.dir" in capsys.readouterr().err


def test_another_person_in_the_folder_is_other_recordings(tmp_path, capsys):
    options = [*FAST, *write_recordings(tmp_path / "data"), "--run.dir", str(tmp_path / "run")]
    assert main(options) == 0
    (tmp_path / "data/s0_0.npz").rename(tmp_path / "data/z0_0.npz")
    assert main(options) == 2
    assert "take another --run.dir" in capsys.readouterr().err


def test_recordings_of_different_rates_are_refused(tmp_path, capsys):
    options = write_recordings(tmp_path / "data")
    file = tmp_path / "data/s5_0.npz"
    arrays = dict(np.load(file))
    np.savez(
        file,
        **(arrays | {"A": np.repeat(arrays["A"], 2, axis=1), "A_rate": 100.0, "B": arrays["B"]}),
    )
    assert main([*FAST, *options, "--data.max_frequency", "40", "--run.root", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "s5_0.npz: A at 100.0 Hz with 2 channels" in error


def test_one_checkpoint_is_not_used_for_several_splits(whole, tmp_path, capsys):
    options = ["--ckpt_path", str(whole / CHECKPOINT), "--splits", "2"]
    assert main([*FAST, *options, "--run.root", str(tmp_path)]) == 2
    assert "is the bridge of one split" in capsys.readouterr().err


def test_the_checkpoint_between_other_models_is_refused(whole, tmp_path, capsys):
    options = ["--ckpt_path", str(whole / CHECKPOINT), "--data.split_seed", "1"]
    assert main([*FAST, *options, "--run.root", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "other frozen models" in error or "this run selected" in error


def test_a_damaged_last_checkpoint_is_refused(tmp_path, capsys):
    options = [*FAST, "--run.dir", str(tmp_path)]
    assert main(options) == 0
    (tmp_path / CHECKPOINT).write_bytes(b"damaged")
    assert main([*options, "--ckpt_path", "last"]) == 2
    assert "not readable as a checkpoint" in capsys.readouterr().err


def test_the_selected_place_is_kept_for_a_resumed_run(tmp_path):
    options = [*FAST, "--run.dir", str(tmp_path)]
    assert main(options) == 0
    place = tmp_path / "stages/split-0/positions/facts.json"
    facts = json.loads(place.read_text())
    stored = facts["positions"]
    stored["new_block"] = 1 - stored["new_block"]
    place.write_text(json.dumps(facts))
    assert main(options) == 0
    saved = json.loads((tmp_path / "models/split-0/config.json").read_text())
    assert saved["new_block"] == stored["new_block"]
