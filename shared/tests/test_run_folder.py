import csv
import json
import os
import threading
import time

import pytest

from papers_shared import run_folder
from papers_shared.errors import UserError
from papers_shared.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def ignore(folder):
    pass


def files(run):
    return sorted(path.name for path in run.path.iterdir())


def test_new_folders_differ_and_lie_under_the_package(tmp_path):
    first, second = (RunFolder.create("icworld", tmp_path) for _ in range(2))
    assert first.path != second.path
    assert first.path.parent == second.path.parent == tmp_path / "icworld"


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(UserError, match=f"run folder {path}: "):
            RunFolder(path)


def test_a_folder_without_write_permission_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match="not writable"):
        RunFolder(tmp_path)


def test_latest_is_the_run_that_started_last(tmp_path):
    times = {"named-by-hand": 100, "20260101-000000-aaaaaa": 300, "20250101-000000-bbbbbb": 200}
    for name, modified in times.items():
        config = tmp_path / "icworld" / name / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_bytes(b"")
        (config.parent / "stages").mkdir()
        os.utime(config, (modified, modified))
    failed = tmp_path / "icworld" / "20270101-000000-cccccc"
    failed.mkdir()
    (failed / "config.yaml").touch()
    assert RunFolder.latest("icworld", tmp_path).path.name == "20260101-000000-aaaaaa"


def test_verbs_in_one_folder_have_files_of_their_own(tmp_path):
    train = RunFolder.create("icworld", tmp_path)
    train.write_text(train.own("config.yaml"), "")
    (train.path / "stages").mkdir()
    sweep = RunFolder(train.path, "sweep")
    assert sweep.own("config.yaml") == "sweep-config.yaml"
    assert sweep.figure("rank.png").name == "sweep-rank.png"
    with pytest.raises(UserError, match="no run under"):
        RunFolder.latest("icworld", tmp_path, "sweep")
    sweep.write_text(sweep.own("config.yaml"), "")
    assert RunFolder.latest("icworld", tmp_path, "sweep").path == train.path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"a: [", "not readable"),
        (b"\xff", "not readable"),
        (b"1", "by name"),
    ],
)
def test_yaml_that_cannot_be_read(run, content, message):
    if content is not None:
        (run.path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=f"config.yaml: .*{message}"):
        run.read_yaml("config.yaml")


def test_latest_without_a_run_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"no run under .*--run\.dir"):
        RunFolder.latest("icworld", tmp_path)


def test_an_exception_while_replacing_leaves_the_old_file_alone(run):
    run.write_text("note.txt", "old")

    def fail():
        with run.replacing("note.txt") as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert files(run) == ["note.txt"]
    assert (run.path / "note.txt").read_text() == "old"


