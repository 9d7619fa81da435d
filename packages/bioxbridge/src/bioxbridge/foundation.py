"""Published biosignal foundation models as models of blocks.

BioX-Bridge (arXiv 2510.02276, appendix on models) bridges LaBraM, HuBERT-ECG, ECG-FM, PaPaGei-S and
NormWear. Their code and weights carry their own licences and are not shipped: bring the module, and
`ARCHITECTURES[name].adapt(module)` knows where its blocks are, how their tensors lie and what its
input is. HuBERT-ECG can also be built here, through transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bioxbridge import preprocessing
from bioxbridge.adapters import BlockModel
from bioxbridge.layouts import Layout


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What there is to know of a published model in order to bridge it.

    Attributes:
        name: as its authors spell it.
        signal: what it reads, with the unit where the scale matters.
        rate: its sampling rate in Hz.
        blocks: dotted name of its blocks.
        layout: of the tensors between them, see `to_canonical`.
        condition: from (..., S) at any rate to (..., S') at `rate`, filtered and scaled.
        arrange: from conditioned windows (B, C, S') to the module's inputs.
        channels: sensor channels it can take; None for any number.
    """

    name: str
    signal: str
    rate: float
    blocks: str
    layout: Layout
    condition: Callable[[np.ndarray, float], np.ndarray]
    arrange: Callable[[np.ndarray], Tensor]
    channels: int | None = None

    def adapt(
        self, module: nn.Module, *, channels: int = 1, blocks: str | None = None
    ) -> BlockModel:
        """The module as a model of blocks.

        Args:
            module: takes what `preprocess` returns as its one argument.
            channels: sensor channels of its input; a model that runs each channel by itself
                (NormWear) is told so by its layout.
            blocks: dotted name of the blocks where it differs from the published code.

        Raises:
            ValueError: the module has no such blocks.
        """
        return BlockModel(
            module,
            blocks or self.blocks,
            layout=self.layout,
            groups=channels if self.layout == "GTD" else 1,
            preprocess=self.preprocess,
        )

    def preprocess(self, signal: np.ndarray, rate: float | int) -> Tensor:
        """Model inputs from raw windows.

        Args:
            signal: (B, C, S), or (B, S) of a single channel; finite.
            rate: in Hz.

        Raises:
            ValueError: another shape, a number of channels that the model does not take, a value
                that is not finite, or a window that is too short.
        """
        windows = np.asarray(signal)
        if not np.issubdtype(windows.dtype, np.floating):
            windows = windows.astype(np.float32)
        if windows.ndim == 2:
            windows = windows[:, None]
        if windows.ndim != 3:
            raise ValueError(f"{self.name}: signal is {windows.shape}, not (B, C, S) or (B, S)")
        if self.channels is not None and windows.shape[1] != self.channels:
            raise ValueError(
                f"{self.name}: takes {self.channels} channel(s), not {windows.shape[1]}"
            )
        if not np.isfinite(windows).all():
            window = int(np.argwhere(~np.isfinite(windows))[0, 0])
            raise ValueError(f"{self.name}: window {window} holds a value that is not finite")
        try:
            return self.arrange(self.condition(windows, rate))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


ARCHITECTURES = {
    "labram": Architecture(
        name="LaBraM",
        signal="EEG in microvolts",
        rate=200.0,
        blocks="blocks",
        layout="BTD",
        condition=preprocessing.condition_eeg,
        arrange=preprocessing.labram_inputs,
    ),
    "hubert_ecg": Architecture(
        name="HuBERT-ECG",
        signal="ECG",
        rate=100.0,
        blocks="encoder.layers",
        layout="BTD",
        condition=preprocessing.condition_hubert_ecg,
        arrange=preprocessing.joined_leads,
    ),
    "ecg_fm": Architecture(
        name="ECG-FM",
        signal="ECG",
        rate=500.0,
        blocks="encoder.layers",
        layout="TBD",
        condition=preprocessing.condition_ecg_fm,
        arrange=preprocessing.as_channels,
    ),
    "papagei_s": Architecture(
        name="PaPaGei-S",
        signal="PPG",
        rate=125.0,
        blocks="basicblock_list",
        layout="BDT",
        condition=preprocessing.condition_ppg,
        arrange=preprocessing.as_channels,
        channels=1,
    ),
    "normwear": Architecture(
        name="NormWear",
        signal="EMG, or any wearable signal",
        rate=130.0,
        blocks="backbone.encoder_blocks",
        layout="GTD",
        condition=preprocessing.condition_normwear,
        arrange=preprocessing.normwear_inputs,
    ),
}

# Width, layers and heads; the feed-forward width is four times the width.
_HUBERT_SIZES = {"S": (512, 8, 8), "B": (768, 12, 12), "L": (960, 16, 16)}


