"""Raw signal to model inputs: wavelets against slow loops, filters against sines, bad windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge import preprocessing
from bioxbridge.foundation import ARCHITECTURES
from bioxbridge.preprocessing import (
    band_pass,
    notch,
    resample,
    ricker,
    scalograms,
    wavelet_transform,
    z_score,
)


def sine(frequency, rate, seconds):
    return np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate)


def amplitude(signal, frequency, rate):
    """Of a sine in the middle three fifths of a signal, by projection."""
    middle = signal[len(signal) // 5 : -(len(signal) // 5)]
    t = np.arange(len(middle)) / rate
    return 2 * abs(np.mean(middle * np.exp(-2j * np.pi * frequency * t)))


def slow_transform(signal, widths):
    """Convolution by its definition, the middle kept as NumPy's `same` does."""
    rows = []
    for width in widths:
        wavelet = ricker(min(10 * width, len(signal)), width)
        rows.append(np.convolve(signal, wavelet[::-1], mode="same"))
    return np.array(rows)


def test_ricker_by_hand():
    # A = 2 / (sqrt(6) pi^(1/4)) at the middle; at t = 1 and a = 2: A (1 - 1/4) e^(-1/8).
    peak = 2 / (np.sqrt(6.0) * np.pi**0.25)
    assert ricker(3, 2.0)[1] == pytest.approx(peak)
    assert ricker(3, 2.0)[[0, 2]] == pytest.approx([0.75 * np.exp(-0.125) * peak] * 2)
    assert len(ricker(10.2, 1.0)) == 11


@settings(max_examples=25)
@given(
    st.integers(3, 90), st.integers(0, 1000), st.lists(st.floats(0.1, 12), min_size=1, max_size=6)
)
def test_the_wavelet_transform_equals_its_definition(samples, seed, widths):
    signal = np.random.RandomState(seed).randn(samples)
    fast = wavelet_transform(signal, np.array(widths))
    assert fast == pytest.approx(slow_transform(signal, widths), abs=1e-9)


def test_the_wavelet_transform_keeps_leading_axes():
    signal = np.random.RandomState(0).randn(2, 3, 40)
    whole = wavelet_transform(signal, np.array([1.0, 4.0]))
    assert whole.shape == (2, 3, 2, 40)
    assert whole[1, 2] == pytest.approx(slow_transform(signal[1, 2], [1.0, 4.0]), abs=1e-9)


def test_scalograms_of_three_seconds_at_130_hz():
    signal = np.random.RandomState(0).randn(2, 390)
    pictures = scalograms(signal)
    assert pictures.shape == (2, 3, 388, 65)
    widths = 0.1 + np.arange(65)
    first = np.diff(signal[1])
    for channel, row in enumerate((signal[1, 2:], first[1:], np.diff(first))):
        np.testing.assert_allclose(pictures[1, channel].T, slow_transform(row, widths), atol=1e-8)
    with pytest.raises(ValueError, match="2 samples have no second difference"):
        scalograms(np.zeros((1, 2)))


@pytest.mark.parametrize(("rate", "new_rate"), [(64, 125), (700, 500), (500, 130), (500, 100)])
def test_resampling_keeps_slow_sines_and_the_length(rate, new_rate):
    out = resample(sine(5, rate, 10), rate, new_rate)
    assert out.shape == (10 * new_rate,)
    ideal = sine(5, new_rate, 10)
    assert np.abs(out - ideal)[new_rate:-new_rate].max() < 5e-3


def test_resampling_lets_nothing_fold_over():
    # 60 Hz cannot be had at 100 Hz: interpolation alone would make 40 Hz of it.
    out = resample(sine(60, 500, 10), 500, 100)
    assert amplitude(out, 40, 100) < 0.01
    assert amplitude(sine(60, 500, 10)[::5], 40, 100) > 0.99


def test_resampling_does_not_bend_an_offset():
    assert resample(np.full((2, 50), 7.0), 64, 125) == pytest.approx(
        np.full((2, 98), 7.0), rel=2e-3
    )
    same = np.random.RandomState(0).randn(4)
    assert resample(same, 50, 50) is same


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_cannot_be_are_refused(rate):
    with pytest.raises(ValueError, match="Hz is not above 0"):
        resample(np.zeros(9), rate, 10)


def test_one_sample_is_refused():
    with pytest.raises(ValueError, match=r"1 sample\(s\) cannot be resampled"):
        resample(np.zeros((3, 1)), 10, 20)


def test_z_score_of_constants_is_zero_even_with_rounding():
    signal = np.stack([np.full(90, 0.1, np.float32), np.linspace(0, 1, 90, dtype=np.float32)])
    scaled = z_score(signal)
    assert scaled.dtype == np.float32
    assert not scaled[0].any()
    assert scaled[1].mean() == pytest.approx(0, abs=1e-6)
    assert scaled[1].std() == pytest.approx(1, abs=1e-6)


