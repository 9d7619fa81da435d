"""What a run found: a table, a claim, numbers and figures, in the fixed form of `metrics.json`."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import math
import platform
from dataclasses import asdict, dataclass, field
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
        value = row.get(column.key)
        if value is None:
            return "–"
        if column.digits is None or isinstance(value, str):
            return str(value)
        text = f"{value:,.{column.digits}f}"
        spread = row.get(f"{column.key}_spread")
        return text if spread is None else f"{text} ± {spread:.{column.digits}f}"

    def best(self, column: Column) -> float | None:
        """The best value of a column that has a direction.

        Rows marked `reference` (chance, oracles) do not compete.
        """
        if column.higher_is_better is None:
            return None
        rivals = [row for row in self.rows if not row.get("reference")]
        values = [row[column.key] for row in rivals if row.get(column.key) is not None]
        if not values:
            return None
        return max(values) if column.higher_is_better else min(values)


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


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything a run reports; `metrics` are flat numbers for later programs."""

    package: str
    verb: str
    title: str
    table: Table
    claim: Claim
    metrics: dict[str, float | None]
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


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
        "seed": seed,
    }
    document = _without_nan(document)
    check_metrics(document)
    return document


def check_metrics(document: Any) -> None:
    """Hold a document against the schema of `metrics.json`.

    Raises:
        UserError: names the first field that does not fit.
    """
    import jsonschema

    source = importlib.resources.files("papers_shared") / "metrics.schema.json"
    try:
        jsonschema.validate(document, json.loads(source.read_text(encoding="utf-8")))
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "document"
        raise UserError(f"metrics.json: {where}: {error.message}") from error


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