def hubert_ecg(size: str = "S", **settings: Any) -> BlockModel:
    """HuBERT-ECG's architecture with random weights; `load_weights` fills in published ones.

    The five convolutions have strides 4, 2, 2, 2, 2: one token is 0.64 s of a lead at 100 Hz.

    Args:
        size: S has 8 layers of width 512, B 12 of 768, L 16 of 960 (B and L are not verified
            against published weights).
        settings: any of transformers' `HubertConfig`, over the size's.

    Raises:
        ValueError: there is no such size.
    """
    if size not in _HUBERT_SIZES:
        raise ValueError(f"size: {size!r} is not one of {', '.join(_HUBERT_SIZES)}")
    from transformers import HubertConfig, HubertModel

    width, layers, heads = _HUBERT_SIZES[size]
    config: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "conv_dim": (512,) * 5,
        "conv_kernel": (10, 3, 3, 2, 2),
        "conv_stride": (4, 2, 2, 2, 2),
    }
    return ARCHITECTURES["hubert_ecg"].adapt(HubertModel(HubertConfig(**(config | settings))))


class BraindecodeLabram(nn.Module):
    """braindecode's `Labram` with the input of the published code, for `ARCHITECTURES["labram"]`.

    Args:
        model: `braindecode.models.Labram`.
        channel_names: electrodes in the order of the input's channels, as `F3` or `O2`.
    """

    def __init__(self, model: nn.Module, channel_names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.blocks = model.blocks
        self.channel_names = list(channel_names)

    def forward(self, inputs: Float[Tensor, "batch channels seconds 200"]) -> Tensor:
        """The model on (B, C, seconds, 200)."""
        return self.model(inputs.flatten(2), ch_names=self.channel_names)


def huggingface_encoder(model: nn.Module) -> BlockModel:
    """A transformers encoder (Hubert, Wav2Vec2, Data2Vec, ViT, BERT and their like) as blocks.

    Dropped layers and masked time steps occur in training mode only: freeze the result.

    Args:
        model: a bare encoder, or a task model around one. Models whose layers hand position biases
            to each other (WavLM) do not fit: `check_blocks` finds them.

    Raises:
        ValueError: no list of layers under the names that transformers gives them.
    """
    base = getattr(model, "base_model", model)
    for name in ("encoder.layers", "encoder.layer", "layers", "layer"):
        try:
            layers = base.get_submodule(name)
        except AttributeError:
            continue
        if isinstance(layers, nn.ModuleList):
            return BlockModel(model, layers)
    raise ValueError(
        f"model: {type(model).__name__} has no encoder.layers, encoder.layer or layers"
    )


def load_weights(module: nn.Module, file: str | Path) -> list[str]:
    """Fill a module from a safetensors file.

    Both spellings of weight normalisation are understood, and a prefix that all of the module's
    weights share in the file (`hubert.` of a task model) is taken off.

    Args:
        module: filled in place, or left as it is after an error.
        file: the weights.

    Returns:
        Names in the file that the module has no place for.

    Raises:
        ValueError: the file is no safetensors file, lacks a weight, or has one of another shape.
        FileNotFoundError: there is no such file.
    """
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    try:
        found = load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a safetensors file; pickled checkpoints are never loaded, convert it"
        ) from error
    own = module.state_dict()
    weights = rename_weight_norm(found, own)
    if not own.keys() <= weights.keys():
        prefixes = {name.removesuffix(key) for key in own for name in found if name.endswith(key)}
        for prefix in sorted(prefixes - {""}):
            inner = {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}
            inner = rename_weight_norm(inner, own)
            if own.keys() <= inner.keys():
                outside = {k: v for k, v in found.items() if not k.startswith(prefix)}
                weights = inner | outside
                break
    missing = sorted(own.keys() - weights.keys())
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{file}: lacks {missing[0]}{more}")
    for name, value in own.items():
        if weights[name].shape != value.shape:
            raise ValueError(
                f"{file}: {name} is {tuple(weights[name].shape)}, not {tuple(value.shape)}"
            )
    module.load_state_dict({name: weights[name] for name in own})
    return sorted(weights.keys() - own.keys())


def rename_weight_norm(weights: dict[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """Spell weight normalisation as a module does.

    torch wrote `weight_g` and `weight_v` before it wrote `parametrizations.weight.original0` and
    `original1`; files and modules of different age disagree.

    Args:
        weights: a state dict.
        names: the module's own names; entries that are among them keep theirs.

    >>> import torch
    >>> list(rename_weight_norm(
    ...     {"conv.weight_g": torch.ones(1)}, ["conv.parametrizations.weight.original0"]))
    ['conv.parametrizations.weight.original0']
    """
    wanted = set(names)
    pairs = (
        ("weight_g", "parametrizations.weight.original0"),
        ("weight_v", "parametrizations.weight.original1"),
    )
    renamed = {}
    for name, value in weights.items():
        new = name
        if name not in wanted:
            for a, b in (*pairs, *((b, a) for a, b in pairs)):
                other = name.removesuffix(a) + b
                if name.endswith(a) and other in wanted:
                    new = other
        renamed[new] = value
    return renamed
