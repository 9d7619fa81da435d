"""The two-stage selection: CKA against slow references, the probe, ties and words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge import selection
from bioxbridge.selection import Positions, cka, probe_score, select_positions

several = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 10_000)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gram_hsic(k, other):
    """Trace of the product of the doubly centred Gram matrices."""
    n = len(k)
    centre = np.eye(n) - np.ones((n, n)) / n
    return np.trace(centre @ k @ centre @ other)


def song_hsic(k, other):
    """Song et al. (2012), eq. 5, by loops over pairs of rows."""
    n = len(k)
    trace = total_k = total_other = cross = 0.0
    for i in range(n):
        row_k = row_other = 0.0
        for j in range(n):
            if i != j:
                trace += k[i, j] * other[i, j]
                row_k += k[i, j]
                row_other += other[i, j]
        total_k += row_k
        total_other += row_other
        cross += row_k * row_other
    return (trace + total_k * total_other / ((n - 1) * (n - 2)) - 2 * cross / (n - 2)) / (
        n * (n - 3)
    )


def slow_cka(x, y, hsic):
    k, other = (x @ x.T).numpy(), (y @ y.T).numpy()
    return hsic(k, other) / np.sqrt(hsic(k, k) * hsic(other, other))


@several
@given(seeds, st.integers(5, 20), st.integers(1, 12), st.integers(1, 12))
def test_cka_equals_the_gram_matrix_form(seed, n, width_x, width_y):
    x = 3 + draw(seed, n, width_x)
    y = draw(seed + 1, n, width_y) + x[:, :1]
    for debiased, hsic in ((False, gram_hsic), (True, song_hsic)):
        assert cka(x, y, debiased=debiased) == pytest.approx(
            slow_cka(x, y, hsic), rel=1e-8, abs=1e-10
        )


@several
@given(seeds, st.booleans(), st.floats(0.01, 100))
def test_cka_sees_neither_rotation_scale_nor_shift(seed, debiased, scale):
    x, y = draw(seed, 12, 5), draw(seed + 1, 12, 7)
    rotation, _ = torch.linalg.qr(draw(seed + 2, 5, 5))
    assert cka(x, scale * x @ rotation + 4, debiased=debiased) == pytest.approx(1.0)
    assert cka(scale * x @ rotation + 4, y, debiased=debiased) == pytest.approx(
        cka(x, y, debiased=debiased)
    )
    assert cka(x, y, debiased=debiased) == pytest.approx(cka(y, x, debiased=debiased))
    assert cka(x, y, debiased=debiased) < 0.999


def test_debiased_does_not_grow_with_the_width():
    values = [
        [cka(draw(2 * s, 40, 200), draw(2 * s + 1, 40, 200), debiased=d) for s in range(10)]
        for d in (False, True)
    ]
    biased, debiased = np.mean(values, axis=1)
    assert biased > 0.7
    assert abs(debiased) < 0.05
    assert min(values[1]) < 0  # it is allowed below zero


def test_the_estimate_follows_the_number_of_pairs():
    x, y = draw(0, 50, 10), draw(1, 50, 10)
    assert cka(x, y) == cka(x, y, debiased=False)
    assert cka(x[:49], y[:49]) == cka(x[:49], y[:49], debiased=True)
    assert cka(x[:3], y[:3]) == cka(x[:3], y[:3], debiased=False)
    assert cka(x, y) != cka(x, y, debiased=True)


def test_cka_of_something_constant_is_zero():
    x = draw(0, 20, 3)
    assert cka(torch.full((20, 2), 0.5), x, debiased=False) == 0.0
    assert cka(x, torch.zeros(20, 2), debiased=True) == 0.0


def test_probe_score_separates_signal_from_noise():
    labels = np.arange(120) % 3
    groups = np.arange(120) // 20
    informative = 0.2 * draw(0, 120, 4)
    informative[:, 0] += torch.as_tensor(labels == 0) * 3
    informative[:, 1] += torch.as_tensor(labels == 1) * 3
    assert probe_score(informative, labels, groups) > 0.98
    assert probe_score(draw(1, 120, 4), labels, groups) < 0.6
    # The scale of a feature does not matter.
    assert probe_score(1e4 * informative, labels, groups) > 0.98


def test_one_class_warns_and_scores_nothing():
    with pytest.warns(UserWarning, match="every pseudo label is the same class"):
        assert probe_score(draw(0, 20, 2), np.ones(20, int), np.arange(20)) == 0.0


def test_folds_whose_training_side_has_one_class_are_left_out():
    # Each group is one class, so with two groups no fold can be fitted.
    labels = groups = np.repeat([0, 1], 10)
    assert probe_score(draw(0, 20, 2), labels, groups) == 0.0


class Spy:
    """Stands for the probe; notes which rows it is fitted to and asked about."""

    folds: list

    def __init__(self, *_):
        pass

    def fit(self, inputs, labels):
        self.rows = set(inputs[:, 0].astype(int))
        return self

    def predict(self, inputs):
        Spy.folds.append((self.rows, set(inputs[:, 0].astype(int))))
        return np.zeros(len(inputs), int)


@pytest.mark.parametrize("people", [1, 2, 3, 8])
def test_folds_follow_groups(monkeypatch, people):
    Spy.folds = []
    monkeypatch.setattr(selection, "make_pipeline", Spy)
    groups = np.random.RandomState(0).randint(people, size=80)
    rows = torch.arange(80.0).unsqueeze(1)
    probe_score(rows, np.arange(80) % 2, groups)
    assert len(Spy.folds) == {1: 5, 2: 2, 3: 3, 8: 5}[people]
    tested = []
    for train, test in Spy.folds:
        assert not train & test
        assert len(train | test) == 80
        tested += sorted(test)
        if people > 1:
            assert not set(groups[sorted(train)]) & set(groups[sorted(test)])
        else:  # successive stretches
            assert max(test) - min(test) == len(test) - 1
    assert sorted(tested) == list(range(80))


def features(count=90):
    labels = np.arange(count) % 2
    noise = draw(3, count, 3)
    signal = draw(4, count, 3)
    signal[:, 0] += torch.as_tensor(labels) * 6
    return labels, np.arange(count) // 15, noise, signal


def test_both_stages_find_the_planted_blocks():
    labels, groups, noise, signal = features()
    rotation, _ = torch.linalg.qr(draw(5, 3, 3))
    chosen = select_positions(
        new_features=[noise, signal, draw(6, 90, 3)],
        old_features=[draw(7, 90, 4), draw(8, 90, 4), signal @ rotation, draw(9, 90, 4)],
        pseudo_labels=labels,
        groups=groups,
    )
    assert (chosen.new_block, chosen.old_block) == (1, 2)
    assert chosen.cka_scores[2] == pytest.approx(1.0)
    assert len(chosen.probe_scores) == 3
    assert chosen.probe_scores[1] == probe_score(signal, labels, groups)
    assert "arbitrary" not in chosen.describe()


def test_ties_go_to_the_later_block():
    labels, groups, noise, signal = features()
    chosen = select_positions(
        new_features=[signal, signal, noise],
        old_features=[signal, signal, signal, noise],
        pseudo_labels=labels,
        groups=groups,
    )
    assert (chosen.new_block, chosen.old_block) == (1, 2)
    assert chosen.probe_margin == chosen.cka_margin == 0.0


def positions(probe, cka_scores):
    return Positions(
        new_block=int(np.argmax(probe)),
        old_block=int(np.argmax(cka_scores)),
        probe_scores=probe,
        cka_scores=cka_scores,
    )


@pytest.mark.parametrize(
    ("probe", "cka_scores", "words"),
    [
        ([0.2, 0.5], [0.1, 0.4], None),
        ([0.2, 0.5], [0.39, 0.4], "the curve of the old model is flat: arbitrary choice"),
        ([0.49, 0.5], [0.1, 0.4], "the curve of the new model is flat: arbitrary choice"),
        ([0.49, 0.5], [0.39, 0.4], "of the new and the old model is flat: arbitrary choice"),
    ],
)
def test_flat_curves_are_called_arbitrary(probe, cka_scores, words):
    text = positions(probe, cka_scores).describe()
    assert "new block 1 (macro-F1 0.500, margin" in text
    assert "old block 1 (CKA 0.400, margin" in text
    assert ("arbitrary" in text) == (words is not None)
    assert words is None or text.endswith(words)


def test_margins_and_json_values():
    one = positions([0.3], [0.1, 0.7, 0.4])
    assert one.probe_margin == float("inf")
    assert one.cka_margin == pytest.approx(0.3)
    assert Positions(**one.as_dict()) == one
