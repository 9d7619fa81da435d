"""Simultaneous recordings of two modalities, cut into windows and split by subject or by time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

UNLABELLED = -1
SPLITS = ("train", "val", "pair", "test")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One stretch of simultaneous signals of one subject; all start at the same instant.

    Attributes:
        name: says where it came from, for messages.
        subject: name of the person.
        signals: (channels, samples) by modality.
        rates: sampling rate by modality, Hz.
        labels: (n,) class per step of time, -1 where unknown.
        label_rate: steps of `labels` per second.
        class_names: what the classes are called, in order; may be left empty.

    Raises:
        ValueError: names the recording, modality and value that cannot be: a wrong shape, a rate
            that is not positive, NaN or infinite samples, modalities of different duration, or
            labels that cover less or more than them.
    """

    name: str
    subject: str
    signals: dict[str, np.ndarray]
    rates: dict[str, float]
    labels: np.ndarray
    label_rate: float
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        durations = {}
        for modality, signal in self.signals.items():
            where = f"{self.name}: {modality}"
            if signal.ndim != 2 or signal.shape[1] == 0:
                raise ValueError(f"{where}: shape {signal.shape} is not (channels, samples)")
            if signal.shape[0] > signal.shape[1]:
                raise ValueError(
                    f"{where}: shape {signal.shape} has more channels than samples; transpose "
                    "it to (channels, samples)"
                )
            if not np.isrealobj(signal) or not np.issubdtype(signal.dtype, np.number):
                raise ValueError(f"{where}: is of type {signal.dtype}, not real numbers")
            rate = self.rates.get(modality, 0.0)
            if not 0 < rate < np.inf:
                raise ValueError(f"{where}: sampling rate {rate} Hz is not positive and finite")
            bad = np.argwhere(~np.isfinite(signal))
            if len(bad):
                channel, sample = bad[0]
                raise ValueError(
                    f"{where}: channel {channel}, sample {sample} ({sample / rate:.2f} s) is "
                    f"{signal[channel, sample]}; repair or cut the recording ({len(bad)} such)"
                )
            durations[modality] = signal.shape[1] / rate
        longest, shortest = max(durations.values()), min(durations.values())
        if longest - shortest > 1.0:
            listed = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in durations.items())
            raise ValueError(
                f"{self.name}: the modalities differ in duration ({listed}); cut them to a "
                "common span"
            )

        if not 0 < self.label_rate < np.inf:
            raise ValueError(
                f"{self.name}: label_rate {self.label_rate} is not positive and finite"
            )
        covered = len(self.labels) / self.label_rate
        if covered > longest + 1 + 1 / self.label_rate:
            raise ValueError(
                f"{self.name}: {len(self.labels)} labels at {self.label_rate} a second cover "
                f"{covered:.1f} s, the signals {longest:.1f} s; is label_rate right?"
            )
        if covered < shortest - 1 / self.label_rate:
            raise ValueError(
                f"{self.name}: {len(self.labels)} labels at {self.label_rate} a second cover "
                f"{covered:.1f} s of {shortest:.1f} s; write -1 where the class is unknown"
            )
        if len(self.labels) and self.labels.min() < UNLABELLED:
            raise ValueError(f"{self.name}: label {self.labels.min()} is below -1")

    @property
    def seconds(self) -> float:
        """Duration that every modality covers."""
        return min(signal.shape[1] / self.rates[name] for name, signal in self.signals.items())

    def conditioned(
        self, modality: str, condition: Callable[[np.ndarray, float], np.ndarray], rate: float
    ) -> Recording:
        """The recording with one modality filtered, resampled or scaled as a whole.

        Args:
            modality: which signal.
            condition: from (channels, samples) and its rate in Hz to (channels, samples) at `rate`,
                such as those of `preprocessing`.
            rate: in Hz.

        Returns:
            A recording that is no shorter: where the new samples do not last as long as the old,
            the last one is repeated.

        Raises:
            ValueError: the recording has no such modality, or the signal cannot be conditioned.
        """
        signal, old_rate = self._signal(modality), self.rates[modality]
        try:
            new = condition(signal, old_rate)
        except ValueError as error:
            raise ValueError(f"{self.name}: {modality}: {error}") from error
        wanted = int(np.ceil(signal.shape[1] * rate / old_rate - 1e-6))
        new = np.pad(new, [(0, 0), (0, max(0, wanted - new.shape[1]))], mode="edge")
        return replace(
            self,
            signals=self.signals | {modality: new.astype(np.float32, copy=False)},
            rates=self.rates | {modality: rate},
        )

    def _signal(self, modality: str) -> np.ndarray:
        if modality not in self.signals:
            raise ValueError(f"{self.name}: has no {modality!r}, only {', '.join(self.signals)}")
        return self.signals[modality]


