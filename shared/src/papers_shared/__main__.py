"""`python -m papers_shared VERB ...`: what spans the packages."""

import sys

from papers_shared.console import stderr
from papers_shared.errors import UserError
from papers_shared.verbs import run_verbs

VERBS = {
    "demo": "PACKAGE...      run the main jobs, print one table, write runs/index.html",
    "readme": "ROOT [--check]  write the results tables of the READMEs; --check only tells",
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    try:
        return run_verbs("papers_shared", VERBS, argv)
    except UserError as error:
        stderr.print(f"error: {error}", markup=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
