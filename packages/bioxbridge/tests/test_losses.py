"""Alignment and distillation losses: values by hand, properties, a slow reference."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.losses import ALIGNMENT_LOSSES, cosine, infonce, logits_kl, token_cosine

X = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
Y = torch.tensor([[[0.0, 2.0], [0.0, 0.0]]])
seeds = st.integers(0, 10_000)
several = settings(max_examples=25)


def hidden(seed, batch=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, batch, 3, 5, generator=generator, dtype=torch.float64)


def test_cosine_by_hand():
    assert float(cosine(X, Y)) == pytest.approx(1.0)
    assert float(cosine(X, X)) == pytest.approx(0.0, abs=1e-6)
    assert float(cosine(X, -3 * X)) == pytest.approx(2.0)
    # The mean over the batch of 0 and 2.
    both = torch.cat([X, X])
    assert float(cosine(both, torch.cat([X, -X]))) == pytest.approx(1.0)


def test_token_cosine_by_hand():
    produced = torch.tensor([[[1.0, 0.0], [0.01, 0.0]]])
    target = torch.tensor([[[5.0, 0.0], [-1.0, 0.0]]])
    assert float(token_cosine(produced, target)) == pytest.approx(1.0)  # mean of 0 and 2
    # The flattened one hardly sees the small token: cos = 4.99 / sqrt(1.0001 * 26).
    assert float(cosine(produced, target)) == pytest.approx(
        1 - 4.99 / math.sqrt(1.0001 * 26), abs=1e-6
    )


def test_l1_and_mse_by_hand():
    assert float(ALIGNMENT_LOSSES["l1"](X, Y)) == pytest.approx(3 / 4)
    assert float(ALIGNMENT_LOSSES["mse"](X, Y)) == pytest.approx(5 / 4)


def test_infonce_by_hand():
    produced = torch.eye(2).unsqueeze(1)
    expected = -math.log(math.exp(10) / (math.exp(10) + 1))
    assert float(infonce(produced, 7 * produced)) == pytest.approx(expected, rel=1e-3)
    assert float(infonce(produced, produced.flip(0))) == pytest.approx(10 + expected, rel=1e-3)
    # Identical targets cannot be told apart.
    assert float(infonce(produced, torch.ones(2, 1, 2))) == pytest.approx(math.log(2))


@several
@given(seeds, st.floats(0.01, 100), st.floats(0.01, 100))
def test_direction_alone_counts(seed, first, second):
    produced, target = hidden(seed)
    for loss in (cosine, token_cosine, infonce):
        value = loss(produced, target)
        torch.testing.assert_close(loss(first * produced, second * target), value)
    assert 0 <= float(cosine(produced, target)) <= 2
    assert 0 <= float(token_cosine(produced, target)) <= 2


@several
@given(seeds, st.permutations(range(4)))
def test_infonce_is_lowest_at_the_identity(seed, order):
    target = hidden(seed)[1]
    at_identity = float(infonce(target, target))
    permuted = float(infonce(target[list(order)], target))
    if order == [0, 1, 2, 3]:
        assert permuted == at_identity
    else:
        assert permuted > at_identity


@several
@given(seeds)
def test_infonce_equals_its_definition(seed):
    produced, target = hidden(seed)
    terms = []
    for i in range(4):
        scores = []
        for j in range(4):
            a, b = produced[i].flatten(), target[j].flatten()
            scores.append(float(a @ b / (a.norm() * b.norm())) / 0.1)
        terms.append(math.log(sum(math.exp(s) for s in scores)) - scores[i])
    assert float(infonce(produced, target)) == pytest.approx(sum(terms) / 4)


@several
@given(seeds, st.floats(0.5, 5.0))
def test_logits_kl_equals_its_definition(seed, temperature):
    generator = torch.Generator().manual_seed(seed)
    student, teacher = 3 * torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    total = 0.0
    for row in range(6):
        q = [math.exp(v / temperature) for v in student[row].tolist()]
        p = [math.exp(v / temperature) for v in teacher[row].tolist()]
        q, p = [v / sum(q) for v in q], [v / sum(p) for v in p]
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    value = float(logits_kl(student, teacher, temperature))
    assert value == pytest.approx(temperature**2 * total / 6, rel=1e-9)
    assert value > 0
    # A constant added to every logit changes nothing.
    assert float(logits_kl(teacher + 5, teacher, temperature)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", sorted(ALIGNMENT_LOSSES))
def test_every_loss_pulls_towards_the_target(name):
    loss = ALIGNMENT_LOSSES[name]
    produced, target = hidden(0)
    produced = produced.clone().requires_grad_()
    value = loss(produced, target)
    assert value.shape == ()
    (gradient,) = torch.autograd.grad(value, produced)
    closer = loss(produced.detach() - 1e-3 * gradient, target)
    assert float(closer) < float(value.detach())
