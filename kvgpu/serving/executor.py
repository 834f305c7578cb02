"""The executor's side of the cache: iterations, admission, dense block offsets and their guard (section 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.manager import Manager
from kvgpu.requests.request import Request, Snapshot
from kvspec.observation import BAD

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerOffsets:
    """The offsets of one layer: ``slot * scale + base``, in pages of its first buffer (R1.7, R11.3).

    ``by_request``: int64 ``[blocks]`` by the request's name; BAD stays BAD.
    """

    scale: int
    base: int
    by_request: Mapping[str, Int64]


class RequestOutcome(StrEnum):
    """What came of a scheduled request in an iteration: it ran, it waits, or the connector refused it (R11.1)."""

    RAN = "ran"
    WAITING = "waiting"
    REFUSED = "refused"


Fate = RequestOutcome
"""The name of `RequestOutcome` until 0.1.0."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request of an iteration (R11.1). ``capacity``, ``history``: tokens, ``None`` keeps. ``decode``: bring it into decode."""

    request: Request
    capacity: int | None = None
    history: int | None = None
    decode: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What the consumer of an iteration gets (R11.1).

    ``batch``: its tables are published. ``stream``: submit here. ``running``: the requests that run, in the order given.
    ``offsets``: dense block offsets by layer, of the layers that were asked for (R11.3).
    """

    batch: Batch
    stream: Stream
    running: tuple[Request, ...]
    offsets: Mapping[str, LayerOffsets]


@dataclass(frozen=True, slots=True)
class _Before:
    """A scheduled request at the start of an iteration. ``versioned``: what its version stands for, if it may get more blocks."""

    capacity: int
    version: int
    versioned: tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been prepared: what a connector gets, to accept or refuse it (R11.5)."""

    manager: Manager
    request: Request

    def snapshots(self) -> dict[str, Snapshot]:
        """By layer group, where its pages are (R6.1): slot and level of each block, and the fence after which a page may be read.

        All of one moment, and of one beam row, as batches have. Order a stream that reads the pages after their readiness with
        ``manager.wait_snapshot``; their bytes are in ``manager.pool_memory``.
        """
        with self.manager.exclusive():
            return {group.name: self.manager.snapshot(self.request, group.number) for group in self.manager.layout.groups}


Connector: TypeAlias = Callable[[Prepared], bool]
"""Accepts or refuses a request that has been prepared (R11.5). Called without the manager's lock."""
Consumer: TypeAlias = Callable[[Turn], None]
"""Submits the device work that reads the tables, on the turn's stream; it need not wait for the publication, nor record reads."""


def accept_all(_prepared: Prepared) -> bool:
    """The connector that refuses nothing."""
    return True


class Executor:
    """Runs iterations over a batch, on one execution stream (R11.1)."""

    def __init__(
        self,
        manager: Manager,
        batch: Batch,
        stream: Stream,
        consumer: Consumer,
        connector: Connector = accept_all,
        *,
        first_stream: Stream | None = None,
    ) -> None:
        """``consumer``: submits the model's work. ``connector``: may refuse a request in an iteration.

        ``stream``: of the publication and the consumer. ``first_stream``: given to a request that resumes and has none yet;
        ``stream`` if left out.
        """
        self._manager = manager
        self._batch = batch
        self._stream = stream
        self._consumer = consumer
        self._connector = connector
        self._first_stream = first_stream or stream

    def iterate(self, scheduled: Sequence[Scheduled], layers: Sequence[str] = ()) -> dict[str, RequestOutcome]:
        """One iteration: prepare, ask the connector, publish once, build dense offsets, run, record reads (R11.1).

        ``layers``: those that dense offsets are built for. Returns what came of each request, by name, in the order given.

        Raises, before anything happens, ``LogicError`` (a closed batch or request, one that is no member, a capture),
        ``OutOfRange`` (an unknown layer), ``InvalidArgument`` (a request named twice). An error while a request is prepared, or
        one that the connector raises, ends the iteration: what was prepared stays, nothing is published. An error of the
        publication is as R8.6 says. ``LogicError`` of the dense offsets comes after the publication, which stands (R11.4).
        """
        self._check(scheduled, layers)
        before = {entry.request.name: _before(self._manager, entry) for entry in scheduled}
        outcomes = {
            entry.request.name: RequestOutcome.RAN if self._prepare(entry) else RequestOutcome.WAITING for entry in scheduled
        }
        for entry in scheduled:
            name = entry.request.name
            if outcomes[name] is RequestOutcome.RAN and not self._connector(Prepared(self._manager, entry.request)):
                outcomes[name] = RequestOutcome.REFUSED
        for entry in scheduled:
            if outcomes[entry.request.name] is not RequestOutcome.RAN:
                self._give_back(entry.request, before[entry.request.name])
        running = tuple(entry.request for entry in scheduled if outcomes[entry.request.name] is RequestOutcome.RAN)
        # Nobody may change a table between the publication and the record of its reads.
        with self._manager.exclusive():
            self._batch.publish(self._stream)
            offsets = dense_offsets(self._manager, self._batch, running, layers) if layers else {}
            self._consumer(Turn(self._batch, self._stream, running, offsets))
            self._batch.record_read(self._stream)
        return outcomes

    def close(self) -> None:
        """Teardown: rows are removed, then their requests closed, the tables freed last (R11.5). Idempotent."""
        with self._manager.exclusive():
            members = [member for member in self._batch.members if member is not None]
            for member in members:
                self._batch.remove(member)
            for member in members:
                self._manager.close(member)
            self._batch.close()

    def _check(self, scheduled: Sequence[Scheduled], layers: Sequence[str]) -> None:
        batch = self._batch
        with self._manager.shared():
            if not batch.open:
                raise LogicError(f"batch {batch.name!r} is closed: iterate over an open one (R8.2)")
            for entry in scheduled:
                if entry.request.closed:
                    raise LogicError(f"request {entry.request.name!r} is closed: take it off the schedule (R3.13)")
            for layer in layers:
                self._manager.layout.buffer(layer)
            names = [entry.request.name for entry in scheduled]
            twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
            if twice is not None:
                raise InvalidArgument(f"request {twice!r} is scheduled twice: name it once, with its final lengths (R11.1)")
            for entry in scheduled:
                if entry.request.batch is not batch:
                    raise LogicError(f"request {entry.request.name!r} is not in batch {batch.name!r}: add it first (R11.1)")
            batch.refuse_capture("an iteration", self._stream, members=True)

    def _prepare(self, entry: Scheduled) -> bool:
        """Bring a request where the schedule wants it; false at the first step that is not possible now."""
        manager, request = self._manager, entry.request
        if not request.active:
            stream = self._first_stream if request.stream is None else None
            if not manager.resume(request, stream, decode=True if entry.decode else None):
                return False
        lengths_given = entry.capacity is not None or entry.history is not None
        if lengths_given and not manager.resize(request, entry.capacity, entry.history):
            return False
        return not entry.decode or request.decoding or manager.enter_decode(request)

    def _give_back(self, request: Request, before: _Before) -> None:
        """Give back what was grown for a request that does not run, but no history (R11.5)."""
        kept = max(before.capacity, request.history)
        if not request.active or request.capacity <= kept:
            return
        with self._manager.exclusive():
            self._manager.inside.give_back(request, kept)
            # R6.4: the iteration is one operation, and compared with its start nothing may have changed.
            if before.versioned is not None and _versioned(self._manager, request) == before.versioned:
                self._manager.inside.undone(request, before.version)


