"""LoRA: what is trained and how much of it, where it starts, merging back."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import new_student
from bioxbridge.encoder import SignalEncoder
from bioxbridge.foundation import hubert_ecg
from bioxbridge.frozen import FrozenFeatures, Transfer
from bioxbridge.lora import add_lora, merge_lora
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs
from papers_shared.measure import count_parameters

SMALL_HUBERT = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "conv_dim": (4,) * 5,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 8,
}


def signal_encoder():
    torch.manual_seed(0)
    encoder = SignalEncoder(features=3, tokens=4, width=8, depth=2, heads=2)
    return BlockModel(encoder, "blocks"), torch.randn(6, 4, 3)


def hubert():
    torch.manual_seed(0)
    return hubert_ecg("S", **SMALL_HUBERT), torch.randn(6, 700)


def bare_linear_blocks():
    torch.manual_seed(0)
    layers = [nn.Linear(8, 8) for _ in range(2)]
    return BlockModel(nn.Sequential(*layers), layers), torch.randn(6, 4, 8)


# Trainable parameters by hand at rank 2, two blocks of width 8 and feed-forward width 16.
CASES = {
    # 8 to 24, 8 to 8, 8 to 16 and 16 to 8.
    "signal": (signal_encoder, 2 * 2 * ((8 + 24) + (8 + 8) + (8 + 16) + (16 + 8))),
    # Four maps of attention 8 to 8, 8 to 16 and 16 to 8.
    "hubert": (hubert, 2 * 2 * (4 * (8 + 8) + (8 + 16) + (16 + 8))),
    "linear": (bare_linear_blocks, 2 * 2 * (8 + 8)),
}


@pytest.fixture(params=CASES)
def case(request):
    make, count = CASES[request.param]
    model, inputs = make()
    return model.freeze(), inputs, count


def train_a_little(model, inputs):
    torch.manual_seed(1)
    task = TaskModel(model, nn.Linear(8, 2))
    labels = torch.arange(len(inputs)) % 2
    optimizer = torch.optim.Adam([p for p in task.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(task(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_only_the_added_terms_are_trained(case):
    model, inputs, count = case
    start = model(inputs)
    weights = {n: v.clone() for n, v in model.module.state_dict().items()}
    assert add_lora(model, rank=2) is model
    assert count_parameters(model, trainable=True) == count
    assert all("lora_" in n for n, p in model.named_parameters() if p.requires_grad)
    assert torch.equal(model.eval()(inputs), start)
    losses = train_a_little(model, inputs)
    assert losses[-1] < losses[0]
    after = {
        n.replace(".base_layer", ""): v
        for n, v in model.module.state_dict().items()
        if "lora_" not in n
    }
    assert after.keys() == weights.keys()
    assert all(torch.equal(after[n], v) for n, v in weights.items())


def test_merging_gives_the_same_outputs_and_the_old_names(case):
    model, inputs, _ = case
    names = list(model.module.state_dict())
    plain = model(inputs)
    add_lora(model, rank=2)
    train_a_little(model, inputs)
    adapted = model.eval()(inputs).detach()
    assert float((adapted - plain).abs().max()) > 1e-3
    assert merge_lora(model) is model
    assert list(model.module.state_dict()) == names
    torch.testing.assert_close(model(inputs).detach(), adapted, rtol=1e-4, atol=1e-5)
    states = [state.detach() for state in model.hidden_states(inputs)]
    for block, state in enumerate(states):
        torch.testing.assert_close(model.forward_from(state, block), model(inputs))
    add_lora(model, rank=1)  # and once more
    assert count_parameters(model, trainable=True) > 0


def test_named_layers_alone():
    model, inputs = hubert()
    add_lora(model, rank=3, layers=["q_proj", "v_proj"])
    assert count_parameters(model, trainable=True) == 2 * 2 * 3 * (8 + 8)
    adapted = {
        n.split(".lora_")[0].rpartition(".")[2]
        for n, p in model.named_parameters()
        if p.requires_grad
    }
    assert adapted == {"q_proj", "v_proj"}
    assert model(inputs).shape[-1] == 8


def test_the_added_term_by_hand():
    model, inputs = bare_linear_blocks()
    add_lora(model, rank=2, alpha=3.0)
    layer = model.blocks[0]
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        up.normal_()
    expected = layer.base_layer(inputs) + 1.5 * inputs @ down.T @ up.T
    torch.testing.assert_close(model.forward_to(inputs, 0), expected)


def test_the_seed_decides_the_start_and_touches_nothing_else():
    first, second, other = (
        add_lora(bare_linear_blocks()[0], rank=2, seed=seed).blocks[0].lora_A["default"].weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    state = torch.random.get_rng_state()
    model, _ = bare_linear_blocks()
    torch.random.set_rng_state(state)
    add_lora(model, rank=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_student_of_low_rank():
    """Distillation's student, adapted: the head and the added terms learn, the copy does not."""
    new, inputs = hubert()
    encoder, old_inputs = signal_encoder()
    old = TaskModel(encoder, nn.Linear(8, 3)).freeze()
    pairs = Pairs(
        torch.randn(6, *old_inputs.shape[1:]), inputs, torch.zeros(6, dtype=int), np.zeros(6)
    )
    features = FrozenFeatures.of(pairs, new=new.freeze(), old=old)
    positions = Positions(new_block=0, old_block=0, probe_scores=[0.0], cka_scores=[0.0])
    transfer = Transfer(
        new=new,
        old=old,
        pairs={"pair": pairs},
        features={"pair": features},
        positions=positions,
    )
    student = new_student("logits", transfer, seed=0)
    add_lora(student.encoder, rank=2)
    assert count_parameters(student, trainable=True) == CASES["hubert"][1] + 8 * 3 + 3
    assert student(inputs).shape == (6, 3)
    assert not any("lora_" in name for name in new.state_dict())
    clone = copy.deepcopy(student)
    assert torch.equal(clone.eval()(inputs), student.eval()(inputs))


def test_attention_of_torch_is_adapted_where_it_is_called():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = BlockModel(nn.Sequential(layer), [layer])
    add_lora(model, rank=2)
    assert count_parameters(model, trainable=True) == 2 * ((8 + 16) + (16 + 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank: 0 is below 1"),
        ({"dropout": 1.0}, r"dropout: 1\.0 is outside \[0, 1\)"),
        ({"layers": ["q_proj"]}, "no linear layer is named 'q_proj'; there are contract, expand"),
    ],
)
def test_bad_options_are_refused(options, message):
    model, _ = signal_encoder()
    with pytest.raises(ValueError, match=message):
        add_lora(model, **options)


def test_models_that_cannot_be_adapted_or_merged():
    model, _ = signal_encoder()
    with pytest.raises(ValueError, match="SignalEncoder has no LoRA layers to merge"):
        merge_lora(model)
    add_lora(model)
    with pytest.raises(ValueError, match="SignalEncoder has LoRA layers already"):
        add_lora(model)
    blocks = [nn.Conv1d(2, 2, 1)]
    with pytest.raises(ValueError, match="Sequential has no linear ones in blocks"):
        add_lora(BlockModel(nn.Sequential(*blocks), blocks, layout="BDT"))
