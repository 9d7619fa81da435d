"""The latent physiology: what classes and people change, and what each modality shows of it."""

import numpy as np
import pytest
from scipy.signal import find_peaks

from bioxbridge.recordings import load_recordings
from bioxbridge.recordings.simulator import RATE, Simulator

STILL = {"noise": 0.0, "subject_shift": 0.0}


def rate_of(recording, label):
    """Beats per minute of the stretches of one class."""
    signal = recording.signals["ECG"][0].reshape(-1, int(60 * RATE))
    classes = recording.labels.reshape(-1, 60)[:, 0]
    counts = [len(find_peaks(one, height=0.5, distance=8)[0]) for one in signal[classes == label]]
    return np.mean(counts)


def test_recordings_have_their_shape():
    recordings = Simulator(subjects=3, stretches=4, seconds=30).recordings()
    assert [recording.subject for recording in recordings] == ["000", "001", "002"]
    for recording in recordings:
        assert recording.signals["ECG"].shape == recording.signals["PPG"].shape == (1, 4 * 30 * 32)
        assert recording.labels.shape == (120,)
        assert set(recording.labels) <= {0, 1, 2}


def test_classes_set_the_heart_rate():
    (recording,) = Simulator(subjects=1, stretches=60, pulse_only=0.0, **STILL).recordings()
    assert rate_of(recording, 0) == pytest.approx(72, abs=4)
    assert rate_of(recording, 1) == pytest.approx(88, abs=4)
    assert rate_of(recording, 2) == pytest.approx(62, abs=4)


def test_what_the_pulse_alone_shows_is_not_in_the_heart_rate():
    (recording,) = Simulator(subjects=1, stretches=60, pulse_only=1.0, **STILL).recordings()
    rates = [rate_of(recording, label) for label in range(3)]
    assert max(rates) - min(rates) < 4
    pulse = recording.signals["PPG"][0].reshape(-1, int(60 * RATE))
    classes = recording.labels.reshape(-1, 60)[:, 0]
    heights = [np.ptp(pulse[classes == label], axis=1).mean() for label in range(3)]
    assert heights[1] < heights[0] < heights[2]


def test_without_separation_classes_are_alike():
    options = {"separation": 0.0, **STILL}
    (recording,) = Simulator(subjects=1, stretches=60, **options).recordings()
    assert rate_of(recording, 1) == pytest.approx(rate_of(recording, 0), abs=4)


def test_the_pulse_follows_the_beat():
    (recording,) = Simulator(subjects=1, stretches=2, **STILL).recordings()
    ecg, ppg = (
        recording.signals[name][0] - recording.signals[name].mean() for name in ("ECG", "PPG")
    )
    lags = range(int(0.6 * RATE))
    products = [np.dot(ecg[: -len(lags)], ppg[lag : lag - len(lags)]) for lag in lags]
    assert 0.15 < np.argmax(products) / RATE < 0.3


def test_seeds_decide_everything_and_people_differ():
    first, again = Simulator(subjects=2).recordings(), Simulator(subjects=2).recordings()
    other = Simulator(subjects=2, seed=1).recordings()
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one.signals["PPG"], two.signals["PPG"])
    assert not np.array_equal(first[0].signals["PPG"], other[0].signals["PPG"])
    assert not np.array_equal(first[0].signals["PPG"], first[1].signals["PPG"])


def test_options_come_from_a_file(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("subjects: 2\nstretches: 3\nnoise: 1\n")
    recordings = load_recordings("simulator", str(path))
    assert [recording.seconds for recording in recordings] == [180.0, 180.0]
    assert len(load_recordings("simulator")) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject: 2", r"options\.yaml: 'subject' is not one of subjects, "),
        ("noise: loud", r"options\.yaml: noise: 'loud' is no float"),
        ("subjects: 2.5", r"options\.yaml: subjects: 2\.5 is no int"),
        ("subjects: 0", r"options\.yaml: simulator\.subjects: 0 is not above zero"),
        ("noise: -1", r"options\.yaml: simulator\.noise: -1\.0 is below zero"),
        ("pulse_only: 2", r"options\.yaml: simulator\.pulse_only: 2\.0 is not in \[0, 1\]"),
        ("- 1", r"options\.yaml: holds no options by name"),
        ("a: [", r"options\.yaml: not readable as YAML"),
    ],
)
def test_options_that_cannot_be_are_named(text, message, tmp_path):
    (tmp_path / "options.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recordings("simulator", str(tmp_path / "options.yaml"))
