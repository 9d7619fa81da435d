"""ISRUC-Sleep: polysomnography of whole nights, a sleep stage every 30 seconds.

A subgroup's folder has a folder a subject with the night as EDF, `1/1.rec`, and the stages by two
experts, `1/1_1.txt` and `1/1_2.txt`, one a line; subgroup II has a folder a night in between,
`1/2/2.rec`. The first expert's stages are taken: 0 wake, 1 to 3 non-REM, 5 REM. The last 30 epochs
of every night are noise by the distribution's own account and are left out, as in the published
code of BioX-Bridge.

Not settled by any document at hand, taken from how public code reads the files: electrodes refer to
A1 and A2 or, in some nights, to M1 and M2; X1, X2 and X3 are chin, heart and leg, and some files
number them 24, 25 and 26; stages and recording are of equal length to within an epoch. Nights that
differ are refused by name: move their folders away. Public code leaves out subjects 8 and 40 of
subgroup I.

Files are read by mne, a modality at a time. A night takes 23 MB a channel in memory, 10 of them are
kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bioxbridge.recordings.edf import import_mne
from bioxbridge.windows import Recording

EPOCH = 30.0
LEFT_OUT = 30
CLASS_NAMES = ("wake", "sleep")
STAGE_NAMES = ("wake", "N1", "N2", "N3", "REM")

# Channels by modality; of each, the names it may go by.
MODALITIES = {
    "EEG": tuple(
        (f"{electrode}-A{side}", f"{electrode}-M{side}")
        for electrode, side in (("F3", 2), ("C3", 2), ("O1", 2), ("F4", 1), ("C4", 1), ("O2", 1))
    ),
    "EOG": (("LOC-A2", "E1-M2"), ("ROC-A1", "E2-M1")),
    "EMG": (("X1", "24"),),
    "ECG": (("X2", "25"),),
}

_STAGES = {0: 0, 1: 1, 2: 2, 3: 3, 5: 4}


def load_isruc(path: Path) -> list[Recording]:
    """Nights with modalities `EEG`, `EOG`, `EMG` and `ECG` in microvolts; wake 0, sleep 1.

    `EEG` has the channels F3, C3, O1, F4, C4, O2; `EOG` left and right; `EMG` is the chin's.

    Args:
        path: folder of a subgroup, or one that holds a night itself.

    Raises:
        ValueError: names the file, and the channel, line or value that cannot be used.
    """
    return [_read(file, subject, five=False) for file, subject in _nights(path)]


def load_isruc_stages(path: Path) -> list[Recording]:
    """The same with five classes: wake, N1, N2, N3 and REM.

    Raises:
        ValueError: see `load_isruc`.
    """
    return [_read(file, subject, five=True) for file, subject in _nights(path)]


def _nights(path: Path) -> list[tuple[Path, str]]:
    """Recordings and their subjects, in order of number."""
    nights = []
    for file in path.rglob("*.rec") if path.is_dir() else []:
        alone = file.parent == path
        subject = path.resolve().name if alone else file.relative_to(path).parts[0]
        if not subject.isdigit():
            raise ValueError(f"{file}: lies in no folder named after a subject's number")
        nights.append((file, subject))
    if not nights:
        raise ValueError(f"{path}: holds no recording like 1/1.rec")
    return sorted(nights, key=lambda night: (int(night[1]), night[0]))


def _read(file: Path, subject: str, *, five: bool) -> Recording:
    signals, rates = {}, {}
    for modality, channels in MODALITIES.items():
        signals[modality], rates[modality] = _channels(file, channels)
    seconds = min(signal.shape[1] / rates[name] for name, signal in signals.items())
    stages = _stages(file.with_name(f"{file.stem}_1.txt"))
    if abs(seconds - EPOCH * len(stages)) >= EPOCH:
        raise ValueError(
            f"{file}: {seconds:g} s are {seconds / EPOCH:.1f} epochs of {EPOCH:g} s, "
            f"{file.stem}_1.txt holds {len(stages)}"
        )
    epochs = min(len(stages), int(seconds / EPOCH)) - LEFT_OUT
    if epochs < 1:
        raise ValueError(f"{file}: {len(stages)} epochs leave none without the last {LEFT_OUT}")
    labels = stages[:epochs]
    return Recording(
        name=str(file),
        subject=subject,
        signals={
            name: signal[:, : round(epochs * EPOCH * rates[name])]
            for name, signal in signals.items()
        },
        rates=rates,
        labels=labels if five else np.minimum(labels, 1),
        label_rate=1 / EPOCH,
        class_names=STAGE_NAMES if five else CLASS_NAMES,
    )


def _channels(file: Path, channels: tuple[tuple[str, ...], ...]) -> tuple[np.ndarray, float]:
    """Signals (channels, samples) in microvolts, and their rate in Hz.

    Args:
        file: an EDF of any suffix.
        channels: of each, the names it may go by.

    Raises:
        ValueError: the file is no EDF, or has none of the names of a channel.
    """
    wanted = [name for names in channels for name in names]
    reader = import_mne().io.read_raw_edf
    try:
        # A stream, because mne goes by the suffix of a path.
        with file.open("rb") as stream:
            night = reader(stream, include=wanted, preload=True, verbose="error")
    except Exception as error:  # its parser raises whatever comes
        raise ValueError(f"{file}: not readable as EDF ({error})") from error
    picks = [next((name for name in names if name in night.ch_names), None) for names in channels]
    for names, pick in zip(channels, picks, strict=True):
        if pick is None:
            raise ValueError(f"{file}: has no channel {' or '.join(names)}")
    volts = night.get_data(picks=picks)
    return (1e6 * volts).astype(np.float32), float(night.info["sfreq"])


def _stages(file: Path) -> np.ndarray:
    """Classes of five by epoch."""
    try:
        lines = file.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not readable as text") from error
    allowed = {str(stage): number for stage, number in _STAGES.items()}
    for number, line in enumerate(lines, 1):
        if line.strip() not in allowed:
            raise ValueError(
                f"{file}: line {number}: stage {line!r} is none of {', '.join(allowed)}"
            )
    return np.array([allowed[line.strip()] for line in lines], np.int64)
