"""Spectral tokens and their scaling per subject."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.tokens import SpectralTokens, standardise_by_subject


@pytest.mark.parametrize("frequency", [1.0, 3.0, 7.0, 11.0])
@pytest.mark.parametrize(("rate", "frame"), [(50.0, 1.0), (64.0, 2.0)])
def test_a_sine_peaks_at_its_frequency(frequency, rate, frame):
    time = torch.arange(int(8 * rate)) / rate
    windows = torch.stack([torch.zeros_like(time), torch.sin(2 * math.pi * frequency * time)])
    tokens = SpectralTokens(frame=frame, hop=frame / 2, means=0)(windows.unsqueeze(0), rate)
    bins = int(12 * frame)
    assert tokens.shape[-1] == 2 * bins
    silent, sine = tokens[0].split(bins, dim=-1)
    # Feature i is frequency (i + 1) / frame.
    assert bool((sine.argmax(dim=-1) == round(frequency * frame) - 1).all())
    assert torch.allclose(silent, torch.tensor(math.log(0.1)))


@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(50, 200), st.sampled_from([0.2, 0.5, 1.0]), st.integers(0, 5))
def test_shape(channels, samples, hop, means):
    tokens = SpectralTokens(frame=1.0, hop=hop, means=means)(
        torch.randn(2, channels, samples), 50.0
    )
    frames = (samples - 50) // round(50 * hop) + 1
    assert tokens.shape == (2, frames, channels * (12 + means))


def test_a_low_rate_bounds_the_frequencies():
    tokens = SpectralTokens(frame=2.0, hop=1.0, means=4)(torch.randn(1, 1, 40), 8.0)
    assert tokens.shape == (1, 4, 8 + 4)  # bins at 0.5 to 4 Hz


def test_means_by_hand():
    ramp = torch.arange(12.0).view(1, 1, 12)
    tokens = SpectralTokens(frame=1.0, hop=1.0, means=2, max_frequency=1.0)(ramp, 4.0)
    assert tokens.shape == (1, 3, 3)
    assert tokens[0, :, 1:].tolist() == [[0.5, 2.5], [4.5, 6.5], [8.5, 10.5]]
    # Five samples cannot be cut into two equal parts: the last one is left out.
    tokens = SpectralTokens(frame=1.0, hop=1.0, means=2, max_frequency=1.0)(ramp[..., :5], 5.0)
    assert tokens[0, 0, 1:].tolist() == [0.5, 2.5]


def test_spectrum_by_hand():
    window = torch.tensor([[[3.0, 5.0, 3.0, 1.0]]])
    tokens = SpectralTokens(frame=1.0, hop=1.0, means=0, floor=0.5)(window, 4.0)
    # Less its mean 0 2 0 -2, under the symmetric Hann window 0 3/4 3/4 0: 0 1.5 0 0.
    expected = math.log(1.5 + 0.5)
    torch.testing.assert_close(tokens[0, 0], torch.tensor([expected, expected]))


def test_level_does_not_enter_the_spectrum():
    windows = torch.randn(1, 2, 100, dtype=torch.float64).float()
    spectral = SpectralTokens(means=0)
    torch.testing.assert_close(
        spectral(windows + 100, 50.0), spectral(windows, 50.0), atol=2e-3, rtol=0
    )


def test_windows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"data\.hop: 0\.001 s is less than a sample at 50 Hz"):
        SpectralTokens(hop=0.001)(torch.zeros(1, 1, 100), 50.0)
    with pytest.raises(
        ValueError, match=r"data\.frame: 1\.0 s are 50 samples at 50 Hz, more than the 49"
    ):
        SpectralTokens()(torch.zeros(1, 1, 49), 50.0)
    with pytest.raises(ValueError, match=r"are 4 samples at 4 Hz, too few for data\.means 5"):
        SpectralTokens()(torch.zeros(1, 1, 49), 4.0)


def test_standardised_per_subject():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(60, 4, 3, generator=generator)
    subjects = np.array(["a", "b", "c"] * 20)
    tokens[subjects == "a"] = 40 + 7 * tokens[subjects == "a"]
    tokens[..., 2] = 5.0
    scaled = standardise_by_subject(tokens, subjects)
    for name in "abc":
        own = scaled[torch.from_numpy(subjects == name)][..., :2]
        assert float(own.mean(dim=(0, 1)).abs().max()) < 1e-5
        assert float((own.std(dim=(0, 1), correction=0) - 1).abs().max()) < 1e-4
    assert torch.equal(scaled[..., 2], torch.zeros(60, 4))


def test_one_subject_does_not_move_another():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(20, 4, 3, generator=generator)
    subjects = np.array(["a"] * 10 + ["b"] * 10)
    changed = tokens.clone()
    changed[10:] = 3 + 9 * changed[10:] ** 3
    before = standardise_by_subject(tokens, subjects)
    after = standardise_by_subject(changed, subjects)
    assert torch.equal(before[:10], after[:10])
    assert not torch.allclose(before[10:], after[10:])


def test_outliers_are_clipped():
    tokens = torch.zeros(100, 1, 1)
    tokens[0], tokens[1] = 50.0, -50.0
    scaled = standardise_by_subject(tokens, np.array(["a"] * 100), clip=3.0)
    assert scaled[:2].flatten().tolist() == [3.0, -3.0]
    # Unclipped: 50 / sqrt(2 * 2500 / 100) = 7.07.
    free = standardise_by_subject(tokens, np.array(["a"] * 100), clip=10.0)
    assert float(free[0]) == pytest.approx(50**0.5)
