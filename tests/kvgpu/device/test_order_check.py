"""The check finds each missing edge, whatever the schedule, and reports nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvgpu.device.api import Access, Site
from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.device.sites import seen_sites
from tests.kvgpu.device.programs import COPY, PROGRAMS, Build, touches

SCHEDULES = ("fifo", "adversarial", "seed=0", "seed=1", "seed=2")


def handover(device: SimDevice) -> None:
    """A writer, two readers of other streams, then the next writer: four edges, each by itself necessary."""
    writer, left, right, last = (device.stream(name) for name in ("writer", "left", "right", "last"))
    memory = device.allocate("device", 64, "pool")
    device.launch(writer, COPY, 1, 1, [memory, 0, memory, 8, 8], touches("slot"), "write the slot")
    written = device.record(writer, "written")
    for name, reader in (("left", left), ("right", right)):
        device.wait(reader, written, f"{name} waits")
        device.launch(reader, COPY, 1, 1, [memory, 8, memory, 16, 8], touches("slot", write=False), f"{name} reads")
        device.wait(last, device.record(reader, f"{name} has read"), f"reuse waits for {name}")
    device.launch(last, COPY, 1, 1, [memory, 0, memory, 8, 8], touches("slot"), "reuse the slot")
    device.settle()


def staging(device: SimDevice) -> None:
    """The CPU fills a buffer again once its upload is done."""
    stream = device.stream("exec")
    buffer, table = device.allocate("pinned", 8, "staging"), device.allocate("device", 8, "table")
    uploaded = device.record(stream, "nothing uploaded yet")
    for number in range(2):
        if uploaded.done():
            device.host_access(touches("staging"), "fill the staging buffer")
            buffer.host_array()[:] = number
        device.upload(stream, buffer, 0, table, 0, 8, lambda: [Access(("staging",), False), Access(("table",), True)], "upload")
        uploaded = device.record(stream, "uploaded")
    device.settle()
    assert table.read_now(0, 1) == b"\x01"


DROPS = [
    (handover, site)
    for site in (
        "written",
        "left waits",
        "right waits",
        "left has read",
        "right has read",
        "reuse waits for left",
        "reuse waits for right",
    )
] + [(staging, "uploaded")]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("program", [handover, staging, *PROGRAMS.values()], ids=lambda program: program.__name__)
def test_ordered_program_has_no_fault(program: Build, schedule: str) -> None:
    device = SimDevice(SimOptions(schedule=schedule))
    program(device)
    assert device.faults() == ()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("program", "site"), DROPS, ids=[f"{program.__name__}: {site}" for program, site in DROPS])
def test_each_missing_edge_is_found(program: Callable[[SimDevice], None], site: str, schedule: str) -> None:
    device = SimDevice(SimOptions(schedule=schedule, drop_sites=frozenset({site})))
    try:
        program(device)
    except AssertionError:
        assert program is staging  # without the fence the second filling is in time for the first upload
    assert device.faults(), f"nothing found without {site!r}"


def test_sites_of_a_program_are_the_mutants_that_it_can_have() -> None:
    device = SimDevice()
    handover(device)
    droppable = {site.name for site in device.sites() if site.kind in ("wait", "record")}
    assert droppable == {site for program, site in DROPS if program is handover}
    assert Site("reuse the slot", "submit") in device.sites()
    assert device.sites() <= seen_sites()


def test_report_names_both_places_steps_resource_and_sites() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    memory = device.allocate("device", 8, "pool")
    device.at_step(3, "resize: r")
    device.launch(
        a,
        COPY,
        1,
        1,
        [memory, 0, memory, 4, 4],
        lambda: [Access(("slot", 0, "main", n), True) for n in range(5)],
        "R7.1 copy out",
    )
    device.at_step(4, "publish: rows")
    device.launch(b, COPY, 1, 1, [memory, 4, memory, 0, 4], lambda: [Access(("slot", 0, "main", 4), False)], "R7.5 upload")
    device.launch(
        b,
        COPY,
        1,
        1,
        [memory, 4, memory, 0, 4],
        lambda: [Access(("slot", 0, "main", n), True) for n in range(5)],
        "R7.2 next use",
    )
    first, second = device.faults()
    assert "slot 0 main 4" in first
    assert "R7.1 copy out (submission 1 on stream 'a'" in first
    assert "step 3: resize: r) writes it" in first
    assert "R7.5 upload (submission 1 on stream 'b'" in first
    assert "step 4: publish: rows) reads it" in first
    assert first.count("kvgpu/device/test_order_check.py:") == 2
    assert "slot 0 main 0, slot 0 main 1, slot 0 main 2 and 2 more" in second
    assert "ordered after submission 0 of 'a' only" in second


def test_found_also_when_it_ran_in_the_meant_order() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    device.host_task(a, lambda: None, touches("cell"), "first")
    device.settle()
    device.host_task(b, lambda: None, touches("cell", write=False), "second")
    assert len(device.faults()) == 1


def test_gate_that_opened_or_query_that_was_answered_orders_no_stream() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    gate = device.gate(a, "g")
    device.host_task(a, lambda: None, touches("cell"), "first")
    event = device.record(a, "recorded")
    gate.open()
    assert event.done()
    device.host_task(b, lambda: None, touches("cell"), "second")
    assert len(device.faults()) == 1


def test_sync_orders_what_is_submitted_later() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    device.host_task(a, lambda: None, touches("cell"), "first")
    device.sync(a)
    device.host_task(b, lambda: None, touches("cell"), "second")
    device.sync(None)
    device.host_access(touches("cell"), "third")
    assert device.faults() == ()


def test_accesses_of_a_graph_count_at_each_replay_as_they_are_then() -> None:
    device = SimDevice()
    a, b = device.stream("a"), device.stream("b")
    target = ["x"]
    device.begin_capture(a)
    device.host_task(a, lambda: None, lambda: touches(target[0])(), "captured")
    graph = device.end_capture(a)
    device.host_task(b, lambda: None, touches("x"), "other")
    assert device.faults() == ()
    target[0] = "y"
    graph.launch(a, "replay")
    assert device.faults() == ()
    target[0] = "x"
    graph.launch(a, "replay")
    (fault,) = device.faults()
    assert "replay [captured]" in fault


def test_without_the_check_accesses_are_not_even_asked_for() -> None:
    def never() -> list[Access]:
        raise AssertionError

    device = SimDevice(SimOptions(check=False))
    device.host_task(device.stream("a"), lambda: None, never, "task")
    device.host_access(never, "host")
    device.settle()
    assert device.faults() == ()


def seconds(check: bool) -> float:
    """Copies of 8 pages of 4 KiB a submission, each ordered after the one before on another stream."""
    device = SimDevice(SimOptions(check=check))
    streams = [device.stream(str(n)) for n in range(4)]
    memory = device.allocate("device", 1 << 20, "pool")
    started = time.thread_time()
    for n in range(400):
        stream = streams[n % 4]
        device.wait(stream, device.record(streams[n % 4 - 1], "r"), "w")
        accesses = partial(_slots, 8 * n % 128)
        device.launch(stream, COPY, 1, 32, [memory, 0, memory, 1 << 19, 1 << 15], accesses, "copy")
    device.settle()
    assert device.faults() == ()
    return time.thread_time() - started


def _slots(first: int) -> list[Access]:
    return [Access(("slot", 0, "main", n), True) for n in range(first, first + 8)]


def test_check_costs_at_most_three_times_a_run_without_it() -> None:
    runs = [(seconds(False), seconds(True)) for _ in range(7)]
    without, with_it = (min(times) for times in zip(*runs, strict=True))
    assert with_it < 3 * without


# Random programs against all paths

STREAMS, RESOURCES = 4, 3
submits = st.tuples(
    st.just("submit"),
    st.integers(0, STREAMS - 1),
    st.lists(st.tuples(st.integers(0, RESOURCES - 1), st.booleans()), min_size=1, max_size=3),
)
records = st.tuples(st.just("record"), st.integers(0, STREAMS - 1), st.just(0))
waits = st.tuples(st.just("wait"), st.integers(0, STREAMS - 1), st.integers(0, 30))
hosts = st.tuples(st.just("host"), st.integers(0, RESOURCES - 1), st.booleans())
asks = st.tuples(st.just("ask"), st.just(0), st.integers(0, 30))
syncs = st.tuples(st.just("sync"), st.integers(0, STREAMS - 1), st.just(0))
programs = st.lists(st.one_of(submits, submits, submits, records, waits, waits, hosts, asks, syncs), max_size=24)


class Paths:
    """Happens-before by brute force: a graph of points, searched anew for every pair.

    ``accesses``: (the point that it is, the point that is before what comes later, resource, whether it writes).
    ``written_by_cpu``: which of them are writes of the CPU. Each comes before all that is submitted later, and after what the CPU
    knows, which is looked at by itself: so what went before one comes before what follows it, too.
    """

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.accesses: list[tuple[int, int, int, bool]] = []
        self.written_by_cpu: list[int] = []

    def point(self, *before: int | None) -> int:
        self.before.append({each for each in before if each is not None})
        return len(self.before) - 1

    def reaches(self, start: int, end: int) -> bool:
        pending, seen = [end], set()
        while pending:
            at = pending.pop()
            if at == start:
                return True
            if at not in seen:
                seen.add(at)
                pending += self.before[at]
        return False

    def racy(self) -> set[int]:
        found = set()
        for n, (late, _, resource, write) in enumerate(self.accesses):
            for m, (_, early, other, wrote) in enumerate(self.accesses[:n]):
                if resource != other or not (write or wrote) or self.reaches(early, late):
                    continue
                if not any(self.accesses[k][2] == resource for k in self.written_by_cpu if m < k < n):
                    found.add(resource)
        return found


TOLD = [("record", 0, 0), ("ask", 0, 0)]


@settings(max_examples=400, deadline=None)
@given(programs)
@example([("submit", 0, [(0, True)]), *TOLD, ("host", 0, True), ("submit", 1, [(0, False)])])  # no fault: it was over
@example([("submit", 0, [(0, False)]), *TOLD, ("host", 0, True), ("submit", 1, [(0, True)])])
@example([("submit", 0, [(0, True)]), *TOLD, ("host", 0, False), ("submit", 1, [(0, True)])])  # a fault: the CPU only looked
@example([("submit", 0, [(0, True)]), *TOLD, ("host", 1, True), ("submit", 1, [(0, True)])])  # a fault: it wrote something else
@example([("submit", 0, [(0, True)]), ("host", 0, True), ("submit", 1, [(0, True)])])  # a fault: it had not been told
def test_check_agrees_with_all_paths(program: list[tuple[str, int, object]]) -> None:
    device = SimDevice()
    streams = [device.stream(f"s{n}") for n in range(STREAMS)]
    paths = Paths()
    last: list[int | None] = [None] * STREAMS
    # What the CPU knows orders its own accesses; what it does itself, and a sync, orders everything submitted later, but what it
    # was merely told (an event that is done) orders nothing on the device: hence two points for an access of the CPU.
    knows = synced = paths.point()
    events: list[tuple[int | None, object]] = []
    for verb, n, what in program:
        if verb == "submit":
            assert isinstance(what, list)
            last[n] = paths.point(last[n], synced)
            paths.accesses += [(last[n], last[n], resource, write) for resource, write in what]
            device.host_task(streams[n], lambda: None, lambda what=what: [Access((f"r{r}",), w) for r, w in what], "submit")
        elif verb == "record":
            events.append((paths.point(last[n], synced), device.record(streams[n], "record")))
        elif verb == "wait" and events:
            point, event = events[what % len(events)]
            last[n] = paths.point(last[n], point)
            device.wait(streams[n], event, "wait")
        elif verb == "ask" and events:
            point, event = events[what % len(events)]
            knows = paths.point(knows, point)
            assert event.done()
        elif verb == "host":
            now, after = paths.point(knows), paths.point()
            paths.written_by_cpu += [len(paths.accesses)] if what else []
            paths.accesses.append((now, after, n, bool(what)))
            device.host_access(lambda n=n, what=what: [Access((f"r{n}",), bool(what))], "host")
            synced, knows = paths.point(synced, after), paths.point(knows, after)
        elif verb == "sync":
            point = paths.point(last[n], knows)
            knows, synced = point, paths.point(synced, last[n])
            device.sync(streams[n])
    headlines = " ".join(fault.splitlines()[0] for fault in device.faults())
    assert {r for r in range(RESOURCES) if f"r{r}" in headlines} == paths.racy()
