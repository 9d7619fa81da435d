"""A bridged model as one file that runs without this package: torch.export or ONNX.

What is exported are the parts of BioX-Bridge (arXiv 2510.02276, section 3.1) that run for a new
signal: the new model up to block m, the bridge, the old model from block l, and its head.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel
from bioxbridge.bridged import BridgedModel
from bioxbridge.layouts import from_canonical, hidden_tensor, pool_segments, to_canonical

# What files of format protobuf, which ONNX is, can hold.
_ONNX_BYTES = 2**31


class StandaloneBridge(nn.Module):
    """The parts of a bridged model that run, copied, with a forward pass that can be traced.

    `BlockModel` leaves a model early by an exception, which no tracer follows. Here the blocks
    after m, and every module that is called only after block m, hand on what they get: the new
    model's own code runs to its end, at no cost, and the output of block m is picked up. That works
    for code that has nothing but modules, means and the like after its blocks; `export_program`
    and `export_onnx` refuse other models.

    Args:
        bridged: left as it is.
        example: a small batch of model inputs, to see what is called when.

    Raises:
        ValueError: the new model's code after its blocks does not bear their absence.
    """

    def __init__(self, bridged: BridgedModel, example: Tensor) -> None:
        super().__init__()
        new = copy.deepcopy(bridged.new)
        self.new = new.module
        self._layout, self._groups = new.layout, new.groups
        self._reached = _stop_after(new, bridged.new_block, example)
        self.pools = bridged.bridge.reads == "pooled"
        self.bridge = copy.deepcopy(bridged.bridge)
        old = copy.deepcopy(bridged.old)
        self.tail = nn.ModuleList(old.encoder.blocks[bridged.old_block :])
        self._old = old.encoder.layout, old.encoder.groups
        self._arguments = old.encoder.block_arguments
        self.head = old.head
        self.segments = old.segments
        self.requires_grad_(False)
        self.eval()
        try:
            self(example)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"export: {type(new.module).__name__} cannot end after block {bridged.new_block}: "
                f"{_reason(error)}"
            ) from error

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits from inputs of the new modality."""
        self.new(inputs)
        read = to_canonical(self._reached.take(), self._layout, self._groups)
        own = from_canonical(self.bridge(read.mean(dim=1) if self.pools else read), *self._old)
        for block in self.tail:
            own = hidden_tensor(block(own, **self._arguments))
        last = to_canonical(own, *self._old)
        if self.segments is None:
            return self.head(last.mean(dim=1))
        return self.head(pool_segments(last, self.segments))


def export_program(bridged: BridgedModel, example: Tensor, file: str | Path) -> float:
    """Write a `torch.export` program (.pt2) that takes any number of windows.

    `torch.export.load(file).module()` runs it; neither this package nor the code of the two models
    is needed for that.

    Args:
        bridged: on the CPU.
        example: a batch of model inputs.
        file: written whole or not at all.

    Returns:
        Largest difference from the bridged model's own logits, over batches of several sizes.

    Raises:
        ValueError: the model cannot be traced, or what was traced gives other logits.
    """
    model, program, batches = _traced(bridged, example)
    difference = _difference(program.module(), model, batches)
    with _whole_file(Path(file)) as partial:
        torch.export.save(program, partial)
    return difference


