"""The prototype bridge: sizes, values, its first steps and its initialisations."""

import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel
from bioxbridge.bridge import (
    PrototypeBridge,
    initialise_prototypes,
    prototype_bridge_parameters,
)
from bioxbridge.encoder import SignalEncoder
from bioxbridge.losses import cosine

# rank, prototypes, input width, tokens, output width, trainable parameters.
OFFICIAL = [
    (32, 300, 512, 181, 200, 1_813_984),
    (4, 200, 200, 46, 512, 140_000),
    (256, 200, 768, 19, 200, 1_209_408),
    (8, 50, 200, 1680, 768, 712_000),
    (32, 50, 512, 235, 128, 398_784),
    (8, 150, 64, 93, 512, 188_912),
]


def small_bridge(**options):
    sizes = {"input_width": 3, "tokens": 4, "output_width": 8, "rank": 2, "prototypes": 5}
    return PrototypeBridge(**(sizes | options))


@pytest.mark.parametrize(("rank", "prototypes", "width", "tokens", "out", "count"), OFFICIAL)
def test_the_published_configurations_have_their_size(rank, prototypes, width, tokens, out, count):
    sizes = {
        "input_width": width,
        "tokens": tokens,
        "output_width": out,
        "rank": rank,
        "prototypes": prototypes,
    }
    assert prototype_bridge_parameters(**sizes) == count
    bridge = PrototypeBridge(**sizes)
    assert sum(p.numel() for p in bridge.parameters() if p.requires_grad) == count
    assert not list(bridge.buffers())


