"""The device programs on a GPU give what they give on the simulated one; and its own logic, on a pretended driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kvgpu.device.api import Device, DeviceBlocked, DeviceError, Kernel
from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.device.sim import SimDevice, SimOptions
from tests.kvgpu.device import fake_driver
from tests.kvgpu.device.programs import COPY, FRESH, MIX, PROGRAMS, copy, mix, touches

Open = Callable[..., Device]


def on_gpu(drop_sites: frozenset[str] = frozenset()) -> Device:
    if reason := why_no_gpu():
        pytest.skip(f"needs a GPU: {reason}")
    return open_device("cuda", SimOptions(drop_sites=drop_sites))


@pytest.fixture(params=["pretended", pytest.param("gpu", marks=pytest.mark.cuda)])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens devices, and closes them at the end."""
    how: Open = request.getfixturevalue("pretended") if request.param == "pretended" else on_gpu
    devices: list[Device] = []

    def call(*args: Any) -> Device:
        devices.append(how(*args))
        return devices[-1]

    yield call
    for device in devices:
        device.close()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program_gives_what_it_gives_on_the_simulated_device(opened: Open, name: str) -> None:
    assert list(PROGRAMS[name](opened())) == list(PROGRAMS[name](SimDevice()))


def test_programs_again_reuse_memory_that_is_zeroed(opened: Open) -> None:
    for _ in range(3):
        device = opened()
        first = PROGRAMS["pinned"](device)
        device.close()
        assert list(first) == list(PROGRAMS["pinned"](SimDevice()))


