"""Each member installed alone, from built wheels, into a new environment: `make isolation`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.isolation, pytest.mark.slow]

# Nothing newer than the lock is resolved; `make setup` writes this file.
LOCKED = Path(sys.prefix) / "locked.txt"
PROBE = """
import importlib, importlib.metadata, importlib.util, sys
name, *others = sys.argv[1:]
module = importlib.import_module(name)
found = [other for other in others if importlib.util.find_spec(other)]
assert not found, f"installed too: {found}"
print(importlib.metadata.version(name.replace("_", "-")), module.__file__)
"""


def _run(*command: str | Path, cwd: Path, **changes: str) -> str:
    """Standard output of a command that must succeed."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | changes,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    assert found, "uv is missing: make setup"
    return found


@pytest.fixture(scope="module")
def wheels(uv: str, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the seven wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    _run(uv, "build", "-q", "--all-packages", "--no-sources", "--wheel", "-o", folder, cwd=root)
    assert len(list(folder.glob("*.whl"))) == 7
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    """Where the environment of one test goes; removed after it, since it holds a copy of torch."""
    folder = tmp_path / "venv"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _check_alone(member: str, source: Path, others: list[str], python: Path, cwd: Path) -> None:
    output = _run(python, "-I", "-c", PROBE, member, *others, cwd=cwd)
    version, file = output.strip().split(" ", 1)
    assert f'version = "{version}"' in (source / "pyproject.toml").read_text(encoding="utf-8")
    # The same file as here, so no stranger of this name came from an index.
    installed = Path(file)
    assert installed.is_relative_to(python.parents[1])
    assert installed.read_bytes() == (source / "src" / member / "__init__.py").read_bytes()


def _check_main_job(package: str, python: Path, cwd: Path) -> None:
    assert "train" in _run(python, "-m", package, cwd=cwd)
    run = cwd / "run"
    _run(python, "-m", f"{package}.train", "--config", "smoke", "--run.dir", run, cwd=cwd)
    assert (run / "report.html").is_file()


def test_each_member_alone_by_uv(
    uv: str,
    wheels: Path,
    environment: Path,
    root: Path,
    member: str,
    packages: list[str],
    built: list[str],
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    elsewhere = os.environ.get("UV_FIND_LINKS") or ",".join(
        os.environ.get("PIP_FIND_LINKS", "").split()
    )
    links = ",".join(filter(None, [str(wheels), elsewhere]))
    python = environment / "bin" / "python"
    _run(uv, "venv", "-q", "--python", sys.executable, environment, cwd=root)
    install = [uv, "pip", "install", "-q", "--python", environment, "-c", LOCKED]
    # In the root, because its pyproject.toml says which dependencies are left out.
    _run(*install, member.replace("_", "-"), cwd=root, UV_FIND_LINKS=links)
    others = [name for name in packages if name != member]
    _check_alone(member, folders[member], others, python, tmp_path)
    if member in built:
        _check_main_job(member, python, tmp_path)


def test_bioxbridge_alone_by_pip(
    wheels: Path, environment: Path, packages: list[str], root: Path, tmp_path: Path
) -> None:
    python = environment / "bin" / "python"
    _run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    # pip joins its own find-links, where it has any, with this one.
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "-c", LOCKED]
    _run(*install, "--find-links", wheels, "bioxbridge", cwd=tmp_path)
    others = [name for name in packages if name != "bioxbridge"]
    _check_alone("bioxbridge", root / "packages" / "bioxbridge", others, python, tmp_path)
    _check_main_job("bioxbridge", python, tmp_path)
