"""Readers: the installed watch recordings and a folder of NPZ files."""

import builtins
import io
import os
import pickle
import sys

import numpy as np
import pytest

from bioxbridge.recordings import load_recordings, npz, watch
from bioxbridge.recordings.npz import load_npz
from bioxbridge.recordings.pickled import ArraysOnly
from bioxbridge.recordings.watch import load_watch


@pytest.fixture(scope="module")
def series():
    return load_watch()


def test_watch_is_what_it_says(series):
    assert len(series) == 140
    assert len({one.subject for one in series}) == 10
    assert sum(one.signals["ACC"].shape[1] for one in series) == 244_102
    labels = np.concatenate([one.labels for one in series])
    assert np.unique(labels).tolist() == list(range(watch.CLASSES)) == list(range(7))
    for one in series:
        assert list(one.signals) == ["ACC", "GYR"]
        assert one.rates == {"ACC": 50.0, "GYR": 50.0}
        assert one.signals["ACC"].shape == one.signals["GYR"].shape
        assert len(one.signals["ACC"]) == 3
        assert one.signals["ACC"].dtype == np.float32
        assert len(np.unique(one.labels)) == 1
        assert len(one.labels) * one.label_rate >= one.seconds
    assert len({one.name for one in series}) == 140


def test_the_accelerometer_holds_gravity(series):
    # The level of the accelerometer is 1 g, of the gyroscope no level: the columns are not swapped.
    levels = {
        name: np.median([np.linalg.norm(one.signals[name].mean(axis=1)) for one in series])
        for name in ("ACC", "GYR")
    }
    spread = {
        name: np.median([one.signals[name].std() for one in series]) for name in ("ACC", "GYR")
    }
    assert levels["ACC"] / spread["ACC"] > 3 * levels["GYR"] / spread["GYR"]


def test_seglearn_is_never_imported(series):
    assert series
    assert not [name for name in sys.modules if name.split(".")[0] == "seglearn"]


@pytest.mark.parametrize("function", [os.system, builtins.eval, builtins.exec, builtins.getattr])
def test_the_unpickler_runs_nothing(function, tmp_path, pickled_call):
    mark = tmp_path / "ran"
    argument = f"touch {mark}" if function is os.system else f"open({str(mark)!r}, 'w')"
    data = pickle.dumps({"X": pickled_call(function, argument)})
    with pytest.raises(pickle.UnpicklingError, match=rf"refers to \w+\.{function.__name__}"):
        watch._ArraysOnly(io.BytesIO(data)).load()
    assert not mark.exists()


def test_the_unpickler_refuses_other_encodings():
    data = b"c_codecs\nencode\n(Vabc\nVrot13\ntR."
    with pytest.raises(pickle.UnpicklingError, match="encodes to rot13"):
        watch._ArraysOnly(io.BytesIO(data)).load()
    assert watch._ArraysOnly(io.BytesIO(data.replace(b"rot13", b"latin1"))).load() == b"abc"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("kind", [">f8", "<f4", "<i4", "i1", "<U3", "S2"])
def test_the_unpickler_gives_arrays_back(protocol, kind):
    value = {"a": [np.arange(6).reshape(2, 3).astype(kind), 1.5, "text", None, (True, b"x")]}
    stream = io.BytesIO(pickle.dumps(value, protocol=protocol))
    (array, *rest) = ArraysOnly(stream).load()["a"]
    np.testing.assert_array_equal(array, value["a"][0])
    assert array.dtype == np.dtype(kind).newbyteorder("=")
    assert rest == value["a"][1:]
    assert np.dtype(float).isnative


def test_another_file_is_refused_before_it_is_unpickled(monkeypatch, tmp_path):
    content = bytearray(watch._data_file().read_bytes())
    content[-100] ^= 1
    file = tmp_path / "changed.npy"
    file.write_bytes(content)
    monkeypatch.setattr(watch, "_data_file", lambda: file)
    monkeypatch.setattr(watch, "_ArraysOnly", None)
    with pytest.raises(ValueError, match="is not the file that this reader was written for"):
        load_watch()


def test_a_missing_carrier_is_explained(monkeypatch):
    def missing(name):
        raise watch.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(watch.importlib.metadata, "files", missing)
    with pytest.raises(ValueError, match="pip install seglearn"):
        load_watch()
    monkeypatch.setattr(watch.importlib.metadata, "files", lambda name: [])
    with pytest.raises(ValueError, match=r"carries no seglearn/data/watch_dataset\.npy"):
        load_watch()


def arrays(**changes):
    content = {
        "ECG": np.arange(100, dtype=np.float64),
        "ECG_rate": 10,
        "EDA": np.ones((2, 40)),
        "EDA_rate": 4.0,
        "labels": np.repeat([0, 1], 5),
        "label_rate": 1.0,
    } | changes
    return {name: value for name, value in content.items() if value is not None}


