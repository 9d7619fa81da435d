"""Freezing of gait: task files as the distribution has them, labels by majority, blocks of time."""

import numpy as np
import pytest
import yaml

from bioxbridge import cut_windows
from bioxbridge.data import BiosignalData
from bioxbridge.recordings import load_recordings
from papers_shared.command import packaged_config


def table(rows=2000, *, labels=None, shift=0.0):
    """Column c of row r is 1000 c + r, so that a value says where it comes from."""
    values = 1000.0 * np.arange(61)[None] + np.arange(rows)[:, None] + shift
    values[:, 60] = 0 if labels is None else labels
    lines = []
    for row, number in enumerate(values):
        cells = [f"{value:g}" if value % 1 == 0 else repr(float(value)) for value in number]
        cells[0] = str(row)
        cells[1] = f"15:07:{row * 0.002:06.3f}"
        cells[60] = str(int(number[60]))
        lines.append(cells)
    return lines


def write(folder, lines, name="task_1.txt"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(",".join(line) + "\n" for line in lines))
    return folder / name


def test_columns_rates_and_labels(tmp_path):
    write(tmp_path / "001", table(labels=np.repeat([0, 1], 1000)))
    (recording,) = load_recordings("fog", str(tmp_path))
    assert recording.subject == "001"
    assert recording.rates == {"EEG": 500.0, "EMG": 500.0, "ACC": 500.0}
    columns = {name: (signal[:, 7] - 7) / 1000 for name, signal in recording.signals.items()}
    # FP1, FP2, F3, F4, C3, C4, P3, P4, O1, O2 are columns 2 to 11.
    assert columns["EEG"].tolist() == [4, 6, 10, 5, 7, 11]
    assert columns["EMG"].tolist() == [27, 28, 31]
    assert columns["ACC"].tolist() == [32, 33, 34, 39, 40, 41, 46, 47, 48, 53, 54, 55]
    assert recording.signals["EEG"].shape == (6, 2000)
    assert recording.signals["EEG"].dtype == np.float32
    np.testing.assert_array_equal(recording.signals["EEG"][0], 4000 + np.arange(2000))
    assert recording.labels.tolist() == [0] * 1000 + [1] * 1000
    assert recording.label_rate == 500.0
    assert recording.class_names == ("no freezing", "freezing")


def test_people_visits_and_tasks(tmp_path):
    for folder in ("003", "008/OFF_1", "008/OFF_2", "009"):
        write(tmp_path / folder, table(20), "task_1.txt")
    write(tmp_path / "003", table(20), "task_10.txt")
    write(tmp_path / "003", table(20), "task_2.txt")
    (tmp_path / "readme.txt").write_text("not a task")
    found = load_recordings("fog", str(tmp_path))
    assert [recording.subject for recording in found] == ["003"] * 3 + ["008"] * 2 + ["009"]
    assert [recording.name[-11:] for recording in found[:3]] == [
        "/task_1.txt",
        "/task_2.txt",
        "task_10.txt",
    ]
    muscles = [(r.signals["EMG"][:, 0] / 1000).tolist() for r in found[2:]]
    assert muscles == [[28, 27, 31], [27, 28, 31], [27, 31, 28], [28, 27, 30]]
    for part, count in (("008", 2), ("008/OFF_2", 1), ("009", 1)):
        assert len(load_recordings("fog", str(tmp_path / part))) == count


def test_labels_by_majority(tmp_path):
    # Freezing from 2.6 s on; windows of 3 s every 0.6 s at 500 Hz.
    labels = np.repeat([0, 1], [1300, 1700])
    write(tmp_path / "001", table(3000, labels=labels))
    (recording,) = load_recordings("fog", str(tmp_path))
    options = {"seconds": 3.0, "stride": 0.6}
    eeg, strict = cut_windows(recording, "EEG", **options)
    _, majority = cut_windows(recording, "EMG", **options, majority=0.8)
    assert eeg.shape == (6, 6, 1500)
    # Shares of freezing: 0.4/3, 1/3, 1.6/3, 2.2/3, 2.8/3, 1.
    assert strict.tolist() == [-1, -1, -1, -1, -1, 1]
    assert majority.tolist() == [0, -1, -1, -1, 1, 1]


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (1, 27, "", r"task_1\.txt: row 2, column 27: '' is no number"),
        (4, 60, "FOG", r"task_1\.txt: row 5, column 60: 'FOG' is no number"),
        (4, 60, "2", r"task_1\.txt: row 5, column 60: label 2 is not 0, 1"),
        (4, 60, "nan", r"task_1\.txt: row 5, column 60: label nan is not 0, 1"),
        (9, 6, "nan", r"task_1\.txt: EEG: channel 1, sample 9 \(0\.02 s\) is nan"),
        (3, 54, "inf", r"task_1\.txt: ACC: channel 10, sample 3 \(0\.01 s\) is inf"),
        (2, 8, "1,2", r"task_1\.txt: row 3: 62 columns, not 61"),
    ],
)
def test_values_that_cannot_be_used(tmp_path, row, column, value, message):
    lines = table(20)
    lines[row][column] = value
    write(tmp_path / "001", lines)
    with pytest.raises(ValueError, match=message):
        load_recordings("fog", str(tmp_path))