def test_the_bands():
    """A sine within the band passes beside one that is out of it."""
    slow, kept, fast = (sine(f, 64, 60) for f in (0.05, 2, 25))
    ppg = preprocessing.condition_ppg(slow + kept + fast, 64)
    assert amplitude(ppg, 25, 125) < 1e-3 * amplitude(ppg, 2, 125)
    assert amplitude(ppg, 0.05, 125) < 1e-2 * amplitude(ppg, 2, 125)
    ecg = preprocessing.condition_hubert_ecg(sine(10, 700, 20) + sine(60, 700, 20), 700)
    assert ecg.shape == (2000,)
    assert amplitude(ecg, 40, 100) < 1e-2 * amplitude(ecg, 10, 100)
    assert ecg.std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "channels", "rate", "seconds", "shape"),
    [
        ("labram", 6, 256, 30, (2, 6, 30, 200)),
        ("labram", 6, 500, 3, (2, 6, 3, 200)),
        ("hubert_ecg", 1, 700, 60, (2, 6000)),
        ("hubert_ecg", 12, 500, 5, (2, 6000)),
        ("ecg_fm", 12, 700, 30, (2, 12, 15000)),
        ("papagei_s", 1, 64, 60, (2, 1, 7500)),
        ("normwear", 3, 500, 3, (2, 3, 3, 388, 65)),
    ],
)
def test_inputs_have_the_published_shapes(name, channels, rate, seconds, shape):
    signal = np.random.RandomState(0).randn(2, channels, rate * seconds).astype(np.float32)
    inputs = ARCHITECTURES[name].preprocess(signal, rate)
    assert inputs.shape == shape
    assert bool(inputs.isfinite().all())


def test_microvolts_over_one_hundred():
    signal = np.full((1, 2, 400), 50.0)
    assert ARCHITECTURES["labram"].preprocess(signal, 200).unique().tolist() == [0.5]


def test_leads_are_joined_one_after_the_other():
    first, second = sine(3, 100, 10), sine(7, 100, 10)
    inputs = ARCHITECTURES["hubert_ecg"].preprocess(np.stack([first, second])[None], 100)[0].numpy()
    assert amplitude(inputs[:1000], 3, 100) > 1
    assert amplitude(inputs[1000:], 7, 100) > 1
    assert amplitude(inputs[:1000], 7, 100) < 0.1


def test_integers_and_single_channels_are_taken():
    counts = (100 * sine(1, 64, 10)).astype(np.int16)[None]
    assert ARCHITECTURES["papagei_s"].preprocess(counts, 64).shape == (1, 1, 1250)


@pytest.mark.parametrize(
    ("name", "signal", "rate", "message"),
    [
        ("papagei_s", np.zeros((2, 3, 640)), 64, r"PaPaGei-S: takes 1 channel\(s\), not 3"),
        ("papagei_s", np.zeros(640), 64, r"PaPaGei-S: signal is \(640,\), not \(B, C, S\)"),
        ("papagei_s", np.zeros((1, 8)), 64, "16 samples at 125 Hz are too few for the filter"),
        ("hubert_ecg", np.zeros((1, 60)), 100, "HuBERT-ECG: signal: 300 samples at 500 Hz"),
        ("labram", np.zeros((1, 2, 300)), 200, "LaBraM takes whole seconds, not 1.5 s"),
        ("ecg_fm", np.zeros((1, 12, 300)), -5, "ECG-FM: rate: -5 Hz is not above 0"),
        ("normwear", np.array([[0.0, 1.0], [0.0, np.nan]]), 130, "window 1 holds a value"),
    ],
)
def test_windows_that_a_model_cannot_take_are_refused(name, signal, rate, message):
    with pytest.raises(ValueError, match=message):
        ARCHITECTURES[name].preprocess(signal, rate)


def test_a_band_pass_keeps_its_band_in_place():
    time = np.arange(2000) / 100
    slow, inside, fast = (np.sin(2 * np.pi * f * time) for f in (0.1, 5.0, 40.0))
    passed = band_pass((slow + inside + fast)[None], 100, 2, 10)[0]
    middle = slice(300, -300)
    assert np.abs(passed - inside)[middle].max() < 0.02


def test_a_notch_takes_out_the_mains():
    time = np.arange(4000) / 250
    signal, mains = np.sin(2 * np.pi * 7 * time), np.sin(2 * np.pi * 50 * time)
    cleaned = notch((signal + mains)[None], 250, 50)[0]
    middle = slice(500, -500)
    assert np.abs(cleaned - signal)[middle].max() < 0.02


@pytest.mark.parametrize(
    ("filtered", "message"),
    [
        (lambda x: band_pass(x, 100, 10, 2), "band: 10 to 2 Hz is no band between 0 and 50 Hz"),
        (lambda x: band_pass(x, 100, 2, 60), "band: 2 to 60 Hz is no band"),
        (lambda x: notch(x, 100, 50), "notch: 50 Hz is not between 0 and 50 Hz"),
        (lambda x: band_pass(x[..., :9], 100, 2, 10), "9 samples at 100 Hz are too few"),
    ],
)
def test_filters_that_cannot_be(filtered, message):
    with pytest.raises(ValueError, match=message):
        filtered(np.zeros((1, 500)))
