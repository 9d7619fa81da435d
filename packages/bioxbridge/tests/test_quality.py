"""Flags of windows, gaps that are filled, clocks that are brought together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.quality import correct_drift, estimate_drift, fill_gaps, window_quality


def test_flat_and_clipped_windows_are_flagged():
    windows = np.random.RandomState(0).uniform(-0.9, 0.9, (4, 2, 50))
    windows[1, 1] = 0.3
    windows[2, 0, :6] = 1.0  # more than a tenth at the highest value
    windows[3, 0, :5] = 1.0  # just a tenth
    quality = window_quality(windows, (np.full(2, -1.0), np.full(2, 1.0)))
    assert quality.flat.tolist() == [False, True, False, False]
    assert quality.clipped.tolist() == [False, False, True, False]
    assert quality.good.tolist() == [True, False, False, True]


def test_a_flat_window_at_the_limit_is_flat_and_not_clipped():
    windows = np.zeros((1, 1, 10))
    quality = window_quality(windows, (np.zeros(1), np.ones(1)))
    assert (quality.flat[0], quality.clipped[0]) == (True, False)


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none(share):
    with pytest.raises(ValueError, match=r"clipped_share: .* is not in \(0, 1\]"):
        window_quality(np.zeros((1, 1, 2)), (np.zeros(1), np.ones(1)), clipped_share=share)


def test_short_gaps_are_filled_by_a_line():
    nan = np.nan
    signal = np.array([[0.0, nan, nan, 3.0, 4.0, nan, nan, nan, 8.0, nan]])
    filled = fill_gaps(signal, 10.0, longest=0.2)
    np.testing.assert_array_equal(filled[0, :5], [0, 1, 2, 3, 4])
    assert np.isnan(filled[0, [5, 6, 7, 9]]).all()
    assert np.isnan(signal[0, 1])
    np.testing.assert_array_equal(fill_gaps(signal, 10.0, longest=0.3)[0, :9], np.arange(9))


@settings(max_examples=15)
@given(st.floats(-1.5, 1.5), st.floats(-0.002, 0.002))
def test_a_clock_is_found_and_set(offset, drift):
    rate, seconds = 16.0, 600
    random = np.random.RandomState(1)
    smooth = np.convolve(random.randn(int(rate * (seconds + 60))), np.ones(24) / 24, "same")
    time = np.arange(int(rate * seconds)) / rate
    grid = np.arange(len(smooth)) / rate - 20
    reference = np.interp(time, grid, smooth)
    # What the late device shows at its time t happened at (t - offset) / (1 + drift).
    other = np.interp((time - offset) / (1 + drift), grid, smooth)
    found = estimate_drift(reference, other, rate, largest=4.0)
    assert found[0] == pytest.approx(offset, abs=0.15)
    assert found[1] == pytest.approx(drift, abs=4e-4)
    mended = correct_drift(other[None], rate, offset=offset, drift=drift)[0]
    known = ~np.isnan(mended)
    assert known.mean() > 0.99
    assert np.corrcoef(mended[known], reference[known])[0, 1] > 0.99


@pytest.mark.parametrize(
    ("reference", "other", "message"),
    [
        (np.ones(2000), np.ones(1999), "2000 and 1999 samples do not match"),
        (np.ones(100), np.ones(100), "do not fit; take at least two windows"),
        (np.ones(4000), np.ones(4000), "do not vary together"),
    ],
)
def test_clocks_that_cannot_be_compared(reference, other, message):
    with pytest.raises(ValueError, match=message):
        estimate_drift(reference, other, 10.0)
