"""A folder of NPZ files, one recording each, for anyone's own simultaneous signals.

Each file holds, for every modality, an array of its name, (channels, samples) or (samples,), and
`NAME_rate` in Hz; `labels` with `label_rate` (classes per step of time, -1 where unknown); and
optionally `subject`, else the file's name up to the first underscore.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from bioxbridge.recordings.description import files_of
from bioxbridge.windows import UNLABELLED, Recording

_RESERVED = {"labels", "label_rate", "subject"}


def load_npz(path: Path) -> list[Recording]:
    """Read a file, or every `*.npz` of a folder in order of name.

    Raises:
        ValueError: names the file and the array that is missing or cannot be used.
    """
    return [_read(file) for file in files_of(path, "*.npz")]


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Arrays of an NPZ file by name; pickled ones are refused.

    Raises:
        ValueError: names the file that is not such an archive.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file}: is not an NPZ file")
    name = ""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {}
            for name in archive.files:
                arrays[name] = archive[name]
            return arrays
    except ValueError as error:
        raise ValueError(
            f"{file}: {name} is no plain array; Python objects (pickle) are never loaded"
        ) from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file}: {name} cannot be read, the file is damaged ({error})") from error


def _read(file: Path) -> Recording:
    arrays = read_arrays(file)
    names = [name for name in arrays if name not in _RESERVED and not name.endswith("_rate")]
    signals, rates = {}, {}
    for name in names:
        if f"{name}_rate" not in arrays:
            raise ValueError(f"{file}: has {name} but not {name}_rate (Hz)")
        if not np.isrealobj(arrays[name]) or not np.issubdtype(arrays[name].dtype, np.number):
            raise ValueError(f"{file}: {name} is of type {arrays[name].dtype}, not real numbers")
        signals[name] = np.atleast_2d(arrays[name]).astype(np.float32)
        rates[name] = _number(file, f"{name}_rate", arrays[f"{name}_rate"])
    if not signals:
        raise ValueError(f"{file}: holds no signal")
    labels = arrays.get("labels")
    label_rate = _number(file, "label_rate", arrays.get("label_rate", np.array(1.0)))
    if labels is None:
        longest = max(signal.shape[1] / rates[name] for name, signal in signals.items())
        labels = np.full(int(np.ceil(longest * label_rate)), UNLABELLED)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{file}: labels are {labels.dtype} {labels.shape}, not integers (n,)")
    subject = arrays.get("subject")
    return Recording(
        name=str(file),
        subject=file.stem.split("_")[0] if subject is None else str(subject),
        signals=signals,
        rates=rates,
        labels=labels.astype(np.int64),
        label_rate=label_rate,
    )


def _number(file: Path, name: str, value: np.ndarray) -> float:
    if value.shape != () or not np.issubdtype(value.dtype, np.number):
        raise ValueError(f"{file}: {name} is {value.dtype} {value.shape}, not one number")
    return float(value)