def test_forward_by_hand():
    bridge = PrototypeBridge(input_width=2, tokens=2, output_width=2, rank=1, prototypes=2)
    with torch.no_grad():
        bridge.down.copy_(torch.tensor([[1.0], [2.0]]))
        bridge.up.copy_(torch.tensor([[1.0, 0.0, 2.0, -1.0]]))
        bridge.prototypes.copy_(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    # p A = 3, weights of token 0 are (3, 0) and of token 1 are (6, -3).
    produced = bridge(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    expected = torch.tensor([[[3.0, 0.0], [6.0, -9.0]], [[0.0, 0.0], [0.0, 0.0]]])
    torch.testing.assert_close(produced, expected, rtol=0, atol=0)


def test_weights_are_linear_without_a_softmax():
    torch.manual_seed(0)
    bridge = small_bridge(output_init="small")
    pooled = torch.randn(6, 3)
    torch.testing.assert_close(bridge(-2 * pooled), -2 * bridge(pooled))
    assert bridge(pooled).abs().max() > 0


def test_output_starts_at_exactly_zero_unless_small():
    torch.manual_seed(0)
    pooled = torch.randn(6, 3)
    assert torch.equal(small_bridge()(pooled), torch.zeros(6, 4, 8))
    assert small_bridge(output_init="small")(pooled).abs().min() > 0


def test_down_starts_within_the_kaiming_bound():
    torch.manual_seed(0)
    down = small_bridge(input_width=400, rank=50).down
    assert float(down.detach().abs().max()) <= 0.05
    assert float(down.detach().std()) == pytest.approx(0.05 / 3**0.5, rel=0.05)


def pre_norm_tail():
    return BlockModel(SignalEncoder(features=3, tokens=4, width=8, depth=2, heads=2), "blocks")


def post_norm_tail():
    layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    return BlockModel(nn.Sequential(*layers), layers)


@pytest.mark.parametrize("make_tail", [pre_norm_tail, post_norm_tail])
def test_zero_start_moves_up_first_and_the_rest_from_step_two(make_tail):
    torch.manual_seed(0)
    tail = make_tail().freeze()
    bridge = small_bridge()
    pooled, target = torch.randn(6, 3), torch.randn(6, 4, 8)
    optimizer = torch.optim.Adam(bridge.parameters(), lr=1e-2)
    moved = []
    for _ in range(3):
        before = {name: p.detach().clone() for name, p in bridge.named_parameters()}
        optimizer.zero_grad()
        cosine(tail.forward_from(bridge(pooled), 0), target).backward()
        assert all(bool(p.grad.isfinite().all()) for p in bridge.parameters())
        optimizer.step()
        moved.append({n for n, p in bridge.named_parameters() if not torch.equal(p, before[n])})
    assert moved == [{"up"}, {"up", "down", "prototypes"}, {"up", "down", "prototypes"}]


def test_zero_start_has_finite_gradients_without_a_tail():
    torch.manual_seed(0)
    bridge = small_bridge()
    cosine(bridge(torch.randn(6, 3)), torch.randn(6, 4, 8)).backward()
    assert all(bool(p.grad.isfinite().all()) for p in bridge.parameters())
    assert bridge.up.grad.abs().max() > 0
    assert bridge.down.grad.abs().max() == 0
    assert bridge.prototypes.grad.abs().max() == 0


def test_small_start_moves_every_part_at_once():
    torch.manual_seed(0)
    bridge = small_bridge(output_init="small")
    cosine(bridge(torch.randn(6, 3)), torch.randn(6, 4, 8)).backward()
    assert all(p.grad.abs().max() > 0 for p in bridge.parameters())


def test_real_prototypes_are_distinct_tokens_of_the_pairs():
    torch.manual_seed(0)
    hidden = torch.randn(3, 4, 8)
    bridge = small_bridge(prototypes=12)
    initialise_prototypes(bridge, hidden, "real", seed=1)
    rows = {tuple(row) for row in hidden.flatten(0, 1).tolist()}
    drawn = [tuple(row) for row in bridge.prototypes.tolist()]
    assert set(drawn) == rows
    assert len(drawn) == 12
    other = small_bridge(prototypes=12)
    initialise_prototypes(other, hidden, "real", seed=2)
    assert not torch.equal(bridge.prototypes, other.prototypes)


def test_kmeans_prototypes_find_the_clusters():
    torch.manual_seed(0)
    centres = 20 * torch.eye(8)[:3]
    hidden = centres[torch.arange(60) % 3].view(15, 4, 8) + 0.1 * torch.randn(15, 4, 8)
    bridge = small_bridge(prototypes=3)
    initialise_prototypes(bridge, hidden, "kmeans", seed=0)
    distances = torch.cdist(centres, bridge.prototypes.detach())
    assert float(distances.min(dim=1).values.max()) < 0.5


def test_normal_prototypes_follow_the_seed_alone():
    hidden = torch.zeros(1, 1, 8)  # too few tokens for the others
    one, same, other = small_bridge(), small_bridge(), small_bridge()
    initialise_prototypes(one, hidden, "normal", seed=3)
    torch.manual_seed(7)
    initialise_prototypes(same, hidden, "normal", seed=3)
    initialise_prototypes(other, hidden, "normal", seed=4)
    assert torch.equal(one.prototypes, same.prototypes)
    assert not torch.equal(one.prototypes, other.prototypes)
    assert one.prototypes.requires_grad


@pytest.mark.parametrize("method", ["real", "kmeans"])
def test_too_few_tokens_are_refused(method):
    with pytest.raises(ValueError, match="5 asked for, but the pairs hold 4 tokens"):
        initialise_prototypes(small_bridge(), torch.zeros(1, 4, 8), method)


@pytest.mark.parametrize("name", ["input_width", "tokens", "output_width", "rank", "prototypes"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: 0 is below 1"):
        small_bridge(**{name: 0})


def test_standardised_input_is_a_z_score_and_a_constant_feature_stays_silent():
    sizes = {"input_width": 2, "tokens": 1, "output_width": 3, "rank": 2, "prototypes": 4}
    bridge = PrototypeBridge(**sizes, output_init="small", standardise_input=True)
    pooled = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    bridge.calibrate(pooled, torch.zeros(2, 1, 3))
    plain = PrototypeBridge(**sizes)
    plain.load_state_dict(bridge.state_dict(), strict=False)
    torch.testing.assert_close(bridge(pooled), plain(torch.tensor([[-1.0, 0.0], [1.0, 0.0]])))


def test_mean_output_is_added():
    sizes = {"input_width": 2, "tokens": 2, "output_width": 1, "rank": 1, "prototypes": 1}
    bridge = PrototypeBridge(**sizes, mean_output=True)
    bridge.calibrate(torch.zeros(2, 2), torch.tensor([[[1.0], [2.0]], [[3.0], [6.0]]]))
    torch.testing.assert_close(bridge(torch.ones(1, 2)), torch.tensor([[[2.0], [4.0]]]))
    trainable = sum(p.numel() for p in bridge.parameters())
    assert trainable == prototype_bridge_parameters(**sizes)
