"""WESAD: chest and wrist recordings of 15 people at rest, under stress and amused.

The distribution has a folder a subject, `S2/S2.pkl` to `S17/S17.pkl`, each beside the two devices'
raw files. The pickle is read, not those: it alone holds the signals of both devices on one clock
(the raw files have a clock each, and the double taps that join them are not marked), in units of
the body instead of counts, with the protocol's label for every sample. An unpickler that admits
numpy arrays, dicts and text reads it and calls nothing else; see `pickled.py`. The pickles were
written by Python 2.

A pickle is {'subject': 'S2', 'signal': {'chest': ..., 'wrist': ...}, 'label': (n,) at 700 Hz}, its
signals (n, channels). Labels are 1 baseline, 2 stress, 3 amusement; 0 (transient), 4 (meditation)
and 5 to 7 (to be ignored) are unknown here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from bioxbridge.recordings.pickled import ArraysOnly
from bioxbridge.windows import UNLABELLED, Recording

# Modality: device, name there, channels, rate in Hz, and what one unit of the pickle is worth: ECG
# millivolts, respiration percent, BVP the wrist device's own unit, EDA microsiemens, temperature
# degrees Celsius, acceleration g (the wrist stores 1/64 g). The chest's own EDA, temperature,
# acceleration and muscle signal are left out: with them a subject takes four times the memory.
CHANNELS = {
    "ECG": ("chest", "ECG", 1, 700.0, 1.0),
    "RESP": ("chest", "Resp", 1, 700.0, 1.0),
    "BVP": ("wrist", "BVP", 1, 64.0, 1.0),
    "EDA": ("wrist", "EDA", 1, 4.0, 1.0),
    "TEMP": ("wrist", "TEMP", 1, 4.0, 1.0),
    "ACC": ("wrist", "ACC", 3, 32.0, 1 / 64),
}
LABEL_RATE = 700.0
CLASS_NAMES = ("baseline", "stress", "amusement")

# Class by label of the pickle.
_CLASSES = np.array([-1, 0, 1, 2, -1, -1, -1, -1], np.int8)


def load_wesad(path: Path) -> list[Recording]:
    """One recording a subject, with modalities `ECG`, `RESP`, `BVP`, `EDA`, `TEMP` and `ACC`.

    Args:
        path: the distribution's folder, or that of one subject.

    Raises:
        ValueError: names the file, and the signal or label that is missing or cannot be used.
    """
    inner = path.iterdir() if path.is_dir() else []
    found = [folder for folder in [path, *inner] if re.fullmatch(r"S\d+", folder.name)]
    folders = sorted((f for f in found if f.is_dir()), key=lambda folder: int(folder.name[1:]))
    if not folders:
        raise ValueError(f"{path}: holds no folder named like S2")
    return [_read(folder / f"{folder.name}.pkl") for folder in folders]


def _read(file: Path) -> Recording:
    content = _unpickle(file)
    subject = _entry(file, content, "subject")
    if subject != file.stem:
        raise ValueError(f"{file}: subject: {subject!r} is not {file.stem!r}")
    signals = {name: _signal(file, content, name) for name in CHANNELS}
    labels = _labels(file, content)
    length = signals["ECG"].shape[1]
    if len(labels) != length:
        raise ValueError(f"{file}: label: {len(labels)} labels beside {length} samples of ECG")
    return Recording(
        name=str(file),
        subject=file.stem,
        signals=signals,
        rates={name: rate for name, (_, _, _, rate, _) in CHANNELS.items()},
        labels=labels,
        label_rate=LABEL_RATE,
        class_names=CLASS_NAMES,
    )


def _unpickle(file: Path) -> Any:
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        with file.open("rb") as stream:
            return ArraysOnly(stream, encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises whatever comes
        reason = " ".join(str(error).split())
        raise ValueError(f"{file}: is no pickle of plain arrays ({reason})") from error


def _entry(file: Path, content: Any, *names: str) -> Any:
    for i, name in enumerate(names):
        if not isinstance(content, dict) or name not in content:
            raise ValueError(f"{file}: has no {': '.join(names[: i + 1])}")
        content = content[name]
    return content


def _signal(file: Path, content: Any, modality: str) -> np.ndarray:
    """(channels, samples) in the module's units."""
    device, name, channels, _, unit = CHANNELS[modality]
    where = f"{file}: signal: {device}: {name}"
    signal = _entry(file, content, "signal", device, name)
    if not isinstance(signal, np.ndarray) or signal.dtype.kind not in "fiu":
        raise ValueError(f"{where}: is {_kind(signal)}, not an array of numbers")
    if signal.ndim != 2 or signal.shape[1] != channels:
        raise ValueError(f"{where}: shape {signal.shape} is not (samples, {channels})")
    return np.ascontiguousarray((signal * unit).T, dtype=np.float32)


def _labels(file: Path, content: Any) -> np.ndarray:
    labels = _entry(file, content, "label")
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "fiu":
        raise ValueError(f"{file}: label: is {_kind(labels)}, not numbers (n,)")
    stray = np.flatnonzero(~np.isin(labels, np.arange(len(_CLASSES))))
    if len(stray):
        raise ValueError(
            f"{file}: label: {labels[stray[0]]} at sample {stray[0]} is none of 0 to 7"
        )
    classes = _CLASSES[labels.astype(np.intp)]
    if (classes == UNLABELLED).all():
        raise ValueError(f"{file}: label: no sample is of {', '.join(CLASS_NAMES)}")
    return classes


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__
