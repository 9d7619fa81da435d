"""Scores of window classification, as BioX-Bridge (arXiv 2510.02276, section 4) reports them."""

from __future__ import annotations

import numpy as np
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    confusion_matrix,
    f1_score,
    recall_score,
)

from bioxbridge.windows import UNLABELLED


def classification_scores(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Scores over the labelled windows, in percent except kappa.

    Args:
        labels: (N,) classes; windows of class -1 are left out.
        predicted: (N,) classes.

    Returns:
        `balanced_accuracy`, `macro_f1`, `weighted_f1`, `accuracy` in [0, 100], `kappa` in [-1, 1],
        and `entropy` in [0, 1]: of the predicted classes relative to that of a uniform guess, near
        zero when the predictions have collapsed to one class.

    Raises:
        ValueError: no window is labelled.
    """
    known = labels != UNLABELLED
    if not known.any():
        raise ValueError("labels: no window of this split is labelled")
    labels, predicted = labels[known], predicted[known]
    classes = np.unique(labels)
    options = {"labels": classes, "zero_division": 0.0}
    return {
        "balanced_accuracy": 100 * recall_score(labels, predicted, average="macro", **options),
        "macro_f1": 100 * f1_score(labels, predicted, average="macro", **options),
        "weighted_f1": 100 * f1_score(labels, predicted, average="weighted", **options),
        "accuracy": 100 * accuracy_score(labels, predicted),
        "kappa": _kappa(labels, predicted),
        "entropy": relative_entropy(predicted, max(2, len(classes))),
    }


def agreement(predicted: np.ndarray, teacher: np.ndarray) -> float:
    """Windows on which two models predict the same class, in percent."""
    return 100 * float(np.mean(predicted == teacher))


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """(C, C) counts over labelled windows: rows are true classes, columns predicted ones."""
    known = labels != UNLABELLED
    return confusion_matrix(labels[known], predicted[known], labels=np.arange(classes))


def relative_entropy(predicted: np.ndarray, classes: int) -> float:
    """Entropy of the predicted classes over log(classes), in [0, 1].

    >>> relative_entropy(np.array([0, 1, 0, 1]), 2)
    1.0
    >>> relative_entropy(np.array([1, 1, 1, 1]), 2)
    0.0
    """
    counts = np.bincount(predicted)
    return float(min(1.0, stats.entropy(counts) / np.log(classes)))


def t_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Mean and two-sided Student interval of the mean.

    Args:
        values: (n,) one value a split or seed; n at least 2 for a finite interval.
        level: coverage in (0, 1).

    Returns:
        (mean, low, high); low and high are infinite for one value.
    """
    values = np.asarray(values, dtype=float)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values)
    return mean, float(mean - half), float(mean + half)


def interval_text(values: np.ndarray) -> str:
    """Mean and interval of differences, as tables print them; no interval of one or two values.

    >>> interval_text(np.array([1.0, 3.0, 2.0]))
    '+2.0 [-0.5, +4.5]'
    >>> interval_text(np.array([1.0]))
    '+1.0'
    """
    mean, low, high = t_interval(values)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" if len(values) > 2 else f"{mean:+.1f}"


def _kappa(labels: np.ndarray, predicted: np.ndarray) -> float:
    if len(np.unique(labels)) == 1 and np.array_equal(labels, predicted):
        return 1.0
    return float(cohen_kappa_score(labels, predicted))
