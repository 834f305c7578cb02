"""Threads that drive one manager, the order of their operations as the lock saw it, and end states to compare."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.errors import CacheError
from kvgpu.locks import Mode, Moment
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvspec.config import BufferConfig, LayerConfig, Level, LevelConfig, LevelKind, ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.harness.naming import Index
from kvspec.observation import BAD, Observation, PageView, RequestStatus
from kvspec.ops import (
    Add,
    Close,
    Commit,
    Create,
    EnterDecode,
    Operation,
    Prefetch,
    Publish,
    Remove,
    Resize,
    Resume,
    Suspend,
)
from kvspec.payload import Content, expand

TOKENS_PER_BLOCK = 4
STORY = tuple(range(24))
"""What everyone says, so that all prefixes are shared."""
PAGE_BYTES = {"main": 96, "win": 48}
ROWS = 12
BLOCKS = 8
STREAMS = ("exec", "s1", "s2")

CONFIG = ManagerConfig(
    tokens_per_block=TOKENS_PER_BLOCK,
    levels=(
        LevelConfig(kind=LevelKind.GPU, slots=24),
        LevelConfig(kind=LevelKind.HOST, slots=20),
        LevelConfig(kind=LevelKind.DISK, slots=10),
    ),
    layers=(
        LayerConfig(
            name="main",
            buffers=(BufferConfig(role="key", bytes=64, sparse=True), BufferConfig(role="value", bytes=32, sparse=True)),
        ),
        LayerConfig(name="win", sliding_window=8, buffers=(BufferConfig(role="key", bytes=48),)),
    ),
)

Answer = None | bool | int | tuple[int, ...] | ErrorKind


@dataclass(slots=True)
class Entry:
    """An operation in the order in which the lock let them in, and what came of it."""

    op: Operation
    answer: Answer = None
    taken: int = 0


@dataclass(slots=True)
class Log:
    """The order of operations. Its hook writes an entry under the lock, at the moment when the operation begins."""

    entries: list[Entry] = field(default_factory=list)
    local: threading.local = field(default_factory=threading.local)

    def hook(self, moment: Moment, mode: Mode) -> None:
        """Called by the lock."""
        entry: Entry | None = getattr(self.local, "entry", None)
        if entry is not None and moment is Moment.TAKEN and mode is Mode.EXCLUSIVE:
            entry.taken += 1
            if entry.taken == 1:
                self.entries.append(entry)

    def do(self, op: Operation, call: Callable[[], Answer]) -> Answer:
        """Carry out an operation, and note what came of it."""
        entry = self.local.entry = Entry(op)
        try:
            entry.answer = call()
        except CacheError as error:
            entry.answer = error.kind
        finally:
            self.local.entry = None
        return entry.answer


class Driver:
    """One thread's work: requests of its own, over prefixes that all share."""

    def __init__(self, name: str, manager: Manager, batch: Batch, streams: Mapping[str, Stream], log: Log, seed: int) -> None:
        """``name``: what its requests' names begin with."""
        self.name, self.manager, self.batch, self.streams, self.log = name, manager, batch, streams, log
        self.random = random.Random(seed)
        self.requests: list[Request] = []

    def run(self, operations: int) -> None:
        """Do that many operations, then close all requests but one."""
        for _ in range(operations):
            self.step()
        for request in self.requests[1:]:
            self.close(request)

    def step(self) -> None:
        """One operation, chosen by what its own requests are like."""
        if len(self.requests) < 1 or (len(self.requests) < 2 and self.random.random() < 0.1):
            self.create()
            return
        request = self.random.choice(self.requests)
        choices = self.when_active if request.active else self.when_suspended
        self.random.choice(choices(request))()

    def when_active(self, request: Request) -> list[Callable[[], object]]:
        """What to do with an active request, by how often."""
        name, more = request.name, self.random.randint(1, 7)
        manager, log = self.manager, self.log
        capacity = min(request.capacity + more, TOKENS_PER_BLOCK * BLOCKS)
        history = min(request.history + more, request.capacity)
        said = tuple(STORY[request.committed : max(history, request.committed)])
        return [
            *[lambda: log.do(Resize(request=name, capacity=capacity), lambda: manager.resize(request, capacity))] * 3,
            *[lambda: log.do(Resize(request=name, history=history), lambda: manager.resize(request, None, history))] * 3,
            *[lambda: log.do(Commit(request=name, tokens=said), lambda: manager.commit(request, said))] * 2,
            *[lambda: log.do(EnterDecode(request=name), lambda: manager.enter_decode(request))] * 2,
            lambda: log.do(Suspend(request=name), lambda: manager.suspend(request)),
            lambda: self.close(request),
            *self.on_the_batch(request),
        ]

    def when_suspended(self, request: Request) -> list[Callable[[], object]]:
        """What to do with a suspended request."""
        name, manager, log = request.name, self.manager, self.log
        stream = self.random.choice(STREAMS)
        level = self.random.choice([LevelKind.GPU, LevelKind.HOST])
        decode = True if self.random.random() < 0.5 or request.decoding else None
        resume = Resume(request=name, stream=stream, decode=decode)
        return [
            *[lambda: log.do(resume, lambda: manager.resume(request, self.streams[stream], decode))] * 4,
            lambda: log.do(Prefetch(request=name, level=level), lambda: manager.prefetch(request, int(level.level))),
            lambda: self.close(request),
            *self.on_the_batch(request),
        ]

    def on_the_batch(self, request: Request) -> list[Callable[[], object]]:
        """Membership, and publications of the batch that all threads share."""
        name, batch, log = request.name, self.batch, self.log
        exec_stream = self.streams["exec"]
        return [
            lambda: log.do(Add(batch="rows", request=name), lambda: batch.add(request)),
            lambda: log.do(Remove(batch="rows", request=name), lambda: batch.remove(request)),
            lambda: log.do(Publish(batch="rows"), lambda: batch.publish(exec_stream)),
        ]

    def create(self) -> None:
        """A new request with some of the story, under the name of a closed one if there is any."""
        taken = {request.name for request in self.requests}
        name = next(name for name in (f"{self.name}{number}" for number in range(len(taken) + 1)) if name not in taken)
        tokens = STORY[: self.random.randint(0, len(STORY) // 2)]
        made: list[Request] = []

        def call() -> Answer:
            made.append(self.manager.create(name, tokens))
            return made[0].history

        self.log.do(Create(request=name, tokens=tokens), call)
        self.requests += made

    def close(self, request: Request) -> None:
        """Close a request."""
        self.log.do(Close(request=request.name), lambda: self.manager.close(request))
        self.requests.remove(request)


def end_state(state: Observation) -> dict[str, Any]:
    """All that two systems must have in common after the same operations, with pages instead of slots."""
    index = Index(state)
    assert not index.problems, index.problems
    requests = {
        name: (view.status, view.phase, view.capacity, view.history, view.committed, view.row, view.batch, view.dirty)
        for name, view in state.requests.items()
        if view.status is not RequestStatus.CLOSED
    }
    mapped = {
        (name, group): (
            tuple(_page(index, group, level, slot) for level, slot in zip(shot.levels, shot.indices, strict=True)),
            shot.eligible,
        )
        for name, view in state.requests.items()
        for (group, _), shot in view.snapshots.items()
    }
    pages = {
        str(index.keys[number]): (page.level, page.status, sorted(page.owners), sorted(map(str, page.refs)))
        for number, page in enumerate(state.pages)
    }
    pools = {
        f"{level.label}.{group}": (pool.free, [str(index.keys[number]) for number in pool.evictable])
        for (level, group), pool in state.pools.items()
    }
    rows = state.batches["rows"]
    for group, entries in rows.published.items():
        assert rows.device[group] == entries, f"entries of {group} on the device"
        for row, member in enumerate(rows.rows):
            shot = None if member is None else state.requests[member].snapshots[group, 0]
            shown = () if shot is None else shot.indices
            assert entries.page_table[row] == (*shown, *[BAD] * (BLOCKS - len(shown))), f"row {row} of {group}"
            assert entries.num_blocks[row] == (0 if shot is None else shot.eligible)
    return {
        "requests": requests,
        "mapped": mapped,
        "pages": pages,
        "payloads": {str(index.keys[number]): found for number, page in enumerate(state.pages) if (found := _payload(page))},
        "pools": pools,
        "tree": sorted(block.tokens for block in state.tree),
        "rows": (rows.rows, rows.dirty_rows),
        "counters": state.lifetime,
        "copies": dict(state.copy_calls),
    }


def _page(index: Index, group: str, level: Level | None, slot: int) -> str:
    if level is None:
        return "-"
    number = index.occupant(level, group, slot)
    assert number is not None, f"{group}: no page at {level.label} {slot}"
    return str(index.keys[number])


def _payload(page: PageView) -> bytes | None:
    if page.payload is None:
        return None
    return expand(page.payload, PAGE_BYTES[page.group]) if isinstance(page.payload, Content) else page.payload
