"""Windows that no model should learn from: flat or clipped signal. Gaps and clock drift, mended.

Repairs are functions to be called on purpose; `Recording` refuses what they are for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

Signal = Float[np.ndarray, "channels samples"]


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Flags of windows, (N,) each; a window is good where none is set.

    Attributes:
        flat: a channel does not vary.
        clipped: too large a share of a channel sits at the recording's own highest or lowest value.
    """

    flat: Bool[np.ndarray, " windows"]
    clipped: Bool[np.ndarray, " windows"]

    @property
    def good(self) -> Bool[np.ndarray, " windows"]:
        """Windows without a flag."""
        return ~(self.flat | self.clipped)


def window_quality(
    windows: Float[np.ndarray, "windows channels samples"],
    limits: tuple[np.ndarray, np.ndarray],
    *,
    clipped_share: float = 0.1,
) -> Quality:
    """Flag windows.

    Args:
        windows: (N, C, S) raw signal of one recording.
        limits: lowest and highest value of each channel in the whole recording, (C,) each.
        clipped_share: share of samples at a limit, in (0, 1], above which a window is clipped.

    Raises:
        ValueError: a share outside its range.
    """
    if not 0 < clipped_share <= 1:
        raise ValueError(f"clipped_share: {clipped_share} is not in (0, 1]")
    flat = np.ptp(windows, axis=-1) == 0  # (N, C)
    low, high = (limit[:, None] for limit in limits)
    at_limit = np.maximum((windows == low).mean(axis=-1), (windows == high).mean(axis=-1))
    return Quality(flat=flat.any(axis=1), clipped=((at_limit > clipped_share) & ~flat).any(axis=1))


def fill_gaps(signal: Signal, rate: float, *, longest: float) -> Signal:
    """Put a line over stretches of NaN, each of at most `longest` seconds, between two samples.

    Args:
        signal: (C, S), not changed.
        rate: in Hz.
        longest: seconds.

    Returns:
        (C, S) in which longer stretches, and those at an end, are still NaN.
    """
    filled = signal.copy()
    for channel in filled:
        missing = np.isnan(channel)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]])))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            inside = start > 0 and end < len(channel)
            if inside and end - start <= longest * rate + 1e-6:
                channel[start:end] = np.interp(
                    np.arange(start, end), [start - 1, end], channel[[start - 1, end]]
                )
    return filled


def estimate_drift(
    reference: Float[np.ndarray, " samples"],
    other: Float[np.ndarray, " others"],
    rate: float,
    *,
    window: float = 60.0,
    largest: float = 5.0,
) -> tuple[float, float]:
    """How a second device's clock runs, from a signal that both recorded.

    In each window the lag of highest correlation is found; a line through the lags, weighted by
    their correlation, gives offset and drift.

    Args:
        reference: (S,) of the first device.
        other: (S,) of the second, at the same nominal rate.
        rate: in Hz.
        window: seconds, at least four times `largest`.
        largest: longest lag that is looked for, seconds.

    Returns:
        Seconds that `other` is behind at the start, and seconds more a second.

    Raises:
        ValueError: the signals differ in length, are shorter than two windows, or do not vary.
    """
    if len(reference) != len(other):
        raise ValueError(f"drift: {len(reference)} and {len(other)} samples do not match")
    size, most = round(window * rate), round(largest * rate)
    if size < 4 * most or len(reference) < 2 * size:
        raise ValueError(
            f"drift: {len(reference) / rate:.0f} s of signal, windows of {window:g} s and lags up "
            f"to {largest:g} s do not fit; take at least two windows of four times the lag"
        )
    times, lags, weights = [], [], []
    for start in range(0, len(reference) - size + 1, size):
        inner = reference[start + most : start + size - most]
        inner = inner - inner.mean()
        around = np.lib.stride_tricks.sliding_window_view(
            other[start : start + size], len(inner)
        )  # (2 most + 1, inner)
        around = around - around.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(around, axis=1) * np.linalg.norm(inner)
        if not (norms > 0).all():
            continue
        correlation = around @ inner / norms
        best = int(correlation.argmax())
        times.append((start + size / 2) / rate)
        lags.append((best - most) / rate)
        weights.append(max(float(correlation[best]), 0.0))
    if len(lags) < 2 or sum(weights) == 0:
        raise ValueError("drift: the signals do not vary together")
    slope, intercept = np.polyfit(times, lags, 1, w=np.array(weights) + 1e-9)
    return float(intercept), float(slope)


def correct_drift(signal: Signal, rate: float, *, offset: float, drift: float) -> Signal:
    """The signal at the moments of the reference clock, by linear interpolation.

    Args:
        signal: (C, S) of the device whose clock runs otherwise.
        rate: in Hz.
        offset: seconds it is behind at the start, see `estimate_drift`.
        drift: seconds more a second.

    Returns:
        (C, S); moments that the device did not record are NaN.
    """
    time = np.arange(signal.shape[1]) / rate
    moments = time + offset + drift * time
    return np.stack(
        [np.interp(moments, time, channel, left=np.nan, right=np.nan) for channel in signal]
    ).astype(signal.dtype)
