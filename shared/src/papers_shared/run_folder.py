"""The folder that one run leaves behind: `runs/PACKAGE/<time>-<short id>/`.

Every file is written to a temporary name and renamed, so that a reader never meets half of one.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import secrets
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from papers_shared.errors import UserError

_STAGE_POLL_SECONDS = 0.2
_Result = TypeVar("_Result")


class RunFolder:
    """One run's files.

    Several verbs may share a folder, and so the stages in it. What each leaves for a reader bears
    its name, unless it is `train`: `sweep-report.html` beside `report.html`.

    Args:
        path: the folder; made when it is missing.
        verb: whose run it is.

    Raises:
        UserError: the folder cannot be made or written.
    """

    def __init__(self, path: str | Path, verb: str = "train") -> None:
        self.path = Path(path)
        self.verb = verb
        self._made = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run folder {self.path}: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise UserError(f"run folder {self.path}: not writable")

    @classmethod
    def create(cls, package: str, root: str | Path = "runs", verb: str = "train") -> RunFolder:
        """A new folder under `root/package`, named by the time and a random suffix."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return cls(Path(root) / package / f"{stamp}-{secrets.token_hex(3)}", verb)

    @classmethod
    def latest(cls, package: str, root: str | Path = "runs", verb: str = "train") -> RunFolder:
        """The run of a verb that started last and got as far as a stage or a checkpoint.

        Raises:
            UserError: there is none.
        """
        base, config = Path(root) / package, _own("config.yaml", verb)
        found = [c for c in base.glob(f"*/{config}") if _can_resume(c.parent)]
        if not found:
            raise UserError(
                f"ckpt_path: no run under {base} to resume; name its folder with --run.dir"
            )
        return cls(max(found, key=lambda path: path.stat().st_mtime_ns).parent, verb)

    @classmethod
    def existing(cls, path: str | Path, verb: str = "train") -> RunFolder:
        """A run's folder, to go on in or to read.

        Raises:
            UserError: it holds neither a stage nor a checkpoint.
        """
        if not _can_resume(Path(path)):
            raise UserError(f"run folder {path}: holds no stages or checkpoints of a run")
        return cls(path, verb)

    def discard(self) -> None:
        """Remove the folder if this object made it and it holds no more than a configuration."""
        if self._made and {path.name for path in self.path.iterdir()} <= {self.own("config.yaml")}:
            shutil.rmtree(self.path)

    @property
    def checkpoints(self) -> Path:
        """Folder of Lightning checkpoints."""
        return self.path / "checkpoints"

    def own(self, name: str) -> str:
        """The name that this verb gives to one of its files."""
        return _own(name, self.verb)

    def figure(self, name: str) -> Path:
        """Where this verb's PNG of that name goes, in `figures/`, which is made on first use."""
        folder = self.path / "figures"
        folder.mkdir(exist_ok=True)
        return folder / self.own(name)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A temporary path that becomes `name` when the block ends well, and goes otherwise.

        Raises:
            UserError: the file cannot be written, or another that the block names.
        """
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if temporary.is_dir() and target.exists():
                shutil.rmtree(target)
            temporary.replace(target)
        except OSError as error:
            blamed = str(error.filename or target).replace(str(temporary), str(target))
            raise UserError(f"{blamed}: {error.strerror or error}") from error
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary)
            with contextlib.suppress(OSError):
                temporary.unlink()

    def write_text(self, name: str, text: str) -> Path:
        """Write a UTF-8 text file and return its path."""
        with self.replacing(name) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return self.path / name

    def write_json(self, name: str, value: Any) -> Path:
        """Write JSON (NaN is refused: a number that is not there is null)."""
        return self.write_text(
            name, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        )

    def read_json(self, name: str) -> Any:
        """Read a JSON file of this folder.

        Raises:
            UserError: it is missing or not JSON.
        """
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{self.path / name}: no such file") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / name}: not readable as JSON ({error})") from error

    def read_yaml(self, name: str) -> dict[str, Any]:
        """Read a YAML file of this folder that holds values by name.

        Raises:
            UserError: it is missing, not YAML, or holds something else.
        """
        path = self.path / name
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{path}: no such file") from error
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{path}: not readable ({' '.join(str(error).split())})") from error
        if not isinstance(content, dict):
            raise UserError(f"{path}: holds no values by name")
        return content

    def log(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        """Append one row a value to `metrics.csv`: stage, epoch, name, value."""
        path = self.path / "metrics.csv"
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(["stage", "epoch", "name", "value"])
            writer.writerows([stage, epoch, name, value] for name, value in values.items())

    def stage(
        self,
        name: str,
        settings: dict[str, Any],
        compute: Callable[[Path], object],
        load: Callable[[Path], _Result],
        *,
        leader: bool = True,
    ) -> _Result:
        """The result of a stage, computed once and kept under `stages/name`.

        Args:
            name: folder name of the stage; may contain slashes.
            settings: what the result depends on, as JSON values; kept beside the result.
            compute: called with an empty folder into which it writes the result.
            load: called with the finished folder; its value is returned.
            leader: false in the processes of a distributed run that wait for the leader's result
                instead of computing it again.

        Raises:
            UserError: the folder holds this stage made with other settings, or damaged.
        """
        folder = self.path / "stages" / name
        repair = f"{folder}: {{}}; remove that folder and resume, and the stage is computed again"
        if leader and not folder.exists():
            for killed in folder.parent.glob(f".{folder.name}.*"):
                shutil.rmtree(killed)
            with self.replacing(f"stages/{name}") as temporary:
                temporary.mkdir()
                compute(temporary)
                text = json.dumps(settings, indent=2, sort_keys=True)
                (temporary / "settings.json").write_text(text + "\n", encoding="utf-8")
        while not folder.exists():
            time.sleep(_STAGE_POLL_SECONDS)
        try:
            made_with = self.read_json(f"stages/{name}/settings.json")
        except UserError as error:
            raise UserError(repair.format("settings.json is not readable as JSON")) from error
        if not isinstance(made_with, dict):
            raise UserError(repair.format("settings.json is no object"))
        difference = first_difference(made_with, json.loads(json.dumps(settings)))
        if difference:
            raise UserError(f"{folder}: was made with {difference}; take another --run.dir")
        try:
            return load(folder)
        except Exception as error:
            problem = f"cannot be read ({type(error).__name__}: {error})"
            raise UserError(repair.format(problem)) from error


def _own(name: str, verb: str) -> str:
    return name if verb == "train" else f"{verb}-{name}"


def _can_resume(folder: Path) -> bool:
    return any((folder / kept).is_dir() for kept in ("stages", "checkpoints"))


def first_difference(old: Any, new: Any, name: str = "") -> str:
    """The first setting that differs between two JSON values, and both values; empty for none."""
    if isinstance(old, dict) and isinstance(new, dict):
        parts = (
            first_difference(old.get(key), new.get(key), f"{name}.{key}" if name else key)
            for key in sorted({*old, *new})
        )
        return next(filter(None, parts), "")
    if old == new:
        return ""
    shown = (textwrap.shorten(json.dumps(value), 60, placeholder=" ...") for value in (old, new))
    return f"{name or 'settings'} = {next(shown)}, this run asks for {next(shown)}"
