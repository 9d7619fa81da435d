"""What a computation costs: seconds, peak memory, parameters, floating-point operations."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def peak_memory() -> dict[str, float]:
    """Highest memory use of this process so far, in MB (10^6 bytes).

    Returns:
        `resident`: peak resident set. `cuda`: peak allocated on the current CUDA device, 0.0
        without one.
    """
    import torch

    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    cuda = torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else 0.0
    return {"resident": resident, "cuda": cuda}


class Cost:
    """Seconds and memory of a `with` block.

    Attributes:
        seconds: wall time.
        memory: how far memory rose, at its highest, above what was in use before, MB (10^6 bytes):
            of the current CUDA device where that was used, else of the resident set. What earlier
            work freed does not count as in use, so the order of several blocks does not matter.

    >>> with Cost() as cost:
    ...     pass
    >>> cost.seconds >= 0
    True
    """

    def __init__(self, interval: float = 0.02) -> None:
        self.interval = interval
        self.seconds = self.memory = 0.0

    def __enter__(self) -> Cost:
        import psutil

        self._cuda = _reset_cuda_peak()
        _return_free_memory()
        process = psutil.Process()
        start = process.memory_info().rss
        self._ended = threading.Event()

        def watch() -> None:
            # The operating system's own peak never falls again, so the resident set is sampled.
            ended = False
            while not ended:
                ended = self._ended.wait(self.interval)
                self.memory = max(self.memory, (process.memory_info().rss - start) / 1e6)

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self._ended.set()
        self._thread.join()
        if grown := peak_memory()["cuda"] - self._cuda:
            self.memory = grown


def _reset_cuda_peak() -> float:
    """Start a new peak at what is allocated now, MB; 0.0 without a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 1e6


def _return_free_memory() -> None:
    """Hand what was freed back to the operating system, where the C library can."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def count_parameters(module: nn.Module, *, trainable: bool = False) -> int:
    """Number of parameters of `module`; with `trainable`, only those that receive gradients."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)


def count_flops(module: nn.Module, *inputs: Any) -> int:
    """Floating-point operations of one forward pass on `inputs`, as torch's counter sees them.

    Matrix products, convolutions and attention count, a multiply-add as two; element-wise work does
    not. The pass runs in evaluation mode and leaves the module, its running statistics included,
    as it was.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(*inputs)
    finally:
        for part, training in modes:
            part.training = training
    return counter.get_total_flops()
