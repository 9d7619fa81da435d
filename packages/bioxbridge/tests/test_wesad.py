"""WESAD: pickles like the distribution's, in today's form and in Python 2's; nothing is called."""

import os
import pickle
import struct

import numpy as np
import pytest
import yaml

from bioxbridge import cut_windows
from bioxbridge.data import BiosignalData
from bioxbridge.recordings import load_recordings
from papers_shared.command import packaged_config

SECONDS = 20


def content(subject="S2", **changes):
    """Five seconds each of transient, baseline, stress and amusement; signals are ramps of time."""
    random = np.random.RandomState(0)

    def ramp(rate, channels=1):
        time = np.arange(SECONDS * rate) / rate
        return np.stack([time + 100 * channel for channel in range(channels)], axis=1)

    chest = {
        "ACC": ramp(700, 3),
        "ECG": ramp(700),
        "EMG": random.randn(SECONDS * 700, 1),
        "EDA": ramp(700),
        "Temp": ramp(700).astype(np.float32),
        "Resp": -ramp(700),
    }
    wrist = {"ACC": 64 * ramp(32, 3), "BVP": ramp(64), "EDA": ramp(4), "TEMP": 30 + ramp(4)}
    whole = {
        "subject": subject,
        "signal": {"chest": chest, "wrist": wrist},
        "label": np.repeat([0, 1, 2, 3], 5 * 700).astype(np.int32),
    }
    for path, value in changes.items():
        *folders, name = path.split("_")
        place = whole
        for folder in folders:
            place = place[folder]
        if value is None:
            del place[name]
        else:
            place[name] = value
    return whole


def write(folder, whole, name=None):
    name = whole["subject"] if name is None else name
    (folder / name).mkdir()
    file = folder / name / f"{name}.pkl"
    file.write_bytes(pickle.dumps(whole, protocol=2))
    return file


def python_2(value):
    """The opcodes that Python 2 writes at protocol 2, text as one-byte strings."""
    if isinstance(value, dict):
        inner = b"".join(python_2(key) + python_2(item) for key, item in value.items())
        return b"}(" + inner + b"u"
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    kind = python_2(value.dtype.str[1:])
    number = [b"J" + struct.pack("<i", item) for item in value.shape]
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    dtype = b"cnumpy\ndtype\n(" + kind + b"K\x00K\x01tR(K\x03U\x01<NNNJ" + b"\xff" * 4
    dtype += b"J" + b"\xff" * 4 + b"K\x00tb"
    data = value.tobytes()
    shape = b"(" + b"".join(number) + b"t"
    return made + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"


def test_units_rates_and_labels(tmp_path):
    write(tmp_path, content("S10"))
    write(tmp_path, content("S2"))
    (tmp_path / "wesad_readme.pdf").write_bytes(b"%PDF")
    first, second = load_recordings("wesad", str(tmp_path))
    assert (first.subject, second.subject) == ("S2", "S10")
    assert first.name.endswith("S2.pkl")
    assert first.rates == {
        "ECG": 700.0,
        "RESP": 700.0,
        "BVP": 64.0,
        "EDA": 4.0,
        "TEMP": 4.0,
        "ACC": 32.0,
    }
    assert {name: signal.shape for name, signal in first.signals.items()} == {
        "ECG": (1, 14000),
        "RESP": (1, 14000),
        "BVP": (1, 1280),
        "EDA": (1, 80),
        "TEMP": (1, 80),
        "ACC": (3, 640),
    }
    assert all(signal.dtype == np.float32 for signal in first.signals.values())
    # Every value is its time in seconds: of the ECG, of the wrist's TEMP over 30 degrees, in g.
    assert first.signals["ECG"][0, 7000] == 10.0
    assert first.signals["RESP"][0, 7000] == -10.0
    assert first.signals["BVP"][0, 640] == 10.0
    assert first.signals["TEMP"][0, 40] == 40.0
    np.testing.assert_allclose(first.signals["ACC"][:, 320], [10.0, 110.0, 210.0])
    assert first.class_names == ("baseline", "stress", "amusement")
    assert first.label_rate == 700.0
    assert first.labels.tolist() == np.repeat([-1, 0, 1, 2], 3500).tolist()
    (alone,) = load_recordings("wesad", str(tmp_path / "S10"))
    assert alone.subject == "S10"


def test_windows_of_one_label(tmp_path):
    write(tmp_path, content())
    (recording,) = load_recordings("wesad", str(tmp_path))
    ecg, labels = cut_windows(recording, "ECG", seconds=2.0, stride=1.0)
    bvp, same = cut_windows(recording, "BVP", seconds=2.0, stride=1.0)
    assert ecg.shape == (19, 1, 1400)
    assert bvp.shape == (19, 1, 128)
    # Starts 0 to 18 s; a window from second 4, 9 or 14 covers a change.
    assert labels.tolist() == [-1] * 5 + [0] * 4 + [-1] + [1] * 4 + [-1] + [2] * 4
    assert labels.tolist() == same.tolist()
    np.testing.assert_array_equal(ecg[:, 0, 0], bvp[:, 0, 0])


def test_meditation_and_the_rest_are_unknown(tmp_path):
    labels = np.repeat([1, 4, 5, 6, 7], 4 * 700)
    write(tmp_path, content(label=labels))
    (recording,) = load_recordings("wesad", str(tmp_path))
    assert np.unique(recording.labels[:2800]).tolist() == [0]
    assert np.unique(recording.labels[2800:]).tolist() == [-1]


