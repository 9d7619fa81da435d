import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers_shared import readme
from papers_shared.__main__ import main
from papers_shared.errors import UserError
from papers_shared.readme import update_readmes, write_results

ROW = {
    "id": "transfer",
    "claim": "Transfers | well",
    "paper": "69.3",
    "ours": "70.5 ± 1.1",
    "condition": "three seeds",
    "held": True,
    "headline": True,
}
MEASURED = {
    "created": "2026-01-02T03:04:05+01:00",
    "commit": "0123abc",
    "machine": {"name": "A processor", "cores": 2, "accelerator": "none"},
    "versions": {"torch": "2.13.0"},
    "seeds": [0, 1, 2],
}
STORED = ROW | {"measured": MEASURED}
RESULTS = {
    "schema": 2,
    "package": "bioxbridge",
    "rows": [
        STORED,
        STORED | {"id": "small", "claim": "Small", "held": False, "headline": False},
        STORED | {"id": "time", "claim": "Fast", "held": None, "headline": False},
    ],
}


def measured(**change):
    return {"rows": [ROW | {"measured": MEASURED | change}]}


def make_root(root, results=RESULTS):
    folder = root / "packages" / "bioxbridge"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "results.json").write_text(json.dumps(results))
    (folder / "README.md").write_text(
        "# Bridge\n<!-- results:begin -->\nstale\n<!-- results:end -->\nafter\n"
    )
    (root / "README.md").write_text("before\n<!-- claims:begin --><!-- claims:end -->\nafter\n")
    return root


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path)


def test_both_tables_are_written(root):
    package, top = root / "packages" / "bioxbridge" / "README.md", root / "README.md"
    assert update_readmes(root) == [package, top]
    assert package.read_text() == (
        "# Bridge\n<!-- results:begin -->\n"
        "| Claim | Paper | Ours | Condition | Held |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| Transfers \\| well | 69.3 | 70.5 ± 1.1 | three seeds | yes |\n"
        "| Small | 69.3 | 70.5 ± 1.1 | three seeds | **no** |\n"
        "| Fast | 69.3 | 70.5 ± 1.1 | three seeds | undecided |\n\n"
        "Measured on A processor, 2 cores; accelerator: none; 2026-01-02; seeds 0, 1, 2; "
        "commit 0123abc.\n"
        "<!-- results:end -->\nafter\n"
    )
    assert top.read_text() == (
        "before\n<!-- claims:begin -->\n"
        "| Package | Claim | Paper | Ours | Held |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| [bioxbridge](packages/bioxbridge) | Transfers \\| well | 69.3 | 70.5 ± 1.1 | yes |\n"
        "<!-- claims:end -->\nafter\n"
    )
    assert update_readmes(root) == []


def test_check_writes_nothing(root, capsys):
    before = (root / "README.md").read_text()
    assert len(update_readmes(root, check=True)) == 2
    assert main(["readme", str(root), "--check"]) == 1
    assert (root / "README.md").read_text() == before
    assert main(["readme", str(root)]) == 0
    assert main(["readme", str(root), "--check"]) == 0
    assert "out of date: " in capsys.readouterr().out


def test_a_package_without_results_is_left_alone(root):
    (root / "packages" / "icworld").mkdir()
    assert len(update_readmes(root)) == 2


def test_no_results_change_nothing(tmp_path):
    (tmp_path / "packages").mkdir()
    assert update_readmes(tmp_path) == []


@given(st.text(), st.text())
def test_any_cell_stays_one_cell_and_is_stable(tmp_path_factory, claim, ours):
    rows = [STORED | {"claim": claim, "ours": ours}]
    root = make_root(tmp_path_factory.mktemp("root"), RESULTS | {"rows": rows})
    update_readmes(root)
    assert update_readmes(root) == []
    lines = (root / "README.md").read_text(encoding="utf-8").split("\n")
    assert len(lines) == 8
    assert len(re.findall(r"(?<!\\)\|", lines[4])) == 6


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "<!-- results:begin -->",
        "<!-- results:end --> <!-- results:begin -->",
        "<!-- results:begin --><!-- results:end -->" * 2,
    ],
)
def test_markers_that_do_not_pair_are_named(root, text):
    path = root / "packages" / "bioxbridge" / "README.md"
    path.write_text(text)
    before = (root / "README.md").read_text()
    with pytest.raises(UserError, match=f"{path}: needs <!-- results:begin -->"):
        update_readmes(root)
    assert (root / "README.md").read_text() == before


def test_a_missing_readme_is_named(root):
    (root / "README.md").unlink()
    with pytest.raises(UserError, match=r"README\.md: not readable .*No such file"):
        update_readmes(root)


