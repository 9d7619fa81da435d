"""EDF and BDF files, whose annotations name classes; read by mne, in volts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bioxbridge.recordings.description import (
    Description,
    files_of,
    spans_to_labels,
    stack_channels,
    subject_of,
)
from bioxbridge.windows import Recording


def load_edf(path: Path) -> list[Recording]:
    """Read a file, or every `*.edf` and `*.bdf` of a folder, described by `recordings.yaml`.

    Each modality is read by itself, so that it keeps its own rate.

    Raises:
        ValueError: names the file and what of it cannot be used, or mne is not installed.
    """
    mne = import_mne()
    description = Description.read(path if path.is_dir() else path.parent)
    files = files_of(path, "*.[eb]df") if path.is_dir() else [path]
    return [_read(mne, file, description) for file in files]


def import_mne() -> Any:
    """The library that reads EDF.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import mne
    except ImportError as error:
        raise ValueError(
            'recordings: EDF needs mne; pip install "bioxbridge[recordings]"'
        ) from error
    return mne


def _read(mne: object, file: Path, description: Description) -> Recording:
    def raw(**options: object) -> object:
        reader = mne.io.read_raw_bdf if file.suffix == ".bdf" else mne.io.read_raw_edf
        try:
            return reader(file, verbose="error", **options)
        except Exception as error:  # its parser raises whatever comes
            raise ValueError(f"{file}: not readable as EDF ({error})") from error

    whole = raw()
    picked = description.pick(file, {name: name for name in whole.ch_names})
    signals, rates = {}, {}
    for modality, channels in picked.items():
        there = [channel for channel in channels if channel is not None]
        own = raw(include=there)
        read = dict(zip(there, own.get_data(picks=there), strict=True))
        signals[modality] = stack_channels([read.get(channel) for channel in channels])
        rates[modality] = float(own.info["sfreq"])
    seconds = min(signal.shape[1] / rates[name] for name, signal in signals.items())
    notes = whole.annotations
    spans = [
        (onset, onset + duration, description.class_of(text))
        for onset, duration, text in zip(
            notes.onset, notes.duration, notes.description, strict=True
        )
        if str(text).strip() in description.classes
    ]
    return Recording(
        name=str(file),
        subject=subject_of(file),
        signals=signals,
        rates=rates,
        labels=spans_to_labels(spans, seconds),
        label_rate=1.0,
        class_names=description.class_names,
    )
