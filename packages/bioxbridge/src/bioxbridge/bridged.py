"""The bridged model of BioX-Bridge (arXiv 2510.02276, section 3.1): new signal in, old task out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel, Logits, TaskModel
from bioxbridge.bridge_variants import BRIDGES, Bridge, bridge_kind
from bioxbridge.stored import load_state, read_config, save_state, write_config

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

    def fingerprint(self) -> str:
        """A hash of the frozen models' weights, between which alone a bridge means something."""
        digest = hashlib.sha256()
        for name, value in self.state_dict().items():
            if not name.startswith("bridge."):
                digest.update(name.encode())
                digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `bridge.safetensors` and `config.json`; the two frozen models are not stored."""
        config = {
            "bridge": {"kind": bridge_kind(self.bridge), **self.bridge.settings},
            "new_block": self.new_block,
            "old_block": self.old_block,
            "frozen": self.fingerprint(),
        }
        folder = write_config(folder, _KIND, config)
        save_state(self.bridge, folder / "bridge.safetensors")

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, new: BlockModel, old: TaskModel
    ) -> BridgedModel:
        """Load a bridge between the two models it was trained for.

        Raises:
            ValueError: the folder is damaged or not of this kind, a model lacks the block, or the
                models' weights are not those that the bridge was saved with.
            FileNotFoundError: the folder lacks `config.json` or `bridge.safetensors`.
        """
        source = Path(folder) / "config.json"
        config = read_config(folder, _KIND)
        try:
            settings = dict(config["bridge"])
            kind, frozen = settings.pop("kind"), config["frozen"]
            places = {name: config[name] for name in ("new_block", "old_block")}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{source}: describes no bridge ({error})") from error
        if kind not in BRIDGES:
            raise ValueError(f"{source}: bridge of kind {kind!r}, not one of {', '.join(BRIDGES)}")
        try:
            bridge = BRIDGES[kind](**settings)
            load_state(bridge, Path(folder) / "bridge.safetensors")
            bridged = cls(new=new, old=old, bridge=bridge, **places)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder}: {error}") from error
        if bridged.fingerprint() != frozen:
            raise ValueError(f"{folder}: was trained between other weights of the two models")
        return bridged
