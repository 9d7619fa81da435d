"""Stress-Predict: the format on made-up arrays, and the real file where it is at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from bioxbridge.recordings import load_recordings
from bioxbridge.train import main


def write(path, *, without=None, **changes):
    random = np.random.default_rng(0)
    arrays = {}
    for subject in ("S02", "S03"):
        arrays |= {
            f"{subject}_BVP": random.integers(-900, 900, 640).astype(np.int16),
            f"{subject}_ACC": np.full((320, 3), 64, np.int8),
            f"{subject}_EDA": np.full(40, 0.5, np.float32),
            f"{subject}_TEMP": np.full(40, 3312, np.int16),
            f"{subject}_label": np.repeat([0, 1], 5).astype(np.int8),
        }
    arrays |= changes
    arrays.pop(without, None)
    np.savez(path, **arrays)
    return str(path)


def test_units_rates_and_labels(tmp_path):
    first, second = load_recordings("stress_predict", write(tmp_path / "s.npz"))
    assert (first.subject, second.subject) == ("S02", "S03")
    assert first.rates == {"BVP": 64.0, "ACC": 32.0, "EDA": 4.0, "TEMP": 4.0}
    assert {name: signal.shape for name, signal in first.signals.items()} == {
        "BVP": (1, 640),
        "ACC": (3, 320),
        "EDA": (1, 40),
        "TEMP": (1, 40),
    }
    np.testing.assert_allclose(first.signals["ACC"], 1.0)
    np.testing.assert_allclose(first.signals["TEMP"], 33.12, rtol=1e-6)
    assert first.seconds == 10
    assert first.labels.tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": "S03_EDA"}, "has S03, but not S03_EDA"),
        ({"S03_EDA": np.full(40, np.nan)}, "S03: EDA: channel 0, sample 0"),
        ({"S03_BVP": np.zeros(64, np.int16)}, "S03: the modalities differ in duration"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        load_recordings("stress_predict", write(tmp_path / "s.npz", **options))


def test_another_archive_is_refused(tmp_path):
    np.savez(tmp_path / "s.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match="holds no array named like S02_BVP"):
        load_recordings("stress_predict", str(tmp_path / "s.npz"))


@pytest.fixture
def real():
    folder = os.environ.get("PAPERS_DATA")
    if folder is None:
        pytest.skip("PAPERS_DATA does not name the folder of data that cannot be shipped")
    return str(Path(folder) / "biosignals/stress_predict.npz")


def test_the_real_file_has_24_people_with_both_labels(real):
    recordings = load_recordings("stress_predict", real)
    assert len(recordings) == 24
    assert all({0, 1} <= set(recording.labels) for recording in recordings)
    assert all(abs(recording.seconds - len(recording.labels)) <= 1 for recording in recordings)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("BVP", "EDA"), ("ACC", "BVP")])
def test_the_main_job_runs_on_the_real_file(real, old, new, tmp_path):
    options = ["--config", "stress_predict", "--config", "smoke", "--data.path", real]
    options += ["--data.old", old, "--data.new", new, "--data.stride", "60"]
    assert main([*options, "--run.dir", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
