"""Reproducible randomness: one seed for a run, independent streams for its parts."""

import contextlib
import hashlib
from collections.abc import Iterator

from papers_shared.errors import UserError


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch, and the workers of data loaders.

    Raises:
        UserError: `seed` is not in [0, 2^32).
    """
    from lightning import seed_everything as seed_all

    if not 0 <= seed < 2**32:
        raise UserError(f"seed: {seed} is not between 0 and {2**32 - 1}")
    seed_all(seed, workers=True, verbose=False)


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed in [0, 2^31) that depends on `seed` and on every name, and on nothing else.

    Stages of a run take their seeds from here, so that adding a stage leaves the others' random
    numbers as they were.

    >>> derive_seed(0, "pretrain", "old") == derive_seed(0, "pretrain", "old")
    True
    >>> derive_seed(0, "pretrain", "old") == derive_seed(0, "pretrain", "new")
    False
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 2**31


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from one seed inside the block, untouched outside."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
