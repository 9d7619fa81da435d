"""`recordings.yaml`: what the columns or channels of a folder's files are.

    modalities:                  # modality: channels, by the files' own names
      ECG: [ecg]
      ACC: [acc_x, acc_y, acc_z]
    rate: 256                    # CSV and Parquet: Hz; or `time`, the column of seconds
    labels: stage                # CSV and Parquet: the column; WFDB: the annotator's extension
    classes: {wake: 0, sleep: 1} # what labels are called; others are unknown
    missing: zeros               # what a file has no channel of, beside others of its modality

Files are named after the subject, up to the first underscore.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from bioxbridge.windows import UNLABELLED
from papers_shared.console import get_logger

_LOGGER = get_logger(__name__)
FILE = "recordings.yaml"


@dataclass(frozen=True, kw_only=True)
class Description:
    """The content of a `recordings.yaml`.

    Attributes:
        path: of the file, for messages.
        modalities: names of channels by modality.
        rate: of tables, Hz.
        time: column of a table that holds seconds.
        labels: column of a table, or extension of WFDB annotations.
        classes: class by name.
        missing: `refuse` a file that lacks a channel, or read `zeros` there, which count as flat
            windows; a modality of which nothing is there is refused either way.
    """

    path: Path
    modalities: dict[str, list[str]]
    rate: float | None = None
    time: str | None = None
    labels: str | None = None
    classes: dict[str, int] = field(default_factory=dict)
    missing: Literal["refuse", "zeros"] = "refuse"

    @classmethod
    def read(cls, folder: Path) -> Description:
        """Read the file of a folder.

        Raises:
            ValueError: names the file and the entry that is missing or cannot be used.
        """
        path = folder / FILE
        if not path.is_file():
            raise ValueError(f"{path}: no such file; it says which channels are which modality")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: not readable as YAML") from error
        if not isinstance(content, dict) or not isinstance(content.get("modalities"), dict):
            raise ValueError(f"{path}: needs `modalities`, lists of channels by modality")
        known = [entry.name for entry in fields(cls) if entry.name != "path"]
        for name in content:
            if name not in known:
                raise ValueError(f"{path}: {name!r} is not one of {', '.join(known)}")
        for modality, channels in content["modalities"].items():
            if not isinstance(channels, list) or not channels:
                raise ValueError(
                    f"{path}: modalities: {modality}: {channels!r} is no list of names"
                )
        rate = content.get("rate")
        if rate is not None and (not isinstance(rate, int | float) or not 0 < rate < np.inf):
            raise ValueError(f"{path}: rate: {rate!r} is no positive number of Hz")
        missing = content.get("missing", "refuse")
        if missing not in ("refuse", "zeros"):
            raise ValueError(f"{path}: missing: {missing!r} is neither refuse nor zeros")
        classes = content.get("classes", {})
        if not isinstance(classes, dict) or not all(
            isinstance(number, int) and number >= UNLABELLED for number in classes.values()
        ):
            raise ValueError(f"{path}: classes: {classes!r} are not numbers from 0 by name")
        return cls(
            path=path,
            **content
            | {
                "modalities": {
                    str(modality): [str(channel) for channel in channels]
                    for modality, channels in content["modalities"].items()
                },
                "rate": None if rate is None else float(rate),
                "classes": {str(name): number for name, number in classes.items()},
            },
        )

    def pick(self, file: Path, available: dict[str, Any]) -> dict[str, list[Any]]:
        """What a file holds of each modality's channels; None where it may lack one.

        Raises:
            ValueError: names the file and the channel that it lacks.
        """
        for modality, channels in self.modalities.items():
            lacking = [channel for channel in channels if channel not in available]
            if lacking and (self.missing == "refuse" or lacking == channels):
                raise ValueError(
                    f"{file}: has no channel {lacking[0]!r} of {modality}, only "
                    f"{', '.join(map(str, available))}"
                )
            for channel in lacking:
                _LOGGER.warning("%s: %s: no channel %r, zeros instead", file, modality, channel)
        return {
            modality: [available.get(channel) for channel in channels]
            for modality, channels in self.modalities.items()
        }

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names in order of class, where every class has one."""
        by_number = {number: name for name, number in self.classes.items()}
        numbers = [number for number in by_number if number != UNLABELLED]
        if sorted(numbers) != list(range(len(numbers))):
            return ()
        return tuple(by_number[number] for number in sorted(numbers))

    def class_of(self, name: Any) -> int:
        """The class of a label by name; unknown names are -1."""
        return self.classes.get(str(name).strip(), UNLABELLED)


def stack_channels(channels: list[np.ndarray | None]) -> np.ndarray:
    """Channels (n,) as (channels, n); zeros for one that is missing, never for all.

    >>> stack_channels([np.array([1.0, 2.0]), None]).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """
    there = next(channel for channel in channels if channel is not None)
    full = [np.zeros_like(there) if channel is None else channel for channel in channels]
    return np.stack(full).astype(np.float32)


def files_of(path: Path, pattern: str) -> list[Path]:
    """The files of a folder in order of name, hidden ones left out, or the one that is named."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob(pattern) if not file.name.startswith("."))


def subject_of(file: Path) -> str:
    """The name of a file up to the first underscore."""
    return file.stem.split("_")[0]


def spans_to_labels(spans: list[tuple[float, float, int]], seconds: float) -> np.ndarray:
    """Classes per second from spans (start, end, class); seconds that no span covers whole are -1.

    >>> spans_to_labels([(0.0, 2.0, 1), (2.5, 4.0, 0)], 4.0).tolist()
    [1, 1, -1, 0]
    """
    labels = np.full(int(np.ceil(seconds)), UNLABELLED)
    for start, end, label in spans:
        first = max(0, int(np.ceil(start - 1e-6)))
        # The last second of a recording may be a part of one.
        last = len(labels) if end >= seconds - 1e-6 else int(np.floor(end + 1e-6))
        labels[first:last] = label
    return labels
