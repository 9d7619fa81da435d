"""Every command of the root README is tested, and what it points to exists."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from papers_shared.readme import update_readmes

# How each command of the README's bash blocks is tested: by a file that holds the given text, or,
# where there is no file, by running it here.
COMMANDS = {
    "make demo": (".github/workflows/ci.yml", "make demo"),
    "make test-all": (".ci/run", "make test-all"),
    "UV_TORCH_BACKEND=cpu make demo": (".github/workflows/ci.yml", "UV_TORCH_BACKEND: cpu"),
    "make build": (".github/workflows/ci.yml", "make build"),
    "pip install --find-links dist bioxbridge": (
        "tests/test_isolation.py",
        '"--find-links", wheels, "bioxbridge"',
    ),
    "python -m bioxbridge.train": (".github/workflows/ci.yml", "make demo"),
    "python -m bioxbridge.train --config smoke": ("tests/test_contract.py", '"--config", "smoke"'),
    "python -m bioxbridge.train --print_config": ("tests/test_contract.py", '"--print_config"'),
    "python -m bioxbridge": None,
    "make help": None,
}


def _commands(root: Path) -> list[str]:
    text = (root / "README.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^ *```bash\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE))
    commands = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines.splitlines()]
    return [command for command in commands if command]


def test_every_command_is_accounted_for(root: Path) -> None:
    assert set(_commands(root)) == set(COMMANDS)


@pytest.mark.parametrize("command", [name for name, test in COMMANDS.items() if test])
def test_a_command_is_tested_elsewhere(root: Path, command: str) -> None:
    file, text = COMMANDS[command]
    assert text in (root / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [name for name, test in COMMANDS.items() if not test])
def test_a_light_command_runs(root: Path, command: str) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    # The make that runs these tests would have its own options heeded by this one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 1


def test_make_targets_of_the_documents_exist(root: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    documents = [root / name for name in ("README.md", "CONTRIBUTING.md", ".ci/run")]
    documents += (root / ".github/workflows").glob("*.yml")
    documents.append(root / ".pre-commit-config.yaml")
    for path in documents:
        named = set(re.findall(r"(?:`|: |^ *)make ([a-z-]+)", path.read_text(), re.MULTILINE))
        assert named <= targets, path


def test_results_tables_agree_with_the_results(root: Path) -> None:
    assert update_readmes(root, check=True) == []


def test_the_readme_has_room_for_the_claims(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- claims:begin -->") == text.count("<!-- claims:end -->") == 1
    assert text.index("<!-- claims:begin -->") < text.index("<!-- claims:end -->")


def test_the_readme_states_what_is_built(root: Path, packages: list[str], built: list[str]) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    for name in packages:
        [state] = re.findall(rf"^\| \[`{name}`\].*?\| (built|not yet) \|", text, re.MULTILINE)
        assert (state == "built") == (name in built), name


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "shared/README.md", "packages"],
)
def test_links_lead_somewhere(root: Path, packages: list[str], document: str) -> None:
    names = [f"packages/{name}/README.md" for name in packages]
    for name in names if document == "packages" else [document]:
        path = root / name
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert "://" in target or (path.parent / target).exists(), f"{name}: {target}"
