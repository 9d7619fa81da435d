"""Scores of classifications and intervals of means."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.metrics import (
    agreement,
    classification_scores,
    confusion,
    relative_entropy,
    t_interval,
)

# Class 0: 3 of 4 right; class 1: 1 of 2 right; two windows without a label.
LABELS = np.array([0, 0, 0, 0, 1, 1, -1, -1])
PREDICTED = np.array([0, 0, 0, 1, 1, 0, 1, 0])


def test_scores_by_hand():
    scores = classification_scores(LABELS, PREDICTED)
    assert scores["balanced_accuracy"] == pytest.approx(100 * (3 / 4 + 1 / 2) / 2)
    assert scores["accuracy"] == pytest.approx(100 * 4 / 6)
    # F1 is 2 tp / (2 tp + fp + fn): 6/8 and 2/4.
    assert scores["macro_f1"] == pytest.approx(100 * (6 / 8 + 2 / 4) / 2)
    assert scores["weighted_f1"] == pytest.approx(100 * (4 * 6 / 8 + 2 * 2 / 4) / 6)
    chance = (4 / 6) * (4 / 6) + (2 / 6) * (2 / 6)
    assert scores["kappa"] == pytest.approx((4 / 6 - chance) / (1 - chance))
    shares = np.array([4 / 6, 2 / 6])
    assert scores["entropy"] == pytest.approx(-(shares * np.log2(shares)).sum())
    assert confusion(LABELS, PREDICTED, 3).tolist() == [[3, 1, 0], [1, 1, 0], [0, 0, 0]]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_scores_equal_scikit_learn(seed, classes):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=40)])
    predicted = rng.integers(classes, size=len(labels))
    hidden = np.concatenate([labels, np.full(9, -1)])
    scores = classification_scores(hidden, np.concatenate([predicted, np.zeros(9, int)]))
    expected = {
        "balanced_accuracy": 100 * sklearn.metrics.balanced_accuracy_score(labels, predicted),
        "macro_f1": 100 * sklearn.metrics.f1_score(labels, predicted, average="macro"),
        "weighted_f1": 100 * sklearn.metrics.f1_score(labels, predicted, average="weighted"),
        "accuracy": 100 * sklearn.metrics.accuracy_score(labels, predicted),
        "kappa": sklearn.metrics.cohen_kappa_score(labels, predicted),
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert 0 <= scores["entropy"] <= 1


def test_a_predicted_class_that_never_occurs_only_costs():
    scores = classification_scores(np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2]))
    assert scores["balanced_accuracy"] == pytest.approx(50.0)
    assert scores["macro_f1"] == pytest.approx(100 * 2 / 3)


def test_a_collapsed_model_shows():
    scores = classification_scores(np.array([0, 0, 0, 1, 2]), np.zeros(5, int))
    assert scores["entropy"] == 0.0
    assert scores["balanced_accuracy"] == pytest.approx(100 / 3)
    assert scores["accuracy"] == pytest.approx(60.0)
    assert scores["kappa"] == pytest.approx(0.0)


def test_one_class_alone_does_not_divide_by_zero():
    right = classification_scores(np.zeros(4, int), np.zeros(4, int))
    assert right["kappa"] == 1.0
    assert right["balanced_accuracy"] == 100.0
    wrong = classification_scores(np.zeros(4, int), np.ones(4, int))
    assert wrong["kappa"] == 0.0
    assert wrong["macro_f1"] == 0.0


def test_no_label_is_refused():
    with pytest.raises(ValueError, match="no window of this split is labelled"):
        classification_scores(np.full(3, -1), np.zeros(3, int))


def test_agreement_by_hand():
    assert agreement(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])) == 75.0


def test_entropy_by_hand():
    assert relative_entropy(np.array([0, 1, 2, 3]), 4) == pytest.approx(1.0)
    assert relative_entropy(np.array([0, 0, 5, 5]), 4) == pytest.approx(0.5)
    assert relative_entropy(np.array([0, 1, 2]), 2) == 1.0  # more classes than expected


def test_interval_by_hand():
    # s = sqrt(10 / 4), t(0.975, 4) = 2.7764: half width 2.7764 sqrt(2.5 / 5).
    mean, low, high = t_interval(np.array([1, 2, 3, 4, 5]))
    assert mean == 3.0
    assert (low, high) == pytest.approx((3 - 1.96324, 3 + 1.96324), abs=1e-4)
    _, low, high = t_interval(np.array([1, 2, 3, 4, 5]), level=0.5)
    assert (low, high) == pytest.approx((3 - 0.52376, 3 + 0.52376), abs=1e-4)
    assert t_interval(np.array([7.0])) == (7.0, -np.inf, np.inf)
    assert t_interval(np.array([2.0, 2.0])) == (2.0, 2.0, 2.0)
