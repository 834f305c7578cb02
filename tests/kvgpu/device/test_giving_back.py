"""A manager that lives long gives back what its batches, captures and host tasks took, and waits for nothing to do so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Device, DeviceError
from kvgpu.device.sim import SimDevice
from kvgpu.manager import Manager
from kvspec.config import ManagerConfig
from tests.kvgpu.device import fake_driver
from tests.kvgpu.device.programs import mix

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 4,
        "levels": [{"kind": "gpu", "slots": 4}, {"kind": "host", "slots": 4}],
        "layers": [{"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]}],
    }
)
MOST = 8
"""Streams that a manager with one batch and one capture has at a time, and some to spare."""


@pytest.fixture(params=["sim", "pretended"])
def device(request: pytest.FixtureRequest) -> Device:
    made: Device = SimDevice() if request.param == "sim" else request.getfixturevalue("pretended")()
    return made


def streams(device: Device) -> int:
    return len(device._streams)  # type: ignore[attr-defined]


def test_a_closed_batch_keeps_no_stream_and_no_memory(device: Device) -> None:
    manager, stream = Manager(CONFIG, device), device.stream("exec")
    used = []
    for number in range(40):
        batch = Batch(manager, f"rows {number}", rows=64, blocks=8192)
        assert len(batch.publish(stream)) == 64
        batch.close()
        if device.kind == "sim":
            device.settle()  # there nothing runs by itself
        used.append(fake_driver.used() if device.kind == "cuda" else device._bytes)  # type: ignore[attr-defined]
    assert streams(device) <= MOST
    assert used[-1] <= used[4]
    device.close()


def test_an_export_keeps_the_tables_until_it_is_gone(device: Device) -> None:
    manager, stream = Manager(CONFIG, device), device.stream("exec")
    batch = Batch(manager, "rows", rows=2, blocks=2)
    batch.publish(stream)
    table = np.asarray(batch.page_table(0)) if device.kind == "sim" else batch.page_table(0)
    before = streams(device)
    batch.close()
    device.settle()
    device.stream("one more")
    assert streams(device) == before + 1
    del table
    device.settle()
    device.stream("and one more")
    assert streams(device) == before + 1
    device.close()


def test_a_capture_keeps_no_stream_and_managers_capture_on_one_device(device: Device) -> None:
    managers, stream = [Manager(CONFIG, device) for _ in range(2)], device.stream("exec")
    for _ in range(10):
        gate = device.gate(stream, "what was done beside a capture has not run when the next begins")
        for manager in managers:
            manager.begin_capture(stream)
            manager.end_capture(stream)
        gate.open()
        device.settle()
    assert streams(device) <= MOST
    device.close()


def test_a_manager_that_is_shut_gives_back_the_lanes_of_its_copies(device: Device) -> None:
    stream = device.stream("exec")
    for number in range(10):
        manager = Manager(CONFIG, device)
        request = manager.create(f"r{number}")
        assert manager.resume(request, stream) and manager.resize(request, 8, 8) and manager.enter_decode(request)
        manager.shut()
        device.settle()
    assert streams(device) <= MOST
    device.close()


def test_what_a_stream_has_runs_before_it_goes(device: Device) -> None:
    memory = device.allocate("pinned", 8, "cell")
    one, other = device.stream("one"), device.stream("other")
    gate = device.gate(one, "shut")
    mix(device, one, memory, 0, 5, "cell")
    device.wait(other, device.record(one, "recorded"), "waited")
    mix(device, other, memory, 0, 2, "cell")
    device.give_back(one)
    device.give_back(one)
    with pytest.raises(DeviceError, match="'one' was given back: nothing can be submitted to it"):
        device.record(one, "too late")
    with pytest.raises(DeviceError, match="exists already"):
        device.stream("one")
    gate.open()
    device.settle()
    assert memory.read_now(0, 1) == bytes([5 * 31 + 2])
    device.stream("one")
    device.close()
    device.give_back(other)


def test_words_that_host_tasks_wait_for_are_used_again(pretended: Callable[[], Device]) -> None:
    device = pretended()
    stream, done = device.stream("exec"), []
    for number in range(400):
        device.host_task(stream, lambda number=number: done.append(number), list, "task")  # type: ignore[misc]
        if number % 40 == 39:
            device.sync(stream)
    assert done == list(range(400))
    assert len(device._leaving._words) <= 200  # type: ignore[attr-defined]
    device.close()
