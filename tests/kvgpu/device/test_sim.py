"""Streams, events, gates, memory, capture and schedules of the simulated device."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgpu.device.api import POISON, Access, DeviceBlocked, DeviceError, Kernel
from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.device.sim import SimDevice, SimOptions
from tests.kvgpu.device.programs import COPY, MIX, PROGRAMS, mix, touches

SCHEDULES = ("fifo", "adversarial", "seed=0", "seed=1", "seed=7")
EXPECTED = {
    "chain": [bytes([((1 * 31) + 2) * 31 + 3 & 255]) + bytes(7)],
    "gated": [
        bytes([0, 6]) + bytes(6),
        bytes([0, 1, 0, 1, 1]),
        bytes([5 * 31 + 7, 6]) + bytes(6),
        bytes([1, 0, 0, 0, 0]),
    ],
    "hosted": [bytes([0, 9]), bytes([9 * 31 + 9 & 255]) + bytes(7)],
    "captured": [
        bytes(8),
        bytes([3, 0, 0, 0, 3, 0, 0, 0]),
        bytes([3 * 31 + 4, 0, 0, 0, 3 * 31 + 4, 0, 0, 0]),
    ],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_program(name: str, schedule: str) -> None:
    assert list(PROGRAMS[name](SimDevice(SimOptions(schedule=schedule)))) == EXPECTED[name]


def test_upload_goes_both_ways() -> None:
    device = SimDevice()
    pool, back, again = PROGRAMS["pinned"](device)
    pattern = (np.arange(4096) % 251).astype(np.uint8).tobytes()
    assert pool == bytes(1024) + pattern[:2048] + bytes(1024)
    assert back == again == pattern[:1000] + bytes(1048) + pattern[:1024] + bytes(1024)


def test_nothing_runs_when_it_is_submitted_or_recorded_or_located() -> None:
    device = SimDevice()
    stream = device.stream("a")
    memory = device.allocate("device", 8, "m")
    mix(device, stream, memory, 0, 1, "cell")
    event = device.record(stream, "r")
    assert device.position(event).clock == {"a": 1}
    assert device.position(stream).gates == frozenset()
    assert memory.read_now(0, 1) == b"\0"
    device.settle()
    assert memory.read_now(0, 1) == b"\1"


def test_done_is_truthful_and_runs_what_is_upstream_alone() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("device", 8, "m")
    mix(device, a, memory, 0, 1, "cell 0")
    event = device.record(a, "r")
    mix(device, a, memory, 1, 1, "cell 1")
    mix(device, b, memory, 2, 1, "cell 2")
    assert event.done()
    assert memory.read_now(0, 3) == b"\1\0\0"


def test_event_stays_at_the_position_where_it_was_recorded() -> None:
    device = SimDevice()
    a = device.stream("a")
    early = device.record(a, "early")
    gate = device.gate(a, "g")
    late = device.record(a, "late")
    assert (early.done(), late.done()) == (True, False)
    gate.open()
    assert late.done()


def test_position_names_every_closed_gate_upstream_and_counts_submissions() -> None:
    device = SimDevice()
    a, b, c = (device.stream(name) for name in "abc")
    memory = device.allocate("device", 8, "m")
    first, second = device.gate(a, "one"), device.gate(b, "two")
    mix(device, a, memory, 0, 1, "cell")
    device.wait(b, device.record(a, "r"), "w")
    device.wait(c, device.record(b, "r"), "w")
    at = device.position(c)
    assert at.gates == {"one", "two"}
    assert at.clock == {"a": 2, "b": 1}
    assert device.submitted(a) == 2
    first.open()
    assert device.position(c).gates == {"two"}
    second.open()
    assert device.position(c).gates == frozenset()


def test_sync_behind_a_gate_is_refused_by_name_and_others_may_sync() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    gate = device.gate(a, "held")
    with pytest.raises(DeviceBlocked, match=r"'a'.*gate 'held'.*open it first"):
        device.sync(a)
    with pytest.raises(DeviceBlocked, match="gate 'held'"):
        device.sync(None)
    device.sync(b)
    gate.open()
    gate.open()
    device.sync(None)


def test_gates_opened_in_any_order() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("device", 8, "m")
    gates = [device.gate(a, "0"), device.gate(b, "1")]
    mix(device, a, memory, 0, 1, "cell")
    device.wait(b, device.record(a, "r"), "w")
    mix(device, b, memory, 0, 2, "cell")
    gates[1].open()
    device.settle()
    assert memory.read_now(0, 1) == b"\0"
    gates[0].open()
    device.settle()
    assert memory.read_now(0, 1)[0] == 33


def missing_edge(device: SimDevice) -> int:
    """A copy out of a slot and its next writer, which does not wait."""
    out, user = device.stream("out"), device.stream("user")
    memory = device.allocate("device", 3, "m")
    memory.host_array()[0] = 7
    mix(device, user, memory, 2, 0, "other")
    device.launch(out, COPY, 1, 1, [memory, 0, memory, 1, 1], list, "copy out")
    mix(device, user, memory, 0, 1, "slot")
    device.settle()
    return memory.read_now(1, 1)[0]


def test_adversarial_schedule_runs_the_late_writer_before_the_copy_that_it_should_have_waited_for() -> None:
    assert missing_edge(SimDevice(SimOptions(schedule="fifo", check=False))) == 7
    assert missing_edge(SimDevice(SimOptions(schedule="adversarial", check=False))) == 7 * 31 + 1
    seeds = {missing_edge(SimDevice(SimOptions(schedule=f"seed={n}", check=False))) for n in range(16)}
    assert seeds == {7, 7 * 31 + 1}


def test_seed_repeats_itself() -> None:
    results = [[missing_edge(SimDevice(SimOptions(schedule=f"seed={n}"))) for n in range(8)] for _ in range(2)]
    assert results[0] == results[1]


@pytest.mark.parametrize("schedule", ["", "seed", "seed=", "seed=x", "lifo", "seed=-1"])
def test_unknown_schedule(schedule: str) -> None:
    with pytest.raises(DeviceError, match="expected fifo, adversarial or seed=N"):
        SimDevice(SimOptions(schedule=schedule))


cells = st.integers(0, 2)
ordered_ops = st.one_of(
    st.tuples(st.just("mix"), st.integers(0, 3), cells),
    st.tuples(st.just("wait"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("gate"), st.integers(0, 3), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ordered_ops, max_size=20), st.permutations(range(8)), st.booleans())
def test_program_without_fault_gives_the_same_bytes_under_every_schedule_and_order_of_gates(
    program: list[tuple[str, int, int]], order: list[int], early: bool
) -> None:
    results = set()
    for schedule in SCHEDULES:
        device = SimDevice(SimOptions(schedule=schedule))
        streams = [device.stream(str(n)) for n in range(4)]
        memory = device.allocate("device", 3, "m")
        gates = []
        for number, (verb, n, what) in enumerate(program):
            if verb == "mix":
                mix(device, streams[n], memory, what, number, f"cell {what}")
            elif verb == "wait":
                device.wait(streams[n], device.record(streams[what], "r"), "w")
            else:
                gates.append(device.gate(streams[n], f"g{number}"))
            if early:
                device.settle()
        for n in order:
            if n < len(gates):
                gates[n].open()
            if not early:
                device.settle()
        for gate in gates:
            gate.open()
        device.sync(None)
        if device.faults():
            return
        results.add(memory.read_now(0, 3))
    assert len(results) == 1


def test_dropped_wait_and_dropped_record_order_nothing() -> None:
    for dropped in ("r", "w"):
        device = SimDevice(SimOptions(drop_sites=frozenset({dropped})))
        a, b = device.stream("a"), device.stream("b")
        device.gate(a, "g")
        event = device.record(a, "r")
        device.wait(b, event, "w")
        assert device.position(b).gates == frozenset()
        assert device.position(b).clock == {}
        assert event.done() == (dropped == "r")


def test_poison_comes_after_the_fence_and_before_the_next_use() -> None:
    device = SimDevice(SimOptions(poison=True, schedule="adversarial"))
    a, b, c = (device.stream(name) for name in "abc")
    pool, out = device.allocate("device", 8, "pool"), device.allocate("device", 8, "out")
    pool.host_array()[:] = 1
    gate = device.gate(a, "g")
    device.launch(a, COPY, 1, 1, [pool, 0, out, 0, 8], touches("slot", write=False), "copy out")
    fence = device.record(a, "copied")
    poisoned = device.poison(pool, [(0, 2), (4, 1)], [fence], "R7.2 poison")
    unrelated = device.poison(pool, [(7, 1)], [], "another")
    assert poisoned is not None
    assert unrelated is not None
    assert device.position(poisoned) == device.position(fence)
    assert unrelated.done()
    assert pool.read_now(0, 8) == bytes([1] * 7 + [POISON])
    device.wait(b, poisoned, "next use")
    mix(device, b, pool, 0, 5, "slot")
    gate.open()
    device.settle()
    assert out.read_now(0, 8) == bytes([1] * 7 + [POISON])
    assert pool.read_now(0, 8) == bytes([(POISON * 31 + 5) & 255, POISON, 1, 1, POISON, 1, 1, POISON])
    assert device.faults() == ()
    assert {site.name for site in device.sites() if site.kind == "wait"} == {"next use"}
    mix(device, c, pool, 0, 5, "slot")
    assert len(device.faults()) == 1


def test_poison_that_is_off_leaves_the_fence() -> None:
    device = SimDevice()
    pool = device.allocate("device", 8, "pool")
    assert device.poison(pool, [(0, 8)], [], "off") is None
    device.settle()
    assert pool.read_now(0, 8) == bytes(8)


def test_failing_work_is_a_fault_that_names_it_and_the_rest_runs() -> None:
    device = SimDevice()
    a = device.stream("a")
    memory = device.allocate("device", 8, "m")

    def broken() -> None:
        raise OSError("disk is gone")

    device.at_step(5, "evict: gpu")
    device.host_task(a, broken, list, "R10.1 write the file")
    mix(device, a, memory, 0, 1, "cell")
    device.launch(a, Kernel("bad", _nothing, _raises), 1, 1, [], list, "bad kernel")
    device.settle()
    first, second = device.faults()
    assert "R10.1 write the file" in first
    assert "step 5: evict: gpu" in first
    assert "OSError: disk is gone" in first
    assert "ZeroDivisionError" in second
    assert memory.read_now(0, 1) == b"\1"


def _nothing() -> None:
    return


def _raises() -> None:
    raise ZeroDivisionError


def test_capture_holds_launches_only() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("device", 8, "m")
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
        lambda: device.sync(None),
    ):
        with pytest.raises(DeviceError, match="capture"):
            call()
    mix(device, a, memory, 0, 1, "cell")
    mix(device, b, memory, 1, 1, "other")
    assert device.submitted(a) == 0
    graph = device.end_capture(a)
    device.settle()
    assert memory.read_now(0, 2) == b"\0\1"
    graph.launch(b, "replay")
    graph.launch(b, "replay")
    assert device.submitted(b) == 3
    device.settle()
    assert memory.read_now(0, 2) == b"\x20\1"


def test_external_streams() -> None:
    device = SimDevice()
    own = device.stream("exec")

    class TorchLike:
        cuda_stream = 77

    class CupyLike:
        ptr = 77

    assert device.external_stream("exec") is own
    assert device.external_stream(own) is own
    other = device.external_stream("theirs")
    assert other is device.external_stream("theirs")
    assert device.external_stream(77) is device.external_stream(TorchLike()) is device.external_stream(CupyLike())
    device.wait(own, device.record(other, "r"), "w")
    with pytest.raises(DeviceError, match="exists already"):
        device.stream("exec")


def test_memory_is_bounded_given_back_and_guarded() -> None:
    device = SimDevice(SimOptions(memory_limit=1000))
    a = device.stream("a")
    first = device.allocate("device", 600, "pool")
    with pytest.raises(DeviceError, match=r"'staging'.*600 in use.*limit of 1000.*smaller"):
        device.allocate("pinned", 401, "staging")
    mix(device, a, first, 0, 1, "cell")
    array = first.host_array()
    first.free()
    first.free()
    second = device.allocate("pinned", 1000, "staging")
    device.settle()
    assert array[0] == 1  # work submitted before the free still has its memory
    for call in (
        lambda: first.read_now(0, 1),
        lambda: mix(device, a, first, 0, 1, "cell"),
        lambda: second.read_now(999, 2),
        lambda: second.read_now(-1, 1),
        lambda: device.upload(a, second, 0, second, 500, 501, list, "u"),
        lambda: device.allocate("managed", 1, "x"),
        lambda: device.launch(a, MIX, 0, 1, [second, 0, 0], list, "no blocks"),
    ):
        with pytest.raises(DeviceError):
            call()
    assert second.address == second.host_array().ctypes.data


def test_closed_device_refuses_work() -> None:
    device = SimDevice()
    a = device.stream("a")
    device.gate(a, "g")
    device.close()
    device.close()
    device.settle()
    with pytest.raises(DeviceError, match="closed"):
        device.record(a, "r")


def test_opening_by_kind() -> None:
    assert open_device("sim", SimOptions(poison=True)).kind == "sim"
    with pytest.raises(DeviceError, match="expected one of auto, sim, cuda"):
        open_device("gpu")


def test_cuda_where_there_is_no_gpu_says_why_and_auto_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvgpu.device.open.why_no_gpu", lambda: "the CUDA driver sees no GPU")
    with pytest.raises(DeviceError, match=r"'cuda' was asked for, but the CUDA driver sees no GPU; .* device 'sim'"):
        open_device("cuda")
    assert open_device("auto").kind == "sim"


@pytest.mark.parametrize("missing", ["numba_cuda", "cuda.bindings", "cuda"])
def test_a_package_that_is_not_there_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        if name.startswith(missing + "."):
            raise ModuleNotFoundError(name)  # as the real one does where the parent package is missing
        return None if name == missing else object()

    monkeypatch.setattr("importlib.util.find_spec", find)
    package = "numba-cuda" if missing == "numba_cuda" else "cuda-bindings"
    assert why_no_gpu.__wrapped__() == f"the package {package} is not installed (pip install 'kvspec[cuda]')"


def test_packages_that_are_there_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ModuleType("driver")
    driver.gpus = lambda: 1  # type: ignore[attr-defined]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("importlib.import_module", lambda name: driver)
    assert why_no_gpu.__wrapped__() is None


def test_this_machine_has_a_gpu_or_a_reason() -> None:
    reason = why_no_gpu()
    assert reason is None or "not installed" in reason or "driver" in reason
    device = open_device("auto")
    assert device.kind == ("cuda" if reason is None else "sim")
    device.close()


def test_sim_imports_nothing_of_cuda() -> None:
    code = (
        "import sys, kvgpu.device.open as o; o.open_device('sim'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'cuda', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_long_chains_run_without_recursion() -> None:
    device = SimDevice(SimOptions(check=False))
    streams = [device.stream(str(n)) for n in range(2)]
    count = [0]

    def step() -> None:
        count[0] += 1

    for n in range(5000):
        device.host_task(streams[n % 2], step, list, "step")
        device.wait(streams[1 - n % 2], device.record(streams[n % 2], "r"), "w")
    assert device.record(streams[0], "end").done()
    assert count[0] >= 4999


def test_reads_of_one_step_are_not_writes() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    for stream in (a, b):
        device.host_task(stream, lambda: None, lambda: [Access(("table",), False)], "read")
    assert device.faults() == ()
