"""Readers of tables, E4 folders, WFDB and EDF: values, rates, alignment, labels, refusals."""

import sys

import numpy as np
import pytest

from bioxbridge.recordings import load_recordings
from bioxbridge.recordings.description import spans_to_labels

MODALITIES = "modalities:\n  ECG: [ecg]\n  ACC: [x, y]\n"


def describe(folder, text=""):
    (folder / "recordings.yaml").write_text(MODALITIES + text)


def table(rows=20, **columns):
    values = {
        "t": np.arange(rows) / 4,
        "ecg": np.arange(rows) * 1.0,
        "x": np.arange(rows) + 100.0,
        "y": np.arange(rows) + 200.0,
        "stage": ["wake"] * (rows // 2) + ["sleep"] * (rows - rows // 2),
    } | columns
    return {name: list(value) for name, value in values.items()}


def write_csv(path, columns):
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")


def write_parquet(path, columns):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)


WRITERS = {"csv": write_csv, "parquet": write_parquet}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("rate", ["rate: 4", "time: t"])
def test_tables(tmp_path, kind, rate):
    describe(tmp_path, f"{rate}\nlabels: stage\nclasses: {{wake: 0, sleep: 1}}\n")
    WRITERS[kind](tmp_path / f"ann_night.{kind}", table())
    (recording,) = load_recordings(kind, str(tmp_path))
    assert recording.subject == "ann"
    assert recording.rates == {"ECG": 4.0, "ACC": 4.0}
    np.testing.assert_array_equal(recording.signals["ECG"], [np.arange(20)])
    np.testing.assert_array_equal(recording.signals["ACC"][1], np.arange(20) + 200)
    assert recording.labels.tolist() == [0] * 10 + [1] * 10
    assert recording.label_rate == 4.0
    assert recording.class_names == ("wake", "sleep")


def test_a_column_of_classes_needs_no_names(tmp_path):
    describe(tmp_path, "rate: 4\nlabels: stage\n")
    write_csv(tmp_path / "ann.csv", table(4, stage=[0, "", 1, 1]))
    (recording,) = load_recordings("csv", str(tmp_path / "ann.csv"))
    assert recording.labels.tolist() == [0, -1, 1, 1]


@pytest.mark.parametrize(
    ("description", "change", "message"),
    [
        ("rate: 4", {"x": None}, r"has no channel 'x' of ACC, only t, ecg, y"),
        ("rate: 4", {"y": ["a", *range(19)]}, r"row 2, column 'y': 'a' is no number"),
        ("rate: 4", {"ecg": [*range(7), "", *range(12)]}, r"ECG: channel 0, sample 7 \(1\.75 s\)"),
        ("", {}, r"recordings\.yaml: needs either `rate`"),
        ("rate: 4\ntime: t", {}, r"needs either `rate`"),
        ("time: clock", {}, r"has no column 'clock' of time"),
        (
            "time: t",
            {"t": [0, 1, 2, *range(9, 26)]},
            r"row 5: time goes from 2 to 9 s where .* 1 s",
        ),
        ("time: t", {"t": [0] * 20}, r"column 't': time does not go on"),
        ("rate: 4\nlabels: mood", {}, r"has no column 'mood' of labels"),
        (
            "rate: 4\nlabels: stage",
            {"stage": [0.5] * 20},
            r"row 2, column 'stage': 0\.5 is no class",
        ),
        ("rate: fast", {}, r"recordings\.yaml: rate: 'fast' is no positive number"),
        ("colour: red", {}, r"recordings\.yaml: 'colour' is not one of modalities, rate"),
        ("classes: {wake: yes please}", {}, r"classes: .* are not numbers"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, description, change, message):
    describe(tmp_path, description + "\n")
    columns = {k: v for k, v in (table() | change).items() if v is not None}
    write_csv(tmp_path / "ann.csv", columns)
    with pytest.raises(ValueError, match=message) as caught:
        load_recordings("csv", str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ecg,x,y\n", "holds no row below"),
        ("ecg,x,y\n1,2,3\n1,2\n", "row 3: 2 values under 3 names"),
        (b"\xff\xfe\x00", "not readable as CSV"),
    ],
)
def test_files_that_are_no_tables(tmp_path, text, message):
    describe(tmp_path, "rate: 4\n")
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "ann.csv").write_bytes(content)
    with pytest.raises(ValueError, match=rf"ann\.csv: {message}"):
        load_recordings("csv", str(tmp_path))


