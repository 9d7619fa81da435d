"""The bridged model of BioX-Bridge (arXiv 2510.02276, section 3.1): new signal in, old task out."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, Logits, TaskModel
from bioxbridge.bridge_variants import BRIDGES, Bridge, bridge_kind

Read = Float[Tensor, "batch *tokens_new width"]
_KIND = "bioxbridge.BridgedModel"


class BridgedModel(nn.Module):
    r"""$g(f^{old}_{\ge l}(b(\mathrm{mean}\, f^{new}_{\le m}(x))))$: never needs the old modality.

    Args:
        new: frozen model of the new modality; blocks after `new_block` never run.
        old: frozen task model of the old modality; blocks before `old_block` never run.
        bridge: from what it reads, pooled (B, d_m) or tokens (B, T_m, d_m), to (B, T, d_l).
        new_block: m, the block whose output the bridge reads, counted from 0.
        old_block: l, the block whose input the bridge replaces, counted from 0. A bridge of one
            token (of one for each segment of a task along time) may take l = depth, which writes
            the feature that the head reads.

    Raises:
        ValueError: a model has no such block, or the old task has labels along time and the bridge
            reads a mean over time.
    """

    def __init__(
        self,
        *,
        new: BlockModel,
        old: TaskModel,
        bridge: Bridge,
        new_block: int,
        old_block: int,
    ) -> None:
        super().__init__()
        if not 0 <= new_block < new.depth:
            raise ValueError(f"new_block: {new_block} is outside 0..{new.depth - 1}")
        depth, tokens = old.encoder.depth, bridge.settings["tokens"]
        if old_block == depth and tokens != (old.segments or 1):
            raise ValueError(
                f"old_block: {old_block} is outside 0..{depth - 1}; {depth} is the head's input, "
                f"for a bridge of {old.segments or 1} token(s), not {tokens}"
            )
        if not 0 <= old_block <= depth:
            raise ValueError(f"old_block: {old_block} is outside 0..{depth - 1}")
        if old.segments is not None and bridge.reads == "pooled":
            raise ValueError(
                f"bridge: {bridge_kind(bridge)} pools over time, but the old task labels "
                f"{old.segments} segments along time; take one that reads tokens (per_token)"
            )
        self.new = new.freeze()
        self.old = old.freeze()
        self.bridge = bridge
        self.new_block = new_block
        self.old_block = old_block

    def forward(self, inputs: Tensor) -> Logits:
        """Logits of the old task from inputs of the new modality."""
        return self.from_pooled(self.pool(inputs))

    @torch.no_grad()
    def pool(self, inputs: Tensor) -> Read:
        """What the bridge reads of block m: the mean token (B, d_m), or tokens (B, T_m, d_m)."""
        hidden = self.new.forward_to(inputs, self.new_block)
        return hidden if self.bridge.reads == "tokens" else hidden.mean(dim=1)

    def last_hidden(self, pooled: Read) -> Float[Tensor, "batch tokens width_old"]:
        """Output of the old model's last block, (B, T, d_L), from what the bridge reads."""
        return self.old.encoder.forward_from(self.bridge(pooled), self.old_block)

    def from_pooled(self, pooled: Read) -> Logits:
        """Logits from what the bridge reads."""
        return self.old.read_out(self.last_hidden(pooled))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `bridge.safetensors` and `config.json`; the two frozen models are not stored."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: value.contiguous() for name, value in self.bridge.state_dict().items()}
        save_file(weights, folder / "bridge.safetensors")
        config = {
            "kind": _KIND,
            "bridge": {"kind": bridge_kind(self.bridge), **self.bridge.settings},
            "new_block": self.new_block,
            "old_block": self.old_block,
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, new: BlockModel, old: TaskModel
    ) -> BridgedModel:
        """Load a bridge between the two models it was trained for.

        Raises:
            ValueError: the folder is not of this kind, its weights and configuration disagree, or a
                model lacks the block.
            FileNotFoundError: the folder lacks `config.json` or `bridge.safetensors`.
        """
        folder = Path(folder)
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / 'config.json'}: not readable as JSON") from error
        if config.get("kind") != _KIND:
            raise ValueError(f"{folder}: holds {config.get('kind')!r}, not {_KIND}")
        kind = config["bridge"].pop("kind", None)
        if kind not in BRIDGES:
            raise ValueError(f"{folder}: bridge of kind {kind!r}, not one of {', '.join(BRIDGES)}")
        bridge = BRIDGES[kind](**config["bridge"])
        try:
            weights = load_file(folder / "bridge.safetensors")
        except SafetensorError as error:
            raise ValueError(f"{folder / 'bridge.safetensors'}: not readable ({error})") from error
        try:
            bridge.load_state_dict(weights)
            return cls(
                new=new,
                old=old,
                bridge=bridge,
                new_block=config["new_block"],
                old_block=config["old_block"],
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"{folder}: {' '.join(str(error).split())}") from error
