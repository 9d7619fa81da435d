"""Mistakes of the caller, told apart from mistakes of the program."""

import contextlib
from collections.abc import Iterator


class UserError(Exception):
    """Bad input: its text is one or two lines that name the file, row, field and value.

    The command line prints the text and ends with exit code 2; anything else that is raised is a
    defect of the program and keeps its traceback.
    """


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Let `ValueError`s of a library call on the caller's data count as the caller's mistakes."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
