"""What a run found: a table, a claim, numbers and figures, in the fixed form of `metrics.json`."""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.resources
import json
import math
import numbers
import platform
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from papers_shared.errors import UserError

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the results table.

    Attributes:
        key: name of the value in each row.
        label: heading.
        digits: decimal places; None for text.
        higher_is_better: marks the best value; None marks none.
    """

    key: str
    label: str
    digits: int | None = 1
    higher_is_better: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of values by column key. `ours` names the rows (by first column) to set off."""

    columns: list[Column]
    rows: list[dict[str, Any]]
    ours: list[str] = field(default_factory=list)
    caption: str = ""

    def text(self, column: Column, row: dict[str, Any]) -> str:
        """One cell as a person reads it; a dash where there is no value."""
        value, spread = row.get(column.key), row.get(f"{column.key}_spread")
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        if not _finite(value):
            return "\N{EN DASH}"
        if column.digits is None:
            return str(value)
        text = f"{value:,.{column.digits}f}"
        return f"{text} ± {spread:,.{column.digits}f}" if _finite(spread) else text

    def best(self, column: Column) -> float | None:
        """The best value of a column that has a direction.

        Rows marked `reference` (chance, oracles) do not compete.
        """
        if column.higher_is_better is None or column.digits is None:
            return None
        rivals = [row for row in self.rows if not row.get("reference")]
        values = [row[column.key] for row in rivals if _finite(row.get(column.key))]
        if not values:
            return None
        return max(values) if column.higher_is_better else min(values)

    def is_best(self, column: Column, row: dict[str, Any]) -> bool:
        """Whether a cell shows the best value of its column; what prints alike counts as equal."""
        best, value = self.best(column), row.get(column.key)
        if best is None or row.get("reference") or not _finite(value):
            return False
        return round(value, column.digits) == round(best, column.digits)

    def is_ours(self, row: dict[str, Any]) -> bool:
        """Whether `ours` names the row."""
        return row.get(self.columns[0].key) in self.ours


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The one claim of the paper that this run speaks to.

    `held` is None when the run cannot decide it.
    """

    text: str
    paper: str
    ours: str
    held: bool | None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture in the run folder, by relative path, with its caption."""

    path: str
    caption: str

    @classmethod
    def at(cls, path: Path, caption: str) -> Figure:
        """A picture that `RunFolder.figure` named."""
        return cls(path=f"{path.parent.name}/{path.name}", caption=caption)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything a run reports.

    `metrics` are flat numbers for later programs; a verb that speaks to no claim of the paper has
    none.
    """

    package: str
    verb: str
    title: str
    table: Table
    metrics: dict[str, float | None]
    claim: Claim | None = None
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def now() -> str:
    """The local time in ISO form, to the second, with its offset."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def installed_versions(package: str) -> dict[str, str]:
    """Versions of Python, the package, this package and the libraries that results depend on."""
    names = [package.replace("_", "-"), "papers-shared", "torch", "lightning", "numpy"]
    names += ["scipy", "scikit-learn", "transformers"]
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def metrics_document(
    results: Results,
    *,
    created: str,
    seconds: float,
    peak_memory_mb: dict[str, float],
    device: dict[str, Any],
    command: str,
    seed: int,
) -> dict[str, Any]:
    """The content of `metrics.json`, checked against its schema.

    Raises:
        UserError: a value does not fit the schema, which is a defect of the calling package.
    """
    document = {
        "schema": SCHEMA_VERSION,
        **asdict(results),
        "created": created,
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb,
        "device": device,
        "versions": installed_versions(results.package),
        "command": command,
        "seed": seed,
    }
    document = _plain(document)
    check_metrics(document)
    return document


def check_metrics(document: Any) -> None:
    """Hold a document against the schema of `metrics.json`.

    Raises:
        UserError: names a field that does not fit.
    """
    check_schema(document, "metrics.schema.json", "metrics.json")


def check_schema(document: Any, schema: str, source: str) -> None:
    """Hold a document against a schema file of this package.

    Raises:
        UserError: names `source` and a field that does not fit.
    """
    import jsonschema

    rules = importlib.resources.files("papers_shared") / schema
    try:
        jsonschema.validate(document, json.loads(rules.read_text(encoding="utf-8")))
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "document"
        message = textwrap.shorten(error.message, 200, placeholder=" ...")
        raise UserError(f"{source}: {where}: {message}") from error


def _finite(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _plain(value: Any) -> Any:
    """JSON's own types; a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None
