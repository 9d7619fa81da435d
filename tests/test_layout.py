"""The rules of the layout, held for all seven members."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

LONGEST = 600
# Spelt in halves, so that this file passes its own test.
HALVES = [("/ho", "me/"), ("/ro", "ot/"), ("pypi", r"\.org"), ("python", "hosted")]
FORBIDDEN = re.compile("|".join(first + second for first, second in HALVES))
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib"}
LOADERS = {"load", "loads", "Unpickler", "read_pickle"}


def _project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _kept_files(root: Path) -> list[Path]:
    """Files of the repository: in version control, or new and not ignored."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def test_there_are_six_packages(packages: list[str]) -> None:
    assert packages == [
        "atlas_scaling",
        "bioxbridge",
        "cartridges",
        "icworld",
        "latentfields",
        "mechindep",
    ]


def test_a_member_has_its_parts(member: str, folders: dict[str, Path]) -> None:
    folder = folders[member]
    parts = ["pyproject.toml", "README.md", f"src/{member}/__init__.py", "tests"]
    assert [part for part in parts if not (folder / part).exists()] == []
    assert _project(folder)["name"] == member.replace("_", "-")
    assert [path.name for path in (folder / "src").iterdir() if path.suffix != ".egg-info"] == [
        member
    ]


def test_a_readme_says_whether_the_package_is_built(
    package: str, built: list[str], folders: dict[str, Path]
) -> None:
    text = (folders[package] / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert ("not built yet" in text) == (package not in built)


def test_an_unbuilt_package_holds_nothing_that_computes(
    package: str, built: list[str], folders: dict[str, Path]
) -> None:
    if package in built:
        pytest.skip("built")
    source = folders[package] / "src" / package
    assert [path.name for path in source.glob("**/*.py")] == ["__init__.py"]
    assert "Planning" in str(_project(folders[package])["classifiers"])


def test_a_built_package_ships_its_configurations(
    built_package: str, folders: dict[str, Path]
) -> None:
    configs = folders[built_package] / "src" / built_package / "configs"
    for name in ("default.yaml", "smoke.yaml"):
        assert isinstance(yaml.safe_load((configs / name).read_text(encoding="utf-8")), dict)
    assert _project(folders[built_package])["scripts"] == {
        built_package: f"{built_package}.__main__:main"
    }


def test_test_folders_are_no_packages(root: Path, folders: dict[str, Path]) -> None:
    tests = [root / "tests", *(folder / "tests" for folder in folders.values())]
    assert [str(path) for folder in tests for path in folder.rglob("__init__.py")] == []


def test_every_module_imports(member: str, folders: dict[str, Path]) -> None:
    source = folders[member] / "src"
    for path in sorted((source / member).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        importlib.import_module(".".join(part for part in parts if part != "__init__"))


def test_public_names_are_there(member: str) -> None:
    module = importlib.import_module(member)
    for name in getattr(module, "__all__", []):
        assert getattr(module, name) is not None


def test_import_is_light(packages: list[str]) -> None:
    names = [*packages, "papers_shared"]
    code = f"import sys, {', '.join(names)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def test_no_file_is_long(root: Path) -> None:
    lengths = {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in _kept_files(root)
        if path.suffix == ".py"
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_no_file_names_a_machine_or_a_registry(root: Path) -> None:
    found = []
    for path in _kept_files(root):
        if path == root / "uv.lock":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(root)}: {hit}" for hit in FORBIDDEN.findall(text)]
    assert found == []


def test_packages_bound_the_shared_one(package: str, folders: dict[str, Path]) -> None:
    dependencies = _project(folders[package])["dependencies"]
    assert [d for d in dependencies if d.startswith("papers-shared")] == ["papers-shared>=0.1,<0.2"]
    names = {re.split(r"[^\w-]", d)[0].replace("-", "_") for d in dependencies}
    assert names.isdisjoint(folders.keys() - {"papers_shared"})


def test_members_agree(root: Path, folders: dict[str, Path]) -> None:
    projects = [_project(folder) for folder in folders.values()]
    for key in ("version", "requires-python", "license"):
        assert len({project[key] for project in projects}) == 1, key
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{projects[0]['version']}]" in changes


def test_ci_tests_every_built_package(root: Path, built: list[str]) -> None:
    workflow = yaml.safe_load((root / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert {"shared", *built} <= set(workflow["jobs"]["test"]["strategy"]["matrix"]["package"])


def test_actions_are_pinned_to_a_commit(root: Path) -> None:
    for path in (root / ".github/workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        for use in re.findall(r"uses: *(.*)", text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", use), f"{path.name}: {use}"
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def _unsafe_loads(source: str) -> list[str]:
    """Calls in a module that would run what a file says."""
    found, aliases = [], {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {(a.asname or a.name.split(".")[0]): a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in PICKLES:
            found += [
                f"from {node.module} import {a.name}" for a in node.names if a.name in LOADERS
            ]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        owner = aliases.get(owner, owner)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        unsafe = (
            (owner in PICKLES and name in LOADERS)
            or name == "read_pickle"
            or (owner == "torch" and name == "load" and given.get("weights_only") != "True")
            or given.get("allow_pickle", "False") != "False"
        )
        found += [f"line {node.lineno}: {called}"] if unsafe else []
    return found


def test_pickle_is_never_loaded(member: str, folders: dict[str, Path]) -> None:
    # A subclass of pickle.Unpickler that admits named types is no call and passes.
    found = {
        path.name: calls
        for path in (folders[member] / "src").rglob("*.py")
        if (calls := _unsafe_loads(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "safe"),
    [
        ("import pickle\npickle.load(f)", False),
        ("import pickle as p\np.loads(b)", False),
        ("from pickle import load", False),
        ("import pickle\npickle.Unpickler(f).load()", False),
        ("import torch\ntorch.load(p)", False),
        ("import torch\ntorch.load(p, weights_only=False)", False),
        ("import numpy as np\nnp.load(p, allow_pickle=True)", False),
        ("import torch\ntorch.load(p, weights_only=True)", True),
        ("import pickle\nclass Only(pickle.Unpickler): ...\nOnly(f).load()", True),
        ("import json\njson.load(f)", True),
    ],
)
def test_unsafe_loads_are_found(source: str, safe: bool) -> None:
    assert (_unsafe_loads(source) == []) == safe
