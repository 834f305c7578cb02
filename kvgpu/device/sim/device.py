"""The simulated device itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import POISON, Accesses, DeviceError, Event, Kernel, Memory, Position, Site, Stream
from kvgpu.device.messages import (
    CLOSED,
    blocked,
    capture_runs,
    check_allocation,
    check_launch,
    failed_work,
    foreign,
    gone,
    in_capture,
    name_taken,
    no_capture,
)
from kvgpu.device.sim.check import Mark, OrderCheck, caller
from kvgpu.device.sim.graph import Captured, SimGraph
from kvgpu.device.sim.memory import SimMemory
from kvgpu.device.sim.options import SimOptions, choice
from kvgpu.device.sim.run import run_all, run_until
from kvgpu.device.sim.streams import NOTHING, Clock, Item, SimEvent, SimGate, SimStream, joined
from kvgpu.device.sites import note


class SimDevice:
    """A ``Device`` in host memory. Nothing runs when it is submitted: only ``settle``, ``sync`` and an event that answers
    that it is done run work, as the edges allow, in the order of the schedule. Calls are serialised by the caller (R12.1).

    It is for tests: what the check has seen of a resource, and what clocks know of a stream, stay when the stream or the memory
    has been given back.
    """

    kind = "sim"
    ordinal = 0

    def __init__(self, options: SimOptions | None = None) -> None:
        """Raises ``DeviceError`` for an unknown schedule."""
        self.options = options if options is not None else SimOptions()
        self._choose = choice(self.options.schedule)
        self._check = OrderCheck() if self.options.check else None
        self._streams: dict[str, SimStream] = {}
        self._external: dict[int | str, SimStream] = {}
        self._busy: dict[SimStream, None] = {}
        self._order = 0
        self._made = 0
        self._bytes = 0
        self._step = (0, "")
        self._faults: list[str] = []
        self._sites: set[tuple[str, str]] = set()
        self._synced: Clock = NOTHING
        self._capture: tuple[SimStream, list[Captured]] | None = None
        self._closed = False

    # Streams and memory

    def stream(self, name: str) -> SimStream:
        """See ``Device.stream``. Raises ``DeviceError`` if the name is taken."""
        self._must_be_open()
        self._drop_streams()
        if name in self._streams:
            raise name_taken(name)
        self._made += 1
        stream = self._streams[name] = SimStream(name, self._made)
        return stream

    def give_back(self, stream: Stream) -> None:
        """See ``Device.give_back``."""
        assert isinstance(stream, SimStream)
        stream.given_back = True

    def _drop_streams(self) -> None:
        """Forget the streams that were given back and have nothing left to run."""
        for stream in [each for each in self._streams.values() if each.given_back and not each.queue]:
            del self._streams[stream.name]

    def external_stream(self, handle: Any) -> SimStream:
        """See ``Device.external_stream``."""
        if isinstance(handle, SimStream):
            return handle
        key = handle if isinstance(handle, str) else int(getattr(handle, "cuda_stream", getattr(handle, "ptr", handle)))
        if isinstance(key, str) and key in self._streams:
            return self._streams[key]
        if key not in self._external:
            self._external[key] = self.stream(f"external {key}")
        return self._external[key]

    def allocate(self, kind: str, nbytes: int, name: str) -> SimMemory:
        """See ``Device.allocate``. Raises ``DeviceError`` beyond ``SimOptions.memory_limit``."""
        self._must_be_open()
        check_allocation(kind, nbytes, name)
        limit = self.options.memory_limit
        if self._bytes + nbytes > limit:
            raise DeviceError(
                f"{nbytes} bytes for {name!r} and the {self._bytes} in use are more than the limit of {limit} bytes "
                f"of the simulated device: "
                f"make the pools smaller or raise memory_limit"
            )
        try:
            memory = SimMemory(kind, nbytes, name, self._given_back)
        except MemoryError:
            raise DeviceError(f"this machine has no {nbytes} bytes for {name!r}: make the pools smaller") from None
        self._bytes += nbytes
        return memory

    def _given_back(self, nbytes: int) -> None:
        self._bytes -= nbytes

    # Submissions

    def prepare(self, kernel: Kernel, arrays: Sequence[bool]) -> None:
        """See ``Device.prepare``. A twin needs nothing."""

    def launch(
        self, stream: Stream, kernel: Kernel, blocks: int, threads: int, args: Sequence[Any], accesses: Accesses, site: str
    ) -> None:
        """See ``Device.launch``. Runs the twin; an exception in it is a fault."""
        check_launch(kernel.name, blocks, threads)
        values = [arg.array() if isinstance(arg, SimMemory) else int(arg) for arg in args]
        self._submit(stream, partial(kernel.twin, *values), accesses, site)

    def upload(
        self,
        stream: Stream,
        source: Memory,
        source_offset: int,
        target: Memory,
        target_offset: int,
        nbytes: int,
        accesses: Accesses,
        site: str,
    ) -> None:
        """See ``Device.upload``. Raises ``DeviceError`` outside the memory."""
        a, b = _own_memory(source), _own_memory(target)
        a.check_range(source_offset, nbytes)
        b.check_range(target_offset, nbytes)
        copy = partial(
            np.copyto, b.array()[target_offset : target_offset + nbytes], a.array()[source_offset : source_offset + nbytes]
        )
        self._submit(stream, copy, accesses, site)

    def host_task(self, stream: Stream, task: Callable[[], None], accesses: Accesses, site: str) -> None:
        """See ``Device.host_task``."""
        self._submit(stream, task, accesses, site)

    def _submit(self, stream: Stream, work: Callable[[], None], accesses: Accesses, site: str) -> None:
        own = self._own(stream)
        if self._capture is not None and own is self._capture[0]:
            self._seen(site, "submit")
            self._capture[1].append(Captured(work, accesses, site))
            return
        self._catch_up(own)
        own.submitted += 1
        self._seen(site, "submit")
        if self._check is None:
            where = ""
        else:
            where = caller()
            self._faults += self._check.submitted(Mark(own, own.submitted, site, where, self._step), accesses())
        self._append(own, Item(self._next(), work=partial(self._run, work, site, where, self._step)))

    def _run(self, work: Callable[[], None], site: str, where: str, step: tuple[int, str]) -> None:
        try:
            work()
        except Exception as error:  # whatever host work raises is a finding of the run, not of the caller that lets it run
            self._faults.append(failed_work(site, where, step, error))

    def _append(self, stream: SimStream, item: Item) -> None:
        stream.queue.append(item)
        stream.appended += 1
        self._busy[stream] = None

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _catch_up(self, stream: SimStream) -> None:
        # What the CPU has synced with comes before all that it submits afterwards.
        stream.others = joined(stream.others, self._synced)

    # Order

    def record(self, stream: Stream, site: str) -> SimEvent:
        """See ``Device.record``. A dropped site gives an event at the empty position: always done, ordering nothing."""
        own = self._own(stream)
        self._not_in_capture(own, f"record {site!r}")
        self._seen(site, "record")
        if site in self.options.drop_sites:
            return SimEvent(None, 0, NOTHING, 0, frozenset(), self._force)
        self._catch_up(own)
        return SimEvent(own, own.appended, own.others, own.submitted, own.closed_gates(), self._force)

    def wait(self, stream: Stream, event: Event, site: str) -> None:
        """See ``Device.wait``. A dropped site does nothing."""
        own = self._own(stream)
        self._not_in_capture(own, f"wait {site!r}")
        self._seen(site, "wait")
        if not isinstance(event, SimEvent):
            raise foreign(event, "simulated", "event")
        if site not in self.options.drop_sites:
            self._order_after(own, event)

    def _order_after(self, own: SimStream, event: SimEvent) -> None:
        if event.stream is None or event.stream is own:
            return
        own.others = joined(own.others, event.clock())
        gates = event.closed_gates()
        if not gates <= own.gates:
            own.gates = own.closed_gates() | gates
        if not event.passed():
            self._append(own, Item(self._next(), event=event))

    def gate(self, stream: Stream, label: str) -> SimGate:
        """See ``Device.gate``."""
        own = self._own(stream)
        self._not_in_capture(own, f"gate {label!r}")
        gate = SimGate(label)
        own.gates = own.closed_gates() | {gate}
        own.submitted += 1
        self._append(own, Item(self._next(), gate=gate))
        return gate

    def position(self, of: Stream | Event) -> Position:
        """See ``Device.position``. Runs nothing."""
        if isinstance(of, SimStream):
            self._catch_up(of)
        assert isinstance(of, SimStream | SimEvent)
        return Position(frozenset([gate.label for gate in of.closed_gates()]), of.clock())

    def submitted(self, stream: Stream) -> int:
        """See ``Device.submitted``."""
        return self._own(stream).submitted

    # Capture

    def begin_capture(self, stream: Stream) -> None:
        """See ``Device.begin_capture``."""
        own = self._own(stream)
        if self._capture is not None:
            raise capture_runs(self._capture[0].name)
        self._capture = (own, [])

    def end_capture(self, stream: Stream) -> SimGraph:
        """See ``Device.end_capture``."""
        own = self._own(stream)
        if self._capture is None or self._capture[0] is not own:
            raise no_capture(own.name)
        work = tuple(self._capture[1])
        self._capture = None
        return SimGraph(work, self._submit)

    def is_capturing(self, stream: Stream) -> bool:
        """See ``Device.is_capturing``."""
        return self._capture is not None and self._capture[0] is stream

    def _not_in_capture(self, stream: SimStream, what: str) -> None:
        if self.is_capturing(stream):
            raise in_capture(what, stream.name)

    # Running

    def sync(self, stream: Stream | None) -> None:
        """See ``Device.sync``. Runs what the stream needs, and nothing else."""
        streams = [*self._streams.values()] if stream is None else [self._own(stream)]
        for each in streams:
            self._not_in_capture(each, "sync")
        for each in streams:
            if gates := each.closed_gates():
                raise blocked(each.name, (gate.label for gate in gates))
        for each in streams:
            run_until(each, each.appended)
            self._synced = joined(self._synced, each.clock())
        self._tell_host(self._synced)

    def settle(self) -> None:
        """See ``Device.settle``."""
        run_all(self._busy, self._choose)
        self._busy = {stream: None for stream in self._busy if stream.queue}

    def _force(self, event: SimEvent) -> None:
        if event.stream is not None and not self._closed:
            run_until(event.stream, event.position)
            self._tell_host(event.clock())

    def _tell_host(self, clock: Clock) -> None:
        if self._check is not None:
            self._check.host_knows = joined(self._check.host_knows, clock)

    # Checks and reports

    def host_access(self, accesses: Accesses, site: str) -> None:
        """See ``Device.host_access``."""
        self._seen(site, "host")
        if self._check is not None:
            self._faults += self._check.submitted(Mark(None, 0, site, caller(), self._step), accesses())

    def poison(self, memory: Memory, ranges: Sequence[tuple[int, int]], after: Sequence[Event], site: str) -> SimEvent | None:
        """See ``Device.poison``. Each call is a queue of its own, so that no poisoning waits for another."""
        if not self.options.poison:
            return None
        self._must_be_open()
        own = _own_memory(memory)
        for offset, nbytes in ranges:
            own.check_range(offset, nbytes)
        queue = SimStream(f"poison: {site}", 0, clocked=False)
        for event in after:
            if not isinstance(event, SimEvent):
                raise foreign(event, "simulated", "event")
            self._order_after(queue, event)
        self._append(queue, Item(self._next(), work=partial(_fill, own.array(), tuple(ranges))))
        return SimEvent(queue, queue.appended, queue.others, 0, queue.closed_gates(), self._force)

    def sites(self) -> frozenset[Site]:
        """See ``Device.sites``."""
        return frozenset(Site(name, kind) for name, kind in self._sites)

    def faults(self) -> tuple[str, ...]:
        """See ``Device.faults``."""
        return tuple(self._faults)

    def at_step(self, step: int, text: str) -> None:
        """See ``Device.at_step``."""
        self._step = (step, text)

    def close(self) -> None:
        """See ``Device.close``. Work that has not run is discarded."""
        self._closed = True
        self._busy = {}
        for stream in self._streams.values():
            stream.queue.clear()

    def _seen(self, site: str, kind: str) -> None:
        if (site, kind) not in self._sites:
            self._sites.add((site, kind))
            note(Site(site, kind))

    def _own(self, stream: Stream) -> SimStream:
        self._must_be_open()
        if not isinstance(stream, SimStream):
            raise foreign(stream, "simulated", "stream")
        if stream.given_back:
            raise gone(stream.name)
        return stream

    def _must_be_open(self) -> None:
        if self._closed:
            raise DeviceError(CLOSED)


def _own_memory(memory: Memory) -> SimMemory:
    if not isinstance(memory, SimMemory):
        raise foreign(memory, "simulated", "memory")
    return memory


def _fill(array: npt.NDArray[np.uint8], ranges: tuple[tuple[int, int], ...]) -> None:
    for offset, nbytes in ranges:
        array[offset : offset + nbytes] = POISON
