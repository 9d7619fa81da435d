"""`python -m bioxbridge` and the console script `bioxbridge`."""

import sys

from papers_shared.verbs import run_verbs

VERBS = {
    "train": "train a bridge between two frozen encoders and compare it with its baselines",
    "pretrain": "pretrain the encoders alone",
    "select": "select the bridge's place; compare it with fixed places or all of them",
    "baselines": "train and score the baselines alone",
    "sweep": "train many bridges, varying options such as the rank or the share of pairs",
    "evaluate": "use a trained bridge on recordings of the new modality alone",
    "report": "put the splits of several runs into one report",
}


def main(argv: list[str] | None = None) -> int:
    """List the verbs or run one; returns the exit code."""
    return run_verbs("bioxbridge", VERBS, argv)


if __name__ == "__main__":
    sys.exit(main())
