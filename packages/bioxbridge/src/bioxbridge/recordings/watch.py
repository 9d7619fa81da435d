"""The watch recordings of the seglearn distribution (BSD): accelerometer and gyroscope, 50 Hz.

140 series of 10 subject ids, both wrists, seven shoulder exercises, 81 minutes. The distribution
carries them as a pickled array, which is read by an unpickler that admits numpy arrays alone, after
the file's SHA-256 was checked; seglearn is never imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
from pathlib import Path

import numpy as np

from bioxbridge.recordings.pickled import ArraysOnly
from bioxbridge.windows import Recording

RATE = 50.0
CLASSES = 7
MODALITIES = {"ACC": slice(0, 3), "GYR": slice(3, 6)}

_FILE = "seglearn/data/watch_dataset.npy"
_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"


def load_watch(path: Path | None = None) -> list[Recording]:
    """All series, with modalities `ACC` and `GYR`, three channels each.

    Raises:
        ValueError: seglearn is not installed, its data file is not the known one, or a path is
            given: the recordings are installed.
    """
    if path is not None:
        raise ValueError(f"data.path: {path}: watch is installed and reads no path")
    content = _data_file().read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"{_FILE}: is not the file that this reader was written for")
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    read_header(stream)
    data = _ArraysOnly(stream).load().item()
    recordings = []
    for i, (series, label, subject) in enumerate(
        zip(data["X"], data["y"], data["subject"], strict=True)
    ):
        seconds = int(np.ceil(len(series) / RATE))
        recordings.append(
            Recording(
                name=f"watch series {i}",
                subject=f"{int(subject):02d}",
                signals={
                    name: np.asarray(series[:, columns].T, np.float32)
                    for name, columns in MODALITIES.items()
                },
                rates=dict.fromkeys(MODALITIES, RATE),
                labels=np.full(seconds, int(label)),
                label_rate=1.0,
                class_names=tuple(data["y_labels"]),
            )
        )
    return recordings


def _data_file() -> Path:
    try:
        files = importlib.metadata.files("seglearn") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError("watch: needs its data carrier; pip install seglearn") from error
    for file in files:
        if file.as_posix() == _FILE:
            return Path(str(file.locate()))
    raise ValueError(f"watch: the installed seglearn carries no {_FILE}")


class _ArraysOnly(ArraysOnly):
    """Names the data file where it refuses."""

    source = _FILE
