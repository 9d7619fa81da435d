"""Until the package is built: it says so, and offers nothing that computes."""

import importlib.metadata
import importlib.util

import atlas_scaling


def test_it_says_that_it_is_not_built():
    assert atlas_scaling.__doc__.startswith("Not built yet")
    assert "not built yet" in importlib.metadata.metadata("atlas-scaling").get_payload().lower()
    assert importlib.util.find_spec("atlas_scaling.train") is None
