"""The ablated bridges: sizes, values, gradients, and a round trip through a folder."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.bridge import initialise_prototypes
from bioxbridge.bridge_variants import (
    BRIDGES,
    FullRankBridge,
    LowRankBridge,
    MLPBridge,
    PerTokenBridge,
    bridge_kind,
    resample_tokens,
)
from bioxbridge.bridged import BridgedModel
from bioxbridge.losses import cosine
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


@pytest.mark.parametrize("kind", [k for k, bridge in BRIDGES.items() if bridge.reads == "pooled"])
def test_every_kind_connects_saves_and_loads(kind, tmp_path):
    new, old = models()
    generator = torch.Generator().manual_seed(0)
    module = BridgeModule(bridge=kind, rank=2, hidden=5, prototypes=4).connect(
        new=new,
        old=old,
        positions=Positions(
            new_block=1, old_block=1, probe_scores=[0.0, 1.0], cka_scores=[0.0, 1.0]
        ),
        read=torch.randn(9, 6, generator=generator),
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
    places = {"new_block": 0, "old_block": 0, "frozen": ""}
    config = {"kind": "bioxbridge.BridgedModel", "bridge": {"kind": "rope"}, **places}
    (tmp_path / "config.json").write_text(json.dumps(config))
    new, old = models()
    with pytest.raises(ValueError, match="bridge of kind 'rope', not one of prototype"):
        BridgedModel.from_pretrained(tmp_path, new=new, old=old)


def per_token(**options):
    sizes = {"input_width": 6, "tokens": 3, "output_width": 4, "rank": 2, "prototypes": 5}
    return PerTokenBridge(**(sizes | options))


def test_per_token_size_does_not_depend_on_the_tokens():
    for tokens in (3, 300):
        bridge = per_token(tokens=tokens)
        assert sum(p.numel() for p in bridge.parameters()) == 6 * 2 + 2 * 5 + 5 * 4
        assert bridge(torch.randn(7, 11, 6)).shape == (7, tokens, 4)
    # The count that the variant has in the default setting: 48 wide, rank 16, 50 prototypes.
    bridge = PerTokenBridge(input_width=48, tokens=7, output_width=48)
    assert sum(p.numel() for p in bridge.parameters()) == 3968


def test_per_token_by_hand():
    bridge = PerTokenBridge(input_width=2, tokens=2, output_width=2, rank=1, prototypes=2)
    with torch.no_grad():
        bridge.down.copy_(torch.tensor([[1.0], [2.0]]))
        bridge.up.copy_(torch.tensor([[1.0, -1.0]]))
        bridge.prototypes.copy_(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    # h A is 3 and 1: weights (3, -3) and (1, -1).
    tokens = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]])
    assert bridge(tokens).tolist() == [[[3.0, -9.0], [1.0, -3.0]]]
    # Four tokens to two: each moment lies in the middle of two.
    four = torch.tensor([[[1.0, 1.0], [3.0, 1.0], [1.0, 0.0], [3.0, 0.0]]])
    assert bridge(four).tolist() == [[[4.0, -12.0], [2.0, -6.0]]]


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9))
def test_resampled_tokens_equal_numpy_interpolation(count, wanted):
    tokens = torch.randn(2, count, 3, generator=torch.Generator().manual_seed(count))
    at = (np.arange(wanted) + 0.5) / wanted * count - 0.5
    for row, expected in zip(resample_tokens(tokens, wanted), tokens, strict=True):
        for column in range(3):
            reference = np.interp(at, np.arange(count), expected[:, column].numpy())
            assert row[:, column].numpy() == pytest.approx(reference, abs=1e-5)


def test_segments_average_where_interpolation_passes_over():
    tokens = torch.zeros(1, 12, 6)
    tokens[0, 0] = 12.0  # an event that no third of the window has at its middle
    plain, averaged = per_token(output_init="small"), per_token(output_init="small", segments=3)
    averaged.load_state_dict(plain.state_dict())
    assert not plain(tokens).any()
    torch.testing.assert_close(averaged(tokens)[0, 0], plain(torch.full((1, 1, 6), 3.0))[0, 0])
    assert not averaged(tokens)[0, 1:].any()


def test_per_token_follows_time():
    """What changes in the second half of the signal changes the second half alone."""
    bridge = per_token(tokens=8, output_init="small")
    tokens = torch.randn(1, 16, 6)
    changed = tokens.clone()
    changed[:, 8:] += 1
    difference = (bridge(changed) - bridge(tokens)).detach().abs().amax(dim=(0, 2))
    assert float(difference[:4].max()) == 0
    assert float(difference[4:].min()) > 0


def test_per_token_statistics_and_prototypes():
    bridge = per_token(standardise_input=True, mean_output=True)
    tokens, hidden = 5 + 2 * torch.randn(20, 7, 6), 1 + torch.randn(20, 3, 4)
    bridge.calibrate(tokens, hidden)
    torch.testing.assert_close(bridge.input_mean, tokens.mean(dim=(0, 1)))
    torch.testing.assert_close(bridge.input_scale, tokens.flatten(0, 1).std(0, correction=0))
    torch.testing.assert_close(bridge(tokens), hidden.mean(dim=(0, 1)).expand(20, 3, 4))
    initialise_prototypes(bridge, hidden, "real")
    rows = {tuple(row) for row in hidden.flatten(0, 1).tolist()}
    assert {tuple(row) for row in bridge.prototypes.tolist()} <= rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens: 0 is below 1"),
        ({"segments": 0}, "segments: 0 is below 1"),
        ({"rank": 0}, "rank: 0 is below 1"),
    ],
)
def test_per_token_sizes_below_one_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        per_token(**options)


@pytest.mark.parametrize("segments", [None, 4])
def test_per_token_in_a_bridged_model_and_its_folder(segments, tmp_path):
    new, old = models()
    bridge = per_token(segments=segments, output_init="small", standardise_input=True)
    bridged = BridgedModel(new=new, old=old, bridge=bridge, new_block=1, old_block=1)
    assert bridge_kind(bridge) == "per_token"
    inputs = torch.randn(5, 7, 6)
    read = bridged.pool(inputs)
    torch.testing.assert_close(read, new.module(inputs))
    assert bridged(inputs).shape == (5, 3)
    bridged.save_pretrained(tmp_path)
    again = BridgedModel.from_pretrained(tmp_path, new=new, old=old)
    assert again.bridge.settings == bridge.settings
    assert torch.equal(again(inputs), bridged(inputs))


def test_labels_along_time_need_a_bridge_that_reads_tokens():
    new, old = models()
    old = TaskModel(old.encoder, old.head, segments=3)
    bridged = BridgedModel(new=new, old=old, bridge=per_token(tokens=6), new_block=1, old_block=1)
    inputs = torch.randn(5, 7, 6)
    logits = bridged(inputs)
    assert logits.shape == (5, 3, 3)
    last = bridged.last_hidden(bridged.pool(inputs))
    torch.testing.assert_close(logits[:, 1], old.head(last[:, 2:4].mean(dim=1)))
    with pytest.raises(
        ValueError, match="full_rank pools over time, but the old task labels 3 seg"
    ):
        BridgedModel(new=new, old=old, bridge=FullRankBridge(**SIZES), new_block=1, old_block=1)
    # Straight into the head, one token a segment.
    direct = BridgedModel(
        new=new, old=old, bridge=per_token(output_init="small"), new_block=1, old_block=2
    )
    each = direct.bridge(direct.pool(inputs))
    torch.testing.assert_close(direct(inputs), old.head(each))
    with pytest.raises(ValueError, match=r"for a bridge of 3 token\(s\), not 6"):
        BridgedModel(new=new, old=old, bridge=per_token(tokens=6), new_block=1, old_block=2)
    with pytest.raises(ValueError, match="segments: 0 is below 1"):
        TaskModel(old.encoder, old.head, segments=0)


@pytest.mark.parametrize("kind", ["prototype", "per_token"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_first_steps_from_a_hidden_state_of_zero(kind, norm_first):
    """Finite gradients at B = 0, through pre-norm and post-norm tails; A and P move from step 2."""
    torch.manual_seed(0)
    layers = [
        torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=norm_first)
        for _ in range(3)
    ]
    old = TaskModel(BlockModel(torch.nn.Sequential(*layers), layers), torch.nn.Linear(4, 3))
    new, _ = models()
    bridge = BRIDGES[kind](input_width=6, tokens=3, output_width=4, rank=2, prototypes=5)
    bridged = BridgedModel(new=new, old=old, bridge=bridge, new_block=1, old_block=1)
    read = bridged.pool(torch.randn(5, 3, 6))
    target = torch.randn(5, 3, 4)
    optimizer = torch.optim.Adam(bridge.parameters(), lr=1e-3)
    start = {name: p.detach().clone() for name, p in bridge.named_parameters()}
    moved = []
    for _ in range(2):
        optimizer.zero_grad()
        cosine(bridged.last_hidden(read), target).backward()
        assert all(bool(p.grad.isfinite().all()) for p in bridge.parameters())
        optimizer.step()
        moved.append({n for n, p in bridge.named_parameters() if not torch.equal(p, start[n])})
    assert moved == [{"up"}, {"up", "down", "prototypes"}]
    assert all(float(p.detach().abs().max()) < 10 for p in bridge.parameters())
