"""The main job's contract, the same for every package that is built."""

import csv
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from papers_shared.results import check_metrics

SMOKE = ["--config", "smoke", "--run.threads", "1"]
MEASURED = ("seconds", "memory")


def _main(package: str) -> Callable[[list[str]], int]:
    return importlib.import_module(f"{package}.train").main


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _repeatable(run: Path) -> dict:
    """Metrics and table of a run without what no two runs share."""
    document = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    rows = [
        {key: value for key, value in row.items() if not key.startswith(MEASURED)}
        for row in document["table"]["rows"]
    ]
    metrics = {k: v for k, v in document["metrics"].items() if not k.endswith(MEASURED)}
    return {"metrics": metrics, "rows": rows}


@pytest.fixture(scope="module")
def smoke(
    built_package: str, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run folder of a smoke run that was started in an empty folder."""
    home, source = tmp_path_factory.mktemp("home"), folders[built_package] / "src"
    before = _files(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert _main(built_package)([*SMOKE, "--run.root", "runs"]) == 0
    assert [path.name for path in home.iterdir()] == ["runs"], "files outside the run root"
    assert [path.name for path in (home / "runs").iterdir()] == [built_package]
    assert _files(source) == before
    [run] = (home / "runs" / built_package).iterdir()
    return run


def test_smoke_run_leaves_the_whole_run_folder(smoke: Path, built_package: str) -> None:
    document = json.loads((smoke / "metrics.json").read_text(encoding="utf-8"))
    check_metrics(document)
    assert document["package"] == built_package
    assert isinstance(yaml.safe_load((smoke / "config.yaml").read_text(encoding="utf-8")), dict)
    with (smoke / "metrics.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file))
    assert any((smoke / "checkpoints").rglob("*.ckpt"))
    figures = {path.relative_to(smoke).as_posix() for path in smoke.glob("figures/*.png")}
    assert figures
    assert {figure["path"] for figure in document["figures"]} <= figures


def test_nothing_half_written_is_left(smoke: Path) -> None:
    assert [name for name in _files(smoke) if "/." in f"/{name}"] == []


def test_report_needs_no_other_file(smoke: Path) -> None:
    page = (smoke / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    sources = re.findall(r"<(?:img|script|iframe|source)[^>]*?\ssrc=\"([^\"]*)\"", page)
    sources += re.findall(r"<link[^>]*?\shref=\"([^\"]*)\"", page)
    sources += re.findall(r"url\(['\"]?([^'\")]*)", page)
    assert any(source.startswith("data:image/png") for source in sources)
    assert [source for source in sources if not source.startswith("data:")] == []
    assert "@import" not in page


def test_saved_configuration_repeats_the_run(
    smoke: Path, built_package: str, tmp_path: Path
) -> None:
    arguments = ["--config", str(smoke / "config.yaml"), "--run.dir", str(tmp_path / "again")]
    assert _main(built_package)(arguments) == 0
    assert _repeatable(tmp_path / "again") == _repeatable(smoke)


@pytest.mark.parametrize("flag", ["--print_config", "--help"])
def test_configuration_and_help_are_printed(
    built_package: str,
    flag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        _main(built_package)([flag])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    if flag == "--help":
        assert f"python -m {built_package}.train" in output
        assert "--run.dir" in output
    else:
        assert "trainer" in yaml.safe_load(output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "seed"),
    [
        ([], 0),
        (["--config", "five.yaml"], 5),
        (["--config", "five.yaml", "--seed_everything", "7"], 7),
        (["--config=five.yaml", "--seed_everything=7"], 7),
    ],
)
def test_flag_beats_file_beats_default(
    built_package: str,
    arguments: list[str],
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("five.yaml").write_text("seed_everything: 5\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        _main(built_package)([*arguments, "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["seed_everything"] == seed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--no_such_option", "1"], "no_such_option"),
        (["--trainer.max_epochs", "many"], "max_epochs"),
        (["--seed_everything", "-4"], "seed_everything: -4 is not between"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--config", "typo.yaml"], "model.no_such in typo.yaml"),
        (["--config", "open.yaml"], "open.yaml: line 2"),
        (["--ckpt_path", "nowhere.ckpt"], "nowhere.ckpt"),
        (["--ckpt_path", "text.ckpt"], "text.ckpt"),
        (["--ckpt_path", "last"], "ckpt_path"),
    ],
)
def test_bad_input_is_told_in_a_line(
    built_package: str,
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"text.ckpt": "none\n", "typo.yaml": "model:\n  no_such: 1\n", "open.yaml": "a: [1\n"}
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    assert _main(built_package)([*SMOKE, *arguments]) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("error: ")
    assert named in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert _files(tmp_path) == set(files)


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
    )


def _split(stderr: str) -> tuple[list[str], set[str]]:
    """What was said on standard error, and the modules that were imported."""
    lines = stderr.splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("import time:")]
    return said, {line.rsplit("|", 1)[1].strip() for line in lines if line not in said and line}


def test_verbs_are_listed_at_once(built_package: str, tmp_path: Path) -> None:
    done = _python("-m", built_package, cwd=tmp_path)
    said, imported = _split(done.stderr)
    assert (done.returncode, said) == (0, [])
    assert re.search(r"^  train +\w", done.stdout, re.MULTILINE)
    assert "papers_shared.verbs" in imported
    assert imported.isdisjoint({"torch", "lightning", "matplotlib"})


def test_a_wrong_verb_is_refused_at_once(built_package: str, tmp_path: Path) -> None:
    done = _python("-m", built_package, "trian", cwd=tmp_path)
    said, imported = _split(done.stderr)
    assert done.returncode == 2
    assert len(said) <= 2
    assert "'trian'" in said[0]
    assert "'train'" in said[0]
    assert imported.isdisjoint({"torch", "lightning", "matplotlib"})


def test_every_verb_is_a_module_with_a_main(built_package: str) -> None:
    verbs = importlib.import_module(f"{built_package}.__main__").VERBS
    for verb in verbs:
        module = importlib.import_module(f"{built_package}.{verb}")
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{built_package}.{verb}.__main__")
        assert callable(module.main)