def test_a_folder_without_packages_is_named(tmp_path, capsys):
    assert main(["readme", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.endswith("nowhere: holds no folder named packages\n")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"schema": 1}, "schema: "),
        (measured(created="yesterday"), "rows/0/measured/created: "),
        (measured(machine={"name": "x", "cores": 0, "accelerator": ""}), ".*cores: "),
        (measured(commit="main"), "rows/0/measured/commit: "),
        ({"rows": [STORED | {"held": "yes"}]}, "rows/0/held: "),
        ({"rows": [STORED | {"extra": 1}]}, "rows/0: "),
        ({"rows": [ROW]}, "rows/0: 'measured'"),
        ({"package": "icworld"}, "package: 'icworld' is not 'bioxbridge'"),
    ],
)
def test_results_that_do_not_fit_are_named(tmp_path, change, where):
    root = make_root(tmp_path, RESULTS | change)
    with pytest.raises(UserError, match=rf"results\.json: {where}"):
        update_readmes(root)


def test_results_that_are_no_json_are_named(root):
    (root / "packages" / "bioxbridge" / "benchmarks" / "results.json").write_text("{")
    with pytest.raises(UserError, match=r"results\.json: not readable"):
        update_readmes(root)


def test_rows_of_several_measurements_say_which(root):
    results = json.loads(json.dumps(RESULTS))
    results["rows"][1]["measured"] |= {"seeds": [], "commit": None}
    path = root / "packages" / "bioxbridge" / "benchmarks" / "results.json"
    path.write_text(json.dumps(results))
    update_readmes(root)
    text = (root / "packages" / "bioxbridge" / "README.md").read_text()
    where = "measured on A processor, 2 cores; accelerator: none; 2026-01-02"
    assert f"\nRows 1, 3: {where}; seeds 0, 1, 2; commit 0123abc.\n\nRows 2: {where}.\n" in text


def test_write_results_fills_in_the_circumstances(tmp_path, monkeypatch):
    machine = {"name": "Another", "cores": 8, "accelerator": "none"}
    monkeypatch.setattr(readme, "describe_machine", lambda: machine)
    path = tmp_path / "benchmarks" / "results.json"
    write_results(path, package="bioxbridge", seeds=[2, 0, 1], rows=[ROW])
    [row] = json.loads(path.read_text())["rows"]
    measured = row.pop("measured")
    assert row == ROW
    assert (measured["machine"], measured["seeds"]) == (machine, [0, 1, 2])
    assert measured["versions"]["bioxbridge"]
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_a_row_keeps_its_circumstances_until_it_is_measured_again(tmp_path):
    path = tmp_path / "results.json"
    other = ROW | {"id": "other"}
    write_results(path, package="bioxbridge", seeds=[0], rows=[ROW, other])
    write_results(path, package="bioxbridge", seeds=[5], rows=[ROW | {"ours": "71"}])
    first, second = json.loads(path.read_text())["rows"]
    assert (first["ours"], first["measured"]["seeds"]) == ("71", [5])
    assert (second["id"], second["measured"]["seeds"]) == ("other", [0])


def test_the_commit_is_noted_with_its_changes(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    def commit_of_row():
        write_results(path, package="bioxbridge", seeds=[0], rows=[ROW])
        return json.loads(path.read_text())["rows"][0]["measured"]["commit"]

    path = tmp_path / "results.json"
    assert commit_of_row() is None
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    # The results themselves do not count as a change.
    assert commit_of_row() == commit_of_row()
    assert re.fullmatch(r"[0-9a-f]{7,}", commit_of_row())
    (tmp_path / "code.py").touch()
    assert commit_of_row().endswith("+changes")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{key: value for key, value in ROW.items() if key != "ours"}], "'ours' is a required"),
        ([{key: value for key, value in ROW.items() if key != "id"}], "'id' is a required"),
        ([ROW | {"ours": 70.5}], "rows/0/ours: 70.5 is not of type 'string'"),
        ([ROW, ROW], "rows: two have the same id"),
        ([], "rows: "),
    ],
)
def test_rows_that_do_not_fit_are_named_and_not_written(tmp_path, rows, message):
    path = tmp_path / "results.json"
    with pytest.raises(UserError, match=message):
        write_results(path, package="bioxbridge", seeds=[0], rows=rows)
    assert not path.exists()


def test_results_of_another_package_are_not_overwritten(tmp_path):
    path = tmp_path / "results.json"
    write_results(path, package="bioxbridge", seeds=[0], rows=[ROW])
    with pytest.raises(UserError, match="package: 'bioxbridge' is not 'icworld'"):
        write_results(path, package="icworld", seeds=[0], rows=[ROW])
    assert json.loads(path.read_text())["package"] == "bioxbridge"