def test_parquet_that_is_none(tmp_path):
    describe(tmp_path, "rate: 4\n")
    (tmp_path / "ann.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"ann\.parquet: not readable as Parquet"):
        load_recordings("parquet", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"recordings\.yaml: no such file; it says which channels"),
        ("a: [", r"recordings\.yaml: not readable as YAML"),
        ("rate: 4", r"recordings\.yaml: needs `modalities`"),
        ("modalities: {ECG: ecg}", r"modalities: ECG: 'ecg' is no list of names"),
    ],
)
def test_descriptions_that_cannot_be_used(tmp_path, text, message):
    if text is not None:
        (tmp_path / "recordings.yaml").write_text(text)
    write_csv(tmp_path / "ann.csv", table())
    with pytest.raises(ValueError, match=message):
        load_recordings("csv", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "module"), [("parquet", "pyarrow.parquet"), ("wfdb", "wfdb"), ("edf", "mne")]
)
def test_a_missing_library_is_named(tmp_path, monkeypatch, source, module):
    describe(tmp_path, "rate: 4\n")
    write_parquet(tmp_path / "ann.parquet", table())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r'needs .*; pip install "bioxbridge\[recordings\]"'):
        load_recordings(source, str(tmp_path))


def write_e4(folder, *, start=1000.0, seconds=10, late=2.0, labels=None):
    """BVP starts `late` seconds after the others and ends with them."""
    folder.mkdir(parents=True)
    for name, rate, width in (("ACC", 32, 3), ("BVP", 64, 1), ("EDA", 4, 1), ("TEMP", 4, 1)):
        begin = start + (late if name == "BVP" else 0)
        times = begin + np.arange(int((start + seconds - begin) * rate)) / rate
        rows = [[begin] * width, [rate] * width, *[[time - start] * width for time in times]]
        (folder / f"{name}.csv").write_text("\n".join(",".join(map(str, r)) for r in rows))
    (folder / "tags.csv").write_text("")
    if labels:
        lines = ["start,end,class", *(",".join(map(str, row)) for row in labels)]
        (folder / "labels.csv").write_text("\n".join(lines))


