"""The rivals: a probe on pseudo labels, and students that the old model teaches."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationModule, Rescale, new_student
from bioxbridge.baselines.probe import PseudoLabelProbe
from bioxbridge.baselines.training import BaselineOptions, train_baseline
from bioxbridge.baselines.translation import TranslatedModel, TranslationModule, Translator
from bioxbridge.encoder import SignalEncoder
from bioxbridge.frozen import FrozenFeatures, Transfer
from bioxbridge.losses import cosine, infonce, logits_kl
from bioxbridge.module import predict
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs
from papers_shared.measure import count_parameters
from papers_shared.progress import stage_trainer


def clusters(classes):
    labels = np.arange(90) % classes
    features = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    features[torch.arange(90), torch.as_tensor(labels)] += 8
    return features, labels


def new_model():
    """One block that changes nothing, so that its pooled output is the mean of the inputs."""
    module = nn.Sequential(nn.Identity())
    return BlockModel(module, list(module)).freeze()


def fitted(features, labels, classes, **options):
    return PseudoLabelProbe(new_model(), 0, **options).fit(features, labels, classes)


def predicted(probe, features):
    return predict(probe, features.unsqueeze(1))


@pytest.mark.parametrize(("classes", "parameters"), [(2, 4 + 1), (3, 3 * 4 + 3)])
def test_probe_learns_and_counts_its_parameters(classes, parameters):
    features, labels = clusters(classes)
    probe = fitted(features, labels, classes)
    assert np.array_equal(predicted(probe, features), labels)
    assert count_parameters(probe, trainable=True) == parameters
    # Standardised: units do not matter.
    rescaled = 1000 * features + 5
    assert np.array_equal(predicted(fitted(rescaled, labels, classes), rescaled), labels)


@pytest.mark.parametrize("classes", [2, 3])
def test_probe_is_scikit_learns(classes):
    features, labels = clusters(classes)
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    reference.fit(features.numpy(), labels)
    probe = fitted(features, labels, classes)
    probabilities = probe.read_out(features).softmax(dim=-1).detach().numpy()
    np.testing.assert_allclose(probabilities, reference.predict_proba(features), atol=1e-5)


def test_a_class_that_was_never_taught_is_never_predicted():
    features, labels = clusters(2)
    probe = fitted(features, 2 * labels, 4)
    assert set(predicted(probe, features)) == {0, 2}
    assert probe(features.unsqueeze(1)).shape == (90, 4)


def test_probe_is_regularised():
    features, labels = clusters(2)
    sizes = [
        float(fitted(features, labels, 2, regularisation=c).linear.weight.detach().abs().sum())
        for c in (1e-3, 0.1, 10.0)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.5 * sizes[2]


def test_probe_refuses_one_class():
    features, _ = clusters(2)
    with pytest.raises(ValueError, match="the task model predicts one class only"):
        fitted(features, np.ones(90, int), 2)


def test_rescale_by_hand():
    rescaled = Rescale(10.0)(torch.tensor([[3.0, 4.0], [0.0, -0.5], [0.0, 0.0]]))
    torch.testing.assert_close(rescaled, torch.tensor([[6.0, 8.0], [0.0, -10.0], [0.0, 0.0]]))
    assert not list(Rescale(1.0).parameters())


@pytest.fixture
def transfer():
    torch.manual_seed(0)
    new = BlockModel(SignalEncoder(features=3, tokens=4, width=8, depth=2, heads=2), "blocks")
    old = BlockModel(SignalEncoder(features=2, tokens=5, width=6, depth=2, heads=2), "blocks")
    teacher = TaskModel(old, nn.Linear(6, 3)).freeze()
    pairs = Pairs(
        torch.randn(12, 5, 2), torch.randn(12, 4, 3), torch.zeros(12, dtype=int), np.zeros(12)
    )
    features = FrozenFeatures.of(pairs, new=new.freeze(), old=teacher)
    # A teacher that knows three classes, whatever its random weights say.
    features.logits = 3.0 * F.one_hot(torch.arange(12) % 3).float()
    return Transfer(
        new=new,
        old=teacher,
        pairs={"pair": pairs, "val": pairs},
        features={"pair": features, "val": features},
        positions=Positions(
            new_block=1, old_block=0, probe_scores=[0.1, 0.2], cka_scores=[0.2, 0.1]
        ),
    )


def rows_of(transfer):
    features = transfer.features["pair"]
    return transfer.pairs["pair"].new, features.last_pooled, features.logits


@pytest.mark.parametrize("kind", ["logits", "feature", "contrast"])
def test_student_is_a_trainable_copy(transfer, kind):
    new, inputs = transfer.new, transfer.pairs["pair"].new
    state = torch.get_rng_state()
    student = new_student(kind, transfer, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(student.encoder(inputs), new(inputs))
    assert student(inputs).shape == (12, 3)
    assert all(p.requires_grad for p in student.encoder.parameters())
    assert student.train().encoder.module.training
    assert new.frozen
    assert not any(p.requires_grad for p in new.parameters())
    same, other = new_student(kind, transfer, seed=0), new_student(kind, transfer, seed=1)
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


@pytest.mark.parametrize("kind", ["logits", "feature", "contrast"])
def test_distillation_moves_the_student_alone(transfer, kind):
    new, teacher, rows = transfer.new, transfer.old, rows_of(transfer)
    student = new_student(kind, transfer, seed=0)
    before = [copy.deepcopy(model.state_dict()) for model in (new, teacher, student)]
    losses = train(DistillationModule(student, kind=kind, learning_rate=1e-2), rows)
    assert losses[-1] < 0.7 * losses[0]
    for model, values in zip((new, teacher), before, strict=False):
        assert all(torch.equal(v, values[name]) for name, v in model.state_dict().items())
    kept = {n for n, v in student.state_dict().items() if torch.equal(v, before[2][n])}
    # The mask vector takes no part outside of pretraining.
    expected = {"encoder.module.mask_vector"}
    if kind != "logits":
        expected |= {"head.2.weight", "head.2.bias"}
    assert kept == expected


def test_contrast_reads_the_projection_by_the_teachers_head(transfer):
    teacher, (inputs, pooled, _) = transfer.old, rows_of(transfer)
    teacher.head.requires_grad_(True)  # the copy is frozen whatever the original is
    student = new_student("contrast", transfer, seed=0)
    assert not any(p.requires_grad for p in student.head[2].parameters())
    assert student.head[2] is not teacher.head
    assert torch.equal(student.head[2].weight, teacher.head.weight)
    projected = student.head[0](student.encoder(inputs).mean(dim=1))
    norm = pooled.norm(dim=-1).mean()
    scaled = norm * projected / projected.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(student(inputs), teacher.head(scaled))


def test_distillation_losses_are_the_ones_asked_for(transfer):
    rows = rows_of(transfer)
    inputs, pooled, logits = rows
    student = new_student("logits", transfer, seed=0)
    (loss, *_) = train(DistillationModule(student, temperature=3.0), rows, 1)
    fresh = new_student("logits", transfer, seed=0)
    assert loss == pytest.approx(float(logits_kl(fresh(inputs), logits, 3.0).detach()))
    for kind, match in (("contrast", infonce), ("feature", cosine)):
        student, fresh = (new_student(kind, transfer, seed=0) for _ in range(2))
        (loss, *_) = train(DistillationModule(student, kind=kind), rows, 1)
        projected = fresh.head[0](fresh.encoder(inputs).mean(dim=1))
        expected = match(projected.unsqueeze(1), pooled.unsqueeze(1))
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_translator_writes_the_old_inputs(transfer):
    pairs = transfer.pairs["pair"]
    translator = Translator(features=3, out_features=2, out_tokens=5, hidden=16)
    assert translator(pairs.new).shape == pairs.old.shape
    model = TranslatedModel(translator, transfer.old)
    assert torch.equal(model(pairs.new), transfer.old(translator(pairs.new)))
    before = copy.deepcopy(transfer.old.state_dict())
    module = TranslationModule(model, learning_rate=1e-2)
    logits = transfer.features["pair"].logits
    losses = train(module, (pairs.new, pairs.old, logits), 60)
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(v, before[name]) for name, v in transfer.old.state_dict().items())
    # Convolutions 3 -> 16, 16 -> 16 and 16 -> 2 of three taps, with biases.
    assert count_parameters(translator) == 160 + 784 + 98


@pytest.mark.parametrize("arm", ["probe", "logits", "feature", "contrast", "lora", "translation"])
def test_every_baseline_is_a_model_of_new_inputs(transfer, arm):
    options = BaselineOptions(epochs=1)
    trained = [
        train_baseline(arm, transfer, options, stage=arm, seed=3, new_trainer=stage_trainer)
        for _ in range(2)
    ]
    inputs = transfer.pairs["pair"].new
    logits = [model(inputs) for model in trained]
    assert logits[0].shape == (12, 3)
    assert torch.equal(*logits)
    assert not any(module.training for module in trained[0].modules())


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("learning_rate", 0.0), ("batch_size", -1), ("lora_rank", 0)]
)
def test_a_budget_is_above_zero(name, value):
    with pytest.raises(ValueError, match=rf"baselines\.{name}: {value} is not above zero"):
        BaselineOptions(**{name: value})
