"""What is kept of closed requests: nothing that grows with their tokens, in either system and in the harness' memory (R3.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from kvgpu.adapter.system import Implementation
from kvgpu.device.sim import SimDevice
from kvref.maps import Map
from kvref.system import Reference
from kvspec import ops
from kvspec.audit.footprint import Footprint, footprint
from kvspec.config import LevelKind, ManagerConfig
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index
from kvspec.ops import Operation
from kvspec.system import Setup, System

CONFIG = ManagerConfig.model_validate(
    {
        "tokens_per_block": 4,
        "levels": [{"kind": "gpu", "slots": 8}, {"kind": "host", "slots": 8}],
        "layers": [
            {"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True}]},
            {"name": "near", "sliding_window": 8, "buffers": [{"role": "key", "bytes": 32}]},
        ],
    }
)
TOKENS = 30


@dataclass
class Driven:
    """The three that are measured, driven together."""

    implementation: Implementation
    reference: Reference
    memory: Memory
    step: int = 0
    seen: Index | None = None

    def apply(self, op: Operation) -> None:
        outcomes = [system.apply(op) for system in (self.implementation, self.reference)]
        assert all(outcome.error is None for outcome in outcomes), (op, outcomes)
        self.implementation._device.settle()
        now = Index(self.reference.observe())
        self.memory.update(self.step, op, outcomes[1], self.seen, now)
        self.step, self.seen = self.step + 1, now

    def lifecycles(self, steps: Callable[[int], Iterator[Operation]], first: int, end: int) -> dict[str, Footprint]:
        core = self.implementation._run.manager._core
        for number in range(first, end):
            core.fences._collect_at = 0  # it lets fences go by the thousand
            for op in steps(number):
                self.apply(op)
        manager, device = self.implementation._run.manager, self.implementation._device
        assert isinstance(device, SimDevice)
        # The log of each stream's work is that of the device, and as long as the scenario.
        state = replace(self.reference.state, streams=Map())
        return {
            "kvgpu": footprint(manager, without=(device, *device._streams.values(), self.implementation._run.payloads)),
            "kvref": footprint(state, without=(state.layout,)),
            "harness": footprint(self.memory),
        }


@pytest.fixture
def driven() -> Iterator[Driven]:
    setup = Setup(CONFIG, ("exec",), {"device": "sim"})
    systems: tuple[System, ...] = (Implementation(setup), Reference(setup))
    assert isinstance(systems[0], Implementation) and isinstance(systems[1], Reference)
    yield Driven(systems[0], systems[1], Memory(tuple(group.name for group in CONFIG.layers)))
    systems[0].close()


def committed(name: str, number: int) -> Iterator[Operation]:
    tokens = tuple(1000 * number + token for token in range(TOKENS))
    yield ops.Create(request=name)
    yield ops.Resume(request=name)
    yield ops.Resize(request=name, capacity=TOKENS)
    yield ops.Commit(request=name, tokens=tokens)
    yield ops.Close(request=name)
    yield ops.ClearReusable()


def served(name: str, number: int) -> Iterator[Operation]:
    """A batch of its own, a prefix that is there, decoding, a snapshot; its path leaves the tree while it lives."""
    tokens = tuple(1000 * number + token for token in range(TOKENS))
    yield ops.SeedPrefix(tokens=tokens[:8], level=LevelKind.HOST)
    yield ops.MakeBatch(name="rows", rows=2, blocks=8)
    yield ops.Create(request=name, tokens=tokens[:7])
    yield ops.Resume(request=name, decode=True)
    yield ops.Add(batch="rows", request=name)
    yield ops.Resize(request=name, capacity=TOKENS)
    yield ops.Commit(request=name, tokens=tokens[7:])
    yield ops.TakeSnapshot.model_validate({"request": name, "group": "main", "as": "shown"})
    yield ops.Publish(batch="rows")
    yield ops.Suspend(request=name)
    yield ops.Evict(level=LevelKind.GPU, group="main", pages=1)
    yield ops.ClearReusable()
    yield ops.Close(request=name)
    yield ops.CloseBatch(batch="rows")
    yield ops.ClearReusable()


@pytest.mark.parametrize("lifecycle", [committed, served])
def test_nothing_grows_under_one_name(driven: Driven, lifecycle: Callable[[str, int], Iterator[Operation]]) -> None:
    first = driven.lifecycles(lambda number: lifecycle("r", number), 0, 8)
    then = driven.lifecycles(lambda number: lifecycle("r", number), 8, 24)
    for what, before in first.items():
        assert not then[what].kinds - before.kinds, what
        assert then[what].bytes <= 1.15 * before.bytes, what  # what events know of each other differs


@pytest.mark.parametrize("lifecycle", [committed, served])
def test_a_closed_request_keeps_a_small_record(driven: Driven, lifecycle: Callable[[str, int], Iterator[Operation]]) -> None:
    first = driven.lifecycles(lambda number: lifecycle(f"r{number}", number), 0, 8)
    then = driven.lifecycles(lambda number: lifecycle(f"r{number}", number), 8, 28)
    for what, before in first.items():
        assert then[what].objects - before.objects <= 20 * 12, (what, then[what].kinds - before.kinds)
        assert then[what].bytes <= 1.15 * before.bytes + 20 * 1000, what


def test_page_records_and_numbers_of_tree_blocks_are_used_again(driven: Driven) -> None:
    core = driven.implementation._run.manager._core
    sizes = core.pages.size, 0
    for number in range(80):
        driven.lifecycles(lambda n: committed("r", n), number, number + 1)
        if number == 0:
            sizes = core.pages.size, len(core.tree._nodes)
    assert (core.pages.size, len(core.tree._nodes)) == sizes
    assert len(driven.implementation._run.payloads._contents) < 1100


def test_what_a_closed_request_still_answers(driven: Driven) -> None:
    driven.lifecycles(lambda number: committed("r", number), 0, 1)
    driven.apply(ops.Close(request="r"))
    driven.apply(ops.TakeSnapshot.model_validate({"request": "r", "group": "main", "as": "after"}))
    for system in (driven.implementation, driven.reference):
        seen = system.observe()
        closed = seen.requests["r"]
        assert (closed.status, closed.phase) == ("closed", "prefill")
        assert (closed.capacity, closed.history, closed.committed, closed.row) == (TOKENS, TOKENS, TOKENS, None)
        assert (seen.labels["after"].indices, seen.labels["after"].eligible, seen.labels["after"].row) == ((), 0, None)
    kept = driven.implementation._run.manager.request("r")
    assert [len(each) for each in (kept.indices(0), kept.levels(0), kept.pages(0), kept.locked_pages(0))] == [0, 0, 0, 0]


def test_queues_of_evictable_pages_are_tidied_where_nothing_is_evicted(driven: Driven) -> None:
    manager = driven.implementation._run.manager
    stream = driven.implementation._run.names.stream("exec")
    for _ in range(1500):
        request = manager.create("r")
        assert manager.resume(request, stream) and manager.resize(request, 4)
        manager.close(request)
        manager.device.settle()
    assert len(manager._core.queues[0][0]._bags) < 1100


def test_a_name_means_a_page_as_long_as_the_tree_has_it(driven: Driven) -> None:
    steps = list(committed("r", 0))
    for op in steps[:-1]:
        driven.apply(op)
    assert {ref.block for ref in driven.memory.tree_pages if ref.group == "main"} == set(range(8))
    driven.apply(steps[-1])
    assert not driven.memory.tree_pages
    driven.apply(ops.SeedPrefix(tokens=tuple(range(8)), level=LevelKind.GPU))
    assert not driven.memory.tree_pages
