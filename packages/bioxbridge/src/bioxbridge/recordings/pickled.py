"""Pickles of numpy arrays, read without running anything that they ask for."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import numpy as np


def _latin1(text: str, encoding: str) -> bytes:
    """How pickles of Python 2 spell bytes; stands in for the general `codecs.encode`."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"pickle: encodes to {encoding}")
    return text.encode("latin1")


def _dtype(kind: str, align: int = 0, copy: int = 0) -> np.dtype:
    """A type by its name; old pickles give as numbers what NumPy takes as truth values."""
    return np.dtype(kind, align=bool(align), copy=bool(copy))


class ArraysOnly(pickle.Unpickler):
    """Rebuilds numpy arrays, and dicts, lists, text and numbers, which need no class.

    Attributes:
        source: what is read, for messages.

    Raises:
        pickle.UnpicklingError: the pickle names any other class or function; it is not called.
    """

    source: ClassVar[str] = "pickle"
    _allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): _dtype,
        ("_codecs", "encode"): _latin1,
    }

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{self.source}: refers to {module}.{name}") from None
