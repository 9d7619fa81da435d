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

EDF is read here, not by mne, which goes by the suffix `.edf` and holds a night in double precision.
A night takes 23 MB a channel in memory, 10 channels are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
# Microvolts that a physical dimension is worth.
_MICROVOLTS = {"uV": 1.0, "µV": 1.0, "μV": 1.0, "mV": 1e3, "V": 1e6}


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
    night = _Edf.open(file)
    stages = _stages(file.with_name(f"{file.stem}_1.txt"))
    if abs(night.seconds - EPOCH * len(stages)) >= EPOCH:
        raise ValueError(
            f"{file}: {night.seconds:g} s are {night.seconds / EPOCH:.1f} epochs of {EPOCH:g} s, "
            f"{file.stem}_1.txt holds {len(stages)}"
        )
    epochs = min(len(stages), int(night.seconds / EPOCH)) - LEFT_OUT
    if epochs < 1:
        raise ValueError(f"{file}: {len(stages)} epochs leave none without the last {LEFT_OUT}")
    signals, rates = {}, {}
    for modality, channels in MODALITIES.items():
        found = [night.channel(names) for names in channels]
        if len({rate for _, rate in found}) > 1:
            listed = ", ".join(f"{rate:g}" for _, rate in found)
            raise ValueError(f"{file}: channels of {modality} have rates {listed} Hz")
        rates[modality] = found[0][1]
        samples = round(epochs * EPOCH * rates[modality])
        signals[modality] = np.stack([signal[:samples] for signal, _ in found])
    labels = stages[:epochs]
    return Recording(
        name=str(file),
        subject=subject,
        signals=signals,
        rates=rates,
        labels=labels if five else np.minimum(labels, 1),
        label_rate=1 / EPOCH,
        class_names=STAGE_NAMES if five else CLASS_NAMES,
    )


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


@dataclass(frozen=True, kw_only=True)
class _Edf:
    """Header of an EDF file, and its records left on disk.

    Attributes:
        file: where it is.
        entries: by label the number of its first value in a record, of its values there, and
            the scale and offset that turn them into microvolts, None where it is no voltage.
        record: seconds of a record.
        records: (R, V) values as stored.
    """

    file: Path
    entries: dict[str, tuple[int, int, tuple[float, float] | None]]
    record: float
    records: np.ndarray

    @classmethod
    def open(cls, file: Path) -> _Edf:
        """Read the header.

        Raises:
            ValueError: it is no EDF, or is cut off.
        """
        size = file.stat().st_size
        try:
            with file.open("rb") as stream:
                head = stream.read(256).decode("latin-1")
                start, count = int(head[184:192]), int(head[236:244])
                record, signals = float(head[244:252]), int(head[252:256])
                text = stream.read(256 * signals).decode("latin-1")
            if head[:8].strip() != "0" or start != 256 * (signals + 1) or not 0 < record < np.inf:
                raise ValueError("its header is none")
            columns = _columns(text, signals)
            lengths = [int(value) for value in columns["samples"]]
            limits = np.array([columns[name] for name in _LIMITS], dtype=float)  # (4, N)
        except ValueError as error:
            raise ValueError(f"{file}: not readable as EDF ({error})") from error
        if min(lengths, default=0) < 1 or not np.isfinite(limits).all():
            raise ValueError(f"{file}: not readable as EDF (its header is none)")
        if count < 1 or size < start + 2 * count * sum(lengths):
            raise ValueError(
                f"{file}: is cut off: {count} records of {2 * sum(lengths)} bytes, {size - start} "
                "bytes are there"
            )
        entries: dict[str, tuple[int, int, tuple[float, float] | None]] = {}
        first = 0
        for i, label in enumerate(columns["label"]):
            physical, digital = limits[0:2, i], limits[2:4, i]
            worth = _MICROVOLTS.get(columns["unit"][i])
            scaling = None
            if worth is not None and digital[0] < digital[1]:
                gain = (physical[1] - physical[0]) / (digital[1] - digital[0])
                scaling = (worth * gain, worth * (physical[0] - gain * digital[0]))
            entries[label] = (first, lengths[i], scaling)
            first += lengths[i]
        records = np.memmap(file, "<i2", "r", offset=start, shape=(count, first))
        return cls(file=file, entries=entries, record=record, records=records)

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.records) * self.record

    def channel(self, names: tuple[str, ...]) -> tuple[np.ndarray, float]:
        """Signal (S,) in microvolts, and its rate in Hz.

        Args:
            names: what the channel may be called.

        Raises:
            ValueError: there is none of these names, or it is no voltage.
        """
        name = next((name for name in names if name in self.entries), None)
        if name is None:
            raise ValueError(
                f"{self.file}: has no channel {' or '.join(names)}, only {', '.join(self.entries)}"
            )
        first, length, scaling = self.entries[name]
        if scaling is None:
            raise ValueError(f"{self.file}: channel {name}: its unit or limits are no voltage")
        stored = self.records[:, first : first + length].astype(np.float32)
        scale, offset = np.float32(scaling)
        return (scale * stored + offset).reshape(-1), length / self.record


_LIMITS = ("physical_low", "physical_high", "digital_low", "digital_high")


def _columns(text: str, signals: int) -> dict[str, list[str]]:
    """Fields of the header's second part, one value a signal."""
    widths = {"label": 16, "transducer": 80, "unit": 8}
    widths |= dict.fromkeys(_LIMITS, 8) | {"filters": 80, "samples": 8, "reserved": 32}
    columns, start = {}, 0
    for name, width in widths.items():
        columns[name] = [
            text[start + width * i : start + width * (i + 1)].strip() for i in range(signals)
        ]
        start += width * signals
    return columns
