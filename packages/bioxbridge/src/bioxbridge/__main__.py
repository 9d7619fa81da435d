"""`python -m bioxbridge` and the console script `bioxbridge`."""

import sys

from papers_shared.verbs import run_verbs

VERBS = {
    "train": "train a bridge between two frozen encoders and compare it with its baselines",
}


def main(argv: list[str] | None = None) -> int:
    """List the verbs or run one; returns the exit code."""
    return run_verbs("bioxbridge", VERBS, argv)


if __name__ == "__main__":
    sys.exit(main())
