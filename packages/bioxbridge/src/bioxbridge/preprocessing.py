"""From raw signal to what each published foundation model was trained on.

The settings are those of the published scripts of BioX-Bridge (arXiv 2510.02276, appendix on data),
with one change: going to a lower rate always passes an anti-alias filter, which they leave out.
Signals are (..., S), filtered and scaled along the last axis. The paper scales whole recordings: to
do the same, condition a recording first and cut windows afterwards.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Float
from scipy import signal as scipy_signal
from torch import Tensor

Signal = Float[np.ndarray, "*batch samples"]
Resampled = Float[np.ndarray, "*batch resampled"]


def resample(signal: Signal, rate: float | int, new_rate: float | int) -> Resampled:
    """Polyphase resampling behind an anti-alias filter, to round(S new_rate / rate) samples.

    Args:
        signal: (..., S).
        rate: its sampling rate in Hz.
        new_rate: the rate wanted, in Hz.

    Raises:
        ValueError: a rate that is not positive, or fewer than two samples.
    """
    for name, value in (("rate", rate), ("new_rate", new_rate)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name}: {value} Hz is not above 0")
    samples = signal.shape[-1]
    if samples < 2:
        raise ValueError(f"signal: {samples} sample(s) cannot be resampled")
    if rate == new_rate:
        return signal
    ratio = Fraction(new_rate / rate).limit_denominator(10_000)
    # Lines, not constants, carry on at both ends: an offset makes no edge.
    out = scipy_signal.resample_poly(
        signal, ratio.numerator, ratio.denominator, axis=-1, padtype="line"
    )
    wanted = round(samples * new_rate / rate)
    missing = max(0, wanted - out.shape[-1])
    padding = [(0, 0)] * (out.ndim - 1) + [(0, missing)]
    return np.pad(out, padding, mode="edge")[..., :wanted].astype(signal.dtype, copy=False)


def band_pass(
    signal: Signal, rate: float | int, low: float | int, high: float | int, *, order: int = 4
) -> Signal:
    """Butterworth band-pass without phase shift.

    Args:
        signal: (..., S).
        rate: its sampling rate in Hz.
        low: lower edge in Hz, above 0.
        high: upper edge in Hz, below half the rate.
        order: of the filter, which runs forth and back.

    Raises:
        ValueError: edges that are none, or a signal too short for the filter.
    """
    if not 0 < low < high < rate / 2:
        raise ValueError(f"band: {low:g} to {high:g} Hz is no band between 0 and {rate / 2:g} Hz")
    sos = scipy_signal.butter(order, [low, high], "bandpass", fs=rate, output="sos")
    return _both_ways(signal, rate, sos=sos)


def notch(
    signal: Signal, rate: float | int, frequency: float | int, *, quality: float | int = 30
) -> Signal:
    """Take out one frequency, such as that of the mains, without phase shift.

    Args:
        signal: (..., S).
        rate: its sampling rate in Hz.
        frequency: in Hz, below half the rate.
        quality: the frequency over the width of what is taken out.

    Raises:
        ValueError: a frequency outside 0 to half the rate, or a signal too short for the filter.
    """
    if not 0 < frequency < rate / 2:
        raise ValueError(f"notch: {frequency:g} Hz is not between 0 and {rate / 2:g} Hz")
    sos = scipy_signal.tf2sos(*scipy_signal.iirnotch(frequency, quality, fs=rate))
    return _both_ways(signal, rate, sos=sos)


def z_score(signal: Signal) -> Signal:
    """Zero mean and unit variance along time; a constant channel becomes zero.

    >>> z_score(np.array([[1.0, 3.0], [5.0, 5.0]])).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    centred = signal - signal.mean(axis=-1, keepdims=True)
    scale = signal.std(axis=-1, keepdims=True)
    # Rounding leaves a constant channel a deviation of about 1e-7 of its level.
    flat = scale <= 1e-6 * np.abs(signal).max(axis=-1, keepdims=True)
    return np.where(flat, 0, centred / np.where(flat, 1, scale)).astype(signal.dtype, copy=False)


def condition_ppg(signal: Signal, rate: float | int) -> Resampled:
    """PaPaGei's input: 125 Hz, Chebyshev-I band 0.5-12 Hz (order 4, 0.5 dB), z-scored."""
    resampled = resample(signal, rate, 125.0)
    band = scipy_signal.cheby1(4, 0.5, [0.5, 12.0], "bandpass", fs=125.0, output="sos")
    return z_score(_both_ways(resampled, 125.0, sos=band))


def condition_hubert_ecg(signal: Signal, rate: float | int) -> Resampled:
    """HuBERT-ECG's input: FIR band 0.05-47 Hz of order 150 at 500 Hz, then 100 Hz, z-scored."""
    at_500 = resample(signal, rate, 500.0)
    taps = scipy_signal.firwin(151, [0.05, 47.0], pass_zero=False, fs=500.0)
    return z_score(resample(_both_ways(at_500, 500.0, taps=taps), 500.0, 100.0))


def condition_ecg_fm(signal: Signal, rate: float | int) -> Resampled:
    """ECG-FM's input: 500 Hz, each lead z-scored."""
    return z_score(resample(signal, rate, 500.0))


