"""Where to read from the new model and where to write into the old one.

The two-stage selection of BioX-Bridge (arXiv 2510.02276, section 3.2), O(L + M) where a grid would
train L x M bridges. Stage 1 picks the new block whose pooled output best predicts the old model's
pseudo labels; stage 2 picks the old block whose pooled input is most similar to it (linear CKA).

Ties. The paper takes the best block of each curve. Curves are often so flat that another seed, or
another machine's rounding in training, moves scores by more than blocks differ: the best block is
then a draw. Here all blocks within `FLAT_PROBE` or `FLAT_CKA` of the best count as equal, and the
last of them is taken, the cheapest one to train through. A flat curve so always gives the same
block, its last; where blocks do differ, the choice is the paper's. A tolerance smaller than what a
seed moves would not help: it puts the edge where two blocks swap elsewhere, among as many scores.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from bioxbridge.similarity import cka

# Scores that differ by less count as equal: it is as much as a change of seed alone moves.
FLAT_PROBE = 0.02
FLAT_CKA = 0.02
# Equal in all but rounding.
_ROUNDING = 1e-6

Folds = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Positions:
    """The chosen pair of blocks and the two curves that it was chosen from.

    Attributes:
        new_block: m, the bridge reads the output of this block of the new model.
        old_block: l, the bridge replaces the input of this block of the old model.
        probe_scores: macro-F1 in [0, 1] by new block; where no fold can be cut, see `probe_score`;
            CKA where there are no pseudo labels.
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
        """One sentence, which says so when a choice is arbitrary among equal blocks."""
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
            names = " and the ".join(flat)
            text += f"; the curve of the {names} model is flat: arbitrary, the last of equal blocks"
        return text

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def select_positions(
    *,
    new_features: list[Float[Tensor, "_ _"]],
    old_features: list[Float[Tensor, "_ _"]],
    pseudo_labels: np.ndarray | None,
    groups: np.ndarray,
    last_feature: Float[Tensor, "_ _"] | None = None,
    probe_tolerance: float = FLAT_PROBE,
    cka_tolerance: float = FLAT_CKA,
) -> Positions:
    """Both stages on the unlabelled pairs.

    Args:
        new_features: pooled output of each new block, (N, D) each.
        old_features: pooled input of each old block, (N, D) each.
        pseudo_labels: (N,) classes that the old task model predicts. None selects without any
            (an extension): stage 1 then takes the new block most similar to `last_feature`.
        last_feature: pooled output of the last old block, (N, D); needed without pseudo labels.
        groups: (N,) subjects or recordings; no group is on both sides of a fold.
        probe_tolerance: new blocks whose score is this close to the best count as equal; 0 is the
            paper's plain maximum.
        cka_tolerance: the same of old blocks.

    Returns:
        The positions. Of equal blocks the last one is taken.

    Raises:
        ValueError: a tolerance below 0, features of another number of windows than there are
            groups, features that are not finite, or neither pseudo labels nor a last feature.
    """
    for name, value in (("probe_tolerance", probe_tolerance), ("cka_tolerance", cka_tolerance)):
        if not value >= 0:
            raise ValueError(f"{name}: {value} is below 0")
    for name, blocks in (("new_features", new_features), ("old_features", old_features)):
        for block, features in enumerate(blocks):
            if len(features) != len(groups):
                raise ValueError(
                    f"{name}: block {block} has {len(features)} windows, "
                    f"but there are {len(groups)} groups"
                )
            if not features.isfinite().all():
                raise ValueError(f"{name}: block {block} holds a value that is not finite")
    if pseudo_labels is not None:
        folds = probe_folds(pseudo_labels, groups)
        probe_scores = [probe_score(f, pseudo_labels, folds) for f in new_features]
        new_block = _last_best(probe_scores, probe_tolerance)
    elif last_feature is not None:
        probe_scores = [cka(f, last_feature) for f in new_features]
        new_block = _last_best(probe_scores, cka_tolerance)
    else:
        raise ValueError("selection: needs pseudo labels, or the last old feature")
    cka_scores = [cka(new_features[new_block], f) for f in old_features]
    return Positions(
        new_block=new_block,
        old_block=_last_best(cka_scores, cka_tolerance),
        probe_scores=probe_scores,
        cka_scores=cka_scores,
    )


