"""CSV and Parquet files, one recording each, described by `recordings.yaml`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bioxbridge.recordings.description import (
    Description,
    files_of,
    stack_channels,
    subject_of,
)
from bioxbridge.windows import UNLABELLED, Recording

# A step of time that differs from the others by more than this share of it is a gap.
_JITTER = 0.5


def load_csv(path: Path) -> list[Recording]:
    """Read a file, or every `*.csv` of a folder.

    Raises:
        ValueError: names the file, row, column and value that cannot be used.
    """
    return _load(path, "*.csv", _read_csv)


def load_parquet(path: Path) -> list[Recording]:
    """Read a file, or every `*.parquet` of a folder.

    Raises:
        ValueError: names the file, row, column and value that cannot be used, or pyarrow is not
            installed.
    """
    return _load(path, "*.parquet", _read_parquet)


def _load(path: Path, pattern: str, read: Any) -> list[Recording]:
    description = Description.read(path if path.is_dir() else path.parent)
    return [_recording(file, read(file), description) for file in files_of(path, pattern)]


def _read_csv(file: Path) -> dict[str, Sequence[Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file}: not readable as CSV ({error})") from error
    if len(rows) < 2:
        raise ValueError(f"{file}: holds no row below a row of names")
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise ValueError(f"{file}: row {number}: {len(row)} values under {len(names)} names")
    return dict(zip(names, zip(*rows[1:], strict=True), strict=True))


def _read_parquet(file: Path) -> dict[str, Sequence[Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            'recordings: Parquet needs pyarrow; pip install "bioxbridge[recordings]"'
        ) from error
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{file}: not readable as Parquet") from error
    return {name: table[name].to_pylist() for name in table.column_names}


def _recording(file: Path, table: dict[str, Sequence[Any]], description: Description) -> Recording:
    picked = description.pick(file, {name: name for name in table})
    signals = {
        modality: stack_channels(
            [None if name is None else _numbers(file, name, table[name]) for name in names]
        )
        for modality, names in picked.items()
    }
    rate = _rate(file, table, description)
    length = next(iter(signals.values())).shape[1]
    return Recording(
        name=str(file),
        subject=subject_of(file),
        signals=signals,
        rates=dict.fromkeys(signals, rate),
        labels=_labels(file, table, description, length),
        label_rate=rate,
        class_names=description.class_names,
    )


def _numbers(file: Path, name: str, values: Sequence[Any]) -> np.ndarray:
    """A column as numbers; an empty cell is NaN, which the recording then refuses."""
    filled = [np.nan if value is None or value == "" else value for value in values]
    try:
        return np.array(filled, dtype=float)
    except (TypeError, ValueError):
        for row, value in enumerate(filled, 2):
            try:
                float(value)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{file}: row {row}, column {name!r}: {value!r} is no number"
                ) from error
        raise


def _rate(file: Path, table: dict[str, Sequence[Any]], description: Description) -> float:
    if (description.rate is None) == (description.time is None):
        raise ValueError(f"{description.path}: needs either `rate` (Hz) or `time` (a column)")
    if description.rate is not None:
        return float(description.rate)
    if description.time not in table:
        raise ValueError(f"{file}: has no column {description.time!r} of time")
    times = _numbers(file, description.time, table[description.time])
    steps = np.diff(times)
    step = float(np.median(steps)) if len(steps) else 0.0
    if not step > 0:
        raise ValueError(f"{file}: column {description.time!r}: time does not go on")
    jumps = np.flatnonzero(~(np.abs(steps - step) <= _JITTER * step))
    if len(jumps):
        row = int(jumps[0])
        raise ValueError(
            f"{file}: row {row + 3}: time goes from {times[row]:g} to {times[row + 1]:g} s where "
            f"others take {step:g} s; cut the file there"
        )
    return float(len(steps) / (times[-1] - times[0]))


def _labels(
    file: Path, table: dict[str, Sequence[Any]], description: Description, length: int
) -> np.ndarray:
    if description.labels is None:
        return np.full(length, UNLABELLED)
    if description.labels not in table:
        raise ValueError(f"{file}: has no column {description.labels!r} of labels")
    values = table[description.labels]
    if description.classes:
        return np.array([description.class_of(value) for value in values])
    numbers = _numbers(file, description.labels, values)
    numbers[np.isnan(numbers)] = UNLABELLED
    broken = np.flatnonzero(numbers != np.round(numbers))
    if len(broken):
        row = int(broken[0])
        raise ValueError(
            f"{file}: row {row + 2}, column {description.labels!r}: {numbers[row]:g} is no class"
        )
    return numbers.astype(int)
