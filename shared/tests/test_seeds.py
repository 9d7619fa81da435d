import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from papers_shared.errors import UserError
from papers_shared.seeds import derive_seed, seed_everything

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")


def draw():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_same_seed_gives_the_same_numbers_everywhere():
    seed_everything(3)
    first = draw()
    seed_everything(3)
    assert draw() == first
    seed_everything(4)
    assert all(a != b for a, b in zip(draw(), first, strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_named(seed):
    with pytest.raises(UserError, match=f"seed: {seed} is not between 0 and 4294967295"):
        seed_everything(seed)


@given(SEEDS, st.lists(st.text() | st.integers(), max_size=3))
def test_derived_seeds_are_seeds_and_repeat(seed, names):
    derived = derive_seed(seed, *names)
    assert 0 <= derived < 2**31
    assert derive_seed(seed, *names) == derived


def test_derived_seeds_differ_by_seed_name_and_order():
    seeds = {derive_seed(0), derive_seed(1), derive_seed(0, "a"), derive_seed(0, "b")}
    seeds |= {derive_seed(0, "a", "b"), derive_seed(0, "b", "a"), derive_seed(0, "ab")}
    assert len(seeds) == 7


def test_derived_seeds_never_change():
    assert derive_seed(0, "pretrain", "old") == 1621371580