def test_an_exception_while_replacing_leaves_no_new_folder(run):
    def fail():
        with run.replacing("folder") as temporary:
            temporary.mkdir()
            (temporary / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert files(run) == []


def test_a_folder_replaces_a_folder(run):
    for name in ("old", "new"):
        with run.replacing("folder") as temporary:
            temporary.mkdir()
            (temporary / name).write_text("")
    assert [path.name for path in (run.path / "folder").iterdir()] == ["new"]


def test_a_target_that_cannot_be_written_is_named(run):
    (run.path / "taken").write_text("")
    with pytest.raises(UserError, match="taken"):
        run.write_text("taken/note.txt", "text")
    (run.path / "folder").mkdir()
    with pytest.raises(UserError, match=f"{run.path / 'folder'}: "):
        run.write_text("folder", "text")
    assert files(run) == ["folder", "taken"]


def test_a_missing_input_is_blamed_by_its_own_name(run, tmp_path):
    missing = tmp_path / "signals.npy"

    def compute(folder):
        missing.read_bytes()

    with pytest.raises(UserError, match=f"^{missing}: No such file"):
        run.stage("signals", {}, compute, ignore)
    assert not (run.path / "stages" / "signals").exists()


def test_json_survives_and_stays_readable(run):
    path = run.write_json("metrics.json", {"caption": "± 1", "value": None})
    assert "± 1" in path.read_text(encoding="utf-8")
    assert run.read_json("metrics.json") == {"caption": "± 1", "value": None}


def test_json_refuses_nan_and_writes_nothing(run):
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_json("metrics.json", float("nan"))
    assert files(run) == []


def test_json_that_cannot_be_read_is_named(run):
    with pytest.raises(UserError, match=r"metrics\.json: no such file"):
        run.read_json("metrics.json")
    for content in (b"{", b"\xff"):
        (run.path / "metrics.json").write_bytes(content)
        with pytest.raises(UserError, match=r"metrics\.json: not readable as JSON"):
            run.read_json("metrics.json")


def test_log_appends_rows_under_one_heading(run):
    run.log("bridge", 1, {"loss": 0.5, "accuracy": 61})
    run.log("bridge", 2, {"loss": 0.25})
    with (run.path / "metrics.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["stage", "epoch", "name", "value"],
        ["bridge", "1", "loss", "0.5"],
        ["bridge", "1", "accuracy", "61"],
        ["bridge", "2", "loss", "0.25"],
    ]


def test_a_stage_is_computed_once(run):
    calls = []

    def compute(folder):
        calls.append(folder)
        (folder / "value.json").write_text("3")

    def load(folder):
        return json.loads((folder / "value.json").read_text())

    assert [run.stage("count", {"to": 3}, compute, load) for _ in range(2)] == [3, 3]
    assert len(calls) == 1


def test_a_failed_stage_is_computed_again(run):
    def fail(folder):
        (folder / "part").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run.stage("count", {}, fail, ignore)
    names = run.stage("count", {}, ignore, lambda folder: [path.name for path in folder.iterdir()])
    assert names == ["settings.json"]


def test_a_stage_made_with_other_settings_is_refused(run):
    settings = {"layers": (1, 2), "rank": 8}
    run.stage("search/first", settings, ignore, ignore)
    run.stage("search/first", settings, ignore, ignore)
    with pytest.raises(UserError, match=r"first: was made with rank = 8, this run asks for 4"):
        run.stage("search/first", settings | {"rank": 4}, ignore, ignore)


def test_a_refused_stage_names_the_one_setting_that_differs(run):
    settings = {"data": {"source": "watch", "split_counts": [3, 1, 3, 3]}, "seed": 0}
    run.stage("first", settings, ignore, ignore)
    other = {"data": {"source": "watch", "split_counts": [2, 1, 3, 3]}, "seed": 0}
    expected = r"data\.split_counts = \[3, 1, 3, 3\], this run asks for \[2, 1, 3, 3\]; take"
    with pytest.raises(UserError, match=expected):
        run.stage("first", other, ignore, ignore)
    run.stage("second", {"epochs": 3}, ignore, ignore)
    with pytest.raises(UserError, match="epochs = 3, this run asks for null"):
        run.stage("second", {}, ignore, ignore)


def test_what_a_killed_stage_left_goes_when_it_is_computed_again(run):
    left = run.path / "stages" / ".count.1234abcd"
    left.mkdir(parents=True)
    (left / "half").touch()
    run.stage("count", {}, ignore, ignore)
    assert [path.name for path in (run.path / "stages").iterdir()] == ["count"]


def test_an_existing_run_needs_something_to_resume(run):
    (run.path / "config.yaml").touch()
    with pytest.raises(UserError, match=r"run folder .*run: holds no stages or checkpoints"):
        RunFolder.existing(run.path)
    run.checkpoints.mkdir()
    assert RunFolder.existing(run.path).path == run.path


def test_a_folder_is_discarded_only_while_it_holds_nothing(tmp_path):
    made = RunFolder(tmp_path / "made")
    made.write_text("config.yaml", "")
    made.discard()
    assert list(tmp_path.iterdir()) == []
    used = RunFolder(tmp_path / "used")
    used.log("stage", 1, {})
    used.discard()
    found = RunFolder(tmp_path / "used")
    (tmp_path / "used/metrics.csv").unlink()
    found.discard()
    assert (tmp_path / "used").is_dir()


def test_a_follower_waits_for_the_leader(run, monkeypatch):
    monkeypatch.setattr(run_folder, "_STAGE_POLL_SECONDS", 0.005)
    loaded = []

    def follow():
        loaded.append(run.stage("count", {}, ignore, lambda folder: folder.name, leader=False))

    follower = threading.Thread(target=follow)
    follower.start()
    time.sleep(0.03)
    assert loaded == []
    run.stage("count", {}, ignore, ignore)
    follower.join(timeout=10)
    assert loaded == ["count"]


def test_figures_folder_appears_on_first_use(run):
    assert not (run.path / "figures").exists()
    assert run.figure("rank.png") == run.path / "figures/rank.png"
    assert (run.path / "figures").is_dir()
    assert run.checkpoints == run.path / "checkpoints"


def test_a_damaged_stage_says_what_to_do(tmp_path):
    run = RunFolder(tmp_path)
    run.stage("numbers", {}, lambda folder: (folder / "n.json").write_text("{"), lambda _: None)
    with pytest.raises(UserError, match=r"numbers: cannot be read \(JSONDecodeError.*remove that"):
        run.stage("numbers", {}, lambda _: None, lambda f: json.loads((f / "n.json").read_text()))


def test_settings_that_are_no_object_say_what_to_do(tmp_path):
    run = RunFolder(tmp_path)
    run.stage("numbers", {"a": 1}, lambda _: None, lambda _: None)
    for text, problem in (("5", "is no object"), ("{", "is not readable as JSON")):
        (tmp_path / "stages/numbers/settings.json").write_text(text)
        with pytest.raises(UserError, match=rf"settings\.json {problem}; remove that folder"):
            run.stage("numbers", {"a": 1}, lambda _: None, lambda _: None)
