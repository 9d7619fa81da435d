import dataclasses
import logging
import subprocess
import sys

import pytest

from papers_shared.command import (
    OneLineErrors,
    one_line,
    resolve_configs,
    run_command,
    run_verb,
)
from papers_shared.console import set_up_logging
from papers_shared.errors import UserError, bad_input
from papers_shared.verbs import run_verbs


@dataclasses.dataclass(kw_only=True)
class Options:
    """Options of a verb.

    Args:
        rank: a number.
        name: a word.
    """

    rank: int = 3
    name: str = "a"


def seen_by_verb(argv):
    seen = []
    code = run_verb("papers_shared", "verb", Options, seen.append, argv)
    return code, seen


def test_flags_and_files_reach_the_action(tmp_path):
    config = tmp_path / "options.yaml"
    config.write_text("rank: 5\nname: b\n")
    assert seen_by_verb([]) == (0, [Options()])
    assert seen_by_verb(["--config", str(config)]) == (0, [Options(rank=5, name="b")])
    # A flag beats the file on either side of it.
    expected = (0, [Options(rank=7, name="b")])
    assert seen_by_verb(["--config", str(config), "--rank", "7"]) == expected
    assert seen_by_verb(["--rank", "7", f"--config={config}"]) == expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rnak", "3"], "unknown option --rnak; did you mean --rank?"),
        (["--zzzzzz", "3"], "unknown option --zzzzzz; --help lists the options"),
        (["--rank", "many"], "rank: expected int, got many"),
        (["--config", "nowhere.yaml"], "--config nowhere.yaml: no such file"),
        (["--config", "/"], "--config /: is not a file"),
        (["--config"], "--config: names no file"),
        (["--config", "open.yaml"], "--config open.yaml: line 2: no YAML: "),
        (["--config", "list.yaml"], "--config list.yaml: holds [1], not options by name"),
        (["--config", "typo.yaml"], "unknown option rnak in typo.yaml; did you mean rank?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(argv, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open.yaml").write_text("rank: [1\n")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "typo.yaml").write_text("rnak: 3\n")
    code, seen = seen_by_verb(argv)
    assert (code, seen) == (2, [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_packaged_configuration_goes_by_its_name(monkeypatch, tmp_path):
    package = tmp_path / "somepackage"
    (package / "configs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "configs/smoke.yaml").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    expected = [f"--config={package / 'configs/smoke.yaml'}", "--x", "1"]
    assert resolve_configs("somepackage", ["--x", "1", "-c", "smoke"]) == expected
    (tmp_path / "smoke").touch()
    assert resolve_configs("somepackage", ["-c", "smoke"]) == ["--config=smoke"]
    with pytest.raises(UserError, match="no such file"):
        resolve_configs("somepackage", ["-c", "../configs/smoke"])


def test_a_configuration_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(bytes([0x91, 0xFF, 0x00]))
    with pytest.raises(UserError, match="not readable as text"):
        resolve_configs("papers_shared", ["--config", str(tmp_path / "binary.yaml")])


def test_exit_codes():
    def interrupt():
        raise KeyboardInterrupt

    def interrupted_training():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)

    def defect():
        raise RuntimeError("a defect")

    def mistake():
        with bad_input():
            raise ValueError("a mistake")

    assert run_command(lambda: None) == 0
    assert run_command(mistake) == 2
    assert run_command(interrupt) == 130
    assert run_command(interrupted_training) == 130
    with pytest.raises(SystemExit):
        run_command(lambda: sys.exit(3))
    with pytest.raises(RuntimeError, match="a defect"):
        run_command(defect)


def test_one_line_of_a_union():
    message = (
        'Parser key "trainer.max_epochs":\n  Does not validate against any of the Union subtypes\n'
        "  Subtypes: [<class 'int'>, <class 'NoneType'>]\n  Errors:\n"
        "    - Expected a <class 'int'>\n    - Expected a <class 'NoneType'>\n"
        "  Given value type: <class 'str'>\n  Given value: x"
    )
    assert one_line(message) == "trainer.max_epochs: expected int or null, got x"


def test_one_line_of_a_choice():
    message = "Parser key \"loss\":\n  Expected a typing.Literal['l1', 'mse']. Got value: l7"
    assert one_line(message) == "loss: expected one of l1, mse, got l7"


def test_suggestions_look_into_subcommands():
    parser = OneLineErrors()
    fit = OneLineErrors()
    fit.add_argument("--rank", type=int, default=1)
    parser.add_subcommands().add_subcommand("fit", fit)
    with pytest.raises(UserError, match="did you mean --rank"):
        parser.parse_args(["fit", "--rnak", "2"])


def test_verbs_are_listed_and_suggested(capsys):
    verbs = {"train": "train a [bold] thing"}
    assert run_verbs("nothing", verbs, []) == 0
    listed = capsys.readouterr().out
    assert "VERB [options]" in listed
    assert "train a [bold] thing" in listed
    assert run_verbs("nothing", verbs, ["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err
    assert run_verbs("nothing", verbs, ["zzz"]) == 2
    assert "verbs: train" in capsys.readouterr().err


def test_commands_start_without_torch():
    code = "import sys, papers_shared.command, papers_shared.verbs; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_advice_of_libraries_is_hidden_unless_debugging():
    set_up_logging("INFO")
    assert logging.getLogger("lightning").level == logging.ERROR
    logging.getLogger("lightning").setLevel(logging.NOTSET)
    set_up_logging("DEBUG")
    assert logging.getLogger("lightning").level == logging.NOTSET