def test_e4_channels_are_cut_to_the_span_they_share(tmp_path):
    write_e4(tmp_path / "S1", labels=[(1002, 1005, 0), (1006.5, 1010, 1)])
    write_e4(tmp_path / "S2_second", late=0.0)
    first, second = load_recordings("e4", str(tmp_path))
    assert (first.subject, second.subject) == ("S1", "S2")
    assert first.rates == {"ACC": 32.0, "BVP": 64.0, "EDA": 4.0, "TEMP": 4.0}
    assert {name: signal.shape for name, signal in first.signals.items()} == {
        "ACC": (3, 256),
        "BVP": (1, 512),
        "EDA": (1, 32),
        "TEMP": (1, 32),
    }
    # Every first sample is of the same moment, two seconds after the start; one unit is 1/64 g.
    assert first.signals["BVP"][0, 0] == first.signals["EDA"][0, 0] == 2.0
    assert first.signals["ACC"][0, 0] == pytest.approx(2 / 64)
    assert first.labels.tolist() == [0, 0, 0, -1, -1, 1, 1, 1]
    assert set(second.labels) == {-1}
    (alone,) = load_recordings("e4", str(tmp_path / "S1"))
    assert alone.seconds == 8.0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("EDA.csv", "1000\n4\n", r"EDA\.csv: holds no sample"),
        ("EDA.csv", "1000\n4\n1\nx\n", r"EDA\.csv: row 4: 'x' are no numbers"),
        ("EDA.csv", "1000\n0\n1\n", r"EDA\.csv: row 2: rate 0 Hz is not positive"),
        ("ACC.csv", "1000,1000\n4,4\n1,1\n1\n", r"ACC\.csv: row 4: 1 values, before 2"),
        ("EDA.csv", "9000\n4\n1\n", r"S1: the channels share no span of time"),
        ("labels.csv", "begin\n", r"labels\.csv: row 1: is not start,end,class"),
        ("labels.csv", "start,end,class\n1,2\n", r"labels\.csv: row 2: '1,2' is no start"),
    ],
)
def test_e4_folders_that_cannot_be_used(tmp_path, file, text, message):
    write_e4(tmp_path / "S1")
    (tmp_path / "S1" / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recordings("e4", str(tmp_path))


def write_wfdb(folder, names=("ecg", "x", "y")):
    import wfdb

    signal = np.stack([np.sin(np.arange(200) / 9), np.arange(200) / 200, np.ones(200)], axis=1)
    wfdb.wrsamp(
        "ann_1",
        fs=20,
        units=["mV"] * 3,
        sig_name=list(names),
        p_signal=signal,
        fmt=["16"] * 3,
        write_dir=str(folder),
    )
    wfdb.wrann(
        "ann_1",
        "atr",
        np.array([0, 80, 140]),
        symbol=["+", "+", "N"],
        aux_note=["(rest", "(walk", ""],
        write_dir=str(folder),
    )
    return signal


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of wfdb towards pandas
def test_wfdb_records(tmp_path):
    describe(tmp_path, 'labels: atr\nclasses: {"(rest": 0, "(walk": 1}\n')
    signal = write_wfdb(tmp_path)
    (recording,) = load_recordings("wfdb", str(tmp_path))
    assert recording.rates == {"ECG": 20.0, "ACC": 20.0}
    np.testing.assert_allclose(recording.signals["ECG"][0], signal[:, 0], atol=1e-3)
    np.testing.assert_allclose(recording.signals["ACC"], signal[:, 1:].T, atol=1e-3)
    # Four seconds of rest, three of walking, then a symbol that is no class.
    assert recording.labels.tolist() == [0] * 4 + [1] * 3 + [-1] * 3


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_wfdb_that_cannot_be_used(tmp_path):
    describe(tmp_path, "labels: qrs\n")
    write_wfdb(tmp_path)
    with pytest.raises(ValueError, match=r"ann_1\.qrs: not readable as annotations"):
        load_recordings("wfdb", str(tmp_path))
    describe(tmp_path)
    write_wfdb(tmp_path, names=("ecg", "x", "z"))
    with pytest.raises(ValueError, match=r"ann_1\.hea: has no channel 'y' of ACC, only ecg, x, z"):
        load_recordings("wfdb", str(tmp_path))
    (tmp_path / "ann_1.hea").write_text("nonsense")
    with pytest.raises(ValueError, match=r"ann_1\.hea: not readable as a WFDB record"):
        load_recordings("wfdb", str(tmp_path))


def write_edf(path, signals, notes, seconds):
    """An EDF+ file by hand: one record a second, physical -1000..1000 uV on 16 bits."""
    entries = [
        (name, "uV", "-1000", "1000", "-32768", "32767", rate)
        for name, (rate, _) in signals.items()
    ]
    entries.append(("EDF Annotations", "", "-1", "1", "-32768", "32767", 60))
    count = len(entries)
    header = f"{'0':<8}{'X X X X':<80}{'Startdate 01-JAN-2000 X X X':<80}01.01.0000.00.00"
    header += f"{256 * (count + 1):<8}{'EDF+C':<44}{seconds:<8}{1:<8}{count:<4}"
    for width, values in (
        (16, [e[0] for e in entries]),
        (80, [""] * count),
        (8, [e[1] for e in entries]),
        (8, [e[2] for e in entries]),
        (8, [e[3] for e in entries]),
        (8, [e[4] for e in entries]),
        (8, [e[5] for e in entries]),
        (80, [""] * count),
        (8, [str(e[6]) for e in entries]),
        (32, [""] * count),
    ):
        header += "".join(f"{value:<{width}}" for value in values)
    data = b""
    for second in range(seconds):
        for rate, values in signals.values():
            part = values[second * rate : (second + 1) * rate]
            digital = np.round((part + 1000) / 2000 * 65535 - 32768)
            data += digital.astype("<i2").tobytes()
        stamps = f"+{second}\x14\x14\x00"
        if second == 0:
            stamps += "".join(f"+{on}\x15{long}\x14{text}\x14\x00" for on, long, text in notes)
        data += stamps.encode().ljust(120, b"\x00")
    path.write_bytes(header.encode("ascii") + data)


def edf_signals():
    return {
        "ecg": (50, 100 * np.sin(np.arange(400) / 7)),
        "x": (10, np.arange(80) * 1.0),
        "y": (10, -np.arange(80) * 1.0),
    }


def test_edf_keeps_each_rate(tmp_path):
    describe(tmp_path, "classes: {wake: 0, N2: 1}\n")
    signals = edf_signals()
    write_edf(tmp_path / "ann_1.edf", signals, [(0, 3, "wake"), (3, 5, "N2")], 8)
    (recording,) = load_recordings("edf", str(tmp_path))
    assert recording.rates == {"ECG": 50.0, "ACC": 10.0}
    # Microvolts come as volts, to the 2000 uV / 65535 of a step.
    np.testing.assert_allclose(recording.signals["ECG"][0] * 1e6, signals["ecg"][1], atol=0.05)
    np.testing.assert_allclose(recording.signals["ACC"][1] * 1e6, signals["y"][1], atol=0.05)
    assert recording.labels.tolist() == [0] * 3 + [1] * 5


def test_edf_that_cannot_be_used(tmp_path):
    describe(tmp_path)
    signals = edf_signals()
    del signals["y"]
    write_edf(tmp_path / "ann_1.edf", signals, [], 8)
    with pytest.raises(ValueError, match=r"ann_1\.edf: has no channel 'y' of ACC, only ecg, x"):
        load_recordings("edf", str(tmp_path))
    (tmp_path / "ann_1.edf").write_bytes(b"0       short")
    with pytest.raises(ValueError, match=r"ann_1\.edf: not readable as EDF"):
        load_recordings("edf", str(tmp_path))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0.0, 3.0, 1)], [1, 1, 1, -1]),
        ([(0.4, 2.6, 1)], [-1, 1, -1, -1]),
        ([(2.0, 3.5, 0)], [-1, -1, 0, 0]),
        ([(-5.0, 1.0, 2), (9.0, 12.0, 0)], [2, -1, -1, -1]),
        ([(0.0, 4.0, 0), (1.0, 2.0, 1)], [0, 1, 0, 0]),
    ],
)
def test_spans(spans, expected):
    assert spans_to_labels(spans, 3.5).tolist() == expected


