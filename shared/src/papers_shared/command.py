"""Commands with one-line errors: what of the command line needs neither torch nor Lightning."""

from __future__ import annotations

import argparse
import difflib
import importlib.resources
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from jsonargparse import ArgumentParser

from papers_shared.console import set_up_logging, stderr
from papers_shared.errors import UserError

Options = TypeVar("Options")


def run_command(action: Callable[[], Any]) -> int:
    """Run a command and turn the caller's mistakes into one line.

    Returns:
        0 when it ended well, 2 for a `UserError` (its text goes to standard error), 130 when it
        was interrupted. Any other exception is a defect and passes through.
    """
    set_up_logging()
    try:
        action()
    except UserError as error:
        stderr.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as ending:
        # Lightning shuts a training down on Ctrl-C and then exits.
        if isinstance(ending.__context__, KeyboardInterrupt):
            return _interrupted()
        raise
    return 0


def _interrupted() -> int:
    stderr.print("interrupted; the run folder keeps what was finished")
    return 130


def one_line(message: str) -> str:
    r"""A parser's message without its line breaks, tips and type syntax.

    >>> one_line('Parser key "model.rank":\n  Expected a <class \'int\'>. Got value: many')
    'model.rank: expected int, got many'
    """
    text = " ".join(message.split())
    text = re.sub(r"^(error|tip):\s*", "", text)
    text = re.sub(r"Parser key \"([^\"]+)\": ?", r"\1: ", text)
    expected = re.findall(
        r"Expected an? (.+?)(?=\.? Got value|\.? Given value| - Expected|$)", text
    )
    value = re.search(r"(?:Got|Given) value: (.*)$", text)
    if expected and value:
        names = [re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.", r"\1", name) for name in expected]
        names = [name.replace("NoneType", "null") for name in names]
        names = [re.sub(r"Literal\[([^\]]*)\]", r"one of \1", name) for name in names]
        names = [name.replace("'", "") for name in names]
        text = f"{text.split(':')[0]}: expected {' or '.join(names)}, got {value[1]}"
    return text.rstrip(".")


class OneLineErrors(ArgumentParser):
    """A parser whose errors are `UserError`s, with a suggestion for a misspelt option."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the message as a `UserError`."""
        text = one_line(message)
        flag = re.search(r"--?([\w.-]+)", text) if "nrecognized arguments" in text else None
        key = re.search(r"(?:not accept o|^O)ption '([\w.-]+)'", text)
        if flag or key:
            dashes, name = ("--", flag[1]) if flag else ("", key[1])
            options = [name for action in self._all_actions() for name in action.option_strings]
            close = difflib.get_close_matches(f"--{name}", options, n=1)
            place = "" if flag else f" in {' or '.join(self._configs_with(name)) or 'a --config'}"
            text = f"unknown option {dashes}{name}{place}; "
            if close:
                text += f"did you mean {dashes}{close[0].removeprefix('--')}?"
            else:
                text += "--help lists the options"
        raise UserError(text) from ex

    def parse_args(self, args: list[str] | None = None, *others: Any, **named: Any) -> Any:
        """Parse, and remember which configuration files to blame."""
        self._argv = list(args or [])
        return super().parse_args(args, *others, **named)

    def _configs_with(self, name: str) -> list[str]:
        """The configuration files of the command line that set an option of this dotted name."""
        paths = [a.removeprefix("--config=") for a in self._argv if a.startswith("--config=")]
        return [path for path in paths if _holds(_read_config(path), name.split("."))]

    def _all_actions(self) -> list[argparse.Action]:
        actions = list(self._actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                actions += [a for parser in action.choices.values() for a in parser._actions]
        return actions


def packaged_config(package: str, name: str) -> Path | None:
    """Path of `configs/NAME(.yaml)` inside a package, None when it ships no such file."""
    folder = Path(str(importlib.resources.files(package) / "configs"))
    for candidate in (folder / name, folder / f"{name}.yaml"):
        if candidate.parent == folder and candidate.is_file():
            return candidate
    return None


def resolve_configs(package: str, argv: list[str]) -> list[str]:
    """Put configuration files before the flags, which therefore beat them.

    `--config smoke` stands for the packaged file where no file of that name exists.

    Raises:
        UserError: a file that is neither there nor packaged.
    """
    configs, flags = [], []
    arguments = iter(argv)
    for argument in arguments:
        flag, separator, value = argument.partition("=")
        if flag not in ("-c", "--config"):
            flags.append(argument)
            continue
        if not separator:
            value = next(arguments, "")
        path = Path(value)
        if not value:
            raise UserError(f"{flag}: names no file")
        if path.exists() and not path.is_file():
            raise UserError(f"--config {value}: is not a file")
        found = path if path.exists() else packaged_config(package, value)
        if found is None:
            raise UserError(f"--config {value}: no such file, nor does {package} ship one")
        _read_config(found)
        configs.append(f"--config={found}")
    return configs + flags


def _read_config(path: str | Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path}: not readable as text ({error})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not readable"
        raise UserError(f"--config {path}: {where}no YAML: {problem}") from error
    if not isinstance(content, dict | None):
        raise UserError(f"--config {path}: holds {content!r:.60}, not options by name")
    return content or {}


def _holds(content: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(content, dict) or key not in content:
            return False
        content = content[key]
    return True


def run_verb(
    package: str,
    verb: str,
    options: type[Options],
    action: Callable[[Options], Any],
    argv: list[str] | None = None,
) -> int:
    """Parse a dataclass of options from flags and `--config`, and call `action` with it.

    Args:
        package: import name, for packaged configurations and the usage line.
        verb: name of the verb.
        options: a dataclass; its docstring is the help.
        action: what to do with the parsed options.
        argv: arguments after the verb; None takes the command line.

    Returns:
        The exit code, see `run_command`.
    """

    def parse_and_act() -> None:
        parser = OneLineErrors(prog=f"python -m {package}.{verb}", description=options.__doc__)
        parser.add_argument("-c", "--config", action="config", help="a YAML file of options")
        parser.add_class_arguments(options)
        arguments = resolve_configs(package, sys.argv[1:] if argv is None else argv)
        parsed = parser.parse_args(arguments)
        parsed.pop("config", None)
        action(options(**parser.instantiate(parsed).as_dict()))

    return run_command(parse_and_act)
