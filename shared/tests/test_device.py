import os
import platform
from pathlib import Path

import pytest
import torch

from papers_shared import device
from papers_shared.device import (
    available_cores,
    choose_device,
    describe_machine,
    processor_name,
    set_threads,
)
from papers_shared.errors import UserError


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine that has exactly these accelerators."""

    def pretend(*present, bfloat16=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in present)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in present)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bfloat16)

    return pretend


@pytest.mark.parametrize(
    ("present", "asked", "taken"),
    [
        ((), "auto", "cpu"),
        (("mps",), "auto", "mps"),
        (("cuda", "mps"), "auto", "cuda"),
        (("cuda",), "gpu", "cuda"),
        (("mps",), "gpu", "mps"),
        (("cuda",), "cpu", "cpu"),
    ],
)
def test_the_accelerator_taken(machine, present, asked, taken):
    machine(*present)
    choice = choose_device(asked, threads=1)
    assert choice.accelerator == taken
    assert choice.reason.startswith(f"{taken} because ")
    assert choice.name == ("A card" if taken == "cuda" else processor_name())


def test_the_reason_tells_finding_from_asking(machine):
    machine()
    assert choose_device(threads=1).reason == (
        "cpu because no accelerator was found; 32-true; 1 CPU thread"
    )
    assert choose_device("cpu", "64-true", 2).reason == (
        "cpu because it was asked for; 64-true; 2 CPU threads"
    )


@pytest.mark.parametrize(("bfloat16", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_precision_follows_the_card(machine, bfloat16, precision):
    machine("cuda", bfloat16=bfloat16)
    assert choose_device(threads=1).precision == precision
    assert choose_device("cpu", threads=1).precision == "32-true"


@pytest.mark.parametrize("asked", ["cuda", "gpu", "mps"])
def test_an_absent_accelerator_is_named(machine, asked):
    machine()
    with pytest.raises(UserError, match=f"accelerator: '{asked}' was asked for"):
        choose_device(asked)


def test_an_unknown_accelerator_is_named():
    with pytest.raises(UserError, match="'abacus' is not one of auto, cpu, cuda, gpu, mps"):
        choose_device("abacus")


def test_threads_are_set_and_reported():
    assert set_threads(1) == torch.get_num_threads() == 1
    assert set_threads() == torch.get_num_threads() == available_cores()
    assert choose_device("cpu", threads=1).as_dict()["threads"] == 1


def test_a_launcher_keeps_its_say_on_threads(monkeypatch):
    set_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert set_threads() == 1
    assert set_threads(2) == 2


@pytest.mark.parametrize("count", [0, -3])
def test_a_number_of_threads_below_one_is_named(count):
    with pytest.raises(UserError, match=f"threads: {count} "):
        set_threads(count)


def test_cores_fall_back_where_there_is_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_the_processor_has_a_name(monkeypatch):
    def text(path, encoding):
        assert path == Path("/proc/cpuinfo")
        return "processor : 0\nmodel name\t: Fast: one\nmodel name\t: other\n"

    monkeypatch.setattr(Path, "read_text", text)
    assert processor_name() == "Fast: one"


def test_the_processor_falls_back_to_its_architecture(monkeypatch):
    def missing(path, encoding):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert processor_name() == "riscv64"


@pytest.mark.parametrize(("present", "name"), [("cuda", "A card"), ("mps", "MPS"), ("", "none")])
def test_the_machine_is_described(machine, monkeypatch, present, name):
    machine(present)
    monkeypatch.setattr(device, "processor_name", lambda: "A processor")
    expected = {"name": "A processor", "cores": available_cores(), "accelerator": name}
    assert describe_machine() == expected
