"""Published architectures with random weights: token counts, layers, layouts, weight files."""

import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bioxbridge.adapters import BlockModel, Place, TaskModel, check_blocks, describe
from bioxbridge.foundation import (
    ARCHITECTURES,
    BraindecodeLabram,
    hubert_ecg,
    huggingface_encoder,
    load_weights,
    rename_weight_norm,
)

NARROW = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8,) * 5,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 8,
}


class EcgFM(nn.Module):
    """ECG-FM's outline: four convolutions of stride 2, positions, and time-first layers."""

    def __init__(self, width=8, layers=12, leads=12):
        super().__init__()
        convolutions = [nn.Conv1d(leads if k == 0 else width, width, 2, 2) for k in range(4)]
        self.feature_extractor = nn.Sequential(*convolutions)
        self.pos_conv = nn.Conv1d(width, width, 5, padding=2)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width) for _ in range(layers)
        )

    def forward(self, source):
        features = self.feature_extractor(source)
        hidden = (features + self.pos_conv(features)).permute(2, 0, 1)
        for layer in self.encoder.layers:
            hidden = layer(hidden)
        return {"x": hidden.transpose(0, 1)}


class SameConv(nn.Module):
    """A convolution padded so that a stride s leaves ceil(S / s) samples."""

    def __init__(self, inside, outside, kernel, stride):
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.conv = nn.Conv1d(inside, outside, kernel, stride)

    def forward(self, signal):
        out = math.ceil(signal.shape[-1] / self.stride)
        pad = max(0, (out - 1) * self.stride + self.kernel - signal.shape[-1])
        return self.conv(nn.functional.pad(signal, (pad // 2, pad - pad // 2)))


class ResidualBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.norm = nn.BatchNorm1d(inside)
        self.conv = SameConv(inside, outside, 3, stride)
        self.stride, self.extra = stride, outside - inside

    def forward(self, signal):
        rest = signal
        if self.stride > 1:
            rest = nn.functional.max_pool1d(rest, self.stride, ceil_mode=True)
        return self.conv(self.norm(signal).relu()) + nn.functional.pad(rest, (0, 0, 0, self.extra))


class PaPaGei(nn.Module):
    """PaPaGei-S's outline: 18 blocks, every second one halves time, every fourth widens."""

    def __init__(self, base=32):
        super().__init__()
        self.first_block_conv = SameConv(1, base, 3, 1)
        self.basicblock_list = nn.ModuleList()
        width = base
        for k in range(18):
            wider = 2 * width if k and k % 4 == 0 else width
            self.basicblock_list.append(ResidualBlock(width, wider, 2 if k % 2 else 1))
            width = wider
        self.final_bn = nn.BatchNorm1d(width)

    def forward(self, signal):
        hidden = self.first_block_conv(signal)
        for block in self.basicblock_list:
            hidden = block(hidden)
        return self.final_bn(hidden).mean(-1)


class FusingBlock(nn.Module):
    """Each sensor channel by itself; then its CLS token looks at those of the other channels."""

    def __init__(self, width, channels, fuses):
        super().__init__()
        self.variate_encoder = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.cls_fusion = nn.Linear(width * channels, width * channels) if fuses else None
        self.channels = channels

    def forward(self, tokens):
        tokens = self.variate_encoder(tokens)
        if self.cls_fusion is None:
            return tokens
        by_channel = tokens.unflatten(0, (-1, self.channels))
        fused = self.cls_fusion(by_channel[:, :, 0].flatten(1)).unflatten(1, (self.channels, 1, -1))
        return torch.cat([fused, by_channel[:, :, 1:]], dim=2).flatten(0, 1)


class NormWear(nn.Module):
    """NormWear's outline: 9 x 5 patches of each channel's scalogram and a CLS token."""

    def __init__(self, channels=3, width=8, depth=4):
        super().__init__()
        self.backbone = nn.Module()
        self.backbone.patch_embed = nn.Conv2d(3, width, (9, 5), (9, 5))
        self.backbone.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.backbone.encoder_blocks = nn.ModuleList(
            FusingBlock(width, channels, k % 2 == 0) for k in range(depth)
        )

    def forward(self, pictures):
        patches = self.backbone.patch_embed(pictures.flatten(0, 1)).flatten(2).transpose(1, 2)
        cls = self.backbone.cls_token.expand(len(patches), -1, -1)
        tokens = torch.cat([cls, patches], dim=1)
        for block in self.backbone.encoder_blocks:
            tokens = block(tokens)
        return tokens.mean(1)


class LaBraM(nn.Module):
    """LaBraM's outline: a token for each second of each channel, and a CLS token."""

    def __init__(self, width=8, depth=12):
        super().__init__()
        self.patch_embed = nn.Linear(200, width)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True) for _ in range(depth)
        )

    def forward(self, inputs):
        tokens = self.patch_embed(inputs.flatten(1, 2))
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        return tokens[:, 0]


def signal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).numpy()


