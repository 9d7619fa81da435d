"""What the cross-package tests share: the folders, and which packages are built."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
# A package is built once it has a main job; the others only hold their place.
BUILT = [name for name in PACKAGES if (ROOT / f"packages/{name}/src/{name}/train.py").is_file()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--isolation", action="store_true", help="install each member alone (minutes)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "isolation: installs a member alone; needs --isolation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--isolation", default=False):
        return
    for item in items:
        if item.get_closest_marker("isolation"):
            item.add_marker(pytest.mark.skip(reason="make isolation"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the workspace."""
    return ROOT


@pytest.fixture(scope="session")
def packages() -> list[str]:
    """Import names of the six packages."""
    return PACKAGES


@pytest.fixture(scope="session")
def built() -> list[str]:
    """Import names of the packages that have a main job."""
    return BUILT


@pytest.fixture(scope="session")
def folders(root: Path, packages: list[str]) -> dict[str, Path]:
    """Folder of each of the seven members by import name."""
    return {name: root / "packages" / name for name in packages} | {
        "papers_shared": root / "shared"
    }


@pytest.fixture(scope="session", params=[*PACKAGES, "papers_shared"])
def member(request: pytest.FixtureRequest) -> str:
    """Import name of one of the seven members."""
    return request.param


@pytest.fixture(scope="session", params=PACKAGES)
def package(request: pytest.FixtureRequest) -> str:
    """Import name of one of the six packages."""
    return request.param


@pytest.fixture(scope="session", params=BUILT)
def built_package(request: pytest.FixtureRequest) -> str:
    """Import name of a package that has a main job."""
    return request.param
