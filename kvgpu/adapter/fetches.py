"""Fetches of scenarios, directly and in graphs, and what can be seen of reservations and caches (section 15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from kvgpu.adapter.order import Orders, StepMarks
from kvgpu.batch.fetch import Fetch, FetchingBatch
from kvgpu.device import api
from kvgpu.device.api import Access, Device, Memory, Position, Stream
from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.manager import Manager
from kvgpu.requests.request import Request
from kvgpu.requests.reservation import Reservation
from kvgpu.runs import Int32
from kvspec.config import Level
from kvspec.observation import CachedView, CacheView, FetchView, Order

Selection = Mapping[str, Sequence[int]]
FOUND = ("-", "hit", "miss")
"""What came of a number, by what the kernel says."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A labelled fetch. ``kept``: pinned memory with a copy of what it put out. ``position``: where it stood."""

    position: Position
    fetch: Fetch
    requests: tuple[str | None, ...]
    kept: Memory


@dataclass(slots=True)
class Fetcher:
    """Makes fetches, and remembers where the last one of each reservation and layer stood. ``labels``: by label."""

    device: Device
    marks: StepMarks
    labels: dict[str, Fetched] = field(default_factory=dict)
    _last: dict[tuple[int, str], Position] = field(default_factory=dict)
    _capturing: list[tuple[str, Fetch]] = field(default_factory=list)
    _made: int = 0

    def run(self, fetch: Fetch, select: Selection, stream: Stream, label: str, capturing: bool) -> None:
        """Fetch for a scenario, or capture it."""
        numbers = selected(fetch, select)
        if capturing:
            fetch.run(stream)
            self._capturing.append((label, fetch))
            return
        self._select(fetch, numbers, stream)
        fetch.run(stream)
        self.marks.user_work(stream)  # the copy for the observer is none
        self._keep(fetch, stream, label, fetch.batch.served())

    def end_capture(self) -> list[tuple[str, Fetch]]:
        """The fetches of the graph that was captured, with their labels."""
        captured, self._capturing = self._capturing, []
        return captured

    def replay(self, graph: api.Graph, captured: Sequence[tuple[str, Fetch]], select: Selection, stream: Stream) -> None:
        """Replay a graph that has fetches in it (R15.8)."""
        numbers = [selected(fetch, select) for _, fetch in captured]
        batches: dict[int, tuple[FetchingBatch, list[Fetch]]] = {}
        for _, fetch in captured:
            batches.setdefault(id(fetch.batch), (fetch.batch, []))[1].append(fetch)
        with ExitStack() as frames:
            for batch, fetches in batches.values():
                frames.enter_context(batch.replaying(stream, fetches))
            for (_, fetch), each in zip(captured, numbers, strict=True):
                self._select(fetch, each, stream)
            graph.launch(stream, "replay: fetches and reads of a user")
            self.marks.user_work(stream)
            for label, fetch in captured:
                self._keep(fetch, stream, label, fetch.batch.served())

    def _select(self, fetch: Fetch, numbers: Int32, stream: Stream) -> None:
        self._made += 1
        staged = self.device.allocate("pinned", fetch.nbytes, f"selection {self._made}")
        staged.host_array()[: fetch.nbytes] = numbers.view(np.uint8).reshape(-1)
        self.device.upload(
            stream,
            staged,
            0,
            fetch.selected,
            0,
            fetch.nbytes,
            lambda: (Access(fetch.resource("selected"), write=True),),
            "fetch: the selection of a user",
        )

    def _keep(self, fetch: Fetch, stream: Stream, label: str, served: Sequence[Request | None]) -> None:
        self._made += 1
        kept = self.device.allocate("pinned", 2 * fetch.nbytes, f"fetched {self._made}")
        self.device.upload(
            stream,
            fetch.result,
            0,
            kept,
            0,
            2 * fetch.nbytes,
            lambda: (Access(fetch.resource("fetched"), write=False),),
            "fetch: its result is kept",
        )
        position = self.device.position(stream)
        members = fetch.batch.published_members()
        self.labels[label] = Fetched(position, fetch, tuple(None if one is None else one.name for one in members), kept)
        for member in served:
            held = None if member is None else member.reserved.get(fetch.fetches.group.number)
            if held is not None:
                self._last[held.number, fetch.layer] = position

    def last(self, held: Reservation, layer: str) -> Position:
        """Where the last fetch of a layer into a reservation stood."""
        return self._last.get((held.number, layer), Position(frozenset(), {}))