def test_wait_for_a_point_between_two_gates(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    memory = device.allocate("pinned", 8, "m")
    mix(device, a, memory, 0, 1, "cell")
    first = device.gate(a, "one")
    mix(device, a, memory, 1, 1, "cell")
    second = device.gate(a, "two")
    mix(device, a, memory, 2, 1, "cell")
    device.settle()
    states = [memory.read_now(0, 3)]
    first.open()
    device.settle()
    states.append(memory.read_now(0, 3))
    assert device.position(a).gates == {"two"}
    second.open()
    second.open()
    device.settle()
    states.append(memory.read_now(0, 3))
    assert states == [b"\1\0\0", b"\1\1\0", b"\1\1\1"]
    assert device.submitted(a) == 5


def test_sync_behind_a_gate_is_refused_and_another_stream_syncs(opened: Open) -> None:
    device = opened()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("pinned", 8, "m")
    gate = device.gate(a, "held")
    event = device.record(a, "r")
    with pytest.raises(DeviceBlocked, match=r"'a'.*gate 'held'.*open it first"):
        device.sync(a)
    with pytest.raises(DeviceBlocked, match="gate 'held'"):
        device.sync(None)
    mix(device, b, memory, 0, 3, "cell")
    device.sync(b)
    assert memory.read_now(0, 1) == b"\3"
    assert not event.done()
    gate.open()
    device.sync(None)
    assert event.done()


def test_gates_of_an_event_travel_with_waits(opened: Open) -> None:
    device = opened()
    a, b, c = (device.stream(name) for name in "abc")
    gates = [device.gate(a, "one"), device.gate(b, "two")]
    device.wait(b, device.record(a, "r"), "w")
    late = device.record(b, "r")
    device.wait(c, late, "w")
    assert device.position(c).gates == device.position(late).gates == {"one", "two"}
    assert device.position(c).clock is None
    gates[0].open()
    assert device.position(c).gates == {"two"}
    gates[1].open()
    device.settle()
    assert late.done()


def test_a_wait_that_the_driver_was_never_told_of_is_seen(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    device = opened()
    a, b = device.stream("a"), device.stream("b")
    gate = device.gate(a, "one")
    direct: Any = type(device._context.direct)  # type: ignore[attr-defined]  # of the real driver, or the pretended one
    with monkeypatch.context() as patched:
        patched.setattr(direct, "wait", lambda *args: None)
        device.wait(b, device.record(a, "r"), "w")
    loose = device.record(b, "r")
    for _ in range(1000):
        if loose.done():
            break
        time.sleep(0.001)
    assert loose.done()
    assert device.position(loose).gates == frozenset()
    gate.open()


def test_gate_holds_up_nothing_else(opened: Open) -> None:
    device = opened()
    streams = [device.stream(f"s{n}") for n in range(16)]
    memory, pool, back = (
        device.allocate("pinned", 64, "m"),
        device.allocate("device", 64, "d"),
        device.allocate("pinned", 64, "b"),
    )
    gates = [device.gate(stream, stream.name) for stream in streams[:8]]
    for n, stream in enumerate(streams):
        mix(device, stream, memory, n, n + 1, "cell")
        device.upload(stream, memory, n, pool, n, 1, list, "up")
        device.upload(stream, pool, n, back, n, 1, list, "down")
    started = time.monotonic()
    device.settle()
    assert back.read_now(0, 16) == bytes(8) + bytes(range(9, 17))
    assert time.monotonic() - started < 30
    for gate in gates:
        gate.open()
    device.settle()
    assert pool.read_now(0, 16) == bytes(range(1, 17))


def test_dropped_sites_order_nothing(opened: Open) -> None:
    for dropped in ("r", "w"):
        device = opened(frozenset({dropped}))
        a, b = device.stream("a"), device.stream("b")
        device.gate(a, "g")
        event = device.record(a, "r")
        device.wait(b, event, "w")
        assert device.position(b).gates == frozenset()
        assert event.done() == (dropped == "r")
        assert {(site.name, site.kind) for site in device.sites()} == {("r", "record"), ("w", "wait")}


def test_failing_host_task_is_a_fault_and_the_stream_goes_on(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    memory = device.allocate("pinned", 8, "m")

    def broken() -> None:
        raise OSError("disk is gone")

    device.at_step(5, "evict: gpu")
    device.host_task(a, broken, list, "R10.1 write the file")
    device.at_step(6, "later")
    mix(device, a, memory, 0, 1, "cell")
    device.settle()
    (fault,) = device.faults()
    assert "R10.1 write the file (step 5: evict: gpu): OSError: disk is gone" in fault
    assert memory.read_now(0, 1) == b"\1"


def test_host_task_of_a_gated_stream_holds_up_no_other_task(opened: Open) -> None:
    device = opened()
    a, b = device.stream("a"), device.stream("b")
    ran: list[str] = []
    gate = device.gate(a, "g")
    device.host_task(a, lambda: ran.append("a"), list, "t")
    device.host_task(b, lambda: ran.append("b"), list, "t")
    device.settle()
    assert ran == ["b"]
    gate.open()
    device.sync(a)
    assert ran == ["b", "a"]


def test_capture(opened: Open) -> None:
    device = opened()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("pinned", 8, "m")
    mix(device, a, memory, 2, 1, "cell")
    with pytest.raises(DeviceError, match="not in capture"):
        device.end_capture(a)
    device.begin_capture(a)
    for call in (
        lambda: device.begin_capture(b),
        lambda: device.end_capture(b),
        lambda: device.record(a, "r"),
        lambda: device.wait(a, device.record(b, "r"), "w"),
        lambda: device.gate(a, "g"),
        lambda: device.sync(a),
        lambda: device.host_task(a, ModuleType, list, "t"),
    ):
        with pytest.raises(DeviceError, match="capture"):
            call()
    mix(device, a, memory, 0, 1, "cell")
    mix(device, b, memory, 1, 1, "other")
    device.settle()
    assert memory.read_now(0, 3) == b"\0\1\1"
    graph = device.end_capture(a)
    assert device.submitted(a) == 1
    graph.launch(b, "replay")
    graph.launch(b, "replay")
    assert device.submitted(b) == 3
    device.settle()
    assert memory.read_now(0, 3) == b"\x20\1\1"


def test_close_opens_gates_and_later_frees_are_taken(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    memory, kept = device.allocate("pinned", 8, "m"), device.allocate("pinned", 8, "exported")
    array = memory.host_array()
    device.gate(a, "g")
    mix(device, a, memory, 0, 1, "cell")
    device.host_task(a, lambda: None, list, "t")
    device.close()
    device.close()
    assert array[0] == 1
    for memory_of_it in (memory, kept, kept):
        memory_of_it.free()
    with pytest.raises(DeviceError, match="closed"):
        device.record(a, "r")


def test_close_in_capture(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    device.begin_capture(a)
    device.close()


def test_memory_in_use_is_not_handed_out_again_before_the_work_has_run(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    gate = device.gate(a, "g")
    first = device.allocate("pinned", 100, "first")
    mix(device, a, first, 0, 1, "cell")
    address = first.address
    first.free()
    device.settle()
    second = device.allocate("pinned", 100, "second")
    assert second.address != address
    gate.open()
    device.settle()
    assert device.allocate("pinned", 100, "third").address == address


def test_refusals(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    pool = device.allocate("device", 8, "pool")
    foreign = SimDevice()
    foreign_stream = foreign.stream("a")
    freed = device.allocate("device", 8, "freed")
    freed.free()
    calls: list[tuple[str, Callable[[], object]]] = [
        ("exists already", lambda: device.stream("a")),
        ("on the GPU", pool.host_array),
        ("outside memory 'pool'", lambda: pool.read_now(4, 5)),
        ("outside memory 'pool'", lambda: device.upload(a, pool, 0, pool, 7, 2, list, "u")),
        ("after it was freed", lambda: freed.read_now(0, 1)),
        ("after it was freed", lambda: mix(device, a, freed, 0, 1, "cell")),
        ("expected 'device' or 'pinned'", lambda: device.allocate("managed", 1, "x")),
        ("at least 1 of each", lambda: device.launch(a, MIX, 1, 0, [pool, 0, 0], list, "s")),
        ("no stream of this cuda", lambda: device.record(foreign_stream, "r")),
        ("no event of this cuda", lambda: device.wait(a, foreign.record(foreign_stream, "r"), "w")),
        ("no memory of this cuda", lambda: device.upload(a, foreign.allocate("device", 8, "m"), 0, pool, 0, 8, list, "u")),
        ("loaded for other arguments", lambda: [mix(device, a, pool, 0, 1, "c"), device.launch(a, MIX, 1, 1, [pool], list, "s")]),
        (
            "two kernels are named",
            lambda: device.launch(a, Kernel(MIX.name, COPY.cuda_source, COPY.twin), 1, 1, [pool], list, "s"),
        ),
        ("cannot be had", lambda: device.allocate("device", 1 << 50, "everything")),
    ]
    for message, call in calls:
        with pytest.raises(DeviceError, match=message):
            call()


def test_external_streams_by_number(opened: Open) -> None:
    device = opened()
    a = device.stream("a")
    memory = device.allocate("pinned", 8, "m")

    class TorchLike:
        cuda_stream = 0

    other = device.external_stream(TorchLike())
    assert device.external_stream(0) is device.external_stream(1) is other
    assert device.external_stream(a) is device.external_stream(a.handle) is a
    mix(device, other, memory, 0, 1, "cell")
    device.wait(a, device.record(other, "r"), "w")
    mix(device, a, memory, 0, 1, "cell")
    device.settle()
    assert memory.read_now(0, 1) == bytes([32])


def test_pretended_gpu_has_no_room_for_one_process_more(pretended: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    full = fake_driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0
    monkeypatch.setattr(fake_driver, "cuDevicePrimaryCtxRetain", lambda gpu: full)
    context = pretended.__init__.__globals__["context"].__wrapped__  # type: ignore[misc]
    with pytest.raises(DeviceError, match=r"GPU 0 cannot take another process.*32 of its hardware queues.*use fewer processes"):
        context(0)


def test_pretended_memory_goes_back_to_the_driver_when_it_runs_out(pretended: Open) -> None:
    device = pretended()
    sizes = [(20 << 20) + n * (1 << 20) for n in range(20)]
    for size in sizes:
        device.allocate("device", size, "large").free()
        device.settle()
    assert fake_driver.used() <= fake_driver.CAPACITY
    device.close()


def test_too_many_streams_behind_gates_are_refused_before_the_driver_hangs(opened: Open) -> None:
    device = opened()
    streams = [device.stream(f"s{n}") for n in range(25)]
    gates = [device.gate(stream, stream.name) for stream in streams[:24]]
    with pytest.raises(DeviceError, match=r"gates hold up 24 streams.*'s24'.*open a gate first"):
        device.gate(streams[24], "one more")
    event = device.record(streams[0], "held")
    with pytest.raises(DeviceError, match="open a gate first"):
        device.wait(streams[24], event, "w")
    device.wait(streams[1], event, "held already")
    gates[0].open()
    device.gate(streams[24], "in its place").open()
    device.settle()


@pytest.mark.parametrize("patient", [False, True])
def test_only_a_patient_device_waits_for_slow_work_and_none_for_a_gate(pretended: Open, patient: bool) -> None:
    device = pretended(patient=patient)
    a = device.stream("a")
    fake_driver.slow(a.raw, looks=5)  # type: ignore[attr-defined]
    assert device.record(a, "behind slow work").done() is patient
    gate = device.gate(a, "g")
    event = device.record(a, "behind a gate")
    assert not event.done()
    gate.open()
    device.settle()
    assert event.done()
    device.close()


@pytest.mark.cuda
def test_a_worker_takes_the_gpu_of_its_number() -> None:
    device = on_gpu()
    from kvgpu.device.cuda.driver import gpus

    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    assert device.ordinal == worker % gpus()
    torch = pytest.importorskip("torch")

    class View:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (256,),
            "typestr": "|u1",
            "data": (device.allocate("device", 256, "m").address, False),
            "version": 3,
        }

    assert torch.as_tensor(View()).device.index == device.ordinal
    device.close()


@pytest.mark.cuda
def test_kernel_forms_agree_on_random_bytes_on_gpu() -> None:
    device = on_gpu()
    a = device.stream("a")
    rng = np.random.default_rng(1)
    source, target = device.allocate("pinned", 1 << 16, "source"), device.allocate("device", 1 << 16, "target")
    source.host_array()[:] = rng.integers(0, 256, 1 << 16)
    expected = np.zeros(1 << 16, dtype=np.uint8)
    for _ in range(50):
        start, offset, size = (int(n) for n in rng.integers(0, 1 << 15, 3))
        copy(device, a, source, start, target, offset, size)
        expected[offset : offset + size] = source.host_array()[start : start + size]
    device.settle()
    assert target.read_now(0, 1 << 16) == expected.tobytes()
    device.close()


@pytest.mark.cuda
@pytest.mark.parametrize(
    "what", ["small memory", "large memory", "pinned memory", "kernel", "stream", "graph", "read", "host task", "many gates"]
)
def test_nothing_waits_for_a_closed_gate_on_gpu(what: str) -> None:
    device = on_gpu()
    held, b = device.stream("held"), device.stream("b")
    memory, pinned = device.allocate("device", 256, "m"), device.allocate("pinned", 256, "p")
    device.prepare(MIX, [True, False, False])
    device.prepare(FRESH, [True, False, False])
    gates = [device.gate(held, "g")]
    mix(device, held, memory, 0, 1, "behind the gate")
    device.upload(held, memory, 0, pinned, 0, 1, list, "behind the gate")

    def graph() -> None:
        device.begin_capture(b)
        mix(device, b, memory, 1, 1, "captured")
        device.end_capture(b).launch(b, "replay")

    def many_gates() -> None:
        streams = [device.stream(f"s{n}") for n in range(12)]
        gates.extend(device.gate(stream, stream.name) for stream in streams)
        for stream in streams:
            device.upload(stream, pinned, 0, memory, 128, 1, list, "behind a gate")

    actions: dict[str, Callable[[], object]] = {
        "small memory": lambda: device.allocate("device", 1 << 16, "small"),
        "large memory": lambda: device.allocate("device", 1 << 30, "large"),
        "pinned memory": lambda: device.allocate("pinned", 1 << 28, "large"),
        "kernel": lambda: device.launch(b, FRESH, 1, 32, [memory, 2, 1], list, "first launch"),
        "stream": lambda: device.stream("c"),
        "graph": graph,
        "read": lambda: memory.read_now(0, 256),
        "host task": lambda: device.host_task(b, lambda: None, list, "task"),
        "many gates": many_gates,
    }
    watchdog = threading.Timer(10, lambda: [gate.open() for gate in gates])
    watchdog.start()
    started = time.monotonic()
    actions[what]()
    mix(device, b, memory, 3, 5, "cell")
    device.upload(b, memory, 3, pinned, 3, 1, list, "down")
    device.settle()
    seconds = time.monotonic() - started
    watchdog.cancel()
    assert pinned.read_now(3, 1) == b"\5"
    assert seconds < 9, f"{what} waited for a gate that was closed"
    assert pinned.read_now(0, 1) == b"\0"
    device.close()


@pytest.mark.cuda
def test_torch_stream_and_memory_on_gpu() -> None:
    device = on_gpu()
    torch = pytest.importorskip("torch")
    theirs = torch.cuda.Stream(device=device.ordinal)
    stream = device.external_stream(theirs)
    memory, seen = device.allocate("device", 256, "m"), device.allocate("pinned", 256, "seen")

    class View:
        __cuda_array_interface__ = {"shape": (256,), "typestr": "|u1", "data": (memory.address, False), "version": 3}  # noqa: RUF012

    tensor = torch.as_tensor(View(), device=f"cuda:{device.ordinal}")
    assert tensor.data_ptr() == memory.address
    tensor += 0  # torch loads its kernels at their first use, and that would wait for the gate
    torch.cuda.synchronize(device.ordinal)
    own = device.stream("own")
    gate = device.gate(own, "g")
    mix(device, own, memory, 0, 7, "cell")
    device.wait(stream, device.record(own, "r"), "w")
    with torch.cuda.stream(theirs):
        tensor += 1
    copy(device, stream, memory, 0, seen, 0, 256)
    device.settle()
    assert seen.read_now(0, 2) == b"\0\0"
    gate.open()
    device.settle()
    assert seen.read_now(0, 2) == b"\x08\1"
    device.close()


@pytest.mark.cuda
def test_launch_is_cheap_on_gpu() -> None:
    device = on_gpu()
    a = device.stream("a")
    memory = device.allocate("device", 256, "m")
    event = device.record(a, "r")
    costs = {
        "launch": lambda: device.launch(a, MIX, 1, 32, [memory, 0, 1], touches("cell"), "s"),
        "record": lambda: device.record(a, "r"),
        "wait": lambda: device.wait(a, event, "w"),
    }
    micros = {}
    for name, call in costs.items():
        call()
        device.sync(a)
        started = time.perf_counter()
        for _ in range(500):
            call()
        micros[name] = (time.perf_counter() - started) * 2000
        device.sync(a)
    print(micros)
    assert micros["launch"] < 25
    device.close()


@pytest.mark.parametrize("code", [1, 4242])
def test_pretended_errors_of_calls_by_address_are_raised_with_what_the_driver_says(
    pretended: Open, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    device = pretended()
    a, b = device.stream("a"), device.stream("b")
    source, target = device.allocate("pinned", 64, "source"), device.allocate("device", 64, "target")
    recorded = device.record(a, "recorded")
    says = "cuda_error_invalid_value" if code == 1 else "error 4242"
    calls = {
        "cuEventRecord": lambda: device.record(a, "r"),
        "cuStreamWaitEvent": lambda: device.wait(b, recorded, "w"),
        "cuMemcpyAsync": lambda: device.upload(a, source, 0, target, 0, 64, lambda: (), "u"),
        "cuLaunchKernel": lambda: mix(device, a, source, 0, 1, "cell"),
        "cuEventQuery": recorded.done,
        "cuThreadExchangeStreamCaptureMode": recorded.done,
    }
    for name, call in calls.items():
        with monkeypatch.context() as patched:
            patched.setattr(fake_driver, name, lambda *args: (code, 0))
            with pytest.raises(DeviceError, match=says):
                call()
    assert recorded.done()
    device.close()
