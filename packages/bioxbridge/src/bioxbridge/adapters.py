"""A frozen model seen as an embedding followed by blocks, whatever its own tensor layout.

BioX-Bridge (arXiv 2510.02276, section 3.1) needs three things of a model: the output of block m,
the continuation from the input of block l, and the width and tokens there. Hidden states are
(B, T, D) for everyone else, whatever the model's own layout is (`bioxbridge.layouts`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from bioxbridge.layouts import (
    Hidden,
    Layout,
    from_canonical,
    hidden_tensor,
    pool_segments,
    to_canonical,
)

Logits = Float[Tensor, "batch *segments classes"]
Preprocess = Callable[[np.ndarray, float], Tensor]


class BlockModel(nn.Module):
    """A model whose blocks can be entered and left.

    Args:
        module: the whole model; calling it on the inputs must run the blocks in order.
        blocks: the blocks, or the dotted name of a `ModuleList` or `Sequential` inside `module`.
        layout: layout of the tensors that pass between blocks, see `to_canonical`.
        groups: sensor channels of a `GTD` layout.
        block_arguments: keyword arguments that each block needs besides the hidden state.
        preprocess: from windows (B, C, S) of raw signal and their rate in Hz to model inputs.

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
        preprocess: Preprocess | None = None,
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
        self._preprocess = preprocess
        self.frozen = False

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks in order; they are registered inside `module`."""
        return list(self._blocks)

    def set_blocks(self, blocks: Iterable[nn.Module]) -> None:
        """Take other submodules of `module` as its blocks, where they were replaced."""
        self._blocks = list(blocks)

    def preprocess(self, signal: np.ndarray, rate: float | int) -> Tensor:
        """Model inputs from raw signal.

        Args:
            signal: (B, C, S) windows, or (B, S) of a single channel.
            rate: their sampling rate in Hz.

        Raises:
            ValueError: this model was given no preprocessing, or the signal is none that it takes.
        """
        if self._preprocess is None:
            raise ValueError(f"preprocess: {type(self.module).__name__} was given none")
        return self._preprocess(signal, rate)

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockModel:
        # The list of blocks must point into the copy, not into the original.
        names = {id(block): name for name, block in self.module.named_modules()}
        module = copy.deepcopy(self.module, memo)
        clone = type(self).__new__(type(self))
        nn.Module.__init__(clone)
        memo[id(self)] = clone
        for name in (
            "layout",
            "groups",
            "block_arguments",
            "frozen",
            "training",
            "_preprocess",
        ):
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
                found[position] = to_canonical(hidden_tensor(hidden), self.layout, self.groups)
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

    def forward_from(self, hidden: Hidden, block: int) -> Float[Tensor, "batch tokens_L width_L"]:
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
            own = hidden_tensor(module(own, **self.block_arguments))
        return to_canonical(own, self.layout, self.groups)


class Place(NamedTuple):
    """What stands at one position between blocks.

    Attributes:
        tokens: T.
        width: D.
    """

    tokens: int
    width: int


@torch.no_grad()
def describe(model: BlockModel, example: Tensor) -> list[Place]:
    """Tokens and width at every position 0..depth, by one dry run.

    Args:
        model: models whose blocks differ in length and width are fine (PaPaGei).
        example: a small batch of model inputs.
    """
    return [Place(*state.shape[1:]) for state in model.hidden_states(example)]


@torch.no_grad()
def check_blocks(model: BlockModel, example: Tensor, *, tolerance: float = 1e-4) -> None:
    """See that running the blocks one after the other is what the model itself does.

    It is not where blocks take more than the hidden state (position biases, masks), where the
    layout is another one, or where dropout is on. A bridge into such a model would be meaningless.

    Args:
        model: in evaluation mode.
        example: a small batch of model inputs.
        tolerance: largest difference, relative to the largest value of the output.

    Raises:
        ValueError: the outputs differ, or a block does not take what the one before returns.
    """
    name = type(model.module).__name__
    first, last = model.hidden_states(example, [0, model.depth])
    try:
        continued = model.forward_from(first, 0)
    except (AttributeError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"blocks: those of {name} do not run by themselves: {reason}") from error
    off = float((continued - last).abs().max() / last.abs().max().clamp(min=1e-12))
    if not off <= tolerance:
        raise ValueError(
            f"blocks: run by themselves, those of {name} are off by {off:.2g} of the output; "
            "they may need block_arguments, another layout, or evaluation mode"
        )


class TaskModel(nn.Module):
    """A model of blocks with a task head on the mean token of its last block (section 3.1).

    Args:
        encoder: the model of blocks.
        head: from (B, D) to logits (B, C).
        segments: for labels along time, the number of equal stretches S of the window that get
            logits each, by the mean token of the stretch; by default the whole window gets them.

    Raises:
        ValueError: fewer segments than one.
    """

    def __init__(
        self, encoder: BlockModel, head: nn.Module, *, segments: int | None = None
    ) -> None:
        super().__init__()
        if segments is not None and segments < 1:
            raise ValueError(f"segments: {segments} is below 1")
        self.encoder = encoder
        self.head = head
        self.segments = segments
        self.frozen = False

    def forward(self, inputs: Tensor) -> Logits:
        """Logits (B, C), or (B, S, C) with `segments`."""
        return self.read_out(self.encoder(inputs))

    def read_out(self, hidden: Hidden) -> Logits:
        """Logits (B, C), or (B, S, C) with `segments`, from the output of the last block."""
        if self.segments is None:
            return self.head(hidden.mean(dim=1))
        return self.head(pool_segments(hidden, self.segments))

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
