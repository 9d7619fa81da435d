"""Hidden states on disk: equal to computed ones, computed once, never taken half written."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel
from bioxbridge.cache import cached_states, data_fingerprint, model_fingerprint
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states, token_states

DEPTH = 3


def build(seed=0, heads=2):
    torch.manual_seed(seed)
    encoder = SignalEncoder(features=3, tokens=4, width=8, depth=DEPTH, heads=heads)
    return BlockModel(encoder, "blocks").freeze()


@pytest.fixture
def model():
    return build()


@pytest.fixture
def inputs():
    return torch.randn(23, 4, 3, generator=torch.Generator().manual_seed(1))


class Counter:
    """Windows that entered each block."""

    def __init__(self, model):
        self.rows = [0] * model.depth
        for k, block in enumerate(model.blocks):

            def note(_, arguments, k=k):
                self.rows[k] += len(arguments[0])

            block.register_forward_pre_hook(note)


@pytest.mark.parametrize("batch_size", [1, 10, 512])
def test_cached_states_equal_computed_ones(model, inputs, tmp_path, batch_size):
    states = cached_states(
        model, inputs, tmp_path, pooled=[2, 0], tokens=[3], batch_size=batch_size
    )
    for found, expected in zip(states.pooled, pooled_states(model, inputs, [2, 0]), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(states.tokens[0], token_states(model, inputs, [3])[0])
    assert all(torch.is_tensor(s) and s.dtype == torch.float32 for s in states.pooled)
    everything = cached_states(model, inputs, tmp_path)
    assert len(everything.pooled) == DEPTH + 1
    assert everything.tokens == []


def test_a_second_use_runs_no_model(model, inputs, tmp_path):
    counter = Counter(model)
    first = cached_states(model, inputs, tmp_path, pooled=[1], tokens=[2], batch_size=10)
    assert counter.rows == [23, 23, 0]
    again = cached_states(model, inputs, tmp_path, pooled=[1], tokens=[2])
    assert counter.rows == [23, 23, 0]
    assert torch.equal(first.tokens[0], again.tokens[0])
    # A copy of the model with the same weights is the same model.
    twin = build()
    other = Counter(twin)
    cached_states(twin, inputs.clone(), tmp_path, pooled=[1])
    assert other.rows == [0, 0, 0]
    # One more position costs its own pass alone, and what is there is left alone.
    cached_states(model, inputs, tmp_path, pooled=[1, 3], tokens=[2])
    assert counter.rows == [46, 46, 23]


def test_rows_are_read_from_the_file_and_never_written_back(model, inputs, tmp_path):
    states = cached_states(model, inputs, tmp_path, pooled=[], tokens=[3])
    (file,) = tmp_path.rglob("*.npy")
    before = file.read_bytes()
    states.tokens[0][0] = 7.0
    assert file.read_bytes() == before
    assert float(cached_states(model, inputs, tmp_path, pooled=[], tokens=[3]).tokens[0].max()) < 7


def test_half_precision_is_half_as_large(model, inputs, tmp_path):
    full = cached_states(model, inputs, tmp_path, pooled=[], tokens=[3]).tokens[0]
    half = cached_states(model, inputs, tmp_path, pooled=[], tokens=[3], precision="float16")
    assert half.tokens[0].dtype == torch.float16
    torch.testing.assert_close(half.tokens[0].float(), full, rtol=1e-3, atol=1e-3)
    sizes = {file.name: file.stat().st_size for file in tmp_path.rglob("*.npy")}
    assert sizes == {
        "tokens-003-float32.npy": 128 + 23 * 4 * 8 * 4,
        "tokens-003-float16.npy": 128 + 23 * 4 * 8 * 2,
    }


def test_other_weights_structure_or_data_are_other_entries(model, inputs, tmp_path):
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.module.positions[0, 0] += 1e-3
    buffered = copy.deepcopy(model)
    buffered.module.register_buffer("extra", torch.zeros(1))
    shorter = BlockModel(model.module, list(model.module.blocks)[:2]).freeze()
    prints = [
        model_fingerprint(m)
        for m in (model, changed, buffered, shorter, build(seed=1), build(heads=4))
    ]
    assert len(set(prints)) == 6
    assert model_fingerprint(copy.deepcopy(model)) == prints[0]
    layers = [nn.TransformerEncoderLayer(8, 2, 8, activation=a) for a in ("relu", "gelu")]
    layers[1].load_state_dict(layers[0].state_dict())
    relu, gelu = (model_fingerprint(BlockModel(nn.Sequential(x), "")) for x in layers)
    assert relu != gelu
    flat = inputs.reshape(23, 3, 4)
    other = inputs.clone()
    other[22, 3, 2] += 1e-6
    data = [data_fingerprint(x) for x in (inputs, flat, other, inputs[:22], inputs.double())]
    assert len(set(data)) == 5
    assert data_fingerprint(inputs.clone()) == data[0]


def test_a_pass_that_breaks_leaves_nothing_to_be_taken(model, inputs, tmp_path):
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the power went")

    handle = model.blocks[0].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="the power went"):
        cached_states(model, inputs, tmp_path, pooled=[1, 2], batch_size=10)
    handle.remove()
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    states = cached_states(model, inputs, tmp_path, pooled=[1, 2])
    torch.testing.assert_close(states.pooled[0], pooled_states(model, inputs, [1])[0])


def test_what_a_killed_pass_left_is_not_used(model, inputs, tmp_path):
    cached_states(model, inputs, tmp_path, pooled=[1])
    (file,) = tmp_path.rglob("*.npy")
    # As a process leaves it that is killed while it writes: the other name, half the rows.
    left = file.with_suffix(".1.part")
    left.write_bytes(file.read_bytes()[:300])
    file.unlink()
    counter = Counter(model)
    states = cached_states(model, inputs, tmp_path, pooled=[1])
    assert counter.rows[0] == 23
    torch.testing.assert_close(states.pooled[0], pooled_states(model, inputs, [1])[0])


def test_memory_mapped_inputs_are_taken(model, inputs, tmp_path):
    np.save(tmp_path / "inputs.npy", inputs.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "inputs.npy", mmap_mode="c"))
    states = cached_states(model, mapped, tmp_path / "cache", pooled=[3])
    torch.testing.assert_close(states.pooled[0], pooled_states(model, inputs, [3])[0])


def test_a_bridge_trains_from_the_cache_without_its_models(model, inputs, tmp_path):
    from bioxbridge.adapters import TaskModel
    from bioxbridge.bridge import PrototypeBridge
    from bioxbridge.bridged import BridgedModel
    from bioxbridge.losses import cosine

    old = TaskModel(build(seed=5), nn.Linear(8, 2))
    new_states = cached_states(model, inputs, tmp_path, pooled=[2])
    old_states = cached_states(
        old.encoder, inputs, tmp_path, pooled=[], tokens=[DEPTH], precision="float16"
    )
    new_counter, old_counter = Counter(model), Counter(old.encoder)
    bridge = PrototypeBridge(input_width=8, tokens=4, output_width=8, rank=2, prototypes=5)
    bridged = BridgedModel(new=model, old=old, bridge=bridge, new_block=1, old_block=2)
    optimizer = torch.optim.Adam(bridge.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        target = old_states.tokens[0].float()
        loss = cosine(bridged.last_hidden(new_states.pooled[0]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert new_counter.rows == [0, 0, 0]
    assert old_counter.rows == [0, 0, 30 * 23]


def test_what_cannot_be_cached(model, inputs, tmp_path):
    with pytest.raises(ValueError, match="inputs: no windows"):
        cached_states(model, inputs[:0], tmp_path)
    with pytest.raises(IndexError, match=r"position 4 is outside 0\.\.3"):
        cached_states(model, inputs, tmp_path, pooled=[4])
    free = build()
    free.frozen = False
    with pytest.raises(ValueError, match="model: is in training mode"):
        cached_states(free.train(), inputs, tmp_path)
    large = inputs.clone()
    large[11] = 1e8
    with pytest.raises(
        ValueError, match="tokens state at position 0: window 11 is not finite in float16"
    ):
        cached_states(model, large, tmp_path, pooled=[], tokens=[0], precision="float16")
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_damaged_file_says_what_to_do(model, inputs, tmp_path):
    cached_states(model, inputs, tmp_path, pooled=[1])
    (file,) = tmp_path.rglob("*.npy")
    file.write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"\.npy: is damaged; remove it and it is computed again"):
        cached_states(model, inputs, tmp_path, pooled=[1])
