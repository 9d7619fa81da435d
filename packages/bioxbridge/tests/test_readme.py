"""The README's example is run as it stands."""

import re
from pathlib import Path


def test_the_example_runs_and_has_the_shape_it_says():
    text = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["logits"].shape == (5, 3)
