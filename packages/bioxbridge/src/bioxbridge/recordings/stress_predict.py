"""Stress-Predict (MIT): wrist recordings of 24 people at rest and under stress.

Reads one NPZ file of plain arrays that holds, for every subject `Sxx`, `Sxx_BVP` (64 Hz, tenths of
the device's unit), `Sxx_ACC` (n, 3) (32 Hz, 1/64 g), `Sxx_EDA` (4 Hz, microsiemens), `Sxx_TEMP`
(4 Hz, hundredths of a degree Celsius) and `Sxx_label` per second: 0 rest, 1 stress, -1 unknown.
All channels of a subject start at the same instant.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bioxbridge.recordings.npz import read_arrays
from bioxbridge.windows import Recording

# Sampling rate in Hz, and what one unit of the stored integers is worth.
CHANNELS = {"BVP": (64.0, 0.1), "ACC": (32.0, 1 / 64), "EDA": (4.0, 1.0), "TEMP": (4.0, 0.01)}


def load_stress_predict(path: Path) -> list[Recording]:
    """One recording a subject, with modalities `BVP`, `ACC`, `EDA` and `TEMP`.

    Raises:
        ValueError: names the file and the array that is missing or cannot be used.
    """
    arrays = read_arrays(path)
    subjects = sorted({name[:3] for name in arrays if re.fullmatch(r"S\d\d_\w+", name)})
    if not subjects:
        raise ValueError(f"{path}: holds no array named like S02_BVP")
    recordings = []
    for subject in subjects:
        for channel in (*CHANNELS, "label"):
            if f"{subject}_{channel}" not in arrays:
                raise ValueError(f"{path}: has {subject}, but not {subject}_{channel}")
        signals = {
            channel: np.atleast_2d(unit * arrays[f"{subject}_{channel}"].T).astype(np.float32)
            for channel, (_, unit) in CHANNELS.items()
        }
        recordings.append(
            Recording(
                name=f"{path}: {subject}",
                subject=subject,
                signals=signals,
                rates={channel: rate for channel, (rate, _) in CHANNELS.items()},
                labels=arrays[f"{subject}_label"].astype(np.int64),
                label_rate=1.0,
                class_names=("rest", "stress"),
            )
        )
    return recordings
