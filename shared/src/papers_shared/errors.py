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


def require_positive(group: str, options: object, *names: str) -> None:
    """See that options are numbers above zero.

    Args:
        group: what the message puts before the name, `group.name`.
        options: object that holds them as attributes.
        names: of the attributes.

    Raises:
        ValueError: names the first one that is not, and its value.
    """
    for name in names:
        value = getattr(options, name)
        if not 0 < value < float("inf"):
            raise ValueError(f"{group}.{name}: {value} is not above zero")
