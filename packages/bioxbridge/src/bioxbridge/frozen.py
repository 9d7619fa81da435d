"""What two frozen models say of a set of pairs, and the problem that this poses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.cache import cached_states
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states, token_states
from bioxbridge.selection import Positions, select_positions
from bioxbridge.windows import Pairs


def frozen_encoder(encoder: SignalEncoder) -> BlockModel:
    """A `SignalEncoder` as a frozen model of blocks."""
    return BlockModel(encoder, "blocks").freeze()


@dataclass(kw_only=True)
class FrozenFeatures:
    """What the frozen models say of one set of pairs; each model has run once.

    Attributes:
        new_pooled: output of each new block, pooled, (N, D).
        old_pooled: input of each old block, pooled, (N, D).
        last_pooled: output of the last old block, pooled, (N, D).
        logits: the old task model's, (N, C), or (N, S, C) where it labels S stretches of time.
    """

    new_pooled: list[Tensor]
    old_pooled: list[Tensor]
    last_pooled: Tensor
    logits: Tensor

    @classmethod
    def of(
        cls, pairs: Pairs, *, new: BlockModel, old: TaskModel, cache: Path | None = None
    ) -> FrozenFeatures:
        """Run both models over the pairs.

        Args:
            pairs: windows of both modalities.
            new: model of the new modality.
            old: task model of the old one.
            cache: folder of `cached_states`; without one nothing is kept on disk.
        """
        old_pooled = _pooled(old.encoder, pairs.old, range(old.encoder.depth + 1), cache)
        with torch.no_grad():
            if old.segments is None:
                logits = old.head(old_pooled[-1])
            else:
                (last,) = token_states(old.encoder, pairs.old, [old.encoder.depth])
                logits = old.read_out(last)
        return cls(
            new_pooled=_pooled(new, pairs.new, range(1, new.depth + 1), cache),
            old_pooled=old_pooled[:-1],
            last_pooled=old_pooled[-1],
            logits=logits,
        )

    def of_new(self, new: BlockModel, inputs: Tensor, cache: Path | None = None) -> FrozenFeatures:
        """The same old model beside another new one, which alone runs."""
        return replace(self, new_pooled=_pooled(new, inputs, range(1, new.depth + 1), cache))

    def subset(self, rows: np.ndarray) -> FrozenFeatures:
        """The features at some rows."""
        index = torch.as_tensor(rows)
        return FrozenFeatures(
            new_pooled=[pooled[index] for pooled in self.new_pooled],
            old_pooled=[pooled[index] for pooled in self.old_pooled],
            last_pooled=self.last_pooled[index],
            logits=self.logits[index],
        )

    @property
    def pseudo_labels(self) -> np.ndarray:
        """Classes that the old task model predicts, (N,) or (N, S)."""
        return self.logits.argmax(dim=-1).numpy()

    def select(self, subjects: np.ndarray) -> Positions:
        """Two-stage selection on these pairs; without pseudo labels where they are along time."""
        return select_positions(
            new_features=self.new_pooled,
            old_features=self.old_pooled,
            pseudo_labels=self.pseudo_labels if self.logits.ndim == 2 else None,
            last_feature=self.last_pooled,
            groups=subjects,
        )


@dataclass(kw_only=True)
class Transfer:
    """What a method of transfer is given: two frozen models and pairs without labels.

    Attributes:
        new: model of the new modality.
        old: task model of the old modality, the teacher.
        pairs: windows to learn from (`pair`) and to choose an epoch on (`val`).
        features: what the models say of them, by the same names.
        positions: the bridge's place.
    """

    new: BlockModel
    old: TaskModel
    pairs: dict[str, Pairs]
    features: dict[str, FrozenFeatures]
    positions: Positions

    @classmethod
    def between(
        cls,
        new: BlockModel,
        old: TaskModel,
        *,
        pair: Pairs,
        val: Pairs,
        positions: Positions | None = None,
        cache: Path | None = None,
    ) -> Transfer:
        """Run both models over the windows and select the bridge's place.

        Args:
            new: frozen model of the new modality.
            old: frozen task model of the old modality.
            pair: windows to learn from, without labels.
            val: windows of other subjects to choose an epoch on, without labels.
            positions: the bridge's place, where it is known.
            cache: folder of `cached_states`; without one nothing is kept on disk.
        """
        pairs = {"pair": pair, "val": val}
        features = {
            part: FrozenFeatures.of(own, new=new, old=old, cache=cache)
            for part, own in pairs.items()
        }
        if positions is None:
            positions = features["pair"].select(pair.subjects)
        return cls(new=new, old=old, pairs=pairs, features=features, positions=positions)

    def at(self, positions: Positions) -> Transfer:
        """The same problem with the bridge in another place."""
        return replace(self, positions=positions)

    def with_pairs(self, fraction: float, *, seed: int) -> Transfer:
        """The same problem with a random share of the pairs, in (0, 1]; at least one is left.

        Raises:
            ValueError: the share is outside of that range.
        """
        if not 0 < fraction <= 1:
            raise ValueError(f"pairs: a share of {fraction} is not in (0, 1]")
        count = len(self.pairs["pair"])
        rows = np.random.RandomState(seed).permutation(count)
        rows = np.sort(rows[: max(1, round(fraction * count))])
        return replace(
            self,
            pairs=self.pairs | {"pair": self.pairs["pair"].subset(rows)},
            features=self.features | {"pair": self.features["pair"].subset(rows)},
        )

    def with_new(self, new: BlockModel, cache: Path | None = None) -> Transfer:
        """The same problem with another new model; its place has to be selected anew."""
        features = {
            part: own.of_new(new, self.pairs[part].new, cache)
            for part, own in self.features.items()
        }
        return replace(self, new=new, features=features)


def _pooled(
    model: BlockModel, inputs: Tensor, positions: range, cache: Path | None
) -> list[Tensor]:
    if cache is None:
        return pooled_states(model, inputs, positions)
    return cached_states(model, inputs, cache, pooled=positions).pooled