# Adapted model, windows, rate, tokens and depth, as published.
PUBLISHED = {
    "LaBraM 30 s": ("labram", LaBraM, (2, 6, 6000), 200, 181, 12),
    "LaBraM 3 s": ("labram", LaBraM, (2, 6, 600), 200, 19, 12),
    "HuBERT-ECG 30 s": ("hubert_ecg", None, (2, 1, 3000), 100, 46, 8),
    "HuBERT-ECG 60 s": ("hubert_ecg", None, (2, 1, 6000), 100, 93, 8),
    "ECG-FM 30 s": ("ecg_fm", EcgFM, (2, 12, 15000), 500, 937, 12),
    "ECG-FM 60 s": ("ecg_fm", lambda: EcgFM(layers=1), (1, 12, 30000), 500, 1875, 1),
    "NormWear 3 s": ("normwear", NormWear, (2, 3, 390), 130, 1680, 4),
    "NormWear one channel": ("normwear", lambda: NormWear(1), (2, 1, 390), 130, 560, 4),
}


def build(name, module, channels):
    torch.manual_seed(0)
    if name == "hubert_ecg":
        return hubert_ecg("S", **NARROW).freeze()
    return ARCHITECTURES[name].adapt(module(), channels=channels).freeze()


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_token_counts(case):
    name, module, shape, rate, tokens, depth = PUBLISHED[case]
    model = build(name, module, shape[1])
    inputs = model.preprocess(signal(*shape), rate)
    places = describe(model, inputs)
    width = 16 if name == "hubert_ecg" else 8
    assert places == [Place(tokens, width)] * (depth + 1)
    check_blocks(model, inputs)


PAPAGEI_INPUTS = (
    [(7500, 32)] * 2
    + [(3750, 32)] * 2
    + [(1875, 32), (1875, 64), (938, 64), (938, 64), (469, 64), (469, 128), (235, 128), (235, 128)]
    + [(118, 128), (118, 256), (59, 256), (59, 256), (30, 256), (30, 512)]
)


