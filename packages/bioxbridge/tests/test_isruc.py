"""ISRUC-Sleep: nights written as EDF by hand, with their stages; what is damaged is named."""

import numpy as np
import pytest
import yaml

from bioxbridge import cut_windows
from bioxbridge.data import BiosignalData
from bioxbridge.recordings import load_recordings
from papers_shared.command import packaged_config

EPOCHS = 34
NAMES = ("F3-A2", "C3-A2", "O1-A2", "F4-A1", "C4-A1", "O2-A1", "LOC-A2", "ROC-A1", "X1", "X2")
STAGES = [0, 1, 2, 5, *[0] * 30]


def entries(names=NAMES, **changes):
    """Label, unit, limits as stored and in the unit, rate; one stored step is a microvolt, or a
    tenth in the last channel."""
    rows = {name: (name, "uV", "-32768", "32767", 4) for name in (*names, "SaO2")}
    rows[names[-1]] = (names[-1], "mV", "-3.2768", "3.2767", 2)
    rows["SaO2"] = ("SaO2", "%", "-32768", "32767", 1)
    rows |= changes
    return [row for row in rows.values() if row is not None]


def stored(number, rate, seconds):
    """Channel `number` counts its seconds from 1000 times its number."""
    return (1000 * number + np.arange(seconds * rate) // rate).astype("<i2")


def write_rec(path, rows, *, seconds=30 * EPOCHS):
    """A plain EDF file: records of one second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = len(rows)
    header = f"{'0':<8}{'X':<80}{'X':<80}01.01.0000.00.00{256 * (count + 1):<8}{'':<44}"
    header += f"{seconds:<8}{1:<8}{count:<4}"
    for width, values in (
        (16, [row[0] for row in rows]),
        (80, [""] * count),
        (8, [row[1] for row in rows]),
        (8, [row[2] for row in rows]),
        (8, [row[3] for row in rows]),
        (8, ["-32768"] * count),
        (8, ["32767"] * count),
        (80, [""] * count),
        (8, [row[4] for row in rows]),
        (32, [""] * count),
    ):
        header += "".join(f"{value:<{width}}" for value in values)
    parts = [stored(i, row[4], seconds).reshape(seconds, -1) for i, row in enumerate(rows)]
    path.write_bytes(header.encode("latin-1") + np.concatenate(parts, axis=1).tobytes())


def write_night(folder, number="1", *, stages=STAGES, rows=None, inner=None, **options):
    place = folder / number if inner is None else folder / number / inner
    name = number if inner is None else inner
    write_rec(place / f"{name}.rec", entries() if rows is None else rows, **options)
    text = stages if isinstance(stages, str) else "".join(f"{stage}\r\n" for stage in stages)
    (place / f"{name}_1.txt").write_text(text)
    (place / f"{name}_2.txt").write_text("0\n")
    return place / f"{name}.rec"


def test_units_rates_and_stages(tmp_path):
    write_night(tmp_path, "10")
    write_night(tmp_path, "2")
    first, second = load_recordings("isruc", str(tmp_path))
    assert (first.subject, second.subject) == ("2", "10")
    assert first.rates == {"EEG": 4.0, "EOG": 4.0, "EMG": 4.0, "ECG": 2.0}
    # 4 epochs of the 34 remain.
    assert {name: signal.shape for name, signal in first.signals.items()} == {
        "EEG": (6, 480),
        "EOG": (2, 480),
        "EMG": (1, 480),
        "ECG": (1, 240),
    }
    assert all(signal.dtype == np.float32 for signal in first.signals.values())
    # The value at second 90: F3, C3, O1, F4, C4, O2 in microvolts.
    np.testing.assert_allclose(first.signals["EEG"][:, 360], np.arange(6) * 1000 + 90, atol=1e-2)
    np.testing.assert_allclose(first.signals["EOG"][:, 360], [6090, 7090], atol=1e-2)
    np.testing.assert_allclose(first.signals["EMG"][:, 360], [8090], atol=1e-2)
    # A stored step of X2 is 0.0001 mV.
    np.testing.assert_allclose(first.signals["ECG"][:, 180], [909.0], atol=1e-2)
    assert first.class_names == ("wake", "sleep")
    assert first.labels.tolist() == [0, 1, 1, 1]
    assert first.seconds == 120.0
    windows, labels = cut_windows(first, "EEG", seconds=30.0, stride=30.0)
    assert windows.shape == (4, 6, 120)
    assert labels.tolist() == [0, 1, 1, 1]
    np.testing.assert_allclose(windows[:, 0, 0], [0, 30, 60, 90], atol=1e-2)


def test_five_stages(tmp_path):
    write_night(tmp_path, stages=[0, 1, 2, 5, 3, *[0] * 29])
    write_night(tmp_path, "2", stages=[3, *[0] * 33])
    first, second = load_recordings("isruc_stages", str(tmp_path))
    assert first.labels.tolist() == [0, 1, 2, 4]
    assert second.labels.tolist() == [3, 0, 0, 0]
    assert first.class_names == ("wake", "N1", "N2", "N3", "REM")


def test_other_names_of_the_same_channels(tmp_path):
    other = ("F3-M2", "C3-M2", "O1-M2", "F4-M1", "C4-M1", "O2-M1", "E1-M2", "E2-M1", "24", "25")
    write_night(tmp_path, rows=entries(other))
    (recording,) = load_recordings("isruc", str(tmp_path))
    np.testing.assert_allclose(recording.signals["EEG"][:, 0], np.arange(6) * 1000, atol=1e-2)
    np.testing.assert_allclose(recording.signals["EMG"][:, 0], [8000], atol=1e-2)


def test_two_nights_of_a_subject_and_one_folder_alone(tmp_path):
    write_night(tmp_path, "3", inner="1")
    write_night(tmp_path, "3", inner="2")
    assert [night.subject for night in load_recordings("isruc", str(tmp_path))] == ["3", "3"]
    (tmp_path / "other").mkdir()
    write_night(tmp_path / "other", "7")
    (alone,) = load_recordings("isruc", str(tmp_path / "other/7"))
    assert alone.subject == "7"
    with pytest.raises(ValueError, match=r"7\.rec: lies in no folder named after a subject"):
        load_recordings("isruc", str(tmp_path))


def test_a_recording_may_end_within_its_last_epoch(tmp_path):
    write_night(tmp_path, seconds=30 * EPOCHS - 29)
    write_night(tmp_path, "2", seconds=30 * EPOCHS + 29)
    short, long = load_recordings("isruc", str(tmp_path))
    assert short.labels.tolist() == [0, 1, 1]
    assert (short.seconds, long.seconds) == (90.0, 120.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": STAGES[:-1]}, r"1\.rec: 1020 s are 34\.0 epochs of 30 s, 1_1\.txt holds 33"),
        ({"stages": [*STAGES, 0]}, r"1\.rec: 1020 s are 34\.0 epochs .* 1_1\.txt holds 35"),
        ({"stages": [0, 4, *[0] * 32]}, r"1_1\.txt: line 2: stage '4' is none of 0, 1, 2, 3, 5"),
        ({"stages": "0\n\n0\n"}, r"1_1\.txt: line 2: stage '' is none of"),
        ({"stages": ""}, r"1\.rec: .*, 1_1\.txt holds 0"),
        ({"stages": [0] * 30, "seconds": 900}, r"1\.rec: 30 epochs leave none without the last 30"),
        (
            {"rows": [row for row in entries() if row[0] != "O1-A2"]},
            r"1\.rec: has no channel O1-A2 or O1-M2",
        ),
    ],
)
def test_nights_that_cannot_be_used(tmp_path, options, message):
    write_night(tmp_path, **options)
    with pytest.raises(ValueError, match=message):
        load_recordings("isruc", str(tmp_path))


def test_a_night_that_is_cut_off(tmp_path):
    file = write_night(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"1\.rec: .* s are .* epochs of 30 s, 1_1\.txt holds 34"):
        load_recordings("isruc", str(tmp_path))


@pytest.mark.parametrize("damage", [b"", b"0       short", b"\x00" * 4000, b"9" * 4000])
def test_recordings_that_are_no_edf(tmp_path, damage):
    write_night(tmp_path).write_bytes(damage)
    with pytest.raises(ValueError, match=r"1\.rec: not readable as EDF"):
        load_recordings("isruc", str(tmp_path))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"holds no recording like 1/1\.rec"):
        load_recordings("isruc", str(tmp_path))
    write_night(tmp_path).with_name("1_1.txt").unlink()
    with pytest.raises(ValueError, match=r"1_1\.txt: not readable as text"):
        load_recordings("isruc", str(tmp_path))


def test_the_papers_epochs_and_preprocessing(tmp_path):
    options = yaml.safe_load(packaged_config("bioxbridge", "isruc").read_text())["data"]
    assert options["split_counts"] == [33, 11, 33, 22]
    for subject in ("1", "2", "3", "4"):
        write_night(tmp_path, subject)
    data = BiosignalData(**options | {"split_counts": [1, 1, 1, 1]}, path=str(tmp_path))
    pairs = data.pairs()
    # Frames of 2 s of an epoch; 40 frequencies and 5 means of each of the six electrodes.
    assert pairs.old.shape == (16, 15, 6 * 45)
    assert pairs.new.shape == (16, 15, 45)
    assert pairs.labels.tolist() == [0, 1, 1, 1] * 4
    assert {len(part) for part in data.split(0).values()} == {4}
