import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from papers_shared import report
from papers_shared.__main__ import main
from papers_shared.demo import run_demo
from papers_shared.errors import UserError

GOOD = """
import pathlib, shutil, sys
assert sys.argv[1] == "--run.dir"
run, made = pathlib.Path(sys.argv[2]), pathlib.Path(__file__).parent / "made"
shutil.copytree(made, run, dirs_exist_ok=True)
print("good is at work")
"""
BAD = "import sys\nprint('bad is at work')\nsys.exit(3)\n"
SILENT = "print('silent is at work')\n"


@pytest.fixture
def packages(tmp_path, monkeypatch, document, png):
    """Three importable packages: one that reports, one that fails, one that writes nothing."""
    source = tmp_path / "source"
    for name, program in {"good": GOOD, "bad": BAD, "silent": SILENT}.items():
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").write_text("")
        (source / name / "train.py").write_text(program)
    figures = source / "good" / "made" / "figures"
    figures.mkdir(parents=True)
    (figures / "rank.png").write_bytes(png)
    document["title"] = "A <b>title</b>"
    (figures.parent / "metrics.json").write_text(json.dumps(document))
    (figures.parent / "report.html").write_text("a report")
    monkeypatch.setenv("PYTHONPATH", str(source))
    return tmp_path / "runs"


def test_a_failure_is_told_and_the_others_run(packages, capfd):
    assert run_demo(["bad", "good", "silent"], packages) == 1
    out = capfd.readouterr().out
    order = [out.index(f"{name} is at work") for name in ("bad", "good", "silent")]
    assert order == sorted(order)
    (folder,) = (packages / "good").iterdir()
    table = out[out.index("Claim and report") :]
    for text in ("The bridge is small.", "paper: 69.3", "here: 70.5", "held", "134", "1,234"):
        assert text in table
    assert str(folder / "report.html") in table
    assert "python -m bad.train ended with exit code 3" in table
    assert f"{packages / 'silent'}" in table
    assert "no such file" in table
    assert table.count("failed") == 2
    assert f"all reports: {packages / 'index.html'}" in table


def test_the_gallery_links_what_is_there(packages):
    run_demo(["good", "bad"], packages)
    page = (packages / "index.html").read_text(encoding="utf-8")
    (folder,) = (packages / "good").iterdir()
    for name in ("report.html", "figures/rank.png"):
        assert f'"good/{folder.name}/{name}"' in page
        assert (packages / "good" / folder.name / name).is_file()
    assert page.count("report.html") == 2
    assert "A &lt;b&gt;title&lt;/b&gt;" in page
    assert '<span class="badge held">held</span>' in page
    assert '<span class="badge failed">failed</span>' in page
    assert "exit code 3" in page


def test_all_well_ends_with_zero(packages, capfd):
    assert run_demo(["good"], packages) == 0
    assert "failed" not in capfd.readouterr().out


def test_a_document_of_another_form_is_a_failure(packages, capfd):
    made = packages.parent / "source" / "good" / "made" / "metrics.json"
    made.write_text(json.dumps({"schema": 1}))
    assert run_demo(["good"], packages) == 1
    assert "is a required property" in capfd.readouterr().out


@pytest.mark.parametrize("width", [74, 100])
def test_the_table_fits_a_terminal(packages, monkeypatch, capfd, width):
    stream = io.StringIO()
    terminal = Console(file=stream, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(report, "console", terminal)
    run_demo(["good", "bad"], packages)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in stream.getvalue()


def test_no_package_is_one_line(tmp_path, capsys):
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "no package is built yet, so there is nothing to run\n"


def test_a_name_that_is_no_import_name_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"'\.\./x' is not the import name"):
        run_demo(["good", "../x"], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_verbs_are_listed(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out if line.startswith("  ")] == ["demo", "readme"]


def test_an_unknown_verb_is_named(capsys):
    assert main(["dmeo"]) == 2
    assert "'dmeo'" in capsys.readouterr().err


def test_a_mistake_is_one_line_on_standard_error(capsys):
    assert main(["demo", "not-a-name"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: demo: 'not-a-name' is not the import name of a package\n"


def test_listing_needs_no_torch():
    program = (
        "import sys; from papers_shared.__main__ import main; code = main([]);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
