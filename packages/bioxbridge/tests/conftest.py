"""One thread for every test: on models this small, waiting for a second thread only costs."""

import pytest
import torch
from hypothesis import settings

# No test is timed: another's load on the machine must not fail it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class _Call:
    def __init__(self, function, *arguments):
        self.function = function
        self.arguments = arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.fixture
def pickled_call():
    """Makes what pickles to a call of a function."""
    return _Call
