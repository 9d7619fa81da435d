"""What a computation costs: seconds, peak memory, parameters, floating-point operations."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


class Timer:
    """Seconds of wall time spent inside `with` blocks; one timer may be entered again.

    >>> timer = Timer()
    >>> with timer:
    ...     pass
    >>> timer.seconds >= 0
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Timer:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


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


class MemoryMeter:
    """How much the resident set grows inside a `with` block at its highest, in MB.

    A thread samples the resident set, since the operating system's own peak never falls again.
    """

    def __init__(self, interval: float = 0.02) -> None:
        self.interval = interval
        self.growth = 0.0

    def __enter__(self) -> MemoryMeter:
        import threading

        import psutil

        process = psutil.Process()
        start = process.memory_info().rss
        self._stop = threading.Event()

        def watch() -> None:
            ended = False
            while not ended:
                ended = self._stop.wait(self.interval)
                self.growth = max(self.growth, (process.memory_info().rss - start) / 1e6)

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Cost:
    """Seconds and memory growth (MB) of a `with` block, as `Timer` and `MemoryMeter` see them."""

    def __init__(self) -> None:
        self._timer, self._meter = Timer(), MemoryMeter()

    def __enter__(self) -> Cost:
        self._meter.__enter__()
        self._timer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.__exit__(*error)
        self._meter.__exit__(*error)

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self._timer.seconds

    @property
    def memory(self) -> float:
        """Growth of the resident set at its highest, MB."""
        return self._meter.growth


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
