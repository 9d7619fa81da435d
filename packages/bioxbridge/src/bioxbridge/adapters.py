"""A frozen model seen as an embedding followed by blocks, whatever its own tensor layout.

BioX-Bridge (arXiv 2510.02276, section 3.1) needs three things of a model: the output of block m,
the continuation from the input of block l, and the width and tokens there. Hidden states are
(B, T, D) outside of this file; each model's own layout is a tag that is never guessed from sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Layout = Literal["BTD", "TBD", "BDT", "GTD"]
Hidden = Float[Tensor, "batch tokens width"]


def to_canonical(hidden: Tensor, layout: Layout, groups: int = 1) -> Hidden:
    """A model's own hidden state as (B, T, D).

    Args:
        hidden: in the model's layout.
        layout: `BTD`; `TBD` (fairseq); `BDT` (convolutions: channels are features); `GTD`
            (B x groups, T, D: each sensor channel runs by itself, their tokens are joined).
        groups: sensor channels of a `GTD` layout.
    """
    if layout == "TBD":
        return hidden.transpose(0, 1)
    if layout == "BDT":
        return hidden.transpose(1, 2)
    if layout == "GTD":
        return hidden.unflatten(0, (-1, groups)).flatten(1, 2)
    return hidden


def from_canonical(hidden: Hidden, layout: Layout, groups: int = 1) -> Tensor:
    """(B, T, D) as the model's own layout; inverse of `to_canonical`."""
    if layout == "TBD":
        return hidden.transpose(0, 1)
    if layout == "BDT":
        return hidden.transpose(1, 2)
    if layout == "GTD":
        return hidden.unflatten(1, (groups, -1)).flatten(0, 1)
    return hidden


class BlockModel(nn.Module):
    """A model whose blocks can be entered and left.

    Args:
        module: the whole model; calling it on the inputs must run the blocks in order.
        blocks: the blocks, or the dotted name of a `ModuleList` or `Sequential` inside `module`.
        layout: layout of the tensors that pass between blocks, see `to_canonical`.
        groups: sensor channels of a `GTD` layout.
        block_arguments: keyword arguments that each block needs besides the hidden state.

    Raises:
        ValueError: there is no such submodule, or it holds no blocks.
    """

    def __init__(
        self,
        module: nn.Module,
        blocks: str | Iterable[nn.Module],
        *,
        layout: Layout = "BTD",
        groups: int = 1,
        block_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        if isinstance(blocks, str):
            try:
                blocks = module.get_submodule(blocks).children()
            except AttributeError as error:
                raise ValueError(f"blocks: {type(module).__name__} has no {blocks!r}") from error
        # A plain list: the blocks are registered once, inside `module`.
        self._blocks = list(blocks)
        if not self._blocks:
            raise ValueError(f"blocks: {type(module).__name__} has none under that name")
        self.layout: Layout = layout
        self.groups = groups
        self.block_arguments = block_arguments or {}
        self.frozen = False

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockModel:
        # The list of blocks must point into the copy, not into the original.
        import copy

        names = {id(block): name for name, block in self.module.named_modules()}
        module = copy.deepcopy(self.module, memo)
        clone = type(self).__new__(type(self))
        nn.Module.__init__(clone)
        memo[id(self)] = clone
        for name in ("layout", "groups", "block_arguments", "frozen", "training"):
            setattr(clone, name, getattr(self, name))
        clone.module = module
        clone._blocks = [module.get_submodule(names[id(block)]) for block in self._blocks]
        return clone

    def freeze(self) -> BlockModel:
        """No gradients, and evaluation mode for good: `train()` no longer changes it."""
        self.requires_grad_(False)
        self.eval()
        self.frozen = True
        return self

    def train(self, mode: bool = True) -> BlockModel:
        """Switch between training and evaluation, unless frozen."""
        return super().train(mode and not self.frozen)

    def forward(self, inputs: Tensor) -> Hidden:
        """Output of the last block, (B, T, D), before any final norm."""
        return self.forward_to(inputs, self.depth - 1)

    def forward_to(self, inputs: Tensor, block: int) -> Hidden:
        """Output of block `block` (counted from 0); later blocks do not run.

        Raises:
            IndexError: there is no such block.
        """
        return self.hidden_states(inputs, [block + 1])[0]

    def hidden_states(self, inputs: Tensor, positions: Iterable[int] | None = None) -> list[Hidden]:
        """Hidden states at several positions, in one pass that ends at the last of them.

        Args:
            inputs: batch of model inputs.
            positions: 0 is the input of the first block, k the output of block k - 1; all
                positions 0..depth when it is not given.

        Returns:
            One (B, T, D) tensor a position, in the order asked for.

        Raises:
            IndexError: a position outside 0..depth.
        """
        wanted = list(range(self.depth + 1)) if positions is None else list(positions)
        for position in wanted:
            if not 0 <= position <= self.depth:
                raise IndexError(f"position {position} is outside 0..{self.depth}")
        found: dict[int, Hidden] = {}
        last = max(wanted)

        def keep(position: int, hidden: Any) -> None:
            if position in wanted:
                found[position] = to_canonical(_tensor(hidden), self.layout, self.groups)
            if position == last:
                raise _ReachedError

        def before_first(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            keep(0, arguments)

        handles = [self._blocks[0].register_forward_pre_hook(before_first)]
        for k, block in enumerate(self._blocks[:last]):
            handles.append(
                block.register_forward_hook(lambda _m, _i, output, k=k: keep(k + 1, output))
            )
        try:
            self.module(inputs)
        except _ReachedError:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return [found[position] for position in wanted]

    def forward_from(self, hidden: Hidden, block: int) -> Hidden:
        """Output of the last block when `hidden` takes the place of the input of `block`.

        Earlier blocks do not run. Gradients flow to `hidden`, also through a frozen model.

        Args:
            hidden: (B, T, D).
            block: 0..depth - 1; depth returns `hidden` as it is.

        Raises:
            IndexError: a block outside 0..depth.
        """
        if not 0 <= block <= self.depth:
            raise IndexError(f"block {block} is outside 0..{self.depth}")
        own = from_canonical(hidden, self.layout, self.groups)
        for module in self._blocks[block:]:
            own = _tensor(module(own, **self.block_arguments))
        return to_canonical(own, self.layout, self.groups)


class TaskModel(nn.Module):
    """A model of blocks with a task head on the mean token of its last block (section 3.1).

    Args:
        encoder: the model of blocks.
        head: from (B, D) to logits (B, C).
    """

    def __init__(self, encoder: BlockModel, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.frozen = False

    def forward(self, inputs: Tensor) -> Float[Tensor, "batch classes"]:
        """Logits (B, C)."""
        return self.read_out(self.encoder(inputs))

    def read_out(self, hidden: Hidden) -> Float[Tensor, "batch classes"]:
        """Logits (B, C) from the output of the last block."""
        return self.head(hidden.mean(dim=1))

    def freeze(self) -> TaskModel:
        """Freeze encoder and head, see `BlockModel.freeze`."""
        self.encoder.freeze()
        self.head.requires_grad_(False)
        self.eval()
        self.frozen = True
        return self

    def train(self, mode: bool = True) -> TaskModel:
        """Switch between training and evaluation, unless frozen."""
        return super().train(mode and not self.frozen)


class _ReachedError(Exception):
    """Ends a forward pass at the last position that is needed."""


def _tensor(output: Any) -> Tensor:
    """The hidden state among what a block takes or returns."""
    while isinstance(output, tuple | list):
        output = output[0]
    if not torch.is_tensor(output):
        raise TypeError(f"a block passes on {type(output).__name__}, not a tensor")
    return output
