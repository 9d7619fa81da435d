"""The small transformer over tokens."""

import json

import pytest
import torch

from bioxbridge.encoder import SignalEncoder


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return SignalEncoder(features=3, tokens=5, width=8, depth=2, heads=2)


def reference_block(block, hidden):
    """The block by explicit loops over windows and heads."""
    size = hidden.shape[-1] // block.heads
    result = []
    for window in hidden:
        query, key, value = block.query_key_value(block.norm_attention(window)).chunk(3, dim=-1)
        parts = []
        for head in range(block.heads):
            own = slice(head * size, (head + 1) * size)
            weights = torch.softmax(query[:, own] @ key[:, own].T / size**0.5, dim=-1)
            parts.append(weights @ value[:, own])
        window = window + block.project(torch.cat(parts, dim=-1))
        inner = torch.nn.functional.gelu(block.expand(block.norm_feedforward(window)))
        result.append(window + block.contract(inner))
    return torch.stack(result)


def test_block_equals_a_slow_reference(encoder):
    hidden = torch.randn(3, 5, 8)
    block = encoder.blocks[0]
    torch.testing.assert_close(block(hidden), reference_block(block, hidden))


def test_forward_is_embedding_positions_and_blocks(encoder):
    inputs = torch.randn(3, 5, 3)
    hidden = encoder.embedding(inputs) + encoder.positions
    for block in encoder.blocks:
        hidden = reference_block(block, hidden)
    torch.testing.assert_close(encoder(inputs), hidden)


def test_masked_tokens_are_not_seen(encoder):
    inputs = torch.randn(3, 5, 3)
    masked = torch.zeros(3, 5, dtype=torch.bool)
    masked[:, 2] = True
    other = inputs.clone()
    other[:, 2] += 10
    assert torch.equal(encoder(inputs, masked), encoder(other, masked))
    assert not torch.allclose(encoder(inputs), encoder(other))
    assert torch.equal(encoder(inputs, torch.zeros_like(masked)), encoder(inputs))
    encoder(inputs, masked).square().sum().backward()
    assert float(encoder.mask_vector.grad.abs().max()) > 0


def test_positions_tell_tokens_apart(encoder):
    inputs = torch.randn(1, 5, 3)
    flipped = encoder(inputs.flip(1)).flip(1)
    assert not torch.allclose(flipped, encoder(inputs))
    with torch.no_grad():
        encoder.positions.zero_()
    torch.testing.assert_close(encoder(inputs.flip(1)).flip(1), encoder(inputs))


def test_sizes():
    encoder = SignalEncoder(features=3, tokens=5, width=8, depth=3, heads=4, feedforward=7)
    assert encoder.sizes["feedforward"] == 7
    assert len(encoder.blocks) == 3
    # Per block: two norms, attention in and out, two feed-forward layers.
    block = 2 * 16 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 7 + 7) + (7 * 8 + 8)
    assert sum(p.numel() for p in encoder.parameters()) == 3 * block + (3 * 8 + 8) + 8 + 5 * 8
    assert SignalEncoder(features=1, tokens=1, width=8).sizes["feedforward"] == 16
    with pytest.raises(ValueError, match="width: 10 is no multiple of 4 heads"):
        SignalEncoder(features=3, tokens=5, width=10)


def test_folder_round_trip(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "encoder")
    again = SignalEncoder.from_pretrained(tmp_path / "encoder")
    inputs = torch.randn(3, 5, 3)
    assert again.sizes == encoder.sizes
    assert torch.equal(again(inputs), encoder(inputs))


def test_other_folders_are_refused(encoder, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"kind": "something else", "width": 8}))
    with pytest.raises(ValueError, match=r"is of no bioxbridge\.SignalEncoder"):
        SignalEncoder.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError):
        SignalEncoder.from_pretrained(tmp_path / "nothing")
