"""The device that is a GPU."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvgpu.device.api import Accesses, Arguments, DeviceError, Event, Kernel, Memory, Position, Site, Stream, StreamsHeld
from kvgpu.device.cuda.context import Word, context
from kvgpu.device.cuda.driver import RELAXED, checked, driver, gpus, ordinal_of_worker, relaxed
from kvgpu.device.cuda.leaving import Leaving
from kvgpu.device.cuda.memory import CudaMemory
from kvgpu.device.cuda.streams import CudaEvent, CudaGate, CudaStream, still_closed
from kvgpu.device.cuda.tasks import Task, Worker
from kvgpu.device.messages import (
    CLOSED,
    blocked,
    capture_runs,
    check_allocation,
    check_launch,
    check_range,
    failed_work,
    foreign,
    gone,
    in_capture,
    name_taken,
    no_capture,
)
from kvgpu.device.sites import note

EQUAL = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ.value
NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
NOT_CAPTURING = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE.value
LEGACY = 1
"""Another number of the default stream, 0."""
MAX_HELD = 24
"""Streams that gates may hold up at a time. The GPU keeps 32 apart; when they are all held, the next call of the driver hangs."""
SPINS = 200
"""Looks at an event without a pause."""
SETTLE_SECONDS = 60.0
"""How long ``settle`` and ``close`` wait for work that nothing known holds up."""


class CudaGraph:
    """A captured graph of the driver. ``count``: submissions to its stream go through the device's record."""

    __slots__ = ("_device", "raw")

    def __init__(self, device: CudaDevice, raw: Any) -> None:
        """``raw``: an executable graph."""
        self._device, self.raw = device, raw

    def launch(self, stream: Stream, site: str) -> None:
        """Submit a replay of the captured work to a stream."""
        own = self._device.submitting(stream, site)
        checked(driver.cuGraphLaunch(self.raw, own.raw))