def check_lengths(fetch: Fetch, select: Selection) -> None:
    """R15.1: ``InvalidArgument`` for more numbers than a row selects."""
    for name, numbers in select.items():
        if len(numbers) > fetch.selects:
            raise InvalidArgument(f"{len(numbers)} numbers selected for {name!r}: {fetch.layer!r} takes {fetch.selects}")


def check_published(batch: FetchingBatch, select: Selection) -> None:
    """R15.4: ``LogicError`` for a request that is in no published row."""
    names = [member.name for member in batch.published_members() if member is not None]
    for name in select:
        if name not in names:
            raise LogicError(f"request {name!r} is in no row that batch {batch.name!r} has published")


def selected(fetch: Fetch, select: Selection) -> Int32:
    """int32 ``[rows, selects]``: what is selected by request, who is in the row that was last published."""
    numbers = np.full((fetch.batch.rows, fetch.selects), -1, dtype=np.int32)
    for row, member in enumerate(fetch.batch.published_members()):
        mine = () if member is None else select.get(member.name, ())
        numbers[row, : len(mine)] = mine
    return numbers


# ---- what can be seen ------------------------------------------------------------------------------------------------


def reserved_view(manager: Manager) -> dict[str, dict[str, frozenset[int]]]:
    """By request and group, the slots reserved (R15.2)."""
    groups, found = manager.layout.groups, {}
    for request in manager.requests():
        held = {groups[group].name: one.slots for group, one in request.reserved.items() if one.slots.size}
        found[request.name] = {name: frozenset(slots.tolist()) for name, slots in held.items()}
    return {name: held for name, held in found.items() if held}


def cache_views(manager: Manager, fetcher: Fetcher, orders: Orders) -> dict[str, dict[str, CacheView]]:
    """By request and layer, what is cached (R15.3)."""
    found: dict[str, dict[str, CacheView]] = {}
    for request in manager.requests():
        for group, held in request.reserved.items():
            for layer in manager.layout.groups[group].layers if held.slots.size else ():
                order = orders.at(fetcher.last(held, layer))
                cached = None if order.pending else tuple(_cached(manager, group, layer, held))
                found.setdefault(request.name, {})[layer] = CacheView(order, cached)
    return found


def _cached(manager: Manager, group: int, layer: str, held: Reservation) -> Iterable[CachedView]:
    layout, caches = manager.layout, manager.caches(group)
    memory = manager.pool_memory(Level.GPU, held.key[1])
    units = layout.groups[group].units
    for number, entry in caches.cached_now(caches.layers.index(layer), held):
        parts = []
        for buffer in (one for (owner, _), (_, one) in layout.buffers.items() if owner == layer):
            base, stride = layout.spot(layer, buffer.role, Level.GPU)
            nbytes = buffer.nbytes // units
            parts.append(memory.read_now(base + entry // units * stride + entry % units * nbytes, nbytes))
        yield CachedView(number, entry, b"".join(parts))


def fetch_view(done: Fetched, order: Order) -> FetchView:
    """A fetch; it has put out nothing while it is pending."""
    if order.pending:
        return FetchView(order, done.fetch.layer, done.requests)
    shape = (2, len(done.requests), done.fetch.selects)
    entries, found = done.kept.host_array()[: 2 * done.fetch.nbytes].view(np.int32).reshape(shape).tolist()
    kinds = tuple(tuple(FOUND[kind] for kind in row) for row in found)
    return FetchView(order, done.fetch.layer, done.requests, tuple(map(tuple, entries)), kinds)
