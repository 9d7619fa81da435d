"""Models as blocks: layouts, the identity argument, what runs, what stays frozen."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.encoder import SignalEncoder
from bioxbridge.layouts import from_canonical, to_canonical

DEPTH = 3


def signal_encoder():
    encoder = SignalEncoder(features=5, tokens=6, width=8, depth=DEPTH, heads=2)
    return BlockModel(encoder, "blocks"), torch.randn(4, 6, 5), (4, 6, 8)


def convolutions():
    blocks = [
        nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.GELU())
        for _ in range(DEPTH)
    ]
    module = nn.Sequential(nn.Conv1d(2, 8, 3), nn.Sequential(*blocks))
    model = BlockModel(module, "1", layout="BDT")
    with torch.no_grad():
        for _ in range(3):  # running statistics that are not the initial ones
            module(1 + 2 * torch.randn(16, 2, 9))
    return model, torch.randn(4, 2, 8), (4, 6, 8)


class TimeFirst(nn.Module):
    """Batch first outside, time first between the blocks."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=False)
        self.inner = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, inputs):
        return self.inner(inputs.transpose(0, 1))


def time_first():
    return BlockModel(TimeFirst(), "inner.layers", layout="TBD"), torch.randn(4, 6, 8), (4, 6, 8)


class ByChannel(nn.Module):
    """Runs each sensor channel by itself: (B, G, T, F) to (B G, T, D)."""

    def __init__(self):
        super().__init__()
        self.encoder = SignalEncoder(features=5, tokens=2, width=8, depth=DEPTH, heads=2)

    def forward(self, inputs):
        return self.encoder(inputs.flatten(0, 1))


def by_channel():
    model = BlockModel(ByChannel(), "encoder.blocks", layout="GTD", groups=3)
    return model, torch.randn(4, 3, 2, 5), (4, 6, 8)