def _before(manager: Manager, entry: Scheduled) -> _Before:
    request = entry.request
    with manager.exclusive():
        grows = entry.capacity is not None and -(-entry.capacity // manager.layout.tokens_per_block) > request.blocks
        return _Before(request.capacity, request.version, _versioned(manager, request) if grows else None)


def _versioned(manager: Manager, request: Request) -> tuple[object, ...]:
    """All that a version stands for (R6.4), to be compared."""
    seen: list[object] = [request.status, request.phase, request.row]
    for group in range(request.group_count):
        now = manager.snapshot(request, group)
        seen.append((now.indices.tolist(), now.levels.tolist(), now.eligible, list(now.ready)))
    return tuple(seen)


def admit_generation(manager: Manager, request: Request, stream: Stream) -> bool:
    """Bring a request into decode: an active one enters it, a suspended one resumes with it; false means not now (R11.2).

    ``stream``: the execution stream, for a request that has none yet.
    """
    with manager.exclusive():
        if request.active:
            return manager.enter_decode(request)
        return manager.resume(request, stream if request.stream is None else None, decode=True)


def dense_offsets(
    manager: Manager, batch: Batch, requests: Sequence[Request], layers: Sequence[str] | None = None
) -> dict[str, LayerOffsets]:
    """Block offsets for dense attention, by layer (R11.3). ``layers``: ``None`` for every attention layer.

    Dense offsets cannot address host memory: ``LogicError`` if a request has a block of a sparse group mapped on the host, or is
    not active or not in ``batch``. ``OutOfRange`` for an unknown layer, ``InvalidArgument`` for an SSM layer.
    Publish first: a publication that moves deferred pages can turn a request that passes into one that does not (R11.4).
    """
    with manager.shared():
        if not batch.open:
            raise LogicError(f"batch {batch.name!r} is closed (R8.2)")
        for request in requests:
            if request.closed:
                raise LogicError(f"request {request.name!r} is closed: it has no block offsets (R3.13)")
        layout = manager.layout
        if layers is None:
            layers = [layer for group in layout.groups if not group.ssm for layer in group.layers]
        buffers = {layer: layout.buffer(layer) for layer in layers}
        for layer, (group, _) in buffers.items():
            if group.ssm:
                raise InvalidArgument(f"layer {layer!r} is an SSM layer: its state is in no table (R1.3)")
        for request in requests:
            _must_be_dense(manager, batch, request)
        return {
            layer: _layer(requests, group.number, layout.scale(layer), buffer.index_offset)
            for layer, (group, buffer) in buffers.items()
        }


def _must_be_dense(manager: Manager, batch: Batch, request: Request) -> None:
    if request.batch is not batch or not request.active:
        raise LogicError(
            f"request {request.name!r} is not active or not in batch {batch.name!r}: schedule active members alone (R11.3)"
        )
    for group in manager.layout.groups:
        if not group.sparse:
            continue
        off_gpu = request.levels(group.number) >= 1
        if off_gpu.any():
            raise LogicError(
                f"request {request.name!r}, group {group.name!r}: block {int(np.argmax(off_gpu))} is on the host, which dense "
                f"block offsets cannot address: use sparse attention, or bring its history back to the GPU (R11.3)"
            )


def _layer(requests: Sequence[Request], group: int, scale: int, base: int) -> LayerOffsets:
    by_request = {}
    for request in requests:
        slots = request.indices(group).astype(np.int64)
        by_request[request.name] = np.where(slots == BAD, BAD, slots * scale + base)
    return LayerOffsets(scale, base, by_request)
