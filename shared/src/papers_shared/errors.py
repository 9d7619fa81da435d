"""Mistakes of the caller, told apart from mistakes of the program."""


class UserError(Exception):
    """Bad input: its text is one or two lines that name the file, row, field and value.

    The command line prints the text and ends with exit code 2; anything else that is raised is a
    defect of the program and keeps its traceback.
    """
