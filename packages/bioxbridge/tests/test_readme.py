"""The README's examples are run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(autouse=True)
def recordings(tmp_path, monkeypatch):
    """The folder of recordings that an example reads, in the folder it runs in."""
    monkeypatch.chdir(tmp_path)
    Path("recordings").mkdir()
    random = np.random.RandomState(0)
    for subject in ("ann", "bea", "cyd"):
        signals = {name: random.randn(1, 60 * rate) for name, rate in (("ECG", 50), ("PPG", 64))}
        np.savez(f"recordings/{subject}_1.npz", ECG_rate=50.0, PPG_rate=64.0, **signals)


@pytest.mark.filterwarnings("ignore:every pseudo label is the same class")  # of random models
@pytest.mark.parametrize("example", EXAMPLES, ids=["models", "recordings", "published"])
def test_an_example_gives_what_it_says(example):
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    if "place" in names:
        assert tuple(names["place"]) == (46, 512)
    else:
        assert names["logits"].shape in ((5, 3), (5, 2))
    if "bridged" in names:
        assert Path("bridge/bridge.safetensors").is_file()
