"""Files that run without the package: equal logits, only the parts that run, any batch."""

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.bridge import PrototypeBridge
from bioxbridge.bridge_variants import PerTokenBridge
from bioxbridge.bridged import BridgedModel
from bioxbridge.encoder import SignalEncoder
from bioxbridge.export import StandaloneBridge, export_onnx, export_program
from bioxbridge.foundation import hubert_ecg

SMALL_HUBERT = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "conv_dim": (4,) * 5,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 8,
}


def signal_encoder():
    return BlockModel(SignalEncoder(features=3, tokens=4, width=8, depth=3, heads=2), "blocks")


class Narrowing(nn.Module):
    """Blocks that change width, and a norm and a classifier that know the last width alone."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(2, 4, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(w), nn.Conv1d(w, 2 * w, 3, 2, padding=1), nn.GELU())
            for w in (4, 8, 16)
        )
        self.final = nn.BatchNorm1d(32)
        self.classify = nn.Linear(32, 100)

    def forward(self, signal):
        hidden = self.stem(signal)
        for block in self.blocks:
            hidden = block(hidden)
        return self.classify(self.final(hidden).mean(dim=-1))


def narrowing():
    return BlockModel(Narrowing(), "blocks", layout="BDT")


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.inner = nn.TransformerEncoder(layer, 3, nn.LayerNorm(8), enable_nested_tensor=False)

    def forward(self, inputs):
        return {"x": self.inner(inputs.transpose(0, 1)).transpose(0, 1)}


def time_first():
    return BlockModel(TimeFirst(), "inner.layers", layout="TBD")


class Paired(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden, scale):
        return hidden + scale * self.linear(hidden).tanh(), None


class WithTuples(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Paired() for _ in range(3))

    def forward(self, hidden):
        for block in self.blocks:
            hidden, _ = block(hidden, scale=0.5)
        return hidden


def with_tuples():
    return BlockModel(WithTuples(), "blocks", block_arguments={"scale": 0.5})


# The model, its input, and tokens and width at the input of block 1.
MODELS = {
    "signal": (signal_encoder, (4, 3), (4, 8)),
    "hubert": (lambda: hubert_ecg("S", **SMALL_HUBERT), (700,), (10, 8)),
    "narrowing": (narrowing, (2, 16), (8, 8)),
    "time first": (time_first, (6, 8), (6, 8)),
    "tuples": (with_tuples, (5, 8), (5, 8)),
}


def bridge_between(new_name, old_name, *, kind=PrototypeBridge, old_block=1, segments=None):
    torch.manual_seed(0)
    make_new, shape, (_, input_width) = MODELS[new_name]
    make_old, old_shape, (tokens, width) = MODELS[old_name]
    new, old = make_new(), make_old()
    for model, inputs in ((new, shape), (old, old_shape)):
        for _ in range(2):  # running statistics that are not the initial ones
            model.module(1 + torch.randn(8, *inputs))
    out = old.freeze()(torch.randn(1, *old_shape)).shape[-1]
    bridge = kind(
        input_width=2 * input_width if new_name == "narrowing" else input_width,
        tokens=1 if old_block == 3 else tokens,
        output_width=out if old_block == 3 else width,
        rank=2,
        prototypes=5,
        output_init="small",
        standardise_input=True,
        mean_output=True,
    )
    with torch.no_grad():
        for parameter in bridge.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    bridged = BridgedModel(
        new=new,
        old=TaskModel(old, nn.Linear(out, 3), segments=segments),
        bridge=bridge,
        new_block=1,
        old_block=old_block,
    )
    return bridged.eval(), torch.randn(2, *shape)


@pytest.mark.parametrize(
    ("new", "old", "options"),
    [
        ("narrowing", "time first", {}),
        ("time first", "tuples", {"kind": PerTokenBridge, "segments": 2}),
        ("hubert", "signal", {}),
        ("signal", "narrowing", {"old_block": 3}),
    ],
)
def test_programs_give_the_same_logits_for_any_number_of_windows(tmp_path, new, old, options):
    bridged, example = bridge_between(new, old, **options)
    before = copy.deepcopy(bridged.state_dict())
    assert export_program(bridged, example, tmp_path / "deep" / "bridge.pt2") < 1e-4
    program = torch.export.load(tmp_path / "deep" / "bridge.pt2").module()
    for count in (1, 3, 17):
        inputs = torch.randn(count, *example.shape[1:])
        torch.testing.assert_close(program(inputs), bridged(inputs), rtol=1e-4, atol=1e-5)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["bridge.pt2"]
    # The model is left as it was, hooks and all.
    assert all(torch.equal(value, before[name]) for name, value in bridged.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in bridged.modules())


def test_onnx_gives_the_same_logits_for_any_number_of_windows(tmp_path):
    import onnxruntime

    bridged, example = bridge_between("hubert", "narrowing")
    assert export_onnx(bridged, example, tmp_path / "bridge.onnx") < 1e-4
    runtime = onnxruntime.InferenceSession(tmp_path / "bridge.onnx")
    assert [i.name for i in runtime.get_inputs()] == ["inputs"]
    assert [o.name for o in runtime.get_outputs()] == ["logits"]
    for count in (1, 7):
        inputs = torch.randn(count, *example.shape[1:])
        (logits,) = runtime.run(["logits"], {"inputs": inputs.numpy()})
        np.testing.assert_allclose(logits, bridged(inputs).detach(), rtol=1e-4, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["bridge.onnx"]


def test_only_the_parts_that_run_are_in_the_file():
    bridged, example = bridge_between("narrowing", "narrowing")
    names = set(StandaloneBridge(bridged, example).state_dict())
    parts = {".".join(name.split(".")[:3]) for name in names if not name.startswith("bridge")}
    assert parts == {
        "new.stem.weight",
        "new.stem.bias",
        "new.blocks.0",
        "new.blocks.1",
        "tail.0.0",
        "tail.0.1",
        "tail.1.0",
        "tail.1.1",
        "head.weight",
        "head.bias",
    }


class Picky(Narrowing):
    """Its own code after the blocks, not a module, knows the last width."""

    def forward(self, signal):
        hidden = self.stem(signal)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden.transpose(1, 2) @ torch.ones(32, 2)


class Counting(WithTuples):
    """Its code knows the number of windows."""

    def forward(self, hidden):
        return super().forward(hidden + torch.zeros(len(hidden), 1, 1))


class Branching(WithTuples):
    """Takes another way for loud windows."""

    def forward(self, hidden):
        if float(hidden.max()) > 1:
            hidden = hidden / 2
        return super().forward(hidden)


@pytest.mark.parametrize(
    ("module", "layout", "shape", "arguments", "message"),
    [
        (Picky, "BDT", (2, 16), {}, "export: Picky cannot end after block 0: RuntimeError: "),
        (Counting, "BTD", (5, 8), {"scale": 0.5}, r"cannot be traced: .* to be a constant \(5\)"),
        (Branching, "BTD", (5, 8), {"scale": 0.5}, "export: Branching to .* cannot be traced: "),
    ],
)
def test_models_that_cannot_be_exported_are_named(
    tmp_path, module, layout, shape, arguments, message
):
    torch.manual_seed(0)
    new = BlockModel(module(), "blocks", layout=layout, block_arguments=arguments)
    bridge = PrototypeBridge(input_width=8, tokens=4, output_width=8, rank=2, prototypes=5)
    old = TaskModel(signal_encoder(), nn.Linear(8, 3))
    bridged = BridgedModel(new=new, old=old, bridge=bridge, new_block=0, old_block=1).eval()
    example = torch.randn(2, *shape)
    assert bridged(example).shape == (2, 3)
    with pytest.raises(ValueError, match=message):
        export_program(bridged, example, tmp_path / "bridge.pt2")
    assert not list(tmp_path.iterdir())


def test_missing_onnx_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    bridged, example = bridge_between("tuples", "tuples")
    with pytest.raises(
        ValueError, match=r'ONNX needs onnxruntime; pip install "bioxbridge\[onnx\]"'
    ):
        export_onnx(bridged, example, tmp_path / "bridge.onnx")


def test_other_logits_leave_no_file(tmp_path, monkeypatch):
    from bioxbridge import export

    bridged, example = bridge_between("tuples", "tuples")
    traced = export._traced

    def spoiled(*arguments):
        model, program, batches = traced(*arguments)
        with torch.no_grad():
            model.bridge.prototypes.add_(1)
        return model, program, batches

    monkeypatch.setattr(export, "_traced", spoiled)
    with pytest.raises(
        ValueError, match=r"logits of 1 window\(s\) are off by .*, more than 0.0001"
    ):
        export_program(bridged, example, tmp_path / "bridge.pt2")
    assert not list(tmp_path.iterdir())
