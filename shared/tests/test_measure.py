import time

import psutil
import pytest
import torch
from torch import nn

from papers_shared.measure import (
    Cost,
    count_flops,
    count_parameters,
    peak_memory,
)


def test_seconds_count_only_inside():
    with Cost() as cost:
        time.sleep(0.01)
    first = cost.seconds
    time.sleep(0.01)
    assert cost.seconds == first >= 0.01


def test_a_cost_stands_when_its_block_raises():
    cost = Cost()

    def fail():
        with cost:
            time.sleep(0.01)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert cost.seconds >= 0.01


def test_peak_memory_is_in_megabytes():
    current = psutil.Process().memory_info().rss / 1e6
    total = psutil.virtual_memory().total / 1e6
    peak = peak_memory()
    assert 0.95 * current <= peak["resident"] <= total
    assert (peak["cuda"] > 0) <= torch.cuda.is_available()


def test_peak_memory_reads_the_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3_000_000)
    assert peak_memory()["cuda"] == 3.0


def test_memory_that_is_freed_again_counts():
    with Cost(interval=0.001) as cost:
        block = b"x" * 80_000_000
        time.sleep(0.05)
        del block
    assert 60 <= cost.memory <= 160


def test_memory_taken_between_two_samples_counts():
    with Cost(interval=60) as cost:
        block = b"x" * 80_000_000
    assert len(block) == 80_000_000
    assert 60 <= cost.memory <= 160


def test_memory_does_not_depend_on_what_was_freed_before():
    # Small blocks stay with the allocator when they are freed.
    def work():
        return [bytes(1000) for _ in range(100_000)]

    costs = []
    for _ in range(3):
        with Cost(interval=60) as cost:
            kept = work()
        del kept
        costs.append(cost.memory)
    assert all(60 <= memory <= 160 for memory in costs)


def test_memory_is_the_cards_where_it_was_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1_000_000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 4_000_000)
    with Cost() as cost:
        pass
    assert cost.memory == 3.0


def test_parameters_are_counted_by_hand():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
    module[1].requires_grad_(False)
    assert count_parameters(module) == 3 * 4 + 4 + 4 * 2
    assert count_parameters(module, trainable=True) == 3 * 4 + 4


def test_shared_parameters_count_once():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    assert count_parameters(module) == 9 + 3 + 3


def test_operations_are_counted_by_hand():
    assert count_flops(nn.Linear(3, 4), torch.zeros(5, 3)) == 2 * 5 * 3 * 4


def test_counting_leaves_the_module_as_it_was():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    module[2].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    generator = torch.get_rng_state()
    count_flops(module, torch.ones(5, 3))
    assert [part.training for part in module] == [True, True, False]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_pass_that_fails_leaves_the_module_as_it_was():
    module = nn.Linear(3, 4)
    with pytest.raises(RuntimeError):
        count_flops(module, torch.zeros(5, 2))
    assert module.training
