"""The task model: the best mode on other subjects stays, and what of it was trained is counted."""

import pytest
import torch

from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states
from bioxbridge.frozen import frozen_encoder
from bioxbridge.task import TaskOptions, load_task_model, save_task_model, train_task_model
from papers_shared.progress import stage_trainer

WIDTH, DEPTH, CLASSES = 8, 2, 2
# Linear layers of one block: 8 to 24, 8 to 8, 8 to 16, 16 to 8; rank 2.
LORA = DEPTH * 2 * ((8 + 24) + (8 + 8) + (8 + 16) + (16 + 8))


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return SignalEncoder(features=3, tokens=4, width=WIDTH, depth=DEPTH, heads=2)


@pytest.fixture
def windows():
    torch.manual_seed(1)
    labels = torch.arange(60) % 2
    return torch.randn(60, 4, 3) + 2.0 * labels[:, None, None], labels


def fit(encoder, windows, **options):
    budget = {"probe_epochs": 40, "tune_epochs": 40, "lora_rank": 2}
    budget |= {"probe_learning_rate": 0.1, "tune_learning_rate": 1e-2}
    return train_task_model(
        encoder,
        windows,
        windows,
        TaskOptions(**(budget | options)),
        classes=CLASSES,
        stage="task",
        seed=0,
        new_trainer=stage_trainer,
    )


@pytest.mark.parametrize(
    ("mode", "parameters"),
    [("probe", WIDTH * CLASSES + CLASSES), ("lora", LORA + WIDTH * CLASSES + CLASSES)],
)
def test_a_mode_trains_what_it_says(encoder, windows, mode, parameters):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    fitted = fit(encoder, windows, modes=(mode,))
    assert (fitted.mode, fitted.parameters) == (mode, parameters)
    assert fitted.scores[mode] > 90
    assert all(torch.equal(value, before[n]) for n, value in encoder.state_dict().items())
    assert not any(p.requires_grad for p in fitted.model.parameters())
    # Low-rank terms are merged: the weights have their own names again.
    assert fitted.model.encoder.module.state_dict().keys() == before.keys()


def test_a_probe_leaves_the_encoder_and_tuning_does_not(encoder, windows):
    inputs, _ = windows
    states = {
        mode: pooled_states(fit(encoder, windows, modes=(mode,)).model.encoder, inputs, [DEPTH])[0]
        for mode in ("probe", "tune", "lora")
    }
    (untouched,) = pooled_states(frozen_encoder(encoder), inputs, [DEPTH])
    assert torch.equal(states["probe"], untouched)
    for mode in ("tune", "lora"):
        assert not torch.allclose(states[mode], untouched, atol=1e-3)


def test_the_best_mode_stays(encoder, windows):
    fitted = fit(encoder, windows, modes=("probe", "tune", "lora"))
    assert set(fitted.scores) == {"probe", "tune", "lora"}
    assert fitted.scores[fitted.mode] == max(fitted.scores.values())


def test_a_task_model_survives_its_folder(encoder, windows, tmp_path):
    fitted = fit(encoder, windows, modes=("lora",))
    save_task_model(fitted.model, tmp_path)
    inputs, _ = windows
    assert torch.equal(load_task_model(tmp_path)(inputs), fitted.model(inputs))


def test_labels_are_needed(encoder, windows):
    inputs, labels = windows
    with pytest.raises(ValueError, match="no window of this split is labelled"):
        fit(encoder, (inputs, torch.full_like(labels, -1)))