def export_onnx(bridged: BridgedModel, example: Tensor, file: str | Path) -> float:
    """Write an ONNX model with input `inputs` and output `logits`, for any number of windows.

    Args:
        bridged: on the CPU.
        example: a batch of model inputs.
        file: written whole or not at all.

    Returns:
        Largest difference of ONNX Runtime's logits from the bridged model's own, over batches of
        several sizes.

    Raises:
        ValueError: onnx, onnxscript or onnxruntime is missing, the model is larger than 2 GB,
            cannot be traced, has an operation that ONNX has not, or gives other logits there.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 - torch.onnx needs it
    except ImportError as error:
        raise ValueError(
            f'export: ONNX needs {error.name}; pip install "bioxbridge[onnx]"'
        ) from error
    model, program, batches = _traced(bridged, example)
    size = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    if size >= _ONNX_BYTES:
        raise ValueError(f"export: {size / 2**30:.1f} GB of weights; an ONNX file holds 2 GB")
    try:
        with _quiet():
            converted = torch.onnx.export(
                program, dynamo=True, input_names=["inputs"], output_names=["logits"], verbose=False
            )
    except Exception as error:
        raise ValueError(f"export: no ONNX for this model: {_reason(error)}") from error
    with _whole_file(Path(file)) as partial:
        converted.save(partial)
        onnx.checker.check_model(partial)
        runtime = onnxruntime.InferenceSession(partial, providers=["CPUExecutionProvider"])

        def run(inputs: Tensor) -> Tensor:
            return torch.from_numpy(runtime.run(["logits"], {"inputs": inputs.numpy()})[0])

        return _difference(run, model, batches)


def _traced(
    bridged: BridgedModel, example: Tensor
) -> tuple[BridgedModel, torch.export.ExportedProgram, list[Tensor]]:
    """The model, its program, and batches of one, two and five windows to compare them on."""
    rows = torch.arange(5) % len(example)
    batches = [example[:1], example[rows[:2]], example[rows]]
    standalone = StandaloneBridge(bridged, batches[1])
    # Sizes 0 and 1 are taken for constants by the tracer.
    dynamic = ({0: torch.export.Dim("windows", min=1)},)
    with _plain_attention():
        try:
            program = torch.export.export(standalone, (batches[2],), dynamic_shapes=dynamic)
        except Exception as error:
            raise ValueError(
                f"export: {type(bridged.new.module).__name__} to "
                f"{type(bridged.old.encoder.module).__name__} cannot be traced: "
                f"{_reason(error)}"
            ) from error
    return bridged, program, batches


@torch.no_grad()
def _difference(
    exported: Callable[[Tensor], Tensor],
    model: BridgedModel,
    batches: list[Tensor],
    tolerance: float = 1e-4,
) -> float:
    """Largest difference of logits, over their size where that is above 1."""
    worst = 0.0
    for batch in batches:
        expected = model(batch)
        off = (exported(batch) - expected).abs().max() / expected.abs().max().clamp(min=1)
        if not float(off) <= tolerance:
            raise ValueError(
                f"export: logits of {len(batch)} window(s) are off by {float(off):.2g}, "
                f"more than {tolerance:g}"
            )
        worst = max(worst, float(off))
    return worst


class _Reached:
    """Hands the output of block m from inside the model to the code around it."""

    def __init__(self) -> None:
        self.output: Any = None

    def keep(self, _: nn.Module, __: Any, output: Any) -> None:
        self.output = output

    def take(self) -> Tensor:
        output, self.output = self.output, None
        return hidden_tensor(output)


class _Later(nn.Module):
    """A block after m: returns what block m did, in whatever form blocks of this model return."""

    def __init__(self, reached: _Reached) -> None:
        super().__init__()
        self._reached = [reached]

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._reached[0].output


class _HandOn(nn.Module):
    """A module that is called after the blocks: returns its first argument."""

    def forward(self, first: Any, *_: Any, **__: Any) -> Any:
        return first


@torch.no_grad()
def _stop_after(model: BlockModel, last: int, example: Tensor) -> _Reached:
    """Note what block `last` returns, and replace all that is called after it and not before."""
    names = {module: name for name, module in model.module.named_modules()}
    early: set[nn.Module] = set()
    late: set[nn.Module] = set()
    passed = False

    def note(module: nn.Module, _: Any) -> None:
        (late if passed else early).add(module)

    def leave(*_: Any) -> None:
        nonlocal passed
        passed = True

    handles = [module.register_forward_pre_hook(note) for module in names]
    handles.append(model.blocks[last].register_forward_hook(leave))
    with _plain_attention():
        model.module(example)
    for handle in handles:
        handle.remove()
    reached = _Reached()
    stand_ins: dict[nn.Module, nn.Module] = {
        module: _HandOn() for module in late - early if module not in set(model.blocks)
    }
    stand_ins |= {block: _Later(reached) for block in model.blocks[last + 1 :]}
    model.blocks[last].register_forward_hook(reached.keep)
    for module, stand_in in stand_ins.items():
        parent, _, name = names[module].rpartition(".")
        setattr(model.module.get_submodule(parent), name, stand_in)
    return reached


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Transformer layers of torch by their parts: the fused operation cannot be exported."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own deprecations and its remarks on torchvision."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _whole_file(file: Path) -> Iterator[str]:
    """A name to write to, which becomes `file` once all went well."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.stem}.{os.getpid()}.part{file.suffix}")
    try:
        yield str(partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    """One line on the error that started it all."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