class Pairs(Dataset):
    """Windows of the old and the new modality, taken at the same time.

    Args:
        old: (N, ...) inputs of the old model.
        new: (N, ...) inputs of the new model.
        labels: (N,) classes, -1 where unknown.
        subjects: (N,) names; of blocks of time where those are kept apart instead of people.

    Raises:
        ValueError: the four differ in length, or there are none.
    """

    def __init__(self, old: Tensor, new: Tensor, labels: Tensor, subjects: np.ndarray) -> None:
        lengths = {len(old), len(new), len(labels), len(subjects)}
        if len(lengths) != 1:
            raise ValueError(
                f"pairs: {len(old)} old windows, {len(new)} new, {len(labels)} labels and "
                f"{len(subjects)} subjects do not match"
            )
        if not len(old):
            raise ValueError("pairs: there are no windows")
        self.old = old
        self.new = new
        self.labels = labels
        self.subjects = subjects

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.old[index], self.new[index], self.labels[index]

    def fingerprint(self) -> str:
        """A hash of inputs, labels and subjects: equal for equal content alone."""
        digest = hashlib.sha256()
        for tensor in (self.old, self.new, self.labels):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update("\x1f".join(map(str, self.subjects)).encode())
        return digest.hexdigest()[:16]

    def subset(self, rows: np.ndarray) -> Pairs:
        """The pairs at some rows (indices or a mask)."""
        index = torch.as_tensor(np.arange(len(self))[rows])
        return Pairs(self.old[index], self.new[index], self.labels[index], self.subjects[rows])

    @property
    def classes(self) -> int:
        """Number of classes: the highest label + 1."""
        return int(self.labels.max()) + 1


