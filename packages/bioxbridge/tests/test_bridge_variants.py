"""The ablated bridges: sizes, values, gradients, and a round trip through a folder."""

import pytest
import torch

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.bridge_variants import (
    BRIDGES,
    FullRankBridge,
    LowRankBridge,
    MLPBridge,
    bridge_kind,
)
from bioxbridge.bridged import BridgedModel
from bioxbridge.module import BridgeModule
from bioxbridge.selection import Positions

SIZES = {"input_width": 6, "tokens": 3, "output_width": 4}


@pytest.mark.parametrize(
    ("bridge", "count"),
    [
        (FullRankBridge(**SIZES), 6 * 3 * 4),
        (LowRankBridge(**SIZES, rank=2), 2 * (6 + 3 * 4)),
        (MLPBridge(**SIZES, hidden=5), 5 * (6 + 3 * 4)),
    ],
)
def test_sizes_start_and_gradients(bridge, count):
    assert sum(p.numel() for p in bridge.parameters()) == count
    pooled = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    hidden = bridge(pooled)
    assert hidden.shape == (7, 3, 4)
    assert torch.equal(hidden, torch.zeros(7, 3, 4))
    optimizer = torch.optim.Adam(bridge.parameters(), lr=0.05)
    target = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (bridge(pooled[:1]) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.05 * losses[0]


def test_values_by_hand():
    full = FullRankBridge(input_width=2, tokens=2, output_width=1)
    low = LowRankBridge(input_width=2, tokens=2, output_width=1, rank=1)
    with torch.no_grad():
        full.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        low.down.copy_(torch.tensor([[1.0], [2.0]]))
        low.up.copy_(torch.tensor([[3.0, -1.0]]))
    pooled = torch.tensor([[1.0, 10.0]])
    assert full(pooled).flatten().tolist() == [31.0, 42.0]
    assert low(pooled).flatten().tolist() == [63.0, -21.0]


def models():
    torch.manual_seed(0)
    new = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(2)])
    old = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(2)])
    return BlockModel(new, list(new)), TaskModel(BlockModel(old, list(old)), torch.nn.Linear(4, 3))


@pytest.mark.parametrize("kind", list(BRIDGES))
def test_every_kind_connects_saves_and_loads(kind, tmp_path):
    new, old = models()
    generator = torch.Generator().manual_seed(0)
    module = BridgeModule(bridge=kind, rank=2, hidden=5, prototypes=4).connect(
        new=new,
        old=old,
        positions=Positions(
            new_block=1, old_block=1, probe_scores=[0.0, 1.0], cka_scores=[0.0, 1.0]
        ),
        new_pooled=torch.randn(9, 6, generator=generator),
        old_hidden=torch.randn(9, 3, 4, generator=generator),
    )
    bridged = module.bridged
    assert bridge_kind(bridged.bridge) == kind
    with torch.no_grad():
        for parameter in bridged.bridge.parameters():
            parameter.add_(0.1)
    bridged.save_pretrained(tmp_path)
    again = BridgedModel.from_pretrained(tmp_path, new=new, old=old)
    inputs = torch.randn(5, 7, 6, generator=generator)
    assert torch.equal(again(inputs), bridged(inputs))


def test_an_unknown_kind_in_a_folder_is_refused(tmp_path):
    text = '{"kind": "bioxbridge.BridgedModel", "bridge": {"kind": "rope"}}'
    (tmp_path / "config.json").write_text(text)
    new, old = models()
    with pytest.raises(ValueError, match="bridge of kind 'rope', not one of prototype"):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)
