"""Models on disk: `config.json` with what they are, and weights as safetensors; never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn


def write_config(folder: str | Path, kind: str, values: dict[str, Any]) -> Path:
    """Make a folder that holds `config.json`, and return its path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"kind": kind, **values}, indent=2)
    (folder / "config.json").write_text(f"{text}\n", encoding="utf-8")
    return folder


def read_config(folder: str | Path, kind: str) -> dict[str, Any]:
    """The values of a folder's `config.json`.

    Raises:
        ValueError: it is not readable as an object of JSON, or of another kind.
        FileNotFoundError: there is none.
    """
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: holds no values by name")
    if config.pop("kind", None) != kind:
        raise ValueError(f"{path}: is of no {kind}")
    return config


def save_state(model: nn.Module, path: Path) -> None:
    """Write a model's state as safetensors."""
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)


def load_state(model: nn.Module, path: Path) -> None:
    """Load a model's whole state.

    Raises:
        ValueError: the file is damaged, or holds another model's weights.
        FileNotFoundError: there is none.
    """
    try:
        model.load_state_dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(f"{path}: not readable ({error})") from error
    except RuntimeError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
