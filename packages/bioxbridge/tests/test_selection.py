"""The two-stage selection: CKA against slow references, the probe, ties and words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge import selection
from bioxbridge.selection import (
    Positions,
    fixed_positions,
    grid,
    probe_folds,
    probe_score,
    random_positions,
    rank_in_grid,
    select_positions,
)
from bioxbridge.similarity import BatchedCKA, cka

several = settings(max_examples=30)
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


@several
@given(seeds, st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans())
def test_batches_make_no_difference(seed, sizes, debiased):
    sizes = [4, *sizes]
    n = sum(sizes)
    x = 1e3 + draw(seed, n, 5)  # a mean that dwarfs the deviations
    y = draw(seed + 1, n, 3) + x[:, :3] - 1e3
    batched = BatchedCKA()
    for rows in torch.arange(n).split(sizes):
        batched.update(x[rows], y[rows])
    hsic = song_hsic if debiased else gram_hsic
    assert batched.compute(debiased=debiased) == pytest.approx(
        slow_cka(x - 1e3, y, hsic), rel=1e-7, abs=1e-9
    )
    assert batched.compute(debiased=debiased) == pytest.approx(
        cka(x, y, debiased=debiased), rel=1e-7, abs=1e-9
    )


def test_what_cka_cannot_be_computed_from():
    batched = BatchedCKA()
    with pytest.raises(ValueError, match="cka: no windows"):
        batched.compute()
    batched.update(draw(0, 3, 2), draw(1, 3, 4))
    with pytest.raises(ValueError, match="y: width 5, before 4"):
        batched.update(draw(0, 3, 2), draw(1, 3, 5))
    with pytest.raises(ValueError, match="the debiased estimate needs 4 windows, not 3"):
        batched.compute(debiased=True)


def test_probe_score_separates_signal_from_noise():
    labels = np.arange(120) % 3
    groups = np.arange(120) // 20
    informative = 0.2 * draw(0, 120, 4)
    informative[:, 0] += torch.as_tensor(labels == 0) * 3
    informative[:, 1] += torch.as_tensor(labels == 1) * 3
    folds = probe_folds(labels, groups)
    assert probe_score(informative, labels, folds) > 0.98
    assert probe_score(draw(1, 120, 4), labels, folds) < 0.6
    # The scale of a feature does not matter.
    assert probe_score(1e4 * informative, labels, folds) > 0.98


def test_one_class_warns_once_and_takes_the_last_blocks():
    with pytest.warns(UserWarning, match="every pseudo label is the same class") as caught:
        chosen = select_positions(
            new_features=[draw(k, 20, 2) for k in range(3)],
            old_features=[draw(9, 20, 2)],
            pseudo_labels=np.ones(20, int),
            groups=np.arange(20),
        )
    assert len(caught) == 1
    assert chosen.probe_scores == [0.0, 0.0, 0.0]
    assert chosen.new_block == 2


def test_without_folds_the_likelihood_decides():
    # Each person has one class, so with two people no fold can be fitted.
    labels = groups = np.repeat([0, 1], 20)
    noise, signal = draw(0, 40, 2), draw(1, 40, 2)
    signal[:, 0] += torch.as_tensor(labels) * 6
    with pytest.warns(UserWarning, match="compared by the probe's likelihood") as caught:
        chosen = select_positions(
            new_features=[signal, noise],
            old_features=[noise],
            pseudo_labels=labels,
            groups=groups,
        )
    assert len(caught) == 1
    assert chosen.new_block == 0
    # Noise of two columns is worth little more than guessing, a probability of a half.
    assert chosen.probe_scores[0] > 0.9
    assert 0.5 < chosen.probe_scores[1] < 0.6


def test_the_likelihood_by_hand():
    """A feature that never varies leaves the shares of the classes, 1/4 and 3/4."""
    labels = np.array([0, 1, 1, 1] * 5)
    share = np.exp(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert probe_score(torch.zeros(20, 1), labels, []) == pytest.approx(share, abs=1e-3)


def test_fewer_folds_where_a_class_would_be_left_out():
    # Ten people; two have class 1 and fall into one fold of five, but not into one of ten.
    groups = np.repeat(np.arange(10), 6)
    labels = np.zeros(60, int)
    splits = [set(groups[test]) for _, test in probe_folds(np.arange(60) % 2, groups)]
    together = next(iter(splits))
    labels[np.isin(groups, list(together)) & (np.arange(60) % 2 == 0)] = 1
    with pytest.warns(UserWarning, match="5 folds would leave a class out of fitting, .* on [234]"):
        folds = probe_folds(labels, groups)
    assert all(len(np.unique(labels[train])) == 2 for train, _ in folds)


def test_one_recording_with_a_late_class():
    one = np.zeros(100, int)
    assert len(probe_folds(np.repeat([0, 1], [70, 30]), one)) == 5
    # All of the late class falls into the last stretch, however many there are.
    with pytest.warns(UserWarning, match="no folds leave two classes to fit"):
        assert probe_folds(np.repeat([0, 1], [90, 10]), one) == []


@several
@given(seeds, st.integers(1, 6), st.integers(1, 5), st.integers(2, 40))
@pytest.mark.filterwarnings("ignore:.*pseudo label")
def test_folds_can_always_be_fitted(seed, people, classes, count):
    """Whatever is rare, whoever has it: a score in [0, 1], no error."""
    random = np.random.RandomState(seed)
    labels, groups = random.randint(classes, size=count) ** 2, random.randint(people, size=count)
    folds = probe_folds(labels, groups)
    for train, test in folds:
        assert len(np.unique(labels[train])) > 1
        assert len(test)
    assert 0 <= probe_score(draw(seed, count, 2), labels, folds) <= 1


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
    labels = np.arange(80) % 2
    probe_score(rows, labels, probe_folds(labels, groups))
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
    assert chosen.probe_scores[1] == probe_score(signal, labels, probe_folds(labels, groups))
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


@pytest.mark.parametrize(
    ("scores", "tolerance", "chosen"),
    [
        ([0.50, 0.49, 0.30], 0.0, 0),
        ([0.50, 0.49, 0.30], 0.02, 1),
        ([0.50, 0.49, 0.485], 0.02, 2),
        # Blocks that are worse in between do not matter.
        ([0.50, 0.10, 0.485], 0.02, 2),
        ([0.50, 0.40, 0.30], 0.02, 0),
        # On the edge itself rounding does not decide.
        ([0.50, 0.48], 0.02, 1),
        ([0.5, 0.5 - 1e-9], 0.0, 1),
    ],
)
def test_blocks_within_the_tolerance_count_as_equal(scores, tolerance, chosen):
    assert selection._last_best(scores, tolerance) == chosen


@several
@given(seeds, st.integers(2, 12), st.floats(0, 0.009))
def test_a_flat_curve_gives_its_last_block_whatever_the_noise(seed, blocks, noise):
    """The range of the curve and twice the noise stay below the tolerance."""
    random = np.random.RandomState(seed)
    curve = 0.6 + 0.001 * random.rand(blocks)
    for _ in range(5):
        scores = curve + noise * random.uniform(-1, 1, blocks)
        assert selection._last_best(list(scores), selection.FLAT_PROBE) == blocks - 1


def test_tolerances_reach_both_stages():
    labels, groups, noise, signal = features()
    near = signal + 0.02 * draw(11, 90, 3)
    chosen = {
        tolerance: select_positions(
            new_features=[signal, noise],
            old_features=[signal, near, noise],
            pseudo_labels=labels,
            groups=groups,
            probe_tolerance=1.0 if tolerance else 0.0,
            cka_tolerance=tolerance,
        )
        for tolerance in (0.0, 1.0)
    }
    assert (chosen[0.0].new_block, chosen[0.0].old_block) == (0, 0)
    assert (chosen[1.0].new_block, chosen[1.0].old_block) == (1, 2)
    with pytest.raises(ValueError, match=r"cka_tolerance: -1.0 is below 0"):
        select_positions(
            new_features=[signal],
            old_features=[signal],
            pseudo_labels=labels,
            groups=groups,
            cka_tolerance=-1.0,
        )


def test_features_that_cannot_be_compared_are_named():
    labels, groups, noise, signal = features()
    common = {"pseudo_labels": labels, "groups": groups}
    with pytest.raises(
        ValueError, match="old_features: block 1 has 89 windows, but there are 90 groups"
    ):
        select_positions(new_features=[noise], old_features=[noise, noise[1:]], **common)
    broken = signal.clone()
    broken[4, 1] = float("nan")
    with pytest.raises(ValueError, match="new_features: block 0 holds a value that is not finite"):
        select_positions(new_features=[broken], old_features=[noise], **common)


def test_selection_without_pseudo_labels_takes_the_block_most_like_the_last_one():
    _, groups, noise, signal = features()
    found = select_positions(
        new_features=[noise, signal, noise],
        old_features=[noise, signal @ draw(3, signal.shape[1], signal.shape[1]).to(signal.dtype)],
        pseudo_labels=None,
        last_feature=signal + 0.1 * noise[:, : signal.shape[1]],
        groups=groups,
    )
    assert (found.new_block, found.old_block) == (1, 1)
    assert found.probe_scores[1] > 0.9
    with pytest.raises(ValueError, match="needs pseudo labels, or the last old feature"):
        select_positions(
            new_features=[noise], old_features=[noise], pseudo_labels=None, groups=groups
        )


def test_fixed_and_random_positions():
    nine = fixed_positions(4, 5)
    assert nine == [(m, l) for m in (0, 2, 3) for l in (0, 2, 4)]  # noqa: E741
    assert fixed_positions(1, 2) == [(0, 0), (0, 1)]
    drawn = random_positions(4, 5, count=20, seed=3)
    assert sorted(drawn) == [(m, l) for m in range(4) for l in range(5)]  # noqa: E741
    few = random_positions(4, 5, count=6, seed=3)
    assert len(set(few)) == 6
    assert few == random_positions(4, 5, count=6, seed=3)
    assert few != random_positions(4, 5, count=6, seed=4)
    for count in (0, 21):
        with pytest.raises(ValueError, match=rf"count: {count} is outside 1\.\.20"):
            random_positions(4, 5, count=count)


def test_the_grid_scores_what_it_is_asked_for():
    calls = []

    def score(m, l):  # noqa: E741
        calls.append((m, l))
        return 10.0 * m + l

    whole = grid(score, new_depth=2, old_depth=3)
    assert whole.tolist() == [[0, 1, 2], [10, 11, 12]]
    assert len(calls) == 6
    part = grid(score, new_depth=2, old_depth=3, positions=[(1, 0), (0, 2)])
    assert calls[6:] == [(1, 0), (0, 2)]
    assert np.isnan(part).sum() == 4
    assert np.nanmean(part) == 6.0
    chosen = Positions(new_block=1, old_block=0, probe_scores=[], cka_scores=[])
    assert rank_in_grid(whole, chosen) == (3, 6)
    assert rank_in_grid(part, chosen) == (1, 2)
    with pytest.raises(ValueError, match=r"positions: \(2, 0\) is outside 2 x 3 blocks"):
        grid(score, new_depth=2, old_depth=3, positions=[(2, 0)])
    with pytest.raises(ValueError, match=r"scores: \(1, 0\) was not scored"):
        rank_in_grid(np.full((2, 3), np.nan), chosen)


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
        (
            [0.2, 0.5],
            [0.39, 0.4],
            "the curve of the old model is flat: arbitrary, the last of equal blocks",
        ),
        (
            [0.49, 0.5],
            [0.1, 0.4],
            "the curve of the new model is flat: arbitrary, the last of equal blocks",
        ),
        (
            [0.49, 0.5],
            [0.39, 0.4],
            "of the new and the old model is flat: arbitrary, the last of equal blocks",
        ),
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
