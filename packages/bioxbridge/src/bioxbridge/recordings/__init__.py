"""Readers: each turns files into a list of `Recording`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bioxbridge.recordings.npz import load_npz
from bioxbridge.recordings.stress_predict import load_stress_predict
from bioxbridge.recordings.watch import load_watch
from bioxbridge.windows import Recording

READERS: dict[str, Callable[[Path], list[Recording]]] = {
    "npz": load_npz,
    "stress_predict": load_stress_predict,
}


def load_recordings(source: str, path: str | None = None) -> list[Recording]:
    """Recordings of a source.

    Args:
        source: `watch`, or a name in `READERS`.
        path: file or folder of the source; `watch` takes none.

    Raises:
        ValueError: the source is unknown, its path is missing, or a file cannot be used.
    """
    if source == "watch":
        if path is not None:
            raise ValueError(f"data.path: {path}: watch is installed and reads no path")
        return load_watch()
    if source not in READERS:
        raise ValueError(f"data.source: {source!r} is not one of watch, {', '.join(READERS)}")
    if path is None:
        raise ValueError(f"data.path: {source} needs the place of its files")
    if not Path(path).exists():
        raise ValueError(f"data.path: {path}: no such file or folder")
    recordings = READERS[source](Path(path))
    if not recordings:
        raise ValueError(f"data.path: {path}: holds no recording")
    return recordings
