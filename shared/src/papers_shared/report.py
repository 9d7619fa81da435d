"""The report of a run: one self-contained HTML page, and its table in the terminal."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import jinja2
import rich.box
import rich.table
from rich.text import Text

from papers_shared.console import console
from papers_shared.errors import UserError
from papers_shared.measure import peak_memory
from papers_shared.results import Column, Results, Table, check_metrics, metrics_document, now
from papers_shared.run_folder import RunFolder

HELD = {True: "held", False: "not held", None: "undecided"}
HELD_STYLES = {"held": "bold green", "not held": "bold red", "undecided": "bold yellow"}
_BOLD = ("", "bold")
_WIDEST = 10_000


def render_report(document: dict[str, Any], folder: Path, config_yaml: str) -> str:
    """One HTML page that holds everything it shows.

    Args:
        document: content of `metrics.json`.
        folder: the run folder, from which the figures' paths lead.
        config_yaml: the configuration that repeats the run.

    Raises:
        UserError: the document does not fit its schema, or a figure is missing.
    """
    check_metrics(document)
    columns = [Column(**column) for column in document["table"]["columns"]]
    table = Table(**document["table"] | {"columns": columns})
    sources = [_inline(folder / figure["path"]) for figure in document["figures"]]
    return render_page(
        "report.html.j2", document=document, table=table, sources=sources, config_yaml=config_yaml
    )


def write_report(
    run: RunFolder,
    results: Results,
    *,
    config_yaml: str,
    seconds: float,
    device: dict[str, Any],
    command: str,
    seed: int,
) -> Path:
    """Write `metrics.json` and `report.html` into a run folder and return the page's path.

    Args:
        run: the folder.
        results: what the run found.
        config_yaml: the configuration that repeats the run.
        seconds: wall time of the run.
        device: where it ran, as `DeviceChoice.as_dict` gives it.
        command: as it was typed.
        seed: of the run.

    Raises:
        UserError: see `render_report`; nothing is written then.
    """
    document = metrics_document(
        results,
        created=now(),
        seconds=seconds,
        peak_memory_mb=peak_memory(),
        device=device,
        command=command,
        seed=seed,
    )
    page = render_report(document, run.path, config_yaml)
    run.write_json(run.own("metrics.json"), document)
    return run.write_text(run.own("report.html"), page)


def print_table(results: Results) -> None:
    """Print the results table, the claim with its verdict, and the notes."""
    print_results_table(results.title, results.table)
    claim = results.claim
    if claim is not None:
        verdict = (HELD[claim.held], HELD_STYLES[HELD[claim.held]])
        evidence = f": {claim.text} (paper: {claim.paper}; here: {claim.ours})"
        console.print(Text.assemble(verdict, evidence))
    for note in results.notes:
        console.print(Text(f"- {note}"))


def print_results_table(title: str, table: Table) -> None:
    """Print a table, its best values bold and `ours` set off."""
    shown = rich.table.Table("", box=rich.box.SIMPLE_HEAD, title=Text(title))
    shown.title_justify = "left"
    for column in table.columns:
        parts = [table.text(column, row) for row in table.rows]
        number = column.digits is not None
        parts = [*(parts if number else " ".join(parts).split()), *column.label.split()]
        width, justify = max(map(len, parts)), "right" if number else "left"
        shown.add_column(Text(column.label), justify=justify, min_width=width)
    for row in table.rows:
        cells = [Text(table.text(c, row), _BOLD[table.is_best(c, row)]) for c in table.columns]
        ours = table.is_ours(row)
        style = "cyan" if ours else "dim" if row.get("reference") else ""
        shown.add_row("▸" if ours else "", *cells, style=style)
    print_whole(shown)


def print_whole(table: rich.table.Table) -> None:
    """Print a table, no cell cut: to fit a terminal, columns shrink to their `min_width`."""
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum
    table.width = min(needed, console.width) if console.is_terminal else needed
    console.print(table, crop=False, soft_wrap=False)


def render_page(template: str, **values: Any) -> str:
    """Fill one of this package's templates; every value is escaped."""
    tidy = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    loader = jinja2.PackageLoader("papers_shared")
    environment = jinja2.Environment(loader=loader, autoescape=True, **tidy)
    return environment.get_template(template).render(HELD=HELD, **values)


def _inline(path: Path) -> str:
    try:
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise UserError(f"figure {path}: {error.strerror}") from error
