"""What two frozen models say of a set of pairs, and what the bridge is trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states
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
        logits: the old task model's, (N, C).
    """

    new_pooled: list[Tensor]
    old_pooled: list[Tensor]
    last_pooled: Tensor
    logits: Tensor

    @classmethod
    def of(cls, pairs: Pairs, *, new: BlockModel, old: TaskModel) -> FrozenFeatures:
        """Run both models over the pairs."""
        old_states = pooled_states(old.encoder, pairs.old)
        with torch.no_grad():
            logits = old.head(old_states[-1])
        return cls(
            new_pooled=pooled_states(new, pairs.new, range(1, new.depth + 1)),
            old_pooled=old_states[:-1],
            last_pooled=old_states[-1],
            logits=logits,
        )

    def of_new(self, new: BlockModel, inputs: Tensor) -> FrozenFeatures:
        """The same old model beside another new one, which alone runs."""
        return replace(self, new_pooled=pooled_states(new, inputs, range(1, new.depth + 1)))

    @property
    def pseudo_labels(self) -> np.ndarray:
        """Classes that the old task model predicts, (N,)."""
        return self.logits.argmax(dim=-1).numpy()

    def select(self, subjects: np.ndarray) -> Positions:
        """Two-stage selection on these pairs."""
        return select_positions(
            new_features=self.new_pooled,
            old_features=self.old_pooled,
            pseudo_labels=self.pseudo_labels,
            groups=subjects,
        )
