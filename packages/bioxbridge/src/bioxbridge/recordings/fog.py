"""Multimodal freezing of gait (CC BY 4.0): 12 people with Parkinson's disease walking, 500 Hz.

Mendeley Data r8gmbtv7w2, version 3, the filtered data: a folder a person with a text file a task,
`001/task_1.txt`; person 008 came twice and has `008/OFF_1` and `008/OFF_2`. A file is comma
separated, without a row of names, 61 columns: a number, the time of day, 25 EEG, EMG1, EMG2, an eye
channel, EMG3, EMG4, four inertial sensors with acceleration, rotation and one more each, and the
label, 1 while the gait freezes. The order is that of the data set authors' own scripts.

Uncertain: which muscle is on which EMG column differs between people; the table below is that of
the published code of BioX-Bridge, which says nothing about what its three columns are (the data
set's paper has tibialis anterior of both legs and gastrocnemius of the right one). That code means
to take F3, C3, O1, F4, C4, O2, but takes F3, F4, C3, C4, O1, O2 in this order; here the channels
are in the order it names. Units are written nowhere: EEG is likely in microvolts, and acceleration
in the sensor's counts, already filtered. A sensor that was not worn is all zeros. The time of day
is not read; samples are taken to be 2 ms apart.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bioxbridge.windows import Recording

RATE = 500.0
CLASS_NAMES = ("no freezing", "freezing")

# Columns of F3, C3, O1, F4, C4, O2.
EEG = (4, 6, 10, 5, 7, 11)
# Columns of three muscles by person, or by person and visit.
EMG = {
    **dict.fromkeys(("001", "002", "006", "007", "008/OFF_1"), (27, 28, 31)),
    **dict.fromkeys(("003", "004", "005", "010", "011", "012"), (28, 27, 31)),
    "008/OFF_2": (27, 31, 28),
    "009": (28, 27, 30),
}
# Columns of three axes of each: left shank, right shank, waist, wrist.
ACC = (32, 33, 34, 39, 40, 41, 46, 47, 48, 53, 54, 55)
LABEL = 60
COLUMNS = 61


def load_fog(path: Path) -> list[Recording]:
    """One recording a task, with modalities `EEG` (6), `EMG` (3) and `ACC` (12 channels).

    Args:
        path: the folder of all people's folders, one person's, or one visit's.

    Raises:
        ValueError: names the file, row, column and value that cannot be used.
    """
    files = path.rglob("task_*.txt") if path.is_dir() else []
    recordings = [_read(file) for file in sorted(files, key=_order)]
    if not recordings:
        raise ValueError(f"{path}: holds no file named like task_1.txt")
    return recordings


def _order(file: Path) -> tuple[Path, int, str]:
    digits = re.sub(r"\D", "", file.stem)
    return file.parent, int(digits or 0), file.name


def _read(file: Path) -> Recording:
    visit = _visit(file)
    columns = [*EEG, *EMG[visit], *ACC, LABEL]
    table = _table(file, columns).T  # (columns, samples)
    labels = table[-1]
    stray = np.flatnonzero(~np.isin(labels, (0, 1)))
    if len(stray):
        row = stray[0]
        raise ValueError(
            f"{file}: row {row + 1}, column {LABEL}: label {labels[row]:g} is not 0, 1"
        )
    parts = np.split(table[:-1].astype(np.float32), [len(EEG), len(EEG) + 3])
    signals = dict(zip(("EEG", "EMG", "ACC"), parts, strict=True))
    return Recording(
        name=str(file),
        subject=visit[:3],
        signals=signals,
        rates=dict.fromkeys(signals, RATE),
        labels=labels.astype(np.int8),
        label_rate=RATE,
        class_names=CLASS_NAMES,
    )


def _visit(file: Path) -> str:
    """Person, and visit where there were two, by the names of the folders that a file is in."""
    folders = file.absolute().parts[:-1]
    for visit in (folders[-1], "/".join(folders[-2:])):
        if visit in EMG:
            return visit
    raise ValueError(
        f"{file}: lies in no folder of a person, 001 to 012, nor in 008/OFF_1 or 008/OFF_2"
    )


def _table(file: Path, columns: list[int]) -> np.ndarray:
    """Numbers (rows, columns); an empty cell is refused."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not readable as text") from error
    if not lines:
        raise ValueError(f"{file}: holds no row")
    for number, line in enumerate(lines, 1):
        if line.count(",") != COLUMNS - 1:
            raise ValueError(f"{file}: row {number}: {line.count(',') + 1} columns, not {COLUMNS}")
    try:
        return np.loadtxt(lines, delimiter=",", usecols=columns, ndmin=2, comments=None)
    except ValueError:
        for number, line in enumerate(lines, 1):
            cells = line.split(",")
            for column in columns:
                try:
                    float(cells[column])
                except ValueError as error:
                    raise ValueError(
                        f"{file}: row {number}, column {column}: {cells[column]!r} is no number"
                    ) from error
        raise
