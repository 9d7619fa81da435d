"""The bridged model: what runs, what learns, and its folder."""

import json

import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.bridge import PrototypeBridge
from bioxbridge.bridged import BridgedModel
from bioxbridge.encoder import SignalEncoder

NEW_BLOCK, OLD_BLOCK = 1, 2


def models(old_depth=4, new_depth=3):
    torch.manual_seed(0)
    new = SignalEncoder(features=2, tokens=5, width=6, depth=new_depth, heads=2)
    old = SignalEncoder(features=3, tokens=4, width=8, depth=old_depth, heads=2)
    return BlockModel(new, "blocks"), TaskModel(BlockModel(old, "blocks"), nn.Linear(8, 3))


@pytest.fixture
def bridged():
    new, old = models()
    bridge = PrototypeBridge(
        input_width=6, tokens=4, output_width=8, rank=2, prototypes=5, output_init="small"
    )
    return BridgedModel(new=new, old=old, bridge=bridge, new_block=NEW_BLOCK, old_block=OLD_BLOCK)


@pytest.fixture
def inputs():
    return torch.randn(7, 5, 2, generator=torch.Generator().manual_seed(1))


def test_new_signal_is_enough_and_no_other_block_runs(bridged, inputs):
    calls = {}
    for side, model in (("new", bridged.new), ("old", bridged.old.encoder)):
        for k, block in enumerate(model.module.blocks):
            calls[side, k] = 0

            def note(*_, key=(side, k)):
                calls[key] += 1

            block.register_forward_pre_hook(note)
    assert bridged(inputs).shape == (7, 3)
    ran = {key for key, count in calls.items() if count}
    assert ran == {("new", 0), ("new", 1), ("old", 2), ("old", 3)}
    assert all(calls[key] == 1 for key in ran)


def test_the_old_embedding_does_not_run(bridged, inputs):
    def refuse(*_):
        raise AssertionError

    bridged.old.encoder.module.embedding.register_forward_pre_hook(refuse)
    assert bridged(inputs).shape == (7, 3)


def test_forward_is_the_composition_of_its_parts(bridged, inputs):
    hidden = bridged.new.module.embedding(inputs) + bridged.new.module.positions
    for block in bridged.new.module.blocks[: NEW_BLOCK + 1]:
        hidden = block(hidden)
    state = bridged.bridge(hidden.mean(dim=1))
    for block in bridged.old.encoder.module.blocks[OLD_BLOCK:]:
        state = block(state)
    torch.testing.assert_close(bridged(inputs), bridged.old.head(state.mean(dim=1)))
    torch.testing.assert_close(bridged.last_hidden(bridged.pool(inputs)), state)


def test_gradients_reach_the_bridge_alone(bridged, inputs):
    bridged.train()
    bridged(inputs).square().sum().backward()
    with_gradient = {n for n, p in bridged.named_parameters() if p.grad is not None}
    assert with_gradient == {"bridge.down", "bridge.up", "bridge.prototypes"}
    assert all(float(p.grad.abs().max()) > 0 for p in bridged.bridge.parameters())
    assert not bridged.new.training
    assert not bridged.old.encoder.training


def test_folder_round_trip(bridged, inputs, tmp_path):
    bridged.save_pretrained(tmp_path / "deep" / "bridge")
    new, old = models()
    again = BridgedModel.from_pretrained(tmp_path / "deep" / "bridge", new=new, old=old)
    assert (again.new_block, again.old_block) == (NEW_BLOCK, OLD_BLOCK)
    assert torch.equal(again(inputs), bridged(inputs))
    assert {p.name for p in (tmp_path / "deep" / "bridge").iterdir()} == {
        "bridge.safetensors",
        "config.json",
    }


def test_other_weights_of_the_same_shape_are_refused(bridged, tmp_path):
    bridged.save_pretrained(tmp_path)
    new, old = models()
    with torch.no_grad():
        old.head.bias += 1
    with pytest.raises(ValueError, match="was trained between other weights of the two models"):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)


def test_another_kind_of_folder_is_refused(bridged, tmp_path):
    new, old = models()
    new.module.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is of no bioxbridge.BridgedModel"):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)
    with pytest.raises(FileNotFoundError):
        BridgedModel.from_pretrained(tmp_path / "nothing", new=new, old=old)


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        ({"old_depth": 1}, r"old_block: 2 is outside 0\.\.0"),
        ({"old_depth": 2}, r"old_block: 2 is outside 0\.\.1; 2 is the head's input, .* not 4"),
        ({"new_depth": 1}, "new_block: 1 is outside"),
    ],
)
def test_models_without_such_a_block_are_refused(bridged, tmp_path, depths, message):
    bridged.save_pretrained(tmp_path)
    new, old = models(**depths)
    with pytest.raises(ValueError, match=message):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)


def test_a_size_below_one_in_the_folder_is_refused(bridged, tmp_path):
    bridged.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["bridge"]["rank"] = 0
    file.write_text(json.dumps(config))
    new, old = models()
    with pytest.raises(ValueError, match="rank: 0 is below 1"):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)


def test_a_bridge_of_one_token_may_write_what_the_head_reads(inputs, tmp_path):
    new, old = models()
    bridge = PrototypeBridge(
        input_width=6, tokens=1, output_width=8, rank=2, prototypes=5, output_init="small"
    )
    bridged = BridgedModel(new=new, old=old, bridge=bridge, new_block=NEW_BLOCK, old_block=4)
    for block in old.encoder.blocks:
        block.register_forward_pre_hook(lambda *_: pytest.fail("an old block ran"))
    pooled = bridged.pool(inputs)
    torch.testing.assert_close(bridged(inputs), old.head(bridge(pooled)[:, 0]))
    bridged.save_pretrained(tmp_path)
    again = BridgedModel.from_pretrained(tmp_path, new=new, old=old)
    assert torch.equal(again(inputs), bridged(inputs))
    with pytest.raises(ValueError, match="old_block: 5 is outside"):
        BridgedModel(new=new, old=old, bridge=bridge, new_block=0, old_block=5)
