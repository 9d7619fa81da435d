import base64
import dataclasses
import html.parser
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from papers_shared import report
from papers_shared.device import DeviceChoice
from papers_shared.errors import UserError
from papers_shared.report import print_table, render_page, render_report, write_report
from papers_shared.results import Claim, Column, Figure, Table
from papers_shared.run_folder import RunFolder

VOID = {"meta", "link", "img", "br"}
HOSTILE = "<script>alert('x')</script> & \"quoted\""


class Page(html.parser.HTMLParser):
    """A page's elements and text; fails on a tag that is not closed where it must be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.texts.append((self._open[-1], " ".join(data.split())))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag):
        return [text for name, text in self.texts if name == tag and text]


@pytest.fixture
def folder(tmp_path, png):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "rank.png").write_bytes(png)
    return tmp_path


@pytest.fixture
def device():
    return DeviceChoice(
        accelerator="cpu", name="A processor", precision="32-true", threads=2, reason="a reason"
    ).as_dict()


def printed(results, monkeypatch, **options):
    stream = io.StringIO()
    monkeypatch.setattr(report, "console", Console(file=stream, highlight=False, **options))
    print_table(results)
    return stream.getvalue()


def test_the_page_is_well_formed_and_says_everything(document, folder):
    page = Page(text := render_report(document, folder, "model:\n  rank: 8\n"))
    assert text.startswith("<!doctype html>")
    assert page.all("html") == [{"lang": "en"}]
    assert "width=device-width" in str(page.all("meta"))
    assert page.text("title") == ["From one signal to another - bioxbridge"]
    assert page.text("h1") == ["From one signal to another"]
    assert page.text("time") == ["2026-01-02 03:04"]
    assert {"A processor", "2 min 14 s", "1,234 MB peak memory"} <= set(page.text("li"))
    assert page.text("dd")[:2] == ["69.3", "70.5"]
    assert page.text("figcaption") == ["Accuracy by rank."]
    assert page.text("pre") == ["model: rank: 8"]
    assert "Twelve subjects." in page.text("li")
    for name, version in document["versions"].items():
        assert f"{name} {version}" in page.text("dd")[-1]


def test_the_table_marks_best_ours_and_references(document, folder):
    page = Page(render_report(document, folder, ""))
    classes = [row.get("class") for row in page.all("tr")]
    assert classes == [None, "reference", None, "ours"]
    cells = list(zip([cell["class"] for cell in page.all("td")], page.text("td"), strict=True))
    assert cells == [
        ("number", "99.0"),
        ("number", "\N{EN DASH}"),
        ("number", "61.2 ± 0.4"),
        ("number", "1,204,300"),
        ("number best", "70.5 ± 1.1"),
        ("number best", "13,210"),
    ]
    assert [mark["title"] for mark in page.all("abbr")] == ["higher is better", "lower is better"]


def test_the_page_holds_all_it_shows(document, folder, png):
    page = Page(text := render_report(document, folder, ""))
    (image,) = page.all("img")
    assert image["alt"] == "Accuracy by rank."
    assert image["src"] == "data:image/png;base64," + base64.b64encode(png).decode()
    links = [
        value
        for _, attributes in page.elements
        for key, value in attributes.items()
        if key in ("src", "href", "srcset", "action", "data", "poster")
    ]
    assert all(link.startswith("data:") for link in links)
    assert not re.search(r"https?:|@import|url\(|<script", text)


@pytest.mark.parametrize(
    ("held", "word"), [(True, "held"), (False, "not held"), (None, "undecided")]
)
def test_the_verdict_is_a_word_and_a_colour(document, folder, held, word):
    document["claim"]["held"] = held
    page = Page(render_report(document, folder, ""))
    badges = [s["class"] for s in page.all("span") if s["class"].startswith("badge")]
    assert page.text("span") == [word]
    assert badges == ["badge " + word.replace(" ", "-")]


def test_hostile_text_stays_text(document, folder):
    document["title"] = document["notes"][0] = document["claim"]["text"] = HOSTILE
    document["table"]["rows"][1]["method"] = document["table"]["columns"][0]["label"] = HOSTILE
    document["figures"][0]["caption"] = document["device"]["name"] = HOSTILE
    page = Page(render_report(document, folder, HOSTILE))
    assert page.all("script") == []
    assert page.all("img")[0]["alt"] == HOSTILE
    for tag in ("h1", "li", "p", "th", "figcaption", "pre"):
        assert HOSTILE in page.text(tag)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_any_text_is_shown_as_it_is(text):
    job = {"document": None, "package": text, "problem": text, "verdict": "failed"}
    page = Page(render_page("gallery.html.j2", jobs=[job], created="2026-01-02T03:04:05+01:00"))
    assert page.text("p") == [text, text]


def test_optional_parts_may_be_absent(document, folder):
    document["figures"], document["notes"], document["table"]["caption"] = [], [], ""
    document["peak_memory_mb"]["cuda"] = 2000.0
    page = Page(render_report(document, folder, ""))
    assert page.text("h2") == ["The paper's claim", "Results", "How it was run"]
    assert "1,234 MB + 2,000 MB on the GPU peak memory" in page.text("li")


@pytest.mark.parametrize(
    ("seconds", "text"), [(8.31, "8.3 s"), (59.7, "1 min 00 s"), (134, "2 min 14 s"),
                          (3599.6, "1 h 00 min"), (7380, "2 h 03 min")]
)  # fmt: skip
def test_durations(document, folder, seconds, text):
    document["seconds"] = seconds
    assert text in Page(render_report(document, folder, "")).text("li")


def test_a_missing_figure_is_named(document, tmp_path):
    with pytest.raises(UserError, match=r"figure .*rank\.png: No such file"):
        render_report(document, tmp_path, "")


def test_a_document_of_another_form_is_refused(document, folder):
    document["figures"][0]["path"] = "/etc/passwd"
    with pytest.raises(UserError, match="figures/0/path"):
        render_report(document, folder, "")


def test_write_report_leaves_both_files(results, folder, device):
    run = RunFolder(folder)
    facts = {"config_yaml": "a: 1", "seconds": 1.5, "command": "python -m x", "seed": 7}
    path = write_report(run, results, device=device, **facts)
    assert path == folder / "report.html"
    document = json.loads((folder / "metrics.json").read_text())
    assert document["seed"] == 7
    assert document["seconds"] == 1.5
    assert document["device"] == device
    assert document["peak_memory_mb"]["resident"] > 0
    assert path.read_text(encoding="utf-8") == render_report(document, folder, "a: 1")


def test_write_report_writes_nothing_when_it_cannot_finish(results, folder, device):
    facts = {"config_yaml": "", "seconds": 1, "command": "python -m x", "seed": 0}
    absent = dataclasses.replace(results, figures=[Figure(path="figures/no.png", caption="")])
    with pytest.raises(UserError, match=r"no\.png"):
        write_report(RunFolder(folder), absent, device=device, **facts)
    assert [path.name for path in folder.iterdir()] == ["figures"]


def test_the_printed_table_is_whole_off_a_terminal(results, monkeypatch):
    long = "a method whose name alone is wider than eighty characters " * 2
    results.table.rows[1]["method"] = long.strip()
    text = printed(results, monkeypatch, width=40)
    line = next(line for line in text.splitlines() if long.strip() in line)
    assert re.search(r"61\.2 ± 0\.4\s+1,204,300\s*$", line)
    assert "…" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_breaks_no_number_and_no_word(results, monkeypatch, width):
    results.table.rows[2]["method"] = "Bridge of considerable length"
    text = printed(results, monkeypatch, width=width, force_terminal=True, color_system=None)
    for whole in ("61.2 ± 0.4", "70.5 ± 1.1", "1,204,300", "13,210", "considerable", "Parameters"):
        assert whole in text
    assert "…" not in text


def test_the_printed_table_sets_off_ours_and_best(results, monkeypatch):
    text = printed(results, monkeypatch, width=100, force_terminal=True, color_system="standard")
    chance, baseline, bridge = text.splitlines()[4:7]
    assert "▸" in bridge
    assert "▸" not in chance + baseline
    assert re.search(r"\x1b\[1;36m *70\.5 ± 1\.1\x1b", bridge)
    assert "\x1b[1" not in chance + baseline
    assert "\x1b[2m" in chance


@pytest.mark.parametrize(
    ("held", "word"), [(True, "held"), (False, "not held"), (None, "undecided")]
)
def test_the_printed_claim(results, monkeypatch, held, word):
    claim = Claim(text="[bold]small[/bold]", paper="1", ours="2", held=held)
    text = printed(dataclasses.replace(results, claim=claim), monkeypatch, width=100)
    assert f"\n{word}: [bold]small[/bold] (paper: 1; here: 2)\n- Twelve subjects.\n" in text


def test_markup_in_names_is_printed_as_it_is(results, monkeypatch):
    column = Column(key="name", label="[red]Name[/red]", digits=None)
    table = Table(columns=[column], rows=[{"name": "[blue]x[/blue]"}])
    text = printed(dataclasses.replace(results, table=table, title="[b]T[/b]"), monkeypatch)
    assert "[red]Name[/red]" in text
    assert "[blue]x[/blue]" in text
    assert "[b]T[/b]" in text


def test_a_run_without_a_claim_shows_none(results, folder, device, capsys):
    bare = dataclasses.replace(results, claim=None)
    facts = {"config_yaml": "", "seconds": 1, "command": "python -m x", "seed": 0}
    page = write_report(RunFolder(folder), bare, device=device, **facts).read_text()
    assert "The paper's claim" not in page
    print_table(bare)
    assert "paper:" not in capsys.readouterr().out
