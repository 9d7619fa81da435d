"""Where to read from the new model and where to write into the old one.

The two-stage selection of BioX-Bridge (arXiv 2510.02276, section 3.2), O(L + M) where a grid would
train L x M bridges. Stage 1 picks the new block whose pooled output best predicts the old model's
pseudo labels; stage 2 picks the old block whose pooled input is most similar to it (linear CKA).
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

# Below these margins over the runner-up, the choice is called arbitrary: they are as large as what
# a change of seed alone moves.
FLAT_PROBE = 0.02
FLAT_CKA = 0.02
_TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Positions:
    """The chosen pair of blocks and the two curves that it was chosen from.

    Attributes:
        new_block: m, the bridge reads the output of this block of the new model.
        old_block: l, the bridge replaces the input of this block of the old model.
        probe_scores: macro-F1 in [0, 1] by new block.
        cka_scores: CKA in [-1, 1] by old block.
    """

    new_block: int
    old_block: int
    probe_scores: list[float]
    cka_scores: list[float]

    @property
    def probe_margin(self) -> float:
        """Best minus second-best macro-F1; infinite with one block."""
        return _margin(self.probe_scores)

    @property
    def cka_margin(self) -> float:
        """Best minus second-best CKA; infinite with one block."""
        return _margin(self.cka_scores)

    def describe(self) -> str:
        """One sentence, which says so when a choice is arbitrary."""
        text = (
            f"new block {self.new_block} (macro-F1 {self.probe_scores[self.new_block]:.3f}, margin "
            f"{self.probe_margin:.3f}), old block {self.old_block} (CKA "
            f"{self.cka_scores[self.old_block]:.3f}, margin {self.cka_margin:.3f})"
        )
        flat = [
            name
            for name, margin, threshold in (
                ("new", self.probe_margin, FLAT_PROBE),
                ("old", self.cka_margin, FLAT_CKA),
            )
            if margin < threshold
        ]
        if flat:
            text += f"; the curve of the {' and the '.join(flat)} model is flat: arbitrary choice"
        return text

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def select_positions(
    *,
    new_features: list[Float[Tensor, "batch _"]],
    old_features: list[Float[Tensor, "batch _"]],
    pseudo_labels: np.ndarray,
    groups: np.ndarray,
) -> Positions:
    """Both stages on the unlabelled pairs.

    Args:
        new_features: pooled output of each new block, (N, D) each.
        old_features: pooled input of each old block, (N, D) each.
        pseudo_labels: (N,) classes that the old task model predicts.
        groups: (N,) subjects or recordings; no group is on both sides of a fold.

    Returns:
        The positions. Ties go to the later block, which is the cheaper one to train through.
    """
    probe_scores = [probe_score(f, pseudo_labels, groups) for f in new_features]
    new_block = _last_best(probe_scores)
    cka_scores = [cka(new_features[new_block], f) for f in old_features]
    return Positions(
        new_block=new_block,
        old_block=_last_best(cka_scores),
        probe_scores=probe_scores,
        cka_scores=cka_scores,
    )


def probe_score(
    features: Float[Tensor, "batch width"],
    labels: np.ndarray,
    groups: np.ndarray,
    *,
    folds: int = 5,
) -> float:
    """Cross-validated macro-F1 of a logistic regression on standardised features, in [0, 1].

    Args:
        features: (N, D).
        labels: (N,).
        groups: (N,); folds follow groups. With a single group, folds are successive stretches.
        folds: at most; never more than there are groups.

    Returns:
        Mean over the folds; 0.0, with a warning, when there is one class only.
    """
    if len(np.unique(labels)) < 2:
        warnings.warn("every pseudo label is the same class: no probe can be fitted", stacklevel=2)
        return 0.0
    count = len(np.unique(groups))
    splitter = GroupKFold(min(folds, count)) if count > 1 else KFold(folds)
    inputs = features.numpy()
    scores = []
    for train, test in splitter.split(inputs, labels, groups if count > 1 else None):
        if len(np.unique(labels[train])) < 2:
            continue
        probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        predicted = probe.fit(inputs[train], labels[train]).predict(inputs[test])
        scores.append(f1_score(labels[test], predicted, average="macro", zero_division=0.0))
    return float(np.mean(scores)) if scores else 0.0


def cka(
    x: Float[Tensor, "batch width_x"],
    y: Float[Tensor, "batch width_y"],
    *,
    debiased: bool | None = None,
) -> float:
    r"""Linear centred kernel alignment, computed from the features so that memory stays O(N d).

    Biased: $\|X_c^T Y_c\|_F^2 / (\|X_c^T X_c\|_F \|Y_c^T Y_c\|_F)$, in [0, 1]. Debiased: the
    U-statistic of Song et al. (2012) in place of each term, which does not grow with d / N and can
    be slightly negative.

    Args:
        x: (N, d_x).
        y: (N, d_y).
        debiased: which one; None takes the debiased one when N < 5 max(d_x, d_y) and N > 3.

    Returns:
        The alignment; 0.0 when one side does not vary.
    """
    x, y = x.double(), y.double()
    if debiased is None:
        debiased = 3 < len(x) < 5 * max(x.shape[1], y.shape[1])
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    statistic = _unbiased_hsic if debiased else _biased_hsic
    scale = statistic(x, x) * statistic(y, y)
    return float(statistic(x, y) / scale.sqrt()) if scale > 0 else 0.0


def _biased_hsic(x: Tensor, y: Tensor) -> Tensor:
    return (x.T @ y).square().sum()


def _unbiased_hsic(x: Tensor, y: Tensor) -> Tensor:
    """HSIC_1 of Song et al. (2012), eq. 5, times n (n - 3), for K = X X^T, L = Y Y^T."""
    n = len(x)
    # K and L have their diagonals removed; no n x n matrix is formed.
    norms_x, norms_y = x.square().sum(dim=1), y.square().sum(dim=1)
    rows_x = x @ x.sum(dim=0) - norms_x  # K 1
    rows_y = y @ y.sum(dim=0) - norms_y
    trace = (x.T @ y).square().sum() - norms_x @ norms_y
    return (
        trace + rows_x.sum() * rows_y.sum() / ((n - 1) * (n - 2)) - 2 * (rows_x @ rows_y) / (n - 2)
    )


def _last_best(scores: list[float]) -> int:
    best = max(scores)
    return max(i for i, score in enumerate(scores) if score >= best - _TIE)


def _margin(scores: list[float]) -> float:
    ordered = sorted(scores, reverse=True)
    return ordered[0] - ordered[1] if len(ordered) > 1 else float("inf")
