"""Empatica E4 folders: one CSV file a channel, start stamp in row 1, rate in row 2.

Channels start at different moments; all are cut to the span that they share. An optional
`labels.csv` with columns start, end (Unix seconds) and class says what was done when.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from bioxbridge.recordings.description import spans_to_labels
from bioxbridge.windows import Recording

# What one unit of a file is worth: acceleration comes in 1/64 g.
CHANNELS = {"ACC": 1 / 64, "BVP": 1.0, "EDA": 1.0, "TEMP": 1.0}


def load_e4(path: Path) -> list[Recording]:
    """Read a folder of one person's files, or a folder of such folders, named after the person.

    Raises:
        ValueError: names the file, row and value that cannot be used.
    """
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())] if path.is_dir() else []
    return [_read(folder) for folder in folders if (folder / "BVP.csv").is_file()]


def _read(folder: Path) -> Recording:
    channels = {
        name: _channel(folder / f"{name}.csv", unit)
        for name, unit in CHANNELS.items()
        if (folder / f"{name}.csv").is_file()
    }
    start = max(begin for begin, _, _ in channels.values())
    end = min(begin + signal.shape[1] / rate for begin, rate, signal in channels.values())
    if end <= start:
        raise ValueError(f"{folder}: the channels share no span of time")
    signals = {}
    for name, (begin, rate, signal) in channels.items():
        first = round((start - begin) * rate)
        signals[name] = signal[:, first : first + int((end - start) * rate + 1e-6)]
    return Recording(
        name=str(folder),
        subject=folder.name.split("_")[0],
        signals=signals,
        rates={name: rate for name, (_, rate, _) in channels.items()},
        labels=spans_to_labels(_spans(folder / "labels.csv", start), end - start),
        label_rate=1.0,
    )


def _rows(file: Path) -> list[list[float]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not readable as text") from error
    rows = []
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        try:
            rows.append([float(value) for value in row])
        except ValueError as error:
            raise ValueError(f"{file}: row {number}: {','.join(row)!r} are no numbers") from error
    return rows


def _channel(file: Path, unit: float) -> tuple[float, float, np.ndarray]:
    """Start (Unix seconds), rate (Hz) and signal (channels, samples)."""
    rows = _rows(file)
    if len(rows) < 3:
        raise ValueError(f"{file}: holds no sample below its start stamp and rate")
    for number, row in enumerate(rows[2:], 3):
        if len(row) != len(rows[2]):
            raise ValueError(f"{file}: row {number}: {len(row)} values, before {len(rows[2])}")
    start, rate = rows[0][0], rows[1][0]
    if not 0 < rate < np.inf:
        raise ValueError(f"{file}: row 2: rate {rate:g} Hz is not positive")
    return start, rate, (unit * np.array(rows[2:]).T).astype(np.float32)


def _spans(file: Path, start: float) -> list[tuple[float, float, int]]:
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    if not lines or [name.strip() for name in lines[0].split(",")] != ["start", "end", "class"]:
        raise ValueError(f"{file}: row 1: is not start,end,class")
    spans = []
    for number, line in enumerate(lines[1:], 2):
        try:
            begin, end, label = line.split(",")
            spans.append((float(begin) - start, float(end) - start, int(label)))
        except ValueError as error:
            raise ValueError(f"{file}: row {number}: {line!r} is no start, end, class") from error
    return spans
