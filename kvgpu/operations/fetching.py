"""The order of fetches: what they run after, and what runs after them (R15.7)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.device.api import Access, Memory, Stream
from kvgpu.fetch.caches import GroupCaches
from kvgpu.fetch.rows import FetchRows
from kvgpu.operations.recorded_reads import OF_SLOT
from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.requests.reservation import Reservation
from kvgpu.runs import Int32
from kvgpu.storage.fences import EMPTY, Point
from kvspec.config import Level

OF_FETCHES = "R15.2 slot: fetches of it"
"""Why fetches are kept for a reserved slot."""

State: TypeAlias = tuple[str, int, int, int]
"""The stream, the last publication, and what changes with versions and reservations, and with recorded reads."""


class Fetches:
    """The fetches of one batch in one group. ``caches``: of the group; ``rows``: what the kernel knows of the batch's rows.

    ``served``: by row, what is reserved for whom the next fetch serves. ``last``: the last fetch.

    A model fetches once a layer, and most of what a fetch runs after changes once a step. So ``_ordered`` says in which state of
    all that decides it the last fetch was ordered: another one on that stream in the same state comes after all of it.
    ``_fence``: the fence of the reserved slots, which nothing else names in that state.
    """

    def __init__(self, core: Core, group: int, rows: int) -> None:
        """None yet. ``DeviceError`` if there is not enough memory."""
        self._core = core
        self.caches: GroupCaches = core.caches[group]
        self.group = self.caches.group
        self.rows = FetchRows(core.device, rows, self.group.reserve)
        self.served: Sequence[Reservation | None] = (None,) * rows
        self.last: Point | None = None
        self._gpu = core.pools[Level.GPU][self.group.pool_groups[Level.GPU]]
        self._host = core.pools[Level.HOST][self.group.pool_groups[Level.HOST]]
        self._slots: Int32 = np.empty(0, dtype=np.int32)
        self._held: list[Int32] = []
        self._ordered: State | None = None
        self._fence: int | None = None

    @property
    def memories(self) -> tuple[Memory, Memory]:
        """The memory of the host's and of the GPU's pool group."""
        host, gpu = self._host.memory, self._gpu.memory
        assert host is not None and gpu is not None  # no file: these are the levels 1 and 0
        return host, gpu

    def _state(self, stream: Stream, published: Point) -> State:
        core = self._core
        return core.fences.live(stream).name, published.number, core.versions, self._gpu.noted

    def before(self, stream: Stream, members: Callable[[], Sequence[Request | None]], published: Point) -> None:
        """Order ``stream`` before fetches that serve these members, ``None`` for a row that is not as published (R15.8)."""
        if self._ordered == self._state(stream, published):
            return
        core, group = self._core, self.group.number
        self._ordered = self._fence = None
        self.served = [None if one is None else one.reserved.get(group) for one in members()]
        core.fences.wait(stream, (published,), "R15.7 fetch: the last publication")
        core.device.wait(core.fences.live(stream), self.caches.ready, "R15.4 fetch: where the buffers of a layer lie")
        if self.last is not None:
            core.fences.wait(stream, (self.last,), "R15.7 fetch: the fetch before it")
        held = [one.slots for one in self.served if one is not None]
        if len(held) != len(self._held) or not all(map(operator.is_, held, self._held)):
            self._held, self._slots = held, np.concatenate(held) if held else np.empty(0, dtype=np.int32)
        if self._slots.size:
            readers = self._gpu.readers(self._slots)
            points = core.fences.points(self._gpu.fence[self._slots])
            core.fences.wait(stream, points, where="R15.7 fetch: the slots that its rows have reserved")
            reads = core.fences.points(readers)
            core.fences.wait(stream, reads, where="R15.7 fetch: the readers of these slots")
            self._gpu.fence[self._slots] = core.fences.united(self._gpu.fence[self._slots], readers)
            self._gpu.set_readers(self._slots, EMPTY)
        self.rows.refresh(stream, self.served)

    def after(self, stream: Stream) -> Point:
        """The fetches so far on ``stream`` are submitted: what is to run after them does. Their end."""
        fences = self._core.fences
        self.last = done = fences.record(stream, "R15.7 the end of a fetch")
        if self._slots.size:
            ends = [fences.again(done, OF_FETCHES)]
            if self._fence is None:
                self._fence = fences.add(ends)
                self._gpu.fence[self._slots] = self._fence
            else:
                fences.put(self._fence, ends)
        return done

    def noted(self, stream: Stream, published: Point) -> None:
        """All that the fetches so far hold up has been told of them."""
        self._ordered = self._state(stream, published)

    def accesses(self, host_slots: Iterable[Int32]) -> list[Access]:
        """What a fetch declares for the ordering check. ``host_slots``: that it may read."""
        found = [self.rows.access(), self.caches.access(), *self._gpu.accesses(self._slots, write=True)]
        for slots in host_slots:
            found += self._host.accesses(slots, write=False)
        return found


def note_reads(core: Core, rows: Iterable[Iterable[Reservation]], reads: Point) -> None:
    """R15.7: later use of the slots that rows, as last published, have reserved runs after recorded reads; whoever has them now.

    So does later work of the active owners of pages that are in such slots.
    """
    kept = [core.fences.again(reads, OF_SLOT)]
    by_pool: dict[SlotKey, list[Int32]] = {}
    for held in {one.number: one for row in rows for one in row}.values():
        by_pool.setdefault(held.key, []).append(held.slots)
    for key, several in by_pool.items():
        pool, slots = core.pool(key), np.concatenate(several)
        if slots.size:
            pool.note_reads(slots, kept)
            pages = pool.page[slots]
            for owner in core.owners(pages[pages >= 0]):
                assert owner.stream is not None
                core.fences.wait(owner.stream, [reads], "R7.7 work of an owner after reads of its slots")