class Paired(nn.Module):
    """A block that needs a keyword and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden, *, scale):
        return hidden + scale * self.linear(hidden).tanh(), None


class WithKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Paired() for _ in range(DEPTH))

    def forward(self, hidden):
        for block in self.blocks:
            hidden, _ = block(hidden, scale=0.5)
        return hidden


def with_keyword():
    model = BlockModel(WithKeyword(), "blocks", block_arguments={"scale": 0.5})
    return model, torch.randn(4, 6, 8), (4, 6, 8)


MODELS = [signal_encoder, convolutions, time_first, by_channel, with_keyword]


@pytest.fixture(params=MODELS, ids=lambda make: make.__name__)
def case(request):
    torch.manual_seed(0)
    model, inputs, shape = request.param()
    return model.freeze(), inputs, shape


def count_calls(model):
    calls = [0] * model.depth
    for k, block in enumerate(model._blocks):

        def note(*_, k=k):
            calls[k] += 1

        block.register_forward_hook(note)
    return calls


def test_layouts_by_hand():
    own = torch.arange(24.0).view(2, 3, 4)
    assert to_canonical(own, "BTD") is own
    assert torch.equal(to_canonical(own, "TBD")[1, 0], own[0, 1])
    assert torch.equal(to_canonical(own, "BDT")[1, 2], own[1, :, 2])
    # Two channels of one window: the tokens of the first come before those of the second.
    assert torch.equal(to_canonical(own, "GTD", 2), own.reshape(1, 6, 4))
    four = torch.arange(8.0).view(4, 1, 2)
    assert to_canonical(four, "GTD", 2).tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@settings(max_examples=30)
@given(st.sampled_from(["BTD", "TBD", "BDT", "GTD"]), *[st.integers(1, 4)] * 4)
def test_layouts_round_trip(layout, batch, tokens, width, groups):
    hidden = torch.randn(batch, tokens * groups, width)
    own = from_canonical(hidden, layout, groups)
    assert torch.equal(to_canonical(own, layout, groups), hidden)
    expected = {
        "BTD": (batch, tokens * groups, width),
        "TBD": (tokens * groups, batch, width),
        "BDT": (batch, width, tokens * groups),
        "GTD": (batch * groups, tokens, width),
    }
    assert own.shape == expected[layout]


@pytest.mark.parametrize("layout", ["TBD", "BDT", "GTD"])
def test_layouts_do_not_depend_on_sizes(layout):
    torch.manual_seed(0)
    hidden = torch.randn(4, 4, 4)  # batch == tokens == width
    own = from_canonical(hidden, layout, 2)
    assert torch.equal(to_canonical(own, layout, 2), hidden)
    if layout != "GTD":
        assert not torch.equal(own, hidden)


def test_a_cube_of_equal_sizes_goes_through_a_model():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.Tanh()) for _ in range(2)]
    model = BlockModel(nn.Sequential(*blocks), blocks, layout="BDT").freeze()
    inputs = torch.randn(4, 4, 4)
    torch.testing.assert_close(model(inputs), model.module(inputs).transpose(1, 2))
    middle = model.hidden_states(inputs, [1])[0]
    torch.testing.assert_close(model.forward_from(middle, 1), model(inputs))


def test_identity_argument(case):
    model, inputs, shape = case
    whole = model(inputs)
    assert whole.shape == shape
    torch.testing.assert_close(
        whole, to_canonical(first(model.module(inputs)), model.layout, model.groups)
    )
    for block, hidden in enumerate(model.hidden_states(inputs)):
        assert float((model.forward_from(hidden, block) - whole).abs().max()) < 1e-5


def first(output):
    return output[0] if isinstance(output, tuple) else output


def test_identity_argument_reaches_the_logits():
    torch.manual_seed(0)
    encoder, inputs, _ = signal_encoder()
    task = TaskModel(encoder, nn.Linear(8, 3)).freeze()
    for block, hidden in enumerate(encoder.hidden_states(inputs)):
        logits = task.read_out(encoder.forward_from(hidden, block))
        assert float((logits - task(inputs)).abs().max()) < 1e-5


def test_injecting_something_else_changes_the_output(case):
    model, inputs, _ = case
    hidden = model.hidden_states(inputs, [1])[0]
    changed = model.forward_from(hidden + torch.randn_like(hidden), 1)
    assert float((changed - model(inputs)).abs().max()) > 1e-2


def test_one_pass_equals_separate_passes(case):
    model, inputs, _ = case
    order = [2, 0, 3, 1]
    together = model.hidden_states(inputs, order)
    for position, hidden in zip(order, together, strict=True):
        assert torch.equal(hidden, model.hidden_states(inputs, [position])[0])
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            model.hidden_states(inputs, [0, 1, 2, 3]), model.hidden_states(inputs), strict=True
        )
    )
    assert torch.equal(model.forward_to(inputs, 1), together[0])


def test_blocks_that_are_not_needed_do_not_run(case):
    model, inputs, _ = case
    hidden = model.hidden_states(inputs, [1])[0]
    calls = count_calls(model)
    model.forward_to(inputs, 1)
    assert calls == [1, 1, 0]
    model.hidden_states(inputs, [0])
    assert calls == [1, 1, 0]
    model.forward_from(hidden, 1)
    assert calls == [1, 2, 1]
    assert model.forward_from(hidden, DEPTH).shape == hidden.shape
    assert calls == [1, 2, 1]


def test_hooks_are_removed_even_after_an_error(case):
    model, inputs, _ = case
    model.forward_to(inputs, 0)
    with pytest.raises(Exception, match=r"shape|size|channels|dimension|mat1"):
        model.hidden_states(inputs[..., :-1].repeat_interleave(2, dim=1)[..., :1])
    for block in model._blocks:
        assert not block._forward_hooks
        assert not block._forward_pre_hooks
    model.module(inputs)  # runs to its end


def test_frozen_stays_in_evaluation_and_keeps_its_buffers():
    torch.manual_seed(0)
    model, inputs, _ = convolutions()
    assert model.train().module.training
    model.freeze()
    before = copy.deepcopy(model.state_dict())
    assert model.train() is model
    nn.Sequential(model).train()
    assert not any(module.training for module in model.modules())
    model(inputs)
    assert not any(p.requires_grad for p in model.parameters())
    after = model.state_dict()
    assert any("running_mean" in name for name in after)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_frozen_task_model_keeps_its_head_too():
    torch.manual_seed(0)
    encoder, inputs, _ = signal_encoder()
    head = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    task = TaskModel(encoder, head).freeze()
    before = copy.deepcopy(task.state_dict())
    task.train()
    assert not any(module.training for module in task.modules())
    assert torch.equal(task(inputs), task(inputs))
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())


def test_a_frozen_encoder_still_lets_its_head_train():
    encoder, _, _ = signal_encoder()
    task = TaskModel(encoder.freeze(), nn.Linear(8, 3))
    task.train()
    assert task.head.training
    assert not task.encoder.training
    assert [name for name, p in task.named_parameters() if p.requires_grad] == [
        "head.weight",
        "head.bias",
    ]


def test_gradients_pass_through_the_frozen_model(case):
    model, inputs, _ = case
    hidden = model.hidden_states(inputs, [1])[0].detach().requires_grad_()
    model.forward_from(hidden, 1).square().sum().backward()
    assert float(hidden.grad.abs().max()) > 0
    assert all(p.grad is None for p in model.parameters())


def test_copies_are_independent(case):
    model, inputs, _ = case
    whole = model(inputs)
    clone = copy.deepcopy(model)
    assert torch.equal(clone(inputs), whole)
    assert clone.frozen
    assert clone.depth == model.depth
    calls, calls_of_clone = count_calls(model), count_calls(clone)
    with torch.no_grad():
        for parameter in clone.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert float((clone(inputs) - whole).abs().max()) > 1e-3
    hidden = clone.hidden_states(inputs, [1])[0]
    torch.testing.assert_close(clone.forward_from(hidden, 1), clone(inputs))
    assert calls == [0, 0, 0]
    assert min(calls_of_clone) > 0
    assert torch.equal(model(inputs), whole)


def test_parameters_are_registered_once():
    model, _, _ = signal_encoder()
    assert sum(p.numel() for p in model.parameters()) == sum(
        p.numel() for p in model.module.parameters()
    )
    assert all(name.startswith("module.") for name in model.state_dict())


def test_bad_blocks_and_positions_are_refused():
    model, inputs, _ = signal_encoder()
    with pytest.raises(ValueError, match="SignalEncoder has no 'layers'"):
        BlockModel(model.module, "layers")
    with pytest.raises(ValueError, match="has none"):
        BlockModel(model.module, "embedding")
    with pytest.raises(ValueError, match="has none"):
        BlockModel(model.module, [])
    for position in (-1, DEPTH + 1):
        with pytest.raises(IndexError, match=rf"{position} is outside 0\.\.3"):
            model.hidden_states(inputs, [0, position])
        with pytest.raises(IndexError, match=rf"{position} is outside 0\.\.3"):
            model.forward_from(torch.zeros(4, 6, 8), position)
    with pytest.raises(IndexError):
        model.forward_to(inputs, DEPTH)


def test_a_block_that_passes_on_no_tensor_is_named():
    class Odd(nn.Module):
        def forward(self, hidden):
            return {"hidden": hidden}

    model = BlockModel(nn.Sequential(Odd()), "")
    with pytest.raises(TypeError, match="passes on dict"):
        model(torch.zeros(1, 2, 3))
