"""Until the package is built: it says so, and offers nothing that computes."""

import importlib.metadata
import importlib.util

import mechindep


def test_it_says_that_it_is_not_built():
    assert mechindep.__doc__.startswith("Not built yet")
    assert "not built yet" in importlib.metadata.metadata("mechindep").get_payload().lower()
    assert importlib.util.find_spec("mechindep.train") is None