def test_npz_round_trip(tmp_path):
    np.savez(tmp_path / "ann_2.npz", **arrays(subject="bea"))
    np.savez_compressed(tmp_path / "ann_1.npz", **arrays(labels=None, label_rate=None))
    (tmp_path / "notes.txt").write_text("not a recording")
    first, second = load_recordings("npz", str(tmp_path))
    assert (first.subject, second.subject) == ("ann", "bea")
    assert first.name.endswith("ann_1.npz")
    assert second.signals["ECG"].shape == (1, 100)
    np.testing.assert_array_equal(second.signals["ECG"][0], np.arange(100))
    assert second.signals["EDA"].shape == (2, 40)
    assert second.rates == {"ECG": 10.0, "EDA": 4.0}
    assert second.labels.tolist() == [0] * 5 + [1] * 5
    assert first.labels.tolist() == [-1] * 10
    (alone,) = load_npz(tmp_path / "ann_2.npz")
    assert alone.subject == "bea"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"EDA_rate": None}, r"has EDA but not EDA_rate \(Hz\)"),
        ({"EDA_rate": [4.0, 4.0]}, r"EDA_rate is float64 \(2,\), not one number"),
        ({"EDA_rate": 0.0}, r"EDA: sampling rate 0\.0 Hz is not positive"),
        ({"EDA": np.array([1, "a"], object)}, r"EDA is no plain array; Python objects"),
        ({"labels": np.array([{}, None], object)}, "labels is no plain array"),
        ({"EDA": np.array(["a", "b"])}, "EDA is of type <U1, not real numbers"),
        ({"EDA": np.zeros(40, complex)}, "EDA is of type complex128, not real numbers"),
        ({"EDA_rate": np.inf}, r"EDA: sampling rate inf Hz is not positive and finite"),
        ({"EDA": np.zeros((40, 2))}, r"EDA: shape \(40, 2\) has more channels than samples"),
        ({"labels": np.zeros(60, int)}, r"60 labels at 1\.0 a second cover 60\.0 s, the signals"),
        ({"EDA": np.zeros((1, 2, 3))}, r"EDA: shape \(1, 2, 3\)"),
        ({"EDA": np.array([[0.0] * 40, [0.0] * 39 + [np.nan]])}, "EDA: channel 1, sample 39"),
        ({"EDA": np.ones(20)}, "differ in duration"),
        ({"labels": np.zeros(10)}, r"labels are float64 \(10,\), not integers"),
        ({"labels": np.zeros((10, 1), int)}, r"labels are int64 \(10, 1\), not integers"),
        (dict.fromkeys(("ECG", "ECG_rate", "EDA", "EDA_rate")), "holds no signal"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path, changes, message):
    file = tmp_path / "ann_1.npz"
    np.savez(file, **arrays(**changes))
    with pytest.raises(ValueError, match=message) as caught:
        load_npz(file)
    assert "ann_1.npz" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"time,value\n0,1\n", b"PK\x03\x04 cut off"])
def test_files_that_are_no_archive(tmp_path, content):
    file = tmp_path / "ann_1.npz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"ann_1\.npz: is not an NPZ file$"):
        load_npz(file)


def test_a_truncated_archive_and_a_plain_array(tmp_path):
    file = tmp_path / "ann_1.npz"
    np.savez(file, **arrays())
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"ann_1\.npz: is not an NPZ file$"):
        load_npz(file)
    np.savez(file, **arrays())
    content = bytearray(file.read_bytes())
    content[content.index(b"NUMPY") + 100] ^= 255
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"ann_1\.npz: \w+ cannot be read, the file is damaged"):
        load_npz(file)
    with file.open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(ValueError, match=r"ann_1\.npz: is not an NPZ file$"):
        load_npz(file)


def test_pickles_in_an_archive_do_not_run(tmp_path, pickled_call):
    mark = tmp_path / "ran"
    calls = np.array([pickled_call(os.system, f"touch {mark}")], object)
    np.savez(tmp_path / "ann_1.npz", **arrays(EDA=calls))
    with pytest.raises(ValueError, match="EDA is no plain array; Python objects"):
        load_npz(tmp_path / "ann_1.npz")
    assert not mark.exists()


def test_a_stray_label_is_named(tmp_path):
    np.savez(tmp_path / "ann_1.npz", **arrays())
    labels = np.array([0] * 9 + [10**9])
    np.savez(tmp_path / "bea_1.npz", **arrays(labels=labels))
    with pytest.raises(ValueError, match=r"bea_1\.npz: has label 1000000000, but no"):
        load_recordings("npz", str(tmp_path))


def test_sources(tmp_path):
    with pytest.raises(ValueError, match="'tape' is not one of watch, simulator, npz"):
        load_recordings("tape")
    with pytest.raises(ValueError, match="watch is installed and reads no path"):
        load_recordings("watch", str(tmp_path))
    with pytest.raises(ValueError, match="npz needs the place of its files"):
        load_recordings("npz")
    with pytest.raises(ValueError, match="no such file or folder"):
        load_recordings("npz", str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="holds no recording"):
        load_recordings("npz", str(tmp_path))
    assert npz.load_npz(tmp_path) == []