def cut_windows(
    recording: Recording,
    modality: str,
    *,
    seconds: float,
    stride: float,
    majority: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Windows of one modality and their labels.

    Args:
        recording: where to cut.
        modality: which signal.
        seconds: length of a window.
        stride: seconds between windows.
        majority: share of a window's steps of label that its class must have, above 0.5 and at
            most 1; at 1, a window over which the label changes is -1.

    Returns:
        (N, C, S) windows, the same N for every modality, and (N,) labels, -1 where no class has
        the majority.

    Raises:
        ValueError: the recording has no such modality, or the majority is none.
    """
    if not 0.5 < majority <= 1:
        raise ValueError(f"majority: {majority} is not above 0.5 and at most 1")
    signal, rate = recording._signal(modality), recording.rates[modality]
    size = round(seconds * rate)
    # Rounding a sampling rate must not lose a last window in one modality and keep it in another.
    starts = np.arange(0.0, recording.seconds - seconds + 1e-6, stride)
    offsets = np.minimum(np.round(starts * rate).astype(int), signal.shape[1] - size)
    windows = np.stack([signal[:, o : o + size] for o in offsets]) if len(offsets) else None
    if windows is None:
        return np.empty((0, len(signal), size), np.float32), np.empty(0, np.int64)
    first = np.floor(starts * recording.label_rate + 1e-6).astype(int)
    last = np.ceil((starts + seconds) * recording.label_rate - 1e-6).astype(int)
    labels = np.full(len(starts), UNLABELLED, np.int64)
    for i, (begin, end) in enumerate(zip(first, last, strict=True)):
        values, counts = np.unique(recording.labels[begin:end], return_counts=True)
        if counts.max(initial=0) >= max(1, majority * counts.sum() - 1e-9):
            labels[i] = values[counts.argmax()]
    return windows.astype(np.float32), labels


def split_subjects(subjects: np.ndarray, counts: Sequence[int], seed: int) -> dict[str, np.ndarray]:
    """Masks of the splits train, val, pair and test, none sharing a subject with another.

    Args:
        subjects: (N,) names.
        counts: subjects per split; together at most as many as there are.
        seed: of the permutation of the subjects.

    Raises:
        ValueError: too few subjects, a split of fewer than one, or not four counts.
    """
    names = np.unique(subjects)
    if len(counts) != len(SPLITS) or min(counts) < 1:
        raise ValueError(f"split_counts: {list(counts)} are not four counts of at least 1")
    if sum(counts) > len(names):
        raise ValueError(
            f"split_counts: {list(counts)} need {sum(counts)} subjects, there are {len(names)}"
        )
    return _deal(subjects, names, counts, seed)


def time_blocks(
    recordings: np.ndarray, starts: np.ndarray, *, window: float, block: float
) -> np.ndarray:
    """Contiguous blocks of time that windows lie in.

    Args:
        recordings: (N,) names.
        starts: (N,) seconds from the start of the recording.
        window: seconds of a window.
        block: seconds of a block; the first one of a recording starts with it.

    Returns:
        (N,) names of blocks, empty where a window crosses from one block into the next, so that
        windows of different blocks share no moment.

    Raises:
        ValueError: a block is shorter than a window.

    >>> starts = np.array([0.0, 9.0, 10.0])
    >>> time_blocks(np.array(["a", "a", "a"]), starts, window=2.0, block=10.0).tolist()
    ['a 0-10 s', '', 'a 10-20 s']
    """
    if block < window:
        raise ValueError(f"block: {block:g} s are shorter than a window of {window:g} s")
    numbers = np.floor(starts / block + 1e-9).astype(int)
    whole = starts + window <= (numbers + 1) * block + 1e-6
    return np.array(
        [
            f"{name} {number * block:g}-{(number + 1) * block:g} s" if inside else ""
            for name, number, inside in zip(recordings, numbers, whole, strict=True)
        ]
    )


def split_blocks(blocks: np.ndarray, shares: Sequence[int], seed: int) -> dict[str, np.ndarray]:
    """Masks of the splits train, val, pair and test, none sharing a block with another.

    For recordings of too few people to keep people apart.

    Args:
        blocks: (N,) names, see `time_blocks`; windows without one are in no split.
        shares: of the blocks in each split, in any unit; all blocks are dealt out.
        seed: of the permutation of the blocks.

    Raises:
        ValueError: a split gets no block, or there are not four shares of at least 1.
    """
    names = np.unique(blocks)
    names = names[names != ""]
    if len(shares) != len(SPLITS) or min(shares) < 1:
        raise ValueError(f"split_counts: {list(shares)} are not four shares of at least 1")
    ends = np.round(np.cumsum(shares) / sum(shares) * len(names)).astype(int)
    counts = np.diff(ends, prepend=0).tolist()
    if min(counts) < 1:
        raise ValueError(
            f"split_counts: {list(shares)} deal {len(names)} blocks out as {counts}; take shorter "
            "blocks"
        )
    return _deal(blocks, names, counts, seed)


def _deal(
    groups: np.ndarray, names: np.ndarray, counts: Sequence[int], seed: int
) -> dict[str, np.ndarray]:
    order = np.random.RandomState(seed).permutation(names)
    masks, start = {}, 0
    for split, count in zip(SPLITS, counts, strict=True):
        masks[split] = np.isin(groups, order[start : start + count])
        start += count
    return masks
