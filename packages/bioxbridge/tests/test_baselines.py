"""The rivals: a probe on pseudo labels, and students that the old model teaches."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationModule, Rescale, new_student
from bioxbridge.baselines.probe import PseudoLabelProbe
from bioxbridge.encoder import SignalEncoder
from bioxbridge.losses import infonce, logits_kl


def clusters(classes):
    labels = np.arange(90) % classes
    features = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    features[torch.arange(90), torch.as_tensor(labels)] += 8
    return features, labels


@pytest.mark.parametrize(("classes", "parameters"), [(2, 4 + 1), (3, 3 * 4 + 3)])
def test_probe_learns_and_counts_its_parameters(classes, parameters):
    features, labels = clusters(classes)
    probe = PseudoLabelProbe()
    assert probe.fit(features, labels) is probe
    assert np.array_equal(probe.predict(features), labels)
    assert probe.parameters == parameters
    # Standardised: units do not matter.
    rescaled = 1000 * features + 5
    assert np.array_equal(PseudoLabelProbe().fit(rescaled, labels).predict(rescaled), labels)


def test_probe_is_regularised():
    features, labels = clusters(2)
    sizes = [
        np.abs(PseudoLabelProbe(regularisation=c).fit(features, labels).model[-1].coef_).sum()
        for c in (1e-3, 0.1, 10.0)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.5 * sizes[2]


def test_probe_refuses_one_class():
    features, _ = clusters(2)
    with pytest.raises(ValueError, match="the task model predicts one class only"):
        PseudoLabelProbe().fit(features, np.ones(90, int))


def test_rescale_by_hand():
    rescaled = Rescale(10.0)(torch.tensor([[3.0, 4.0], [0.0, -0.5], [0.0, 0.0]]))
    torch.testing.assert_close(rescaled, torch.tensor([[6.0, 8.0], [0.0, -10.0], [0.0, 0.0]]))
    assert not list(Rescale(1.0).parameters())


@pytest.fixture
def setting():
    torch.manual_seed(0)
    new = SignalEncoder(features=3, tokens=4, width=8, depth=2, heads=2)
    old = SignalEncoder(features=2, tokens=5, width=6, depth=2, heads=2)
    teacher = TaskModel(BlockModel(old, "blocks"), nn.Linear(6, 3)).freeze()
    inputs, old_inputs = torch.randn(12, 4, 3), torch.randn(12, 5, 2)
    pooled = teacher.encoder(old_inputs).mean(dim=1)
    return BlockModel(new, "blocks").freeze(), teacher, (inputs, pooled, teacher.head(pooled))


def student_of(setting, kind, seed=0):
    new, teacher, (_, pooled, logits) = setting
    return new_student(
        new,
        teacher,
        kind=kind,
        new_width=8,
        teacher_pooled=pooled,
        teacher_logits=logits,
        seed=seed,
    )


@pytest.mark.parametrize("kind", ["logits", "contrast"])
def test_student_is_a_trainable_copy(setting, kind):
    new, _, (inputs, _, _) = setting
    state = torch.get_rng_state()
    student = student_of(setting, kind)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(student.encoder(inputs), new(inputs))
    assert student(inputs).shape == (12, 3)
    assert all(p.requires_grad for p in student.encoder.parameters())
    assert student.train().encoder.module.training
    assert new.frozen
    assert not any(p.requires_grad for p in new.parameters())
    same, other = student_of(setting, kind), student_of(setting, kind, seed=1)
    assert torch.equal(same(inputs), student(inputs))
    assert not torch.equal(other(inputs), student(inputs))


def train(module, rows, steps=30):
    losses = []
    module.log = lambda *_, **__: None
    optimizer = module.configure_optimizers()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module.training_step(rows, 0)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("kind", ["logits", "contrast"])
def test_distillation_moves_the_student_alone(setting, kind):
    new, teacher, rows = setting
    student = student_of(setting, kind)
    before = [copy.deepcopy(model.state_dict()) for model in (new, teacher, student)]
    losses = train(DistillationModule(student, kind=kind, learning_rate=1e-2), rows)
    assert losses[-1] < 0.7 * losses[0]
    for model, values in zip((new, teacher), before, strict=False):
        assert all(torch.equal(v, values[name]) for name, v in model.state_dict().items())
    kept = {n for n, v in student.state_dict().items() if torch.equal(v, before[2][n])}
    # The mask vector takes no part outside of pretraining.
    expected = {"encoder.module.mask_vector"}
    if kind == "contrast":
        expected |= {"head.2.weight", "head.2.bias"}
    assert kept == expected


def test_contrast_reads_the_projection_by_the_teachers_head(setting):
    _, teacher, (inputs, pooled, _) = setting
    teacher.head.requires_grad_(True)  # the copy is frozen whatever the original is
    student = student_of(setting, "contrast")
    assert not any(p.requires_grad for p in student.head[2].parameters())
    assert student.head[2] is not teacher.head
    assert torch.equal(student.head[2].weight, teacher.head.weight)
    projected = student.head[0](student.encoder(inputs).mean(dim=1))
    norm = pooled.norm(dim=-1).mean()
    scaled = norm * projected / projected.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(student(inputs), teacher.head(scaled))


def test_distillation_losses_are_the_ones_asked_for(setting):
    _, _, rows = setting
    inputs, pooled, logits = rows
    student = student_of(setting, "logits")
    (loss, *_) = train(DistillationModule(student, temperature=3.0), rows, 1)
    fresh = student_of(setting, "logits")
    assert loss == pytest.approx(float(logits_kl(fresh(inputs), logits, 3.0).detach()))
    student, fresh = student_of(setting, "contrast"), student_of(setting, "contrast")
    (loss, *_) = train(DistillationModule(student, kind="contrast"), rows, 1)
    projected = fresh.head[0](fresh.encoder(inputs).mean(dim=1))
    expected = infonce(projected.unsqueeze(1), pooled.unsqueeze(1))
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