class CudaDevice:
    """A ``Device`` on a GPU of this process. Nothing but ``sync`` and, for observers, ``settle`` waits for it.

    It checks no order and poisons nothing: that is ``sim``'s part. Calls are serialised by the caller (R12.1).
    """

    kind = "cuda"

    def __init__(self, drop_sites: frozenset[str] = frozenset(), patient: bool = False) -> None:
        """``drop_sites``: as in ``SimOptions``. Raises ``DeviceError`` where there is no GPU.

        ``patient``: events answer as on ``sim``: work that no closed gate holds up is waited for, so that which slot is free
        first, say, does not depend on how fast the GPU is. For a harness that compares; without it nothing is waited for.
        """
        self._context = context(ordinal_of_worker(gpus()))
        self._context.use()
        self._drop = drop_sites
        self._patience = SETTLE_SECONDS if patient else 0.0
        self._streams: dict[str, CudaStream] = {}
        self._external: dict[int, CudaStream] = {}
        self._gates: list[CudaGate] = []
        self._workers: dict[CudaStream, Worker] = {}
        self._graphs: list[CudaGraph] = []
        self._leaving = Leaving(self._context)
        self._capture: CudaStream | None = None
        self._direct = self._context.direct
        self._ask_capture, self._status = self._direct.capture_status, ctypes.c_int()
        self._status_at = ctypes.addressof(self._status)
        self._step = (0, "")
        self._faults: list[str] = []
        self._sites: set[tuple[str, str]] = set()
        self._closed = False

    @property
    def ordinal(self) -> int:
        """Which GPU it is, as the driver counts."""
        return self._context.ordinal

    @property
    def name(self) -> str:
        """What the driver calls the GPU."""
        return str(self._context.name)

    # Streams and memory

    def stream(self, name: str) -> CudaStream:
        """See ``Device.stream``. Raises ``DeviceError`` if the name is taken."""
        self._must_be_open()
        self._tidy()
        if name in self._streams:
            raise name_taken(name)
        raw = checked(relaxed(driver.cuStreamCreate, NON_BLOCKING))
        stream = self._streams[name] = CudaStream(name, int(raw), raw, own=True)
        return stream

    def external_stream(self, handle: Any) -> CudaStream:
        """See ``Device.external_stream``. It must live as long as this device uses it."""
        self._must_be_open()
        if isinstance(handle, CudaStream):
            return handle
        number = int(getattr(handle, "cuda_stream", getattr(handle, "ptr", handle)))
        number = 0 if number == LEGACY else number
        for stream in self._streams.values():
            if stream.handle == number:
                return stream
        name = f"external {number}"
        stream = self._streams[name] = self._external[number] = CudaStream(name, number, driver.CUstream(number), own=False)
        return stream

    def give_back(self, stream: Stream) -> None:
        """See ``Device.give_back``."""
        assert isinstance(stream, CudaStream) and stream.own
        if not stream.given_back and not self._closed:
            stream.given_back = True
            self._leaving.stream(stream)

    def allocate(self, kind: str, nbytes: int, name: str) -> CudaMemory:
        """See ``Device.allocate``."""
        self._must_be_open()
        check_allocation(kind, nbytes, name)
        self._tidy()
        return CudaMemory(self._context, kind, nbytes, name, self._memory_freed)

    def _memory_freed(self, kind: str, address: int, nbytes: int) -> None:
        self._leaving.memory(kind, address, nbytes)
        if self._closed:
            self._leaving.go_now()

    def _tidy(self) -> None:
        """Let go what was given back and no work needs any more; asks and records, and waits for nothing."""
        streams = [*self._streams.values()]
        if not any(map(self._captured, streams)):
            self._forget(self._leaving.go(streams))

    def _forget(self, streams: Iterable[CudaStream]) -> None:
        for stream in streams:
            del self._streams[stream.name]
            if (worker := self._workers.pop(stream, None)) is not None:
                worker.stop()

    # Submissions

    def prepare(self, kernel: Kernel, arrays: Sequence[bool]) -> None:
        """See ``Device.prepare``."""
        self._must_be_open()
        if self._context.kernels.find(kernel) is None:
            self._context.kernels.load(kernel, arrays)

    def launch(
        self, stream: Stream, kernel: Kernel, blocks: int, threads: int, args: Sequence[Any], accesses: Accesses, site: str
    ) -> None:
        """See ``Device.launch``."""
        check_launch(kernel.name, blocks, threads)
        if isinstance(args, Arguments):
            memories, words = args.made = args.made or _words(args)
        else:
            memories, words = _words(args)
        for memory in memories:
            memory.must_live()
        loaded = self._context.kernels.find(kernel)
        own = self.submitting(stream, site)
        if loaded is None:
            loaded = self._context.kernels.load(kernel, [isinstance(arg, CudaMemory) for arg in args])
        loaded.launch(blocks, threads, words, own.handle)

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
        check_range(a.name, a.nbytes, source_offset, nbytes)
        check_range(b.name, b.nbytes, target_offset, nbytes)
        own = self.submitting(stream, site)
        if nbytes:
            self._direct.copy(b.address + target_offset, a.address + source_offset, nbytes, own.handle)

    def host_task(self, stream: Stream, task: Callable[[], None], accesses: Accesses, site: str) -> None:
        """See ``Device.host_task``. It runs on a thread of the stream's own. Raises ``DeviceError`` in capture."""
        own = self._own(stream)
        if self._capture is own:
            raise in_capture(f"host task {site!r}", own.name)
        self.submitting(own, site)
        step = self._step
        event = CudaEvent(self._context, own, own.closed_gates())
        word = self._wait_for_word(own)
        if own not in self._workers:
            self._workers[own] = Worker(self._context, own.name)
        self._workers[own].submit(Task(event, task, word, lambda error: self._faults.append(failed_work(site, "", step, error))))

    def submitting(self, stream: Stream, site: str) -> CudaStream:
        """Count a submission to a stream, or to the graph that is being captured."""
        own = self._own(stream)
        self._seen(site, "submit")
        if own is not self._capture:
            own.submitted += 1
            own.touched = True
        return own

    def _wait_for_word(self, own: CudaStream) -> Word:
        word = self._context.words.take()
        checked(driver.cuStreamWaitValue32(own.raw, word.address, 1, EQUAL))
        self._leaving.word(word, CudaEvent(self._context, own, frozenset()))
        return word

    # Order

    def record(self, stream: Stream, site: str) -> CudaEvent:
        """See ``Device.record``. A dropped site gives an event at the empty position."""
        own = self._own(stream)
        self._not_in_capture(own, f"record {site!r}")
        self._seen(site, "record")
        if site in self._drop:
            return CudaEvent(self._context, None, frozenset())
        return CudaEvent(self._context, own, own.closed_gates(), self._patience)

    def wait(self, stream: Stream, event: Event, site: str) -> None:
        """See ``Device.wait``. A dropped site does nothing; so does a wait for what was seen to be done."""
        own = self._own(stream)
        self._not_in_capture(own, f"wait {site!r}")
        self._seen(site, "wait")
        if not isinstance(event, CudaEvent):
            raise foreign(event, "cuda", "event")
        if site in self._drop or event.stream is own or event.known_done():
            return
        gates = still_closed(event.gates)
        if gates:
            self._may_be_held(own)
        own.add_gates(self._context, gates)
        own.touched = True
        assert event.raw is not None
        self._direct.wait(own.handle, event.raw)

    def gate(self, stream: Stream, label: str) -> CudaGate:
        """See ``Device.gate``."""
        own = self._own(stream)
        self._not_in_capture(own, f"gate {label!r}")
        self._may_be_held(own)
        own.keep_point(self._context)
        gate = CudaGate(label, self._wait_for_word(own))
        own.gates |= {gate}
        own.submitted += 1
        own.touched = True
        self._gates = [each for each in self._gates if each.closed]
        self._gates.append(gate)
        return gate

    def _may_be_held(self, own: CudaStream) -> None:
        held = {stream.name for stream in self._streams.values() if stream.closed_gates()}
        if len(held) >= MAX_HELD and own.name not in held:
            raise StreamsHeld(
                f"gates hold up {len(held)} streams, and a GPU keeps few apart: one more, {own.name!r}, could stop all of them; "
                f"open a gate first, or use the simulated device"
            )

    def position(self, of: Stream | Event) -> Position:
        """See ``Device.position``. No clock. An event that has passed on the GPU has no gates, whatever the host's record."""
        if not isinstance(of, CudaStream | CudaEvent):
            raise foreign(of, "cuda", "stream")
        gates = still_closed(of.gates)
        if gates and isinstance(of, CudaEvent) and of.done():
            gates = frozenset()
        return Position(frozenset(gate.label for gate in gates), None)

    def submitted(self, stream: Stream) -> int:
        """See ``Device.submitted``."""
        return self._own(stream).submitted

    # Capture

    def begin_capture(self, stream: Stream) -> None:
        """See ``Device.begin_capture``."""
        own = self._own(stream)
        if self._capture is not None:
            raise capture_runs(self._capture.name)
        own.keep_point(self._context)
        checked(driver.cuStreamBeginCapture(own.raw, RELAXED))
        self._capture = own

    def end_capture(self, stream: Stream) -> CudaGraph:
        """See ``Device.end_capture``."""
        own = self._own(stream)
        if self._capture is not own:
            raise no_capture(own.name)
        self._capture = None
        raw = checked(driver.cuStreamEndCapture(own.raw))
        graph = CudaGraph(self, checked(relaxed(driver.cuGraphInstantiate, raw, 0)))
        checked(driver.cuGraphDestroy(raw))
        self._graphs.append(graph)
        return graph

    def is_capturing(self, stream: Stream) -> bool:
        """See ``Device.is_capturing``."""
        return self._captured(self._own(stream))

    def _captured(self, own: CudaStream) -> bool:
        if self._capture is own:
            return True
        # The default stream answers with an error while another one is captured that waits for it.
        return self._ask_capture(own.handle, self._status_at) != 0 or self._status.value != NOT_CAPTURING

    def _not_in_capture(self, stream: CudaStream, what: str) -> None:
        if self._capture is stream:
            raise in_capture(what, stream.name)

    # Waiting

    def sync(self, stream: Stream | None) -> None:
        """See ``Device.sync``."""
        streams = [*self._streams.values()] if stream is None else [self._own(stream)]
        for each in streams:
            if self._captured(each):
                raise in_capture("sync", each.name)
            if gates := each.closed_gates():
                raise blocked(each.name, (gate.label for gate in gates))
        for event in [CudaEvent(self._context, each, frozenset()) for each in streams]:
            _wait(event, None)

    def settle(self) -> None:
        """See ``Device.settle``. Raises ``DeviceError`` if work that nothing known holds up does not end."""
        self._must_be_open()
        self._settle()

    def _settle(self) -> None:
        streams = [*self._streams.values()]
        points = [(each, each.last_free_point(self._context, not self._captured(each))) for each in streams]
        for stream, point in points:
            if point is None:
                continue
            if not _wait(point, SETTLE_SECONDS):
                raise DeviceError(
                    f"work on stream {stream.name!r} has not ended in {SETTLE_SECONDS:.0f} s though no closed gate is before it: "
                    f"a kernel that does not end, or work of another library that waits"
                )
            if not stream.points and not stream.closed_gates():
                stream.touched = False
        if self._capture is None and not any(gate.closed for gate in self._gates):
            self._forget(self._leaving.go_now())

    # Reports and end

    def host_access(self, accesses: Accesses, site: str) -> None:
        """See ``Device.host_access``."""
        self._seen(site, "host")

    def poison(self, memory: Memory, ranges: Sequence[tuple[int, int]], after: Sequence[Event], site: str) -> None:
        """See ``Device.poison``: never on."""

    def sites(self) -> frozenset[Site]:
        """See ``Device.sites``."""
        return frozenset(Site(name, kind) for name, kind in self._sites)

    def faults(self) -> tuple[str, ...]:
        """See ``Device.faults``: failed host tasks."""
        return tuple(self._faults)

    def at_step(self, step: int, text: str) -> None:
        """See ``Device.at_step``."""
        self._step = (step, text)

    def close(self) -> None:
        """See ``Device.close``. Opens every gate and waits for all work, so that its memory can be used again."""
        if self._closed:
            return
        self._context.use()
        for gate in self._gates:
            gate.open()
        if self._capture is not None:
            self.end_capture(self._capture)
        self._settle()
        self._closed = True
        for worker in self._workers.values():
            worker.stop()
        for graph in self._graphs:
            checked(driver.cuGraphExecDestroy(graph.raw))
        for stream in self._streams.values():
            stream.points = []
            if stream.own:
                checked(driver.cuStreamDestroy(stream.raw))
        self._leaving.close()

    def _seen(self, site: str, kind: str) -> None:
        if (site, kind) not in self._sites:
            self._sites.add((site, kind))
            note(Site(site, kind))

    def _own(self, stream: Stream) -> CudaStream:
        self._must_be_open()
        if not isinstance(stream, CudaStream):
            raise foreign(stream, "cuda", "stream")
        if stream.given_back:
            raise gone(stream.name)
        return stream

    def _must_be_open(self) -> None:
        if self._closed:
            raise DeviceError(CLOSED)
        self._context.use()


def _words(args: Sequence[Any]) -> tuple[list[CudaMemory], list[int]]:
    """The memories among arguments, and all as a kernel takes them."""
    memories: list[CudaMemory] = []
    words: list[int] = []
    for arg in args:
        if isinstance(arg, CudaMemory):
            memories.append(arg)
            words += arg.words
        else:
            words.append(arg)
    return memories, words


def _own_memory(memory: Memory) -> CudaMemory:
    if not isinstance(memory, CudaMemory):
        raise foreign(memory, "cuda", "memory")
    memory.must_live()
    return memory


def _wait(event: CudaEvent, seconds: float | None) -> bool:
    """Wait until an event has passed, letting other threads run. False once ``seconds`` are over."""
    for _ in range(SPINS):
        if event.done():
            return True
    end = None if seconds is None else time.monotonic() + seconds
    while not event.done():
        if end is not None and time.monotonic() > end:
            return False
        time.sleep(20e-6)
    return True