def test_papagei_changes_length_and_width():
    torch.manual_seed(0)
    model = ARCHITECTURES["papagei_s"].adapt(PaPaGei()).freeze()
    inputs = model.preprocess(signal(2, 1, 3840), 64)
    places = describe(model, inputs)
    assert places[:-1] == [Place(*place) for place in PAPAGEI_INPUTS]
    assert [place.width for place in places[1:]] == [32 * 2 ** (k // 4) for k in range(18)]
    check_blocks(model, inputs)


@pytest.mark.parametrize("block", [0, 4, 9, 17])
def test_a_bridge_fits_any_block_of_papagei(block):
    from bioxbridge.bridge import PrototypeBridge
    from bioxbridge.bridged import BridgedModel

    torch.manual_seed(0)
    old = ARCHITECTURES["papagei_s"].adapt(PaPaGei(base=2)).freeze()
    new = hubert_ecg("S", num_hidden_layers=2, **NARROW).freeze()
    place = describe(old, torch.randn(1, 1, 600))[block]
    bridge = PrototypeBridge(
        input_width=16, tokens=place.tokens, output_width=place.width, rank=2, prototypes=3
    )
    bridged = BridgedModel(
        new=new,
        old=TaskModel(old, nn.Linear(32, 3)),
        bridge=bridge,
        new_block=1,
        old_block=block,
    )
    assert bridged(torch.randn(4, 600)).shape == (4, 3)


@pytest.mark.parametrize(
    ("size", "width", "layers", "millions"),
    [("S", 512, 8, 30.4), ("B", 768, 12, 93), ("L", 960, 16, 188)],
)
def test_hubert_ecg_has_the_published_size(size, width, layers, millions):
    with torch.device("meta"):
        model = hubert_ecg(size)
    assert model.depth == layers
    assert model.module.config.hidden_size == width
    # The published figure counts what sits on the encoder, too.
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_hubert_position_and_norm_come_before_the_first_block():
    model = hubert_ecg("S", num_hidden_layers=2, **NARROW).freeze()
    inputs = torch.randn(2, 500)
    hidden = model.module.feature_projection(model.module.feature_extractor(inputs).transpose(1, 2))
    encoder = model.module.encoder
    entered = encoder.layer_norm(hidden + encoder.pos_conv_embed(hidden))
    torch.testing.assert_close(model.hidden_states(inputs, [0])[0], entered)
    torch.testing.assert_close(model(inputs), model.module(inputs).last_hidden_state)


def test_a_frozen_hubert_drops_no_layer_and_masks_nothing():
    model = hubert_ecg("S", num_hidden_layers=2, layerdrop=1.0, mask_time_prob=0.9, **NARROW)
    inputs = torch.randn(2, 2000)
    model.train()
    with pytest.raises(KeyError):  # in training mode every layer is dropped: no hook sees one
        model.hidden_states(inputs, [0, 1])
    model.freeze().train()
    first, second = model.hidden_states(inputs), model.hidden_states(inputs)
    assert len(first) == 3
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_batch_tokens_and_width_of_one_size():
    """Twelve windows, tokens and features: axes are not to be told apart by their sizes."""
    torch.manual_seed(0)
    for name, inputs in (
        ("ecg_fm", torch.randn(12, 12, 192)),
        ("papagei_s", torch.randn(12, 1, 12)),
        ("hubert_ecg", torch.randn(12, 840)),
    ):
        if name == "ecg_fm":
            model = ARCHITECTURES[name].adapt(EcgFM(width=12, layers=3)).freeze()
        elif name == "papagei_s":
            blocks = nn.ModuleList(ResidualBlock(12, 12, 1) for _ in range(3))
            module = nn.Sequential(SameConv(1, 12, 3, 1), *blocks)
            model = BlockModel(module, blocks, layout="BDT").freeze()
        else:
            narrow = NARROW | {"hidden_size": 12, "num_conv_pos_embedding_groups": 1}
            model = hubert_ecg("S", **(narrow | {"num_hidden_layers": 3})).freeze()
        states = model.hidden_states(inputs)
        assert [state.shape for state in states] == [(12, 12, 12)] * 4
        for block, state in enumerate(states):
            torch.testing.assert_close(model.forward_from(state, block), states[-1])
        # Window by window is the same as all at once, so the first axis is the batch.
        alone = model.hidden_states(inputs[3:4])
        for together, single in zip(states, alone, strict=True):
            torch.testing.assert_close(together[3:4], single, rtol=1e-4, atol=1e-5)


def test_other_wav2vec2_like_encoders():
    from transformers import (
        HubertForSequenceClassification,
        ViTConfig,
        ViTModel,
        Wav2Vec2Config,
        Wav2Vec2Model,
        WavLMConfig,
        WavLMModel,
    )

    torch.manual_seed(0)
    narrow = NARROW | {"num_hidden_layers": 3, "conv_kernel": (4,) * 5, "conv_stride": (2,) * 5}
    for model in (
        Wav2Vec2Model(Wav2Vec2Config(**narrow)),
        Wav2Vec2Model(Wav2Vec2Config(do_stable_layer_norm=True, **narrow)),
        HubertForSequenceClassification(hubert_ecg("S", **NARROW).module.config),
    ):
        blocks = huggingface_encoder(model).freeze()
        check_blocks(blocks, torch.randn(2, 900))
    vit = ViTConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=8,
        patch_size=4,
    )
    check_blocks(huggingface_encoder(ViTModel(vit)).freeze(), torch.randn(2, 3, 8, 8))
    # Its first layer makes position biases that the later ones need.
    wavlm = huggingface_encoder(WavLMModel(WavLMConfig(**narrow))).freeze()
    with pytest.raises(ValueError, match=r"blocks: (run by themselves, )?those of WavLMModel"):
        check_blocks(wavlm, torch.randn(2, 900))
    with pytest.raises(ValueError, match=r"Linear has no encoder\.layers"):
        huggingface_encoder(nn.Linear(2, 2))


def test_blocks_that_need_more_than_the_hidden_state_are_found():
    class Biased(nn.Module):
        def forward(self, hidden, bias=None):
            return hidden + (0 if bias is None else bias)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Biased(), Biased()])

        def forward(self, hidden):
            for block in self.blocks:
                hidden = block(hidden, bias=0.5)
            return hidden

    with pytest.raises(ValueError, match=r"those of Whole are off by .*; they may need block_arg"):
        check_blocks(BlockModel(Whole(), "blocks"), torch.zeros(1, 2, 3))
    check_blocks(BlockModel(Whole(), "blocks", block_arguments={"bias": 0.5}), torch.zeros(1, 2, 3))


