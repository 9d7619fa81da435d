"""Where words go: results to standard output, progress and warnings to standard error."""

import logging
import os
import warnings

from rich.console import Console
from rich.logging import RichHandler

console = Console(highlight=False, soft_wrap=not os.isatty(1))
stderr = Console(stderr=True, highlight=False, soft_wrap=not os.isatty(2))

_NOISY = ("lightning", "lightning.pytorch", "lightning.fabric", "torch", "matplotlib", "fsspec")
_ADVICE = (
    ".*does not have many workers.*",
    ".*The number of training batches.*",
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*GPU available but not used.*",
    ".*Checkpoint directory.*exists and is not empty.*",
    ".*in eval mode at the start of training.*",
)


def get_logger(name: str) -> logging.Logger:
    """The logger of one module; silent until `set_up_logging` is called."""
    return logging.getLogger(name)


def set_up_logging(level: str = "INFO") -> None:
    """Send log records to standard error and quieten libraries that advise on every start.

    Args:
        level: one of DEBUG, INFO, WARNING, ERROR; third-party records below ERROR are hidden
            unless it is DEBUG.
    """
    if stderr.is_terminal:
        handler: logging.Handler = RichHandler(console=stderr, show_path=False, show_time=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.ERROR)
        for message in _ADVICE:
            warnings.filterwarnings("ignore", message)
