"""Readers: each turns files into a list of `Recording`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bioxbridge.recordings.e4 import load_e4
from bioxbridge.recordings.edf import load_edf
from bioxbridge.recordings.fog import load_fog
from bioxbridge.recordings.isruc import load_isruc, load_isruc_stages
from bioxbridge.recordings.npz import load_npz
from bioxbridge.recordings.simulator import load_simulator
from bioxbridge.recordings.stress_predict import load_stress_predict
from bioxbridge.recordings.tables import load_csv, load_parquet
from bioxbridge.recordings.watch import load_watch
from bioxbridge.recordings.wesad import load_wesad
from bioxbridge.recordings.wfdb_records import load_wfdb
from bioxbridge.windows import UNLABELLED, Recording

READERS: dict[str, Callable[[Path], list[Recording]]] = {
    "npz": load_npz,
    "csv": load_csv,
    "parquet": load_parquet,
    "wfdb": load_wfdb,
    "edf": load_edf,
    "e4": load_e4,
    "stress_predict": load_stress_predict,
    "wesad": load_wesad,
    "isruc": load_isruc,
    "isruc_stages": load_isruc_stages,
    "fog": load_fog,
}
# These need no files.
INSTALLED: dict[str, Callable[[Path | None], list[Recording]]] = {
    "watch": load_watch,
    "simulator": load_simulator,
}


def load_recordings(source: str, path: str | None = None) -> list[Recording]:
    """Recordings of a source.

    Args:
        source: a name in `INSTALLED` or in `READERS`.
        path: file or folder of the source; `watch` takes none, `simulator` a YAML file of its
            options or none.

    Raises:
        ValueError: the source is unknown, its path is missing, or a file cannot be used.
    """
    if source not in {**INSTALLED, **READERS}:
        names = ", ".join([*INSTALLED, *READERS])
        raise ValueError(f"data.source: {source!r} is not one of {names}")
    if path is None and source in READERS:
        raise ValueError(f"data.path: {source} needs the place of its files")
    if path is not None and not Path(path).exists():
        raise ValueError(f"data.path: {path}: no such file or folder")
    reader = {**INSTALLED, **READERS}[source]
    recordings = reader(None if path is None else Path(path))
    if not recordings:
        raise ValueError(f"data.path: {path}: holds no recording")
    _check_classes(recordings)
    return recordings


def _check_classes(recordings: list[Recording]) -> None:
    """Refuse labels with gaps, which a stray value leaves."""
    found = np.unique(np.concatenate([recording.labels for recording in recordings]))
    found = found[found != UNLABELLED]
    gaps = np.flatnonzero(found != np.arange(len(found)))
    if len(gaps):
        stray = next(r for r in recordings if found[-1] in r.labels)
        raise ValueError(
            f"{stray.name}: has label {found[-1]}, but no recording has label {gaps[0]}; number "
            "the classes from 0 without gaps, -1 for unknown"
        )
