"""Results that the tests of the run folder, the report and the demo share."""

import base64

import pytest
from hypothesis import settings

from papers_shared.results import Claim, Column, Figure, Results, Table, metrics_document

# No test is timed: another's load on the machine must not fail it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="
)


@pytest.fixture
def png() -> bytes:
    return PNG


@pytest.fixture
def results() -> Results:
    columns = [
        Column(key="method", label="Method", digits=None),
        Column(key="accuracy", label="Accuracy, %", higher_is_better=True),
        Column(key="parameters", label="Parameters", digits=0, higher_is_better=False),
    ]
    rows = [
        {"method": "Chance", "accuracy": 99.0, "parameters": None, "reference": True},
        {"method": "Baseline", "accuracy": 61.24, "accuracy_spread": 0.4, "parameters": 1_204_300},
        {"method": "Bridge", "accuracy": 70.5, "accuracy_spread": 1.1, "parameters": 13_210},
    ]
    return Results(
        package="bioxbridge",
        verb="train",
        title="From one signal to another",
        table=Table(columns=columns, rows=rows, ours=["Bridge"], caption="Mean of three seeds."),
        claim=Claim(text="The bridge is small.", paper="69.3", ours="70.5", held=True),
        metrics={"accuracy": 70.5, "loss": float("nan")},
        notes=["Twelve subjects."],
        figures=[Figure(path="figures/rank.png", caption="Accuracy by rank.")],
    )


@pytest.fixture
def facts() -> dict:
    return {
        "created": "2026-01-02T03:04:05+01:00",
        "seconds": 134.2,
        "peak_memory_mb": {"resident": 1234.5, "cuda": 0.0},
        "device": {
            "accelerator": "cpu",
            "name": "A processor",
            "precision": "32-true",
            "threads": 2,
            "reason": "cpu because it was asked for",
        },
        "command": "python -m bioxbridge.train --splits 1",
        "seed": 0,
    }


@pytest.fixture
def document(results: Results, facts: dict) -> dict:
    return metrics_document(results, **facts)