@pytest.mark.parametrize("kind", WRITERS)
def test_a_missing_channel_may_be_zeros(tmp_path, kind, caplog):
    describe(tmp_path, "rate: 4\nmissing: zeros\n")
    columns = table()
    del columns["x"]
    WRITERS[kind](tmp_path / f"ann.{kind}", columns)
    (recording,) = load_recordings(kind, str(tmp_path))
    assert not recording.signals["ACC"][0].any()
    np.testing.assert_array_equal(recording.signals["ACC"][1], np.arange(20) + 200)
    assert "ACC: no channel 'x', zeros instead" in caplog.text
    del columns["y"]
    WRITERS[kind](tmp_path / f"ann.{kind}", columns)
    with pytest.raises(ValueError, match="has no channel 'x' of ACC"):
        load_recordings(kind, str(tmp_path))


def test_what_missing_may_say(tmp_path):
    describe(tmp_path, "rate: 4\nmissing: guess\n")
    write_csv(tmp_path / "ann.csv", table())
    with pytest.raises(ValueError, match="missing: 'guess' is neither refuse nor zeros"):
        load_recordings("csv", str(tmp_path))


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_a_missing_channel_of_wfdb_and_edf_may_be_zeros(tmp_path):
    describe(tmp_path, "missing: zeros\n")
    signal = write_wfdb(tmp_path, names=("ecg", "z", "y"))
    (recording,) = load_recordings("wfdb", str(tmp_path))
    np.testing.assert_allclose(
        recording.signals["ACC"], [0 * signal[:, 2], signal[:, 2]], atol=1e-3
    )
    signals = edf_signals()
    del signals["x"]
    write_edf(tmp_path / "ann_1.edf", signals, [], 8)
    (recording,) = load_recordings("edf", str(tmp_path))
    assert not recording.signals["ACC"][0].any()
    np.testing.assert_allclose(recording.signals["ACC"][1] * 1e6, signals["y"][1], atol=0.05)
