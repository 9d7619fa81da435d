import time

import psutil
import pytest
import torch
from torch import nn

from papers_shared.measure import (
    Cost,
    MemoryMeter,
    Timer,
    count_flops,
    count_parameters,
    peak_memory,
)


def test_a_timer_adds_up_and_counts_only_inside():
    timer = Timer()
    with timer:
        time.sleep(0.01)
    first = timer.seconds
    time.sleep(0.01)
    assert timer.seconds == first >= 0.01
    with timer:
        time.sleep(0.01)
    assert timer.seconds >= first + 0.01


def test_a_timer_stops_when_its_block_raises():
    timer = Timer()

    def fail():
        with timer:
            time.sleep(0.01)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert timer.seconds >= 0.01


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


def test_a_meter_sees_memory_that_is_freed_again():
    with MemoryMeter(interval=0.001) as meter:
        block = b"x" * 80_000_000
        time.sleep(0.05)
        del block
    assert 60 <= meter.growth <= 160


def test_a_meter_sees_memory_taken_between_two_samples():
    with MemoryMeter(interval=60) as meter:
        block = b"x" * 80_000_000
    assert len(block) == 80_000_000
    assert 60 <= meter.growth <= 160


def test_a_cost_is_time_and_memory_of_the_same_block():
    with Cost() as cost:
        block = b"x" * 80_000_000
        time.sleep(0.01)
    del block
    assert cost.seconds >= 0.01
    assert 60 <= cost.memory <= 160


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
