"""What ``kvgpu`` needs of a device. ``sim`` and ``cuda`` provide it; nothing above knows which one it has.

Every wait, event record and submission carries a *site*: a short fixed text that names the fence and its rule
(``"R7.2 freed slot: copy out"``). Reports quote it, and a named mutant is a site that the device is told to drop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Resource = tuple[Hashable, ...]
"""What an access touches, finest first agreed: ``("slot", level, pool_group, slot)``, ``("staging", batch, n)``,
``("table", batch, row)``, ``("file", pool_group, slot)``."""


class Access(NamedTuple):
    """One access of a submission to one resource, for the ordering check. A tuple, since there may be many."""

    resource: Resource
    write: bool


Accesses = Callable[[], Sequence[Access]]
"""Called only by a device that checks, at the submission, so that a real GPU pays nothing for it; once more at each replay of
a graph."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel in both its forms. ``cuda_source``: the undecorated function that numba-cuda compiles, one thread's work.

    ``twin``: the same work on host arrays, vectorised; a test proves the two equal. Both are called with the arguments of the
    launch alone, in that order: a ``Memory`` as a writable, contiguous one-dimensional uint8 array over all its bytes, an int
    as an int (int64 on the GPU; with ``cuda.grid(1)`` and ``cuda.gridsize(1)`` the threads share the work). ``name`` is unique
    in the program.
    """

    name: str
    cuda_source: Callable[..., None]
    twin: Callable[..., None]


class Arguments(tuple[Any, ...]):
    """The arguments of launches that are made again and again: a device may keep here (``made``) what it makes of them."""

    made: Any = None


POISON = 0xDD
"""The byte that ``Device.poison`` writes."""


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A line of code that waits, records or submits. ``kind``: ``wait``, ``record``, ``submit`` or ``host``.

    A mutant drops a wait or a record.
    """

    name: str
    kind: str


class Memory(Protocol):
    """A fixed range of bytes: ``kind`` is ``device``, or ``pinned`` (host memory that the device can address)."""

    kind: str
    nbytes: int
    address: int

    def read_now(self, offset: int, nbytes: int) -> bytes:
        """The bytes as they are now, whatever the streams do; for observers only."""
        ...

    def host_array(self) -> npt.NDArray[np.uint8]:
        """Pinned memory (on ``sim`` any memory) as a NumPy array over the same bytes."""
        ...

    def free(self) -> None:
        """Give the range back, once all work submitted so far has run. Idempotent."""
        ...


class Stream(Protocol):
    """An in-order queue of device work. ``name``: unique on its device. ``handle``: the raw stream number on a GPU."""

    name: str
    handle: int


class Event(Protocol):
    """A point in a stream."""

    def done(self) -> bool:
        """Whether the work before it has run. Never blocks.

        True is truthful: the CPU may touch at once what that work used, and the check counts a later ``host_access`` as
        ordered after it. On ``sim`` it is true if, and only if, no closed gate is upstream, since a real device would have got
        there: the work before the event is then run, and no other, before the answer. It orders nothing on the device: keep
        waiting for an event that is done (cheap; a GPU may leave it out). Observers ask ``Device.position(event).gates``
        instead, which runs nothing and teaches nothing.
        """
        ...


class Gate(Protocol):
    """A closed gate on a stream: work submitted behind it does not run until it opens."""

    label: str

    def open(self) -> None:
        """Let the stream go on. Idempotent."""
        ...


class Graph(Protocol):
    """A captured sequence of submissions."""

    def launch(self, stream: Stream, site: str) -> None:
        """Submit a replay of it to a stream."""
        ...


@dataclass(frozen=True, slots=True)
class Position:
    """Where a piece of work stands: the closed gates before it, and, where known, a vector clock.

    ``clock``: by stream name, how many submissions to that stream it runs after.
    """

    gates: frozenset[str]
    clock: Mapping[str, int] | None