def test_a_pickle_of_python_2(tmp_path):
    file = write(tmp_path, content())
    (expected,) = load_recordings("wesad", str(tmp_path))
    file.write_bytes(b"\x80\x02" + python_2(content()) + b".")
    (recording,) = load_recordings("wesad", str(tmp_path))
    for name, signal in expected.signals.items():
        np.testing.assert_array_equal(recording.signals[name], signal)
    np.testing.assert_array_equal(recording.labels, expected.labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signal_chest_ECG": None}, r"S2\.pkl: has no signal: chest: ECG$"),
        ({"signal_wrist": None}, r"S2\.pkl: has no signal: wrist$"),
        ({"label": None}, r"S2\.pkl: has no label$"),
        ({"subject": "S3"}, r"S2\.pkl: subject: 'S3' is not 'S2'"),
        (
            {"signal_wrist_BVP": np.zeros(1280)},
            r"signal: wrist: BVP: shape \(1280,\) is not \(samples, 1\)",
        ),
        (
            {"signal_wrist_ACC": np.zeros((640, 2))},
            r"signal: wrist: ACC: shape \(640, 2\) is not \(samples, 3\)",
        ),
        ({"signal_wrist_BVP": [1.0]}, r"wrist: BVP: is list, not an array of numbers"),
        ({"signal_wrist_BVP": np.array([[{}]])}, r"wrist: BVP: is object \(1, 1\), not an array"),
        ({"signal_wrist_EDA": np.full((80, 1), np.nan)}, r"S2\.pkl: EDA: channel 0, sample 0"),
        ({"signal_wrist_EDA": np.zeros((40, 1))}, r"S2\.pkl: the modalities differ in duration"),
        ({"label": np.zeros(14000, int)}, r"label: no sample is of baseline, stress, amusement"),
        ({"label": np.ones(700, int)}, r"label: 700 labels beside 14000 samples of ECG"),
        ({"label": np.full(14000, 9)}, r"label: 9 at sample 0 is none of 0 to 7"),
        ({"label": np.full(14000, 1.5)}, r"label: 1\.5 at sample 0 is none of 0 to 7"),
        ({"label": "baseline"}, r"label: is str, not numbers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, message):
    write(tmp_path, content(**changes), "S2")
    with pytest.raises(ValueError, match=message):
        load_recordings("wesad", str(tmp_path))


def test_folders_and_files_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="holds no folder named like S2"):
        load_recordings("wesad", str(tmp_path))
    (tmp_path / "S2").mkdir()
    with pytest.raises(ValueError, match=r"S2\.pkl: no such file"):
        load_recordings("wesad", str(tmp_path))


@pytest.mark.parametrize("name", ["system", "eval"])
def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path, name, pickled_call):
    mark = tmp_path / "ran"
    call = {
        "system": pickled_call(os.system, f"touch {mark}"),
        "eval": pickled_call(eval, f"open({str(mark)!r}, 'w')"),
    }[name]
    write(tmp_path, content(signal_chest_ECG=call))
    message = rf"S2\.pkl: is no pickle of plain arrays \(pickle: refers to \w+\.{name}\)$"
    with pytest.raises(ValueError, match=message):
        load_recordings("wesad", str(tmp_path))
    assert not mark.exists()


@pytest.mark.parametrize("damage", [b"", b"not a pickle", b"\x80\x02}q"])
def test_files_that_are_no_pickle(tmp_path, damage):
    write(tmp_path, content()).write_bytes(damage)
    with pytest.raises(ValueError, match=r"S2\.pkl: is no pickle of plain arrays \(.+\)$"):
        load_recordings("wesad", str(tmp_path))


def test_a_pickle_that_is_cut_off(tmp_path):
    file = write(tmp_path, content())
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"S2\.pkl: is no pickle of plain arrays"):
        load_recordings("wesad", str(tmp_path))


def test_the_papers_preprocessing_of_whole_recordings(tmp_path):
    random = np.random.RandomState(0)
    for subject in ("S2", "S3", "S4", "S5"):
        ecg, bvp = random.randn(SECONDS * 700, 1), random.randn(SECONDS * 64, 1)
        write(tmp_path, content(subject, signal_chest_ECG=ecg, signal_wrist_BVP=bvp))
    options = yaml.safe_load(packaged_config("bioxbridge", "wesad").read_text())["data"]
    assert (options["window"], options["stride"]) == (60.0, 5.0)
    assert options["split_counts"] == [5, 2, 5, 3]
    shorter = {"window": 4.0, "stride": 1.0, "frame": 1.0, "hop": 0.5}
    data = BiosignalData(**options | shorter, path=str(tmp_path))
    pairs = data.pairs()
    assert len(pairs) == 4 * 17
    # Frames of 1 s every half: 12 frequencies and 5 means of one channel.
    assert pairs.old.shape == pairs.new.shape == (68, 7, 17)
    assert pairs.labels[:17].tolist() == [
        -1,
        -1,
        -1,
        -1,
        -1,
        0,
        0,
        -1,
        -1,
        -1,
        1,
        1,
        -1,
        -1,
        -1,
        2,
        2,
    ]