def test_unknown_sizes_and_missing_preprocessing():
    with pytest.raises(ValueError, match="size: 'XL' is not one of S, B, L"):
        hubert_ecg("XL")
    with pytest.raises(ValueError, match="preprocess: Sequential was given none"):
        BlockModel(nn.Sequential(nn.Identity()), "").preprocess(signal(1, 1, 5), 10)


def small_hubert(seed):
    torch.manual_seed(seed)
    return hubert_ecg("S", num_hidden_layers=1, **NARROW).freeze().module


@pytest.mark.parametrize("prefix", ["", "hubert."])
@pytest.mark.parametrize("old_spelling", [False, True])
def test_weights_of_either_spelling_are_loaded(tmp_path, prefix, old_spelling):
    source, target = small_hubert(0), small_hubert(1)
    weights = {}
    for name, value in source.state_dict().items():
        if old_spelling:
            name = name.replace("parametrizations.weight.original0", "weight_g")
            name = name.replace("parametrizations.weight.original1", "weight_v")
        weights[prefix + name] = value.clone()
    weights["classifier.weight"] = torch.zeros(2)
    save_file(weights, tmp_path / "model.safetensors")
    inputs = torch.randn(1, 900)
    assert not torch.equal(target(inputs).last_hidden_state, source(inputs).last_hidden_state)
    assert load_weights(target, tmp_path / "model.safetensors") == ["classifier.weight"]
    assert torch.equal(target(inputs).last_hidden_state, source(inputs).last_hidden_state)


def test_new_spellings_are_mapped_onto_old_modules():
    g, v = torch.zeros(1), torch.ones(1)
    new = {"a.parametrizations.weight.original0": g, "a.parametrizations.weight.original1": v}
    old = {"a.weight_g": g, "a.weight_v": v}
    assert rename_weight_norm(new, old) == old
    assert rename_weight_norm(old, new) == new
    assert rename_weight_norm(old, old) == old
    assert rename_weight_norm({"b.weight_g": g}, new) == {"b.weight_g": g}


def test_files_that_are_no_weights_of_the_model(tmp_path):
    module = nn.Linear(2, 3)
    file = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_weights(module, file)
    torch.save(module.state_dict(), file)
    with pytest.raises(ValueError, match="not a safetensors file; pickled checkpoints are never"):
        load_weights(module, file)
    save_file({"bias": torch.zeros(3)}, file)
    with pytest.raises(ValueError, match=r"model\.safetensors: lacks weight"):
        load_weights(module, file)
    save_file({"bias": torch.zeros(3), "weight": torch.zeros(3, 4)}, file)
    with pytest.raises(ValueError, match=r"weight is \(3, 4\), not \(3, 2\)"):
        load_weights(module, file)
    save_file({}, file)
    with pytest.raises(ValueError, match="lacks bias and 1 more"):
        load_weights(module, file)


def test_labram_of_braindecode():
    models = pytest.importorskip("braindecode.models", exc_type=ImportError)
    torch.manual_seed(0)
    names = ["F3", "C3", "O1", "F4", "C4", "O2"]
    module = models.Labram(n_outputs=2, n_chans=6, n_times=6000, sfreq=200)
    model = ARCHITECTURES["labram"].adapt(BraindecodeLabram(module, names)).freeze()
    for seconds, tokens in ((30, 181), (3, 19)):
        inputs = model.preprocess(50 * signal(2, 6, 200 * seconds), 200)
        assert inputs.shape == (2, 6, seconds, 200)
        if seconds == 30:
            assert describe(model, inputs) == [Place(tokens, 200)] * 13
            check_blocks(model, inputs)
