"""Windows of raw signal to tokens of spectrum and slow waveform, and their scaling per subject."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SpectralTokens:
    """Overlapping frames; each becomes log magnitudes and means of successive parts, per channel.

    Masked reconstruction of raw samples does not learn rates from little data; of these tokens it
    does. Both BIOT and NormWear feed spectra for the same reason.

    Attributes:
        frame: seconds per frame.
        hop: seconds between frames.
        max_frequency: highest frequency kept, Hz; at most half of the sampling rate counts.
        means: parts of a frame whose mean is kept (slow waveform and level).
        floor: added to magnitudes before the logarithm, in units of the signal.
    """

    frame: float = 1.0
    hop: float = 0.5
    max_frequency: float = 12.0
    means: int = 5
    floor: float = 0.1

    def __call__(
        self, windows: Float[Tensor, "batch channels samples"], rate: float
    ) -> Float[Tensor, "batch tokens features"]:
        """Tokens of each window.

        Args:
            windows: (N, C, S) raw signal.
            rate: sampling rate, Hz.

        Returns:
            (N, T, F): T frames; for each channel in turn the log magnitudes of the frame's
            frequencies above zero, then the means.

        Raises:
            ValueError: the window is shorter than a frame, or a frame than its parts.
        """
        size, step = round(self.frame * rate), round(self.hop * rate)
        if step < 1:
            raise ValueError(f"data.hop: {self.hop} s is less than a sample at {rate:g} Hz")
        if windows.shape[-1] < size:
            raise ValueError(
                f"data.frame: {self.frame} s are {size} samples at {rate:g} Hz, more than the "
                f"{windows.shape[-1]} of a window"
            )
        if size < max(2, self.means):
            raise ValueError(
                f"data.frame: {self.frame} s are {size} samples at {rate:g} Hz, too few for "
                f"data.means {self.means}; take longer frames or fewer means"
            )
        frames = windows.unfold(-1, size, step)  # (N, C, T, size)
        centred = frames - frames.mean(dim=-1, keepdim=True)
        spectrum = torch.fft.rfft(centred * torch.hann_window(size, periodic=False)).abs()
        highest = min(int(self.max_frequency * self.frame), size // 2)
        features = [torch.log(spectrum[..., 1 : highest + 1] + self.floor)]
        if self.means:
            part = size // self.means
            parts = frames[..., : part * self.means].unflatten(-1, (self.means, part))
            features.append(parts.mean(dim=-1))
        return torch.cat(features, dim=-1).permute(0, 2, 1, 3).flatten(2)


def standardise_by_subject(
    tokens: Float[Tensor, "batch tokens features"], subjects: np.ndarray, clip: float = 5.0
) -> Float[Tensor, "batch tokens features"]:
    """Z-score every feature over all tokens of one subject, then clip.

    It uses the subject's own unlabelled windows, so at test time it needs a stretch of unlabelled
    signal of that person. A feature that never varies becomes zero.

    Args:
        tokens: (N, T, F).
        subjects: (N,) names.
        clip: bound of the result, in standard deviations.
    """
    result = torch.empty_like(tokens)
    for subject in np.unique(subjects):
        rows = torch.as_tensor(np.flatnonzero(subjects == subject))
        own = tokens[rows]
        spread, mean = torch.std_mean(own, dim=(0, 1), correction=0)
        scaled = (own - mean) / torch.where(spread > 1e-6, spread, torch.inf)
        result[rows] = scaled.clamp(-clip, clip)
    return result