def probe_folds(labels: np.ndarray, groups: np.ndarray, *, folds: int = 5) -> Folds:
    """Rows to fit and to score the probe on.

    Folds follow groups; with a single group they are successive stretches. There are as many as
    asked for, but no more than groups, and fewer until the fitting side of each holds every class
    that more than one group has. Where not even two folds leave two classes to fit, there are none.
    Each of these retreats is a warning, but the number of groups.

    Args:
        labels: (N,).
        groups: (N,).
        folds: at most.
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        warnings.warn("every pseudo label is the same class: no probe can be fitted", stacklevel=3)
        return []
    names = np.unique(groups)
    most = min(folds, len(names) if len(names) > 1 else len(labels))
    shared = [c for c in classes if len(np.unique(groups[labels == c])) > 1]
    for count in range(most, 1, -1):
        splitter = GroupKFold(count) if len(names) > 1 else KFold(count)
        cut = list(splitter.split(labels, labels, groups if len(names) > 1 else None))
        fitted = [np.unique(labels[train]) for train, _ in cut]
        if all(len(f) > 1 and np.isin(shared, f).all() for f in fitted):
            if count < most:
                warnings.warn(
                    f"pseudo labels: {most} folds would leave a class out of fitting, "
                    f"the probe is scored on {count}",
                    stacklevel=3,
                )
            return cut
    warnings.warn(
        "pseudo labels: no folds leave two classes to fit, "
        "blocks are compared by the probe's likelihood on the windows it is fitted to",
        stacklevel=3,
    )
    return []


def probe_score(features: Float[Tensor, "batch width"], labels: np.ndarray, folds: Folds) -> float:
    """How well a logistic regression on standardised features predicts the labels, in [0, 1].

    Args:
        features: (N, D).
        labels: (N,).
        folds: from `probe_folds`.

    Returns:
        Mean macro-F1 over the folds. Without folds, exp of minus the log loss on the windows fitted
        to, the geometric mean of the probability of the label; 0.0 where there is one class only.
    """
    inputs = features.numpy()
    if not folds:
        if len(np.unique(labels)) < 2:
            return 0.0
        return float(np.exp(-log_loss(labels, _probe().fit(inputs, labels).predict_proba(inputs))))
    scores = []
    for train, test in folds:
        predicted = _probe().fit(inputs[train], labels[train]).predict(inputs[test])
        scores.append(f1_score(labels[test], predicted, average="macro", zero_division=0.0))
    return float(np.mean(scores))


def fixed_positions(new_depth: int, old_depth: int) -> list[tuple[int, int]]:
    """{first, middle, last}^2, nine (m, l) where depths are above two: what selection must beat.

    >>> fixed_positions(8, 12)[:4]
    [(0, 0), (0, 6), (0, 11), (4, 0)]
    """
    new, old = (sorted({0, depth // 2, depth - 1}) for depth in (new_depth, old_depth))
    return list(itertools.product(new, old))


def random_positions(
    new_depth: int, old_depth: int, *, count: int, seed: int = 0
) -> list[tuple[int, int]]:
    """Different (m, l) drawn at random.

    Args:
        new_depth: M.
        old_depth: L.
        count: 1..M L.
        seed: of the draw.

    Raises:
        ValueError: more than there are.
    """
    total = new_depth * old_depth
    if not 1 <= count <= total:
        raise ValueError(f"count: {count} is outside 1..{total}")
    drawn = np.random.default_rng(seed).choice(total, size=count, replace=False)
    return [divmod(int(flat), old_depth) for flat in drawn]


def grid(
    score: Callable[[int, int], float],
    *,
    new_depth: int,
    old_depth: int,
    positions: Iterable[tuple[int, int]] | None = None,
) -> Float[np.ndarray, "new old"]:
    """Score positions one by one: what two-stage selection saves.

    Args:
        score: trains and scores a bridge from new block m to old block l.
        new_depth: M.
        old_depth: L.
        positions: which (m, l), as of `fixed_positions` or `random_positions`; all by default.

    Returns:
        (M, L) scores, NaN where none was asked for. `np.nanmean` of it is a mean over positions.

    Raises:
        ValueError: a position outside the grid.
    """
    scores = np.full((new_depth, old_depth), np.nan)
    if positions is None:
        positions = itertools.product(range(new_depth), range(old_depth))
    for m, l in positions:  # noqa: E741
        if not (0 <= m < new_depth and 0 <= l < old_depth):
            raise ValueError(f"positions: ({m}, {l}) is outside {new_depth} x {old_depth} blocks")
        scores[m, l] = score(m, l)
    return scores


def rank_in_grid(scores: Float[np.ndarray, "new old"], positions: Positions) -> tuple[int, int]:
    """Rank of the selected pair among the scored ones, 1 is best, and how many were scored.

    Raises:
        ValueError: the selected pair was not scored.
    """
    own = scores[positions.new_block, positions.old_block]
    if np.isnan(own):
        raise ValueError(f"scores: ({positions.new_block}, {positions.old_block}) was not scored")
    return 1 + int((scores > own).sum()), int(np.isfinite(scores).sum())


def _probe() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _last_best(scores: list[float], tolerance: float) -> int:
    best = max(scores)
    return max(i for i, score in enumerate(scores) if score >= best - tolerance - _ROUNDING)


def _margin(scores: list[float]) -> float:
    ordered = sorted(scores, reverse=True)
    return ordered[0] - ordered[1] if len(ordered) > 1 else float("inf")