def condition_eeg(signal: Signal, rate: float | int) -> Resampled:
    """LaBraM's input: microvolts at 200 Hz, over 100."""
    return resample(signal, rate, 200.0) / 100


def condition_normwear(signal: Signal, rate: float | int) -> Resampled:
    """NormWear's input before its wavelets: 130 Hz, each channel z-scored."""
    return z_score(resample(signal, rate, 130.0))


def ricker(points: float | int, width: float) -> Float[np.ndarray, " points"]:
    r"""Ricker wavelet $\frac{2}{\sqrt{3 a}\,\pi^{1/4}} (1 - t^2/a^2)\, e^{-t^2 / 2 a^2}$.

    `scipy.signal.ricker`, which SciPy 1.15 removed; a length that is no integer is rounded up.

    >>> ricker(3, 1.0).round(4).tolist()
    [0.0, 0.8673, 0.0]
    """
    squared = ((np.arange(points) - (points - 1) / 2) / width) ** 2
    return 2 / (np.sqrt(3 * width) * np.pi**0.25) * (1 - squared) * np.exp(-squared / 2)


def wavelet_transform(
    signal: Signal, widths: Float[np.ndarray, " widths"]
) -> Float[np.ndarray, "*batch widths samples"]:
    """Continuous wavelet transform with Ricker wavelets, (..., W, S).

    `scipy.signal.cwt(signal, scipy.signal.ricker, widths)`, which SciPy 1.15 removed: each wavelet
    is cut to ten widths, or to the signal's length where that is less.

    Args:
        signal: (..., S).
        widths: (W,) in samples.
    """
    wavelets = [ricker(min(10 * width, signal.shape[-1]), width) for width in widths]
    # Same-size convolution keeps the middle, (K - 1) // 2 in: line the middles up in one bank.
    size = max(map(len, wavelets))
    bank = np.zeros((len(widths), size))
    for row, wavelet in zip(bank, wavelets, strict=True):
        start = (size - 1) // 2 - (len(wavelet) - 1) // 2
        row[start : start + len(wavelet)] = wavelet[::-1]
    bank = bank.reshape((1,) * (signal.ndim - 1) + bank.shape)
    full = scipy_signal.fftconvolve(np.expand_dims(signal, -2), bank, mode="full", axes=-1)
    start = (size - 1) // 2
    return full[..., start : start + signal.shape[-1]]


def scalograms(signal: Signal) -> Float[np.ndarray, "*batch 3 time widths"]:
    """NormWear's picture of a signal (..., S): (..., 3, S - 2, 65).

    Wavelet transforms at widths 0.1, 1.1, ..., 64.1 samples of the signal and of its first and
    second differences, all three cut to the last S - 2 samples.

    Raises:
        ValueError: fewer than three samples.
    """
    if signal.shape[-1] < 3:
        raise ValueError(f"signal: {signal.shape[-1]} samples have no second difference")
    first = np.diff(signal)
    stacked = np.stack([signal[..., 2:], first[..., 1:], np.diff(first)], axis=-2)
    return wavelet_transform(stacked, np.arange(0.1, 65)).swapaxes(-1, -2)


def labram_inputs(signal: Float[np.ndarray, "batch channels samples"]) -> Tensor:
    """(B, C, S) at 200 Hz as LaBraM's (B, C, seconds, 200).

    Raises:
        ValueError: no whole number of seconds.
    """
    if signal.shape[-1] % 200:
        raise ValueError(f"signal: LaBraM takes whole seconds, not {signal.shape[-1] / 200:g} s")
    return _tensor(signal).unflatten(-1, (-1, 200))


def joined_leads(signal: Float[np.ndarray, "batch channels samples"]) -> Tensor:
    """(B, C, S) as HuBERT-ECG's (B, C S): one lead after the other."""
    return _tensor(signal).flatten(1)


def normwear_inputs(signal: Float[np.ndarray, "batch channels samples"]) -> Tensor:
    """(B, C, S) as NormWear's scalograms (B, C, 3, S - 2, 65), window by window."""
    return torch.stack([_tensor(scalograms(window)) for window in signal])


def as_channels(signal: Float[np.ndarray, "batch channels samples"]) -> Tensor:
    """(B, C, S) as it is."""
    return _tensor(signal)


def _tensor(signal: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(signal, dtype=np.float32))


def _both_ways(
    signal: np.ndarray,
    rate: float | int,
    *,
    sos: np.ndarray | None = None,
    taps: np.ndarray | None = None,
) -> np.ndarray:
    """A filter without phase shift."""
    pad = 3 * (len(taps) if taps is not None else 2 * len(sos) + 1)
    if signal.shape[-1] <= pad:
        raise ValueError(
            f"signal: {signal.shape[-1]} samples at {rate:g} Hz are too few for the filter, "
            f"which needs more than {pad}"
        )
    if taps is not None:
        filtered = scipy_signal.filtfilt(taps, [1.0], signal, axis=-1, padlen=pad)
    else:
        filtered = scipy_signal.sosfiltfilt(sos, signal, axis=-1, padlen=pad)
    return filtered.astype(signal.dtype, copy=False)
