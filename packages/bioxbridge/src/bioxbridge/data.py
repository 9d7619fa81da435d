"""Batches: recordings to split tokens, and rows of tensors to loaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from bioxbridge.foundation import ARCHITECTURES, Architecture
from bioxbridge.quality import Quality, window_quality
from bioxbridge.recordings import load_recordings
from bioxbridge.tokens import SpectralTokens, standardise_by_subject
from bioxbridge.windows import (
    SPLITS,
    UNLABELLED,
    Pairs,
    Recording,
    cut_windows,
    split_blocks,
    split_subjects,
    time_blocks,
)
from papers_shared.console import get_logger

_LOGGER = get_logger(__name__)


class Rows(Dataset):
    """Rows of several tensors of equal length, fetched a whole batch at a time.

    Raises:
        ValueError: the tensors differ in length.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if len({len(tensor) for tensor in tensors}) != 1:
            raise ValueError(f"rows: lengths {[len(t) for t in tensors]} differ")
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, ...]:
        rows = torch.as_tensor(indices)
        return tuple(tensor[rows] for tensor in self.tensors)


def _as_is(batch: Any) -> Any:
    return batch


def row_loader(
    *tensors: Tensor,
    batch_size: int = 64,
    shuffle: bool = False,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> DataLoader:
    """Loader over rows, the same batches whatever the number of processes.

    Args:
        tensors: (N, ...) each.
        batch_size: rows per step over all processes together.
        shuffle: whether the order changes by epoch; it depends on seed and epoch alone, so that
            resumed training meets the batches it would have met. A last batch that is not full
            is left out, unless it is the only one.
        seed: of the order.
        rank: number of this process.
        world_size: number of processes.
    """
    rows = Rows(*tensors)
    # A short last batch would be padded differently by different numbers of processes.
    drop_last = shuffle and len(rows) >= batch_size
    sampler = DistributedSampler(
        rows,
        num_replicas=world_size,
        rank=rank,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
    )
    return DataLoader(
        rows,
        batch_size=max(1, batch_size // world_size),
        sampler=sampler,
        collate_fn=_as_is,
        drop_last=drop_last,
    )


class RowData(lightning.LightningDataModule):
    """Rows to train on and rows to validate on, for any number of processes.

    Args:
        train: (N, ...) each; shuffled.
        val: (M, ...) each.
        batch_size: rows per step over all processes together; validation takes eight times that.
        seed: of the order.
    """

    def __init__(
        self,
        *,
        train: tuple[Tensor, ...],
        val: tuple[Tensor, ...],
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.rows = {"train": train, "val": val}
        self.batch_size = batch_size
        self.seed = seed

    def train_dataloader(self) -> DataLoader:
        """Shuffled batches."""
        return self._loader("train", self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        """Batches in order."""
        return self._loader("val", 8 * self.batch_size, shuffle=False)

    def _loader(self, part: str, batch_size: int, *, shuffle: bool) -> DataLoader:
        return row_loader(
            *self.rows[part],
            batch_size=batch_size,
            shuffle=shuffle,
            seed=self.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
        )


class BiosignalData(lightning.LightningDataModule):
    """Simultaneous recordings of two modalities as tokens, split by subject or by time.

    Args:
        source: `watch` (installed with the package), or another reader's name with its `path`.
        path: folder or file of the source; `watch` needs none.
        old: modality with labels.
        new: modality without.
        window: seconds per window.
        stride: seconds between windows.
        split_counts: subjects in train, val, pair and test; or, by block, their shares.
        split_by: `subject`; `block` for recordings of too few people: contiguous blocks of time
            are dealt out, and windows that cross from one into the next are left out; `window`, as
            published for FOG: windows are dealt out, and test windows overlap with training.
        block: seconds per block.
        split_seed: seed of the first split; further splits take the following numbers.
        batch_size: windows per step, over all processes together.
        quality: `keep` takes every window, `drop` leaves out those in which a channel of either
            modality is flat or clipped.
        majority: share of a window that its class must cover, above 0.5; else it is unlabelled.
        condition: by modality a published model, such as `hubert_ecg`, whose rate, filters and
            scaling are applied to each whole recording first.
        frame: seconds per token.
        hop: seconds between tokens.
        max_frequency: highest frequency of a token, Hz.
        means: successive means per token.
    """

    def __init__(
        self,
        *,
        source: str = "watch",
        path: str | None = None,
        old: str = "ACC",
        new: str = "GYR",
        window: float = 4.0,
        stride: float = 1.0,
        split_counts: Sequence[int] = (3, 1, 3, 3),
        split_seed: int = 0,
        batch_size: int = 64,
        split_by: Literal["subject", "block", "window"] = "subject",
        block: float = 30.0,
        quality: Literal["keep", "drop"] = "keep",
        majority: float = 1.0,
        condition: dict[str, str] | None = None,
        frame: float = 1.0,
        hop: float = 0.5,
        max_frequency: float = 12.0,
        means: int = 5,
    ) -> None:
        super().__init__()
        for name, value in (("window", window), ("stride", stride), ("frame", frame), ("hop", hop)):
            if not 0 < value < float("inf"):
                raise ValueError(f"data.{name}: {value} seconds is not positive and finite")
        if not max_frequency > 0:
            raise ValueError(f"data.max_frequency: {max_frequency} Hz is not positive")
        if means < 0:
            raise ValueError(f"data.means: {means} is below 0")
        if len(split_counts) != len(SPLITS) or min(split_counts) < 1:
            raise ValueError(
                f"data.split_counts: {list(split_counts)} are not four counts of at least 1, of "
                f"subjects in {', '.join(SPLITS)}"
            )
        if split_by == "block" and not window <= block < float("inf"):
            raise ValueError(f"data.block: {block} s is shorter than a window, or infinite")
        if not 0.5 < majority <= 1:
            raise ValueError(f"data.majority: {majority} is not above 0.5 and at most 1")
        for modality, name in (condition or {}).items():
            if name not in ARCHITECTURES:
                raise ValueError(
                    f"data.condition: {modality}: {name!r} is not one of {', '.join(ARCHITECTURES)}"
                )
            if modality not in (old, new):
                raise ValueError(f"data.condition: {modality!r} is neither {old!r} nor {new!r}")
        if batch_size < 1:
            raise ValueError(f"data.batch_size: {batch_size} is not positive")
        if old == new:
            raise ValueError(f"data.new: {new!r} is also the old modality")
        self.source = source
        self.path = path
        self.old = old
        self.new = new
        self.window = window
        self.stride = stride
        self.split_counts = list(split_counts)
        self.split_seed = split_seed
        self.batch_size = batch_size
        self.split_by = split_by
        self.block = block
        self.quality = quality
        self.majority = majority
        self.condition = dict(condition or {})
        self.tokens = SpectralTokens(frame=frame, hop=hop, max_frequency=max_frequency, means=means)
        self._recordings: list[Recording] | None = None
        self._pairs: Pairs | None = None
        # Names of all windows' groups, and which windows were taken.
        self._dealt = np.empty(0, str), np.empty(0, bool)
        self.class_names: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What the tokens and splits depend on, as JSON values."""
        # Named only where they are used, so that runs without them stay what they were.
        block = {"block": self.block} if self.split_by == "block" else {}
        if self.split_by == "window":
            block = {"split_by": "window"}
        majority = {"majority": self.majority} if self.majority < 1 else {}
        condition = {"condition": self.condition} if self.condition else {}
        return {
            "source": self.source,
            "old": self.old,
            "new": self.new,
            "window": self.window,
            "stride": self.stride,
            "split_counts": self.split_counts,
            "quality": self.quality,
            "tokens": vars(self.tokens),
            **block,
            **majority,
            **condition,
        }

    def windows(self, modality: str) -> Windows:
        """Tokens of one modality of all recordings.

        Raises:
            ValueError: a recording cannot be used, or all are too short for one window.
        """
        if self._recordings is None:
            self._recordings = load_recordings(self.source, self.path)
        name = self.condition.get(modality)
        return tokenise(
            self._recordings,
            modality,
            window=self.window,
            stride=self.stride,
            tokens=self.tokens,
            majority=self.majority,
            condition=None if name is None else ARCHITECTURES[name],
        )

    def groups(self, windows: Windows) -> np.ndarray:
        """What no two splits share: (N,) names of subjects, of blocks of time, or of windows.

        A window that crosses from one block into the next has an empty name and is in no split.
        """
        if self.split_by == "subject":
            return windows.subjects
        if self.split_by == "window":
            named = zip(windows.recordings, windows.starts, strict=True)
            return np.array([f"{recording} {start:g} s" for recording, start in named])
        return time_blocks(windows.recordings, windows.starts, window=self.window, block=self.block)

    def masks(self, groups: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Masks of the splits, (N,) each, by the names of `groups`.

        Raises:
            ValueError: too few subjects or blocks.
        """
        deal = split_subjects if self.split_by == "subject" else split_blocks
        return deal(groups, self.split_counts, seed)

    def pairs(self) -> Pairs:
        """Simultaneous windows of both modalities of all recordings; read once.

        Raises:
            ValueError: see `windows`; a modality never varies, or no window is left.
        """
        if self._pairs is None:
            old, new = self.windows(self.old), self.windows(self.new)
            self.class_names = self._recordings[0].class_names
            groups = self.groups(old)
            pairs = Pairs(old.tokens, new.tokens, old.labels, groups)
            taken = self._good(pairs, old, new)
            for name, own in ((self.old, old), (self.new, new)):
                if not own.tokens.any():
                    raise ValueError(f"{name}: never varies in any recording")
            if self.split_by == "block":
                taken &= groups != ""
            if not taken.any():
                raise ValueError("data.block: every good window crosses from a block into the next")
            self._pairs = pairs if taken.all() else pairs.subset(taken)
            self._dealt = groups, taken
            self._recordings = None
        return self._pairs

    def _good(self, pairs: Pairs, old: Windows, new: Windows) -> np.ndarray:
        """Mask of the windows to take."""
        flags = {
            "flat": old.quality.flat | new.quality.flat,
            "clipped": old.quality.clipped | new.quality.clipped,
        }
        bad = flags["flat"] | flags["clipped"]
        if not bad.any():
            return ~bad
        counts = ", ".join(f"{mask.sum():,} {name}" for name, mask in flags.items() if mask.any())
        done = "left out" if self.quality == "drop" else "kept; data.quality drop leaves them out"
        _LOGGER.warning("%d of %d windows: %s; %s", bad.sum(), len(pairs), counts, done)
        if self.quality == "keep":
            return np.ones(len(pairs), bool)
        if bad.all():
            raise ValueError(f"data.quality: every window is bad ({counts})")
        return ~bad

    def split(self, seed: int) -> dict[str, Pairs]:
        """Train, val, pair and test, no subject in two of them, or no block of time.

        Raises:
            ValueError: too few subjects or blocks, or too few labels to train or test a task model.
        """
        pairs = self.pairs()
        # Bad windows count when groups are dealt out: what is bad differs between modalities.
        groups, taken = self._dealt
        masks = {name: mask[taken] for name, mask in self.masks(groups, seed).items()}
        for name, mask in masks.items():
            if not mask.any():
                raise ValueError(
                    f"data.quality: no window of the {name} {self.unit} of split {seed} is good"
                )
        parts = {name: pairs.subset(mask) for name, mask in masks.items()}
        for name in ("train", "val", "test"):
            if (parts[name].labels == UNLABELLED).all():
                raise ValueError(
                    f"labels: no window of the {name} {self.unit} of split {seed} is labelled "
                    f"({_listed(parts[name].subjects)}); the task model needs labels "
                    "in train and val, its test in test"
                )
        known = np.unique(parts["train"].labels)
        if len(known[known != UNLABELLED]) < 2:
            raise ValueError(
                f"labels: the train {self.unit} of split {seed} "
                f"({_listed(parts['train'].subjects)}) show class {known[-1]} alone"
            )
        return parts

    @property
    def unit(self) -> str:
        """What splits do not share, in words."""
        return f"{self.split_by}s"


def _listed(names: np.ndarray) -> str:
    """Names, the first eight."""
    unique = np.unique(names)
    return ", ".join(unique[:8]) + (", ..." if len(unique) > 8 else "")


@dataclass(kw_only=True)
class Windows:
    """Windows of one modality.

    Attributes:
        tokens: (N, T, F), scaled per subject.
        labels: (N,) classes, -1 where unknown.
        subjects: (N,) names.
        recordings: (N,) names of the recordings.
        starts: (N,) seconds from the start of the recording.
        quality: flags of the raw signal.
    """

    tokens: Tensor
    labels: Tensor
    subjects: np.ndarray
    recordings: np.ndarray
    starts: np.ndarray
    quality: Quality


def tokenise(
    recordings: list[Recording],
    modality: str,
    *,
    window: float,
    stride: float,
    tokens: Callable[[Tensor, float], Tensor],
    majority: float = 1.0,
    condition: Architecture | None = None,
) -> Windows:
    """Cut recordings into windows and turn one modality into scaled tokens.

    Args:
        recordings: where to cut.
        modality: which signal.
        window: seconds per window.
        stride: seconds between windows.
        tokens: from (N, C, S) and a rate in Hz to (N, T, F).
        majority: see `cut_windows`.
        condition: whose rate, filters and scaling the whole signal gets first; flags are still
            those of the raw signal.

    Raises:
        ValueError: no recording is as long as a window, one lacks the modality, or they differ in
            what they give.
    """
    found: list[Tensor] = []
    labels, subjects, names, starts, flags = [], [], [], [], []
    for recording in recordings:
        options = {"seconds": window, "stride": stride}
        raw, cut_labels = cut_windows(recording, modality, **options, majority=majority)
        for channel in np.flatnonzero(np.ptp(recording.signals[modality], axis=1) == 0):
            _LOGGER.warning("%s: %s: channel %d never varies", recording.name, modality, channel)
        if not len(raw):
            continue
        cut, rate = raw, recording.rates[modality]
        if condition is not None:
            rate = condition.rate
            own = recording.conditioned(modality, condition.condition, rate)
            cut = cut_windows(own, modality, **options)[0][: len(raw)]
        try:
            found.append(tokens(torch.from_numpy(cut), rate))
        except ValueError as error:
            raise ValueError(f"{recording.name}: {modality}: {error}") from error
        if found[-1].shape[1:] != found[0].shape[1:]:
            raise ValueError(
                f"{recording.name}: {modality} at {rate} Hz with {cut.shape[1]} channels gives "
                f"tokens {tuple(found[-1].shape[1:])}, the recordings before it "
                f"{tuple(found[0].shape[1:])}; rates and channels must agree"
            )
        signal = recording.signals[modality]
        flags.append(window_quality(raw, (signal.min(axis=1), signal.max(axis=1))))
        labels.append(cut_labels)
        subjects.append(np.full(len(cut), recording.subject))
        names.append(np.full(len(cut), recording.name))
        starts.append(stride * np.arange(len(cut)))
    if not found:
        longest = max(recording.seconds for recording in recordings)
        raise ValueError(f"data.window: {window} s is longer than any recording ({longest:.1f} s)")
    people = np.concatenate(subjects)
    return Windows(
        tokens=standardise_by_subject(torch.cat(found), people),
        labels=torch.from_numpy(np.concatenate(labels)),
        subjects=people,
        recordings=np.concatenate(names),
        starts=np.concatenate(starts),
        quality=Quality(
            flat=np.concatenate([quality.flat for quality in flags]),
            clipped=np.concatenate([quality.clipped for quality in flags]),
        ),
    )
