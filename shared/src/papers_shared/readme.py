"""Results tables of the READMEs, written from each package's `benchmarks/results.json`."""

import argparse
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from papers_shared.console import console
from papers_shared.device import describe_machine
from papers_shared.errors import UserError
from papers_shared.results import check_schema, installed_versions, now
from papers_shared.run_folder import RunFolder

_SCHEMA = "benchmarks.schema.json"
_COLUMNS = {
    "results": ("claim", "paper", "ours", "condition", "held"),
    "claims": ("package", "claim", "paper", "ours", "held"),
}
_HELD = {True: "yes", False: "**no**", None: "undecided"}


def update_readmes(root: Path, check: bool = False) -> list[Path]:
    """Fill the results table of each package's README and the claims table of the root's.

    Args:
        root: folder that holds `packages/` and `README.md`.
        check: write nothing, only return the files that would change.

    Raises:
        UserError: results that do not fit their schema; a README or a marker that is missing.
    """
    if not (root / "packages").is_dir():
        raise UserError(f"{root}: holds no folder named packages")
    pages, headlines = {}, []
    for source in sorted(root.glob("packages/*/benchmarks/results.json")):
        results, folder = _read_results(source), source.parents[1]
        if results["package"] != folder.name:
            raise UserError(f"{source}: package: {results['package']!r} is not {folder.name!r}")
        link = f"[{folder.name}](packages/{folder.name})"
        headlines += [row | {"package": link} for row in results["rows"] if row["headline"]]
        table = f"{_table('results', results['rows'])}\n\n{_origin(results['rows'])}"
        pages[folder / "README.md"] = _fill(folder / "README.md", "results", table)
    if pages:
        pages[root / "README.md"] = _fill(root / "README.md", "claims", _table("claims", headlines))
    changed = [path for path, (old, new) in pages.items() if old != new]
    for path in [] if check else changed:
        RunFolder(path.parent).write_text(path.name, pages[path][1])
    return changed


def write_results(path: Path, *, package: str, seeds: list[int], rows: list[dict]) -> None:
    """Put rows into a `results.json`, each with the circumstances of its measurement.

    Args:
        path: the file; made when it is missing. Rows of other ids that it holds stay.
        package: import name.
        seeds: seeds behind `rows`.
        rows: each with `id`, `claim`, `paper`, `ours`, `condition`, `held` and `headline`.

    Raises:
        UserError: a row or the file does not fit the schema, or is of another package.
    """
    old = _read_results(path) if path.exists() else {"package": package, "rows": []}
    if old["package"] != package:
        raise UserError(f"{path}: package: {old['package']!r} is not {package!r}")
    measured = {
        "created": now(),
        "commit": _commit(path.parent),
        "machine": describe_machine(),
        "versions": installed_versions(package),
        "seeds": sorted(seeds),
    }
    fresh = {row.get("id"): row | {"measured": measured} for row in rows}
    if len(fresh) < len(rows):
        raise UserError(f"{path}: rows: two have the same id")
    merged = {row["id"]: row for row in old["rows"]} | fresh
    document = {"schema": 2, "package": package, "rows": list(merged.values())}
    check_schema(document, _SCHEMA, str(path))
    RunFolder(path.parent).write_json(path.name, document)


def _commit(folder: Path) -> str | None:
    """The commit that is checked out around a folder, marked when files differ from it."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(folder if folder.is_dir() else "."), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    try:
        head = git("rev-parse", "--short", "HEAD")
        changes = git("status", "--porcelain", "--", ":/", ":(top,exclude,glob)**/results.json")
    except OSError:
        return None
    if head.returncode:
        return None
    return head.stdout.strip() + "+changes" * bool(changes.stdout.strip())


def main(argv: list[str]) -> int:
    """`python -m papers_shared readme ROOT [--check]`."""
    parser = argparse.ArgumentParser(prog="python -m papers_shared readme")
    parser.add_argument("root", type=Path, help="folder that holds packages/ and README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    options = parser.parse_args(argv)
    changed = update_readmes(options.root, options.check)
    for path in changed:
        console.print(f"{'out of date' if options.check else 'written'}: {path}", markup=False)
    return int(options.check and bool(changed))


def _read(path: Path, parse: Any = str) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({error})") from error


def _read_results(path: Path) -> dict[str, Any]:
    document = _read(path, json.loads)
    check_schema(document, _SCHEMA, str(path))
    return document


def _fill(path: Path, name: str, content: str) -> tuple[str, str]:
    """A README as it is, and with `content` between its markers."""
    old, begin, end = _read(path), f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", old)
    if count != 1:
        raise UserError(f"{path}: needs {begin} and, after it, {end}, once each")
    return old, new


def _table(name: str, rows: list[dict[str, Any]]) -> str:
    keys = _COLUMNS[name]
    lines = [[key.capitalize() for key in keys], ["---"] * len(keys)]
    lines += [[_cell(row[key]) for key in keys] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: str | bool | None) -> str:
    text = value if isinstance(value, str) else _HELD[value]
    return " ".join(text.split()).replace("|", "\\|").replace("<!--", "&lt;!--")


def _origin(rows: list[dict[str, Any]]) -> str:
    """Where and when the rows of a table were measured, one line a circumstance."""
    origins: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        measured = row["measured"]
        machine = measured["machine"]
        parts = [f"{machine['name']}, {machine['cores']} cores", measured["created"][:10]]
        parts.insert(1, f"accelerator: {machine['accelerator']}")
        if measured["seeds"]:
            parts.append(f"seeds {', '.join(map(str, measured['seeds']))}")
        if measured["commit"]:
            parts.append(f"commit {measured['commit']}")
        origins.setdefault("; ".join(parts), []).append(str(number))
    if len(origins) == 1:
        return f"Measured on {next(iter(origins))}."
    lines = [f"Rows {', '.join(of)}: measured on {text}." for text, of in origins.items()]
    return "\n\n".join(lines)
