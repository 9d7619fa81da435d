"""WFDB records (PhysioNet): a header, its signals, and annotations that name classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bioxbridge.recordings.description import (
    Description,
    files_of,
    spans_to_labels,
    stack_channels,
    subject_of,
)
from bioxbridge.windows import Recording


def load_wfdb(path: Path) -> list[Recording]:
    """Read a header, or every `*.hea` of a folder, described by `recordings.yaml`.

    Signals keep their own rates. An annotation holds until the next one; its class is that of its
    auxiliary note, or of its symbol where it has none.

    Raises:
        ValueError: names the record and what of it cannot be used, or wfdb is not installed.
    """
    try:
        import wfdb
    except ImportError as error:
        raise ValueError(
            'recordings: WFDB needs wfdb; pip install "bioxbridge[recordings]"'
        ) from error
    description = Description.read(path if path.is_dir() else path.parent)
    recordings = []
    for file in files_of(path, "*.hea"):
        record_name = str(file.with_suffix(""))
        try:
            record = wfdb.rdrecord(record_name, smooth_frames=False)
        except Exception as error:  # its parsers raise whatever comes
            raise ValueError(f"{file}: not readable as a WFDB record ({error})") from error
        rates = record.fs * np.array(record.samps_per_frame)
        available = {
            name: (rate, signal)
            for name, rate, signal in zip(record.sig_name, rates, record.e_p_signal, strict=True)
        }
        picked = description.pick(file, available)
        for modality, channels in picked.items():
            own = sorted({channel[0] for channel in channels if channel is not None})
            if len(own) > 1:
                listed = ", ".join(f"{rate:g}" for rate in own)
                raise ValueError(f"{file}: channels of {modality} have rates {listed} Hz")
        seconds = record.sig_len / record.fs
        recordings.append(
            Recording(
                name=str(file),
                subject=subject_of(file),
                signals={
                    modality: stack_channels([c if c is None else c[1] for c in channels])
                    for modality, channels in picked.items()
                },
                rates={
                    modality: float(next(c[0] for c in channels if c is not None))
                    for modality, channels in picked.items()
                },
                labels=spans_to_labels(
                    _spans(record_name, description, float(record.fs), seconds), seconds
                ),
                label_rate=1.0,
                class_names=description.class_names,
            )
        )
    return recordings


def _spans(
    record: str, description: Description, rate: float, seconds: float
) -> list[tuple[float, float, int]]:
    if description.labels is None:
        return []
    import wfdb

    try:
        notes = wfdb.rdann(record, description.labels)
    except Exception as error:
        raise ValueError(f"{record}.{description.labels}: not readable as annotations") from error
    texts = [
        aux.strip("\x00 ") or symbol
        for aux, symbol in zip(notes.aux_note, notes.symbol, strict=True)
    ]
    starts = [*(notes.sample / rate), seconds]
    return [(starts[i], starts[i + 1], description.class_of(text)) for i, text in enumerate(texts)]
