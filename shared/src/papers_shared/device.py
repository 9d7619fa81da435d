"""Which accelerator, precision and how many threads a run uses, and why."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from papers_shared.errors import UserError


@dataclass(frozen=True, kw_only=True)
class DeviceChoice:
    """Where a run computes.

    Attributes:
        accelerator: Lightning's name, `cpu`, `cuda` or `mps`.
        name: the processor's or card's own name.
        precision: Lightning's name, `32-true` or `bf16-mixed`.
        threads: CPU threads that torch uses within one operation.
        reason: one sentence that says why these were taken.
    """

    accelerator: str
    name: str
    precision: str
    threads: int
    reason: str

    def as_dict(self) -> dict[str, str | int]:
        """The fields by name."""
        return asdict(self)


def available_cores() -> int:
    """Cores that this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """The processor's own name; its architecture where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe_machine() -> dict[str, str | int]:
    """Name and usable cores of the processor, and the accelerator's name or `none`."""
    import torch

    accelerator = "MPS" if torch.backends.mps.is_available() else "none"
    if torch.cuda.is_available():
        accelerator = torch.cuda.get_device_name()
    return {"name": processor_name(), "cores": available_cores(), "accelerator": accelerator}


def set_threads(threads: int | None = None) -> int:
    """Set torch's threads within one operation and return the number.

    Args:
        threads: at least 1; None takes OMP_NUM_THREADS where it is set (launchers of several
            processes set it), otherwise the cores this process may use.

    Raises:
        UserError: `threads` is below 1.
    """
    import torch

    if threads is not None and threads < 1:
        raise UserError(f"threads: {threads} is not a positive number of threads")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads or available_cores())
    return torch.get_num_threads()


def choose_device(
    accelerator: str = "auto", precision: str | int | None = None, threads: int | None = None
) -> DeviceChoice:
    """Settle accelerator, precision and threads.

    Args:
        accelerator: `auto` takes CUDA, then Apple's MPS, then the CPU; or one of `cpu`, `cuda`
            (also `gpu`), `mps`.
        precision: Lightning's precision; None takes `bf16-mixed` on a CUDA card that computes in
            bfloat16 and `32-true` elsewhere (bfloat16 is slower on most CPUs).
        threads: see `set_threads`.

    Raises:
        UserError: the accelerator is unknown or not on this machine.
    """
    import torch

    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    wanted = {"gpu": "mps" if present["mps"] else "cuda"}.get(accelerator, accelerator)
    if wanted == "auto":
        wanted = next(kind for kind in ("cuda", "mps", "cpu") if present[kind])
        why = "no accelerator was found" if wanted == "cpu" else "it is the fastest one found"
    elif wanted not in present:
        raise UserError(f"accelerator: {accelerator!r} is not one of auto, cpu, cuda, gpu, mps")
    elif not present[wanted]:
        raise UserError(f"accelerator: {accelerator!r} was asked for, but torch finds none here")
    else:
        why = "it was asked for"
    name = torch.cuda.get_device_name() if wanted == "cuda" else processor_name()
    if precision is None:
        bf16 = wanted == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16-mixed" if bf16 else "32-true"
    precision = str(precision)
    count = set_threads(threads)
    reason = f"{wanted} because {why}; {precision}; {count} CPU thread{'s' * (count > 1)}"
    return DeviceChoice(
        accelerator=wanted, name=name, precision=precision, threads=count, reason=reason
    )