class Device(Protocol):
    """A GPU, or a simulated one: streams, events, memory. ``kind``: ``sim`` or ``cuda``. No call but ``sync`` blocks the CPU."""

    kind: str

    @property
    def ordinal(self) -> int:
        """The number by which this process knows the GPU; 0 on ``sim``."""
        ...

    def stream(self, name: str) -> Stream:
        """A new stream. ``name`` must be new on this device."""
        ...

    def external_stream(self, handle: Any) -> Stream:
        """A stream that somebody else made (a raw handle, or a torch or CuPy stream). The same handle gives the same stream.

        On ``sim`` any name or number will do; a name of a stream of this device gives that stream.
        """
        ...

    def give_back(self, stream: Stream) -> None:
        """Nothing will be submitted to a stream that the device made: it goes once its work has run, when another is made.

        What else waits for its events goes on doing so. Idempotent; from any thread, and after ``close``, too.
        """
        ...

    def allocate(self, kind: str, nbytes: int, name: str) -> Memory:
        """``device`` or ``pinned`` memory, zeroed. Raises ``DeviceError`` if there is not enough."""
        ...

    def prepare(self, kernel: Kernel, arrays: Sequence[bool]) -> None:
        """Have a kernel compiled and loaded, so that its first launch is as cheap as the others and waits for nothing.

        ``arrays``: for each argument whether it is a ``Memory``. Do so while no gate is closed: a GPU may wait for all work
        meanwhile.
        """
        ...

    def launch(
        self, stream: Stream, kernel: Kernel, blocks: int, threads: int, args: Sequence[Any], accesses: Accesses, site: str
    ) -> None:
        """Submit a kernel. ``args``: ``Memory`` (the kernel sees its address as a uint8 array), or ints; see ``Arguments``."""
        ...

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
        """Submit one contiguous copy, either direction."""
        ...

    def host_task(self, stream: Stream, task: Callable[[], None], accesses: Accesses, site: str) -> None:
        """Submit work of the host (file access) in stream order. An exception in it becomes a fault of the device."""
        ...

    def record(self, stream: Stream, site: str) -> Event:
        """An event after all work submitted to ``stream`` so far."""
        ...

    def wait(self, stream: Stream, event: Event, site: str) -> None:
        """Order later work of ``stream`` after ``event``."""
        ...

    def gate(self, stream: Stream, label: str) -> Gate:
        """Close a gate on a stream."""
        ...

    def begin_capture(self, stream: Stream) -> None:
        """Begin capturing what is launched on ``stream``: launches, copies and host tasks, nothing else, until ``end_capture``.

        Raises ``DeviceError`` while a capture runs. A wait, record, gate or sync on the stream in capture is a ``DeviceError``.
        """
        ...

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture. ``DeviceError`` if ``stream`` is not in capture."""
        ...

    def is_capturing(self, stream: Stream) -> bool:
        """Whether a stream is being captured, by this device or by anybody else: a GPU's driver is asked. Never blocks.

        Also true of CUDA's default stream while work on it would break the capture of another.
        """
        ...

    def sync(self, stream: Stream | None) -> None:
        """Wait on the CPU for a stream or for all. Raises ``DeviceBlocked`` if a closed gate holds it up."""
        ...

    def settle(self) -> None:
        """Let everything run that no closed gate holds up; on a GPU, wait for it. For observers only."""
        ...

    def position(self, of: Stream | Event) -> Position:
        """Where the next submission to a stream, or an event, stands."""
        ...

    def submitted(self, stream: Stream) -> int:
        """How many submissions ``stream`` has had: the stream's own component of the vector clock.

        Launches, copies, host tasks, replays and gates count; waits and records do not.
        """
        ...

    def host_access(self, accesses: Accesses, site: str) -> None:
        """Declare that the CPU itself accesses memory now (it fills a staging buffer, say), for the check (R7.6).

        In order only after what the CPU knows to be over: events whose ``done()`` was true, streams that it has synced.
        """
        ...

    def poison(self, memory: Memory, ranges: Sequence[tuple[int, int]], after: Sequence[Event], site: str) -> Event | None:
        """Overwrite ``(offset, nbytes)`` ranges with ``POISON`` bytes once the events in ``after`` have passed, if the device
        has poison on.

        Returns the event that replaces ``after`` as the fence of these ranges (it adds no order of its own), or
        ``None`` where poison is off: keep the old fence. Waits for nothing but ``after``: no stream is shared with other work.
        """
        ...

    def sites(self) -> frozenset[Site]:
        """Every site that this device has seen, so that mutants can be enumerated."""
        ...

    def faults(self) -> tuple[str, ...]:
        """Every problem found so far (unordered accesses, failed host tasks), one readable text each."""
        ...

    def at_step(self, step: int, text: str) -> None:
        """Tell the device which operation the following submissions belong to, for its reports."""
        ...

    def close(self) -> None:
        """Give everything back. Idempotent."""
        ...


class DeviceError(Exception):
    """The device cannot do what was asked (no GPU, not enough memory)."""


class StreamsHeld(DeviceError):
    """Gates hold up so many streams that the device could not keep one more apart from them."""


class DeviceBlocked(DeviceError):
    """A wait on the CPU that could never end, because a gate is closed."""
