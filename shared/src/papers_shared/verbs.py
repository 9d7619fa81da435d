"""`python -m PACKAGE VERB ...`: lists the verbs, or hands over to the one that is named."""

import difflib
import importlib
import sys

from papers_shared.console import console, stderr


def run_verbs(package: str, verbs: dict[str, str], argv: list[str] | None = None) -> int:
    """Run `package.VERB.main(rest)`; answers at once when there is no such verb.

    Args:
        package: import name.
        verbs: one line of help by verb.
        argv: arguments after the program's name; None takes the command line.

    Returns:
        The exit code: 0 also for the list of verbs, 2 for a verb that does not exist.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        usage = f"usage: python -m {package} VERB [options]   (VERB --help lists them)\n"
        console.print(usage, markup=False)
        for verb, text in verbs.items():
            console.print(f"  {verb:<10} {text}", markup=False)
        return 0
    verb, *rest = arguments
    if verb not in verbs:
        close = difflib.get_close_matches(verb, verbs, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"verbs: {', '.join(verbs)}"
        stderr.print(f"error: {package} has no verb {verb!r}; {hint}", markup=False)
        return 2
    module = importlib.import_module(f"{package}.{verb}")
    if hasattr(module, "__path__"):  # a verb may share its name with a folder of modules
        module = importlib.import_module(f"{package}.{verb}.__main__")
    return module.main(rest)
