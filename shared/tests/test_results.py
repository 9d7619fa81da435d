import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers_shared.errors import UserError
from papers_shared.results import (
    Column,
    Table,
    check_metrics,
    check_schema,
    installed_versions,
    metrics_document,
    now,
)

SCORE = Column(key="score", label="Score", digits=1, higher_is_better=True)


def table_of(*values, column=SCORE, **row):
    return Table(columns=[column], rows=[{column.key: value} | row for value in values])


@pytest.mark.parametrize(
    ("row", "digits", "text"),
    [
        ({"score": 61.24}, 1, "61.2"),
        ({"score": 1234567}, 0, "1,234,567"),
        ({"score": 61.24, "score_spread": 0.41}, 1, "61.2 ± 0.4"),
        ({"score": 61.24, "score_spread": math.nan}, 1, "61.2"),
        ({"score": np.float32(0.5)}, 2, "0.50"),
        ({"score": None}, 1, "\N{EN DASH}"),
        ({"score": math.nan}, 1, "\N{EN DASH}"),
        ({}, 1, "\N{EN DASH}"),
        ({"score": "linear"}, 1, "linear"),
        ({"score": 7}, None, "7"),
        ({"score": True}, None, "yes"),
        ({"score": False}, 1, "no"),
    ],
)
def test_text_of_a_cell(row, digits, text):
    column = Column(key="score", label="Score", digits=digits)
    assert Table(columns=[column], rows=[row]).text(column, row) == text


def test_best_follows_the_direction_and_leaves_references_out():
    table = Table(
        columns=[SCORE], rows=[{"score": 9, "reference": True}, {"score": 1}, {"score": 2}]
    )
    assert table.best(SCORE) == 2
    assert table.best(dataclasses.replace(SCORE, higher_is_better=False)) == 1
    assert table.best(dataclasses.replace(SCORE, higher_is_better=None)) is None
    assert [table.is_best(SCORE, row) for row in table.rows] == [False, False, True]


def test_values_that_print_alike_are_equally_good():
    table = table_of(70.52, 70.54, 70.4)
    assert [table.is_best(SCORE, row) for row in table.rows] == [True, True, False]


@given(st.lists(st.none() | st.floats(), min_size=1))
def test_best_is_the_extreme_of_the_finite_values(values):
    finite = [value for value in values if value is not None and math.isfinite(value)]
    assert table_of(*values).best(SCORE) == max(finite, default=None)


def test_a_column_of_nothing_has_no_best():
    table = table_of(None, math.nan)
    assert table.best(SCORE) is None
    assert not table.is_best(SCORE, table.rows[0])


def test_document_has_every_field_and_nan_becomes_null(document):
    assert document["metrics"] == {"accuracy": 70.5, "loss": None}
    assert document["versions"]["papers-shared"]
    assert document["table"]["rows"][0]["parameters"] is None
    assert document["claim"]["held"] is True


def test_numpy_scalars_become_plain_numbers(results, facts):
    metrics = {"loss": np.float32(0.5), "steps": np.int64(3)}
    document = metrics_document(dataclasses.replace(results, metrics=metrics), **facts)
    assert json.dumps(document["metrics"]) == '{"loss": 0.5, "steps": 3}'


@given(st.dictionaries(st.text(), st.none() | st.floats() | st.integers()))
def test_any_metrics_make_strict_json(metrics):
    from papers_shared.results import _plain

    values = json.loads(json.dumps(_plain(metrics), allow_nan=False))
    for name, value in metrics.items():
        finite = value is not None and math.isfinite(value)
        assert values[name] == (value if finite else None)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (["seconds"], -1, "seconds"),
        (["package"], "Not-A-Name", "package"),
        (["claim", "held"], "maybe", "claim/held"),
        (["figures", 0, "path"], "../../secret.png", "figures/0/path"),
        (["table", "rows"], [], "table/rows"),
        (["table", "columns", 1, "digits"], -1, "table/columns/1/digits"),
        (["device", "threads"], 0, "device/threads"),
        (["metrics", "accuracy"], "high", "metrics/accuracy"),
        (["surprise"], 1, "document"),
    ],
)
def test_a_violation_is_named(document, path, value, where):
    *parents, last = path
    part = document
    for key in parents:
        part = part[key]
    part[last] = value
    with pytest.raises(UserError, match=rf"^metrics\.json: {where}: "):
        check_metrics(document)


@pytest.mark.parametrize("missing", ["schema", "claim", "versions"])
def test_a_missing_field_is_named(document, missing):
    del document[missing]
    with pytest.raises(UserError, match=f"'{missing}' is a required property"):
        check_metrics(document)


def test_a_long_violation_stays_short(document):
    document["notes"] = {str(number): "long" for number in range(1000)}
    with pytest.raises(UserError) as caught:
        check_schema(document, "metrics.schema.json", "file.json")
    assert str(caught.value).startswith("file.json: notes: ")
    assert len(str(caught.value)) < 250


def test_versions_name_what_is_installed_only():
    versions = installed_versions("no_such_package")
    assert {"python", "torch", "papers-shared"} <= versions.keys()
    assert "no-such-package" not in versions


def test_now_has_an_offset():
    import datetime

    assert datetime.datetime.fromisoformat(now()).tzinfo is not None