def test_unread_columns_may_hold_anything(tmp_path):
    lines = table(20)
    for line in lines:
        line[29] = ""
    write(tmp_path / "001", lines)
    assert len(load_recordings("fog", str(tmp_path))) == 1


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(ValueError, match=r"holds no file named like task_1\.txt"):
        load_recordings("fog", str(tmp_path))
    names = [["", "TIME", *[f"C{i}" for i in range(2, 60)], "Label"]]
    file = write(tmp_path / "001", names + table(5))
    with pytest.raises(ValueError, match=r"task_1\.txt: row 1, column 4: 'C4' is no number"):
        load_recordings("fog", str(tmp_path))
    file.write_text("")
    with pytest.raises(ValueError, match=r"task_1\.txt: holds no row"):
        load_recordings("fog", str(tmp_path))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"task_1\.txt: not readable as text"):
        load_recordings("fog", str(tmp_path))
    file.unlink()
    for place in ("013", "008", "008/ON"):
        file = write(tmp_path / place, table(5))
        with pytest.raises(ValueError, match=r"task_1\.txt: lies in no folder of a person"):
            load_recordings("fog", str(tmp_path))
        file.unlink()


def two_visits(folder):
    """Twelve seconds each, freezing in every other one."""
    random = np.random.RandomState(0)
    for visit in ("OFF_1", "OFF_2"):
        lines = table(6000, labels=np.tile(np.repeat([0, 1], 500), 6))
        for line in lines:
            line[2:60] = [f"{value:.2f}" for value in random.randn(58)]
        write(folder / "008" / visit, lines)
    return str(folder / "008")


def test_one_person_split_by_blocks_with_the_papers_preprocessing(tmp_path):
    options = yaml.safe_load(packaged_config("bioxbridge", "fog").read_text())["data"]
    assert (options["window"], options["stride"], options["majority"]) == (3.0, 0.3, 0.8)
    shorter = {"window": 1.0, "stride": 0.2, "block": 2.0}
    data = BiosignalData(**options | shorter, path=two_visits(tmp_path))
    # Six blocks of 2 s a visit, in each the windows from 0, 0.2 to 1 s.
    pairs = data.pairs()
    assert len(pairs) == 2 * 6 * 6
    assert pairs.old.shape == (72, 3, 6 * 35)
    assert pairs.new.shape == (72, 3, 3 * 35)
    # The first second is free: from 0.2 s on 0.8 of a window are, from 0.4 s 0.6.
    assert pairs.labels[:6].tolist() == [0, 0, -1, -1, 1, 1]
    parts = data.split(0)
    assert [len(np.unique(part.subjects)) for part in parts.values()] == [4, 1, 4, 3]
    names = np.concatenate([np.unique(part.subjects) for part in parts.values()])
    assert len(set(names)) == 12
    assert sum(len(part) for part in parts.values()) == 72
    assert all(name.endswith(" s") for name in names)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pseudo label")  # of a model that learned nothing
def test_the_main_job_and_its_evaluation_keep_blocks_apart(tmp_path):
    from bioxbridge.evaluate import main as evaluate
    from bioxbridge.train import main as train

    folder, run, out = two_visits(tmp_path), str(tmp_path / "run"), tmp_path / "predictions.csv"
    options = ["--config", "fog", "--config", "smoke", "--data.path", folder, "--run.dir", run]
    options += ["--data.window", "1", "--data.stride", "0.2", "--data.block", "2"]
    options += ["--baselines.arms", "[probe]"]
    assert train(options) == 0
    assert "one split by block" in (tmp_path / "run/report.html").read_text()
    assert evaluate([run, "--out", str(out)]) == 0
    rows = out.read_text().splitlines()[1:]
    # Three of the twelve blocks, six windows each.
    assert len(rows) == 18
