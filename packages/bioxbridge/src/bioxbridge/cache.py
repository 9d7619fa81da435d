"""Frozen models' hidden states kept on disk, so that each model sees each window once.

Training a bridge (BioX-Bridge, arXiv 2510.02276, section 3.4) needs the pooled output of one new
block and the last hidden state of the old model, which never change. Kept token by token the latter
may be large (19,000 windows of 181 x 200 values are 2.8 GB): files are memory-mapped, written batch
by batch, and may hold half precision.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel
from bioxbridge.features import device_of

Precision = Literal["float32", "float16"]
# Part of every key: a change of what files hold makes older ones unknown.
_FORMAT = "bioxbridge.cache 1"


@dataclass(frozen=True, kw_only=True)
class CachedStates:
    """Hidden states in the order asked for, memory-mapped: rows are read from disk when used.

    Attributes:
        pooled: mean token, (N, D) each.
        tokens: all tokens, (N, T, D) each.
    """

    pooled: list[Tensor]
    tokens: list[Tensor]


@torch.no_grad()
def cached_states(
    model: BlockModel,
    inputs: Tensor,
    folder: str | Path,
    *,
    pooled: Iterable[int] | None = None,
    tokens: Iterable[int] = (),
    precision: Precision = "float32",
    batch_size: int = 512,
) -> CachedStates:
    """Hidden states from files where they are there, else by one pass that writes them.

    Files lie in `folder/KEY`, where KEY is a hash of the model's weights and structure and of the
    inputs, one file for each position: asking for more positions later computes those alone. A
    pass that is interrupted leaves nothing that a later one would take for a result.

    Args:
        model: frozen, or at least in evaluation mode.
        inputs: (N, ...) model inputs; may be memory-mapped itself.
        folder: of all caches; made where it is missing.
        pooled: positions, see `BlockModel.hidden_states`, whose mean token is kept; all by default.
        tokens: positions that are kept token by token.
        precision: of the files and of the tensors returned; losses need `float32` tensors, so
            convert batches of half precision.
        batch_size: windows per pass; bounds the memory.

    Raises:
        ValueError: no inputs, a model in training mode, a state that is not finite in this
            precision, or a damaged file.
        IndexError: a position outside 0..depth.
    """
    if not len(inputs):
        raise ValueError("inputs: no windows to cache")
    if any(module.training for module in model.modules()):
        raise ValueError("model: is in training mode, where hidden states are not fixed; freeze it")
    kept = [("pooled", p) for p in (range(model.depth + 1) if pooled is None else pooled)]
    kept += [("tokens", p) for p in tokens]
    for _, position in kept:
        if not 0 <= position <= model.depth:
            raise IndexError(f"position {position} is outside 0..{model.depth}")
    key = hashlib.sha256(
        "\n".join([_FORMAT, model_fingerprint(model), data_fingerprint(inputs)]).encode()
    ).hexdigest()[:32]
    place = Path(folder) / key
    files = {(kind, p): place / f"{kind}-{p:03d}-{precision}.npy" for kind, p in kept}
    missing = {entry: file for entry, file in files.items() if not file.is_file()}
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        _write(model, inputs, missing, np.dtype(precision), batch_size)
    states = {
        # Copy on write: nothing that is done to the tensors reaches the files.
        entry: _read(file)
        for entry, file in files.items()
    }
    return CachedStates(
        pooled=[states[entry] for entry in kept if entry[0] == "pooled"],
        tokens=[states[entry] for entry in kept if entry[0] == "tokens"],
    )


def model_fingerprint(model: BlockModel) -> str:
    """A hash of all that decides what a model computes: weights, structure, plain settings."""
    digest = hashlib.sha256(f"{model.layout} {model.groups} {model.block_arguments}".encode())
    names = {id(module): name for name, module in model.module.named_modules()}
    digest.update(" ".join(names.get(id(block), "?") for block in model.blocks).encode())
    for name, module in model.module.named_modules():
        digest.update(f"\n{name} {type(module).__qualname__} {_settings(module)}".encode())
    for name, value in model.module.state_dict().items():
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def data_fingerprint(inputs: Tensor) -> str:
    """A hash of a tensor's type, shape and values."""
    digest = hashlib.sha256(f"{inputs.dtype} {tuple(inputs.shape)}".encode())
    for rows in inputs.split(1024):
        digest.update(_bytes(rows))
    return digest.hexdigest()


def _read(file: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{file}: is damaged; remove it and it is computed again") from error


def _write(
    model: BlockModel,
    inputs: Tensor,
    files: dict[tuple[str, int], Path],
    dtype: np.dtype,
    batch_size: int,
) -> None:
    """One pass over the inputs into all files, each under another name until all are whole."""
    partial = {entry: file.with_suffix(f".{os.getpid()}.part") for entry, file in files.items()}
    try:
        arrays: dict[tuple[str, int], np.memmap] = {}
        for start, states in _passes(model, inputs, files, batch_size):
            for entry, values in states.items():
                with np.errstate(over="ignore"):  # infinite, which the next line finds
                    rows = values.astype(dtype)
                if not np.isfinite(rows).all():
                    raise ValueError(
                        f"{entry[0]} state at position {entry[1]}: window "
                        f"{start + int(np.argwhere(~np.isfinite(rows))[0, 0])} is not finite in "
                        f"{dtype}"
                    )
                if entry not in arrays:
                    arrays[entry] = np.lib.format.open_memmap(
                        partial[entry], "w+", dtype, (len(inputs), *rows.shape[1:])
                    )
                arrays[entry][start : start + len(rows)] = rows
        for array in arrays.values():
            array.flush()
        for entry, file in files.items():
            partial[entry].replace(file)
    finally:
        for file in partial.values():
            file.unlink(missing_ok=True)


def _passes(
    model: BlockModel, inputs: Tensor, entries: Iterable[tuple[str, int]], batch_size: int
) -> Iterator[tuple[int, dict[tuple[str, int], np.ndarray]]]:
    """First row and states of each batch; no later block than needed runs."""
    device = device_of(model)
    positions = sorted({position for _, position in entries})
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size].to(device)
        states = dict(zip(positions, model.hidden_states(batch, positions), strict=True))
        yield (
            start,
            {
                (kind, p): (states[p].mean(dim=1) if kind == "pooled" else states[p]).cpu().numpy()
                for kind, p in entries
            },
        )


def _settings(module: nn.Module) -> dict[str, object]:
    """What a module keeps besides its state dict: numbers, words, tuples, names of functions."""
    kept = {}
    for name, value in sorted(vars(module).items()):
        if not name.startswith("_") and isinstance(value, bool | int | float | str | tuple):
            kept[name] = value
        elif not name.startswith("_") and hasattr(value, "__qualname__"):
            kept[name] = value.__qualname__
    return kept


def _bytes(values: Tensor) -> memoryview:
    flat = values.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")
