"""Copies of pages between slots: lanes, and one submission per direction and pair of pool groups (R4.5, R7.1).

A copy runs on a *lane*, a stream of the manager's own: it waits for what its pages wait for, and for nothing else. A lane that
is idle is used again, and so is one whose copies wait for nothing that the new copy does not wait for: no copy is held up by what
has no part in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from kvgpu.config import PoolGroup, SlotKey
from kvgpu.device.api import Access, Device, DeviceError, Event, Memory, Stream
from kvgpu.runs import Int32
from kvgpu.storage.copy_kernels import COPY_PAGES, THREADS, blocks_for, descriptor_bytes, fill_descriptor, segment_words
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import FenceTable, Point, Wait
from kvgpu.storage.pools import SlotPool
from kvspec.config import Level

SMALLEST_BUFFER = 4096


@dataclass(slots=True)
class Buffer:
    """Pinned memory of the CPU's. ``busy``: the point after which it may be used again; not while it is ``held`` or ``kept``."""

    number: int
    memory: Memory
    busy: Point | None = None
    held: bool = False
    kept: bool = False
    words: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """``words``: its bytes as int64, made once: that takes its time on a GPU."""
        self.words = self.memory.host_array().view(np.int64)

    def access(self, write: bool) -> Access:
        """An access to it, for the ordering check."""
        return Access(("staging", "copies", self.memory.address), write)


class Buffers:
    """Pinned buffers for descriptors and payloads: one is written again only when its last use has run."""

    def __init__(self, device: Device) -> None:
        """None yet."""
        self._device = device
        self._buffers: list[Buffer] = []

    def take(self, nbytes: int) -> Buffer:
        """A buffer of at least so many bytes that no work uses. It is held until a copy has been submitted that uses it.

        Raises ``DeviceError`` if there is no memory for a new one.
        """
        buffer = self._idle(nbytes)
        if buffer is None:
            size = max(SMALLEST_BUFFER, 1 << (nbytes - 1).bit_length())
            number = len(self._buffers)
            buffer = Buffer(number, self._device.allocate("pinned", size, f"copy buffer {number}"))
            self._buffers.append(buffer)
        buffer.busy, buffer.held = None, True
        self._device.host_access(lambda: (buffer.access(True),), "R7.6 the CPU fills a copy buffer")
        return buffer

    def _idle(self, nbytes: int) -> Buffer | None:
        """A buffer that is large enough and that no work uses, if there is one.

        To ask a GPU takes its time, and the work of a stream runs in order: they stand in the order of their last use, and where
        one is still in use, those of later work of that stream are not asked about.
        """
        held: dict[str, int] = {}
        for at, buffer in enumerate(self._buffers):
            busy = buffer.busy
            if buffer.held or buffer.kept or (busy is not None and busy.number >= held.get(busy.key, busy.number + 1)):
                continue
            if busy is not None and not busy.event.done():
                held[busy.key] = busy.number
            elif buffer.memory.nbytes >= nbytes:
                self._buffers.append(self._buffers.pop(at))
                return buffer
        return None

    def close(self) -> None:
        """Give back the memory of every buffer."""
        for buffer in self._buffers:
            buffer.memory.free()


_lanes = itertools.count()
"""Lanes ever made: managers may share a device, where streams have names of their own."""


@dataclass(slots=True)
class Lane:
    """A stream for copies. ``last``: its last copy.

    ``after``: what its copies wait for, by stream the number of the latest point; ``None``: for a file as well.
    """

    stream: Stream
    last: Event | None = None
    after: dict[str, int] | None = field(default_factory=dict)

    def idle(self) -> bool:
        """Whether all its copies have run."""
        return self.last is None or self.last.done()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a copy: slots of a pool group, or whole pages one after the other in a buffer."""

    slots: Int32
    pool: SlotPool | None
    buffer: Buffer | None = None

    @property
    def spec(self) -> PoolGroup | None:
        """The pool group, if any."""
        return self.pool.spec if self.pool is not None else None

    @property
    def on_disk(self) -> bool:
        """Whether its pages are in a file."""
        return self.pool is not None and self.pool.file is not None

    @property
    def memory(self) -> Memory:
        """The memory that its pages are in."""
        found = self.pool.memory if self.pool is not None else self.buffer.memory if self.buffer is not None else None
        assert found is not None
        return found

    def accesses(self, write: bool) -> list[Access]:
        """What it reads or writes, for the ordering check."""
        if self.pool is not None:
            return self.pool.accesses(self.slots, write)
        assert self.buffer is not None
        return [self.buffer.access(write)]


class Copier:
    """Submits copies of pages between pool groups, on streams of its own."""

    def __init__(self, device: Device, fences: FenceTable, faults: FaultPlan) -> None:
        """No lane yet."""
        self._device = device
        self._fences = fences
        self._faults = faults
        self._lanes: list[Lane] = []
        self._segments: dict[tuple[SlotKey | None, SlotKey | None], tuple[npt.NDArray[np.int64], int]] = {}
        self.buffers = Buffers(device)

    def lane(self, after: Mapping[str, int]) -> Lane:
        """A lane that holds a copy up for nothing: an idle one, or one whose copies wait for no more than this one does.

        Without the second kind there would be a stream for every copy behind work that takes long, and a GPU keeps few apart.
        ``after``: as in ``Lane``.
        """
        for lane in self._lanes:
            if lane.idle():
                lane.after = {}
                return lane
        for lane in self._lanes:
            if lane.after is not None and all(after.get(key, 0) >= number for key, number in lane.after.items()):
                return lane
        lane = Lane(self._fences.own(self._device.stream(f"kv copies {next(_lanes)}")))
        self._lanes.append(lane)
        return lane

    def on_lane(self, source: Side, target: Side, waits: Sequence[Wait], site: str) -> Point:
        """A copy of pages on a lane after ``waits``. Its completion."""
        after: dict[str, int] = {}
        for wait in waits:
            for point in wait.points:
                if point.number > after.get(point.key, 0):
                    after[point.key] = point.number
        lane = self.lane(after)
        lane.after = None if lane.after is None or source.on_disk or target.on_disk else {**lane.after, **after}
        for wait in waits:
            if wait.points:
                self._fences.wait(lane.stream, wait.points, wait.site, where=wait.where)
        done = self.on_stream(lane.stream, source, target, site, "R7.1 completion of a copy", "R7.3 readiness: the copy there")
        lane.last = done.event
        return done

    def on_stream(self, stream: Stream, source: Side, target: Side, site: str, after: str, why: str) -> Point:
        """A copy of pages on a stream; waits for nothing. Raises ``DeviceError`` without pinned memory, or if a file fails.

        The point after it: recorded under the site ``after``, kept for the reason ``why``.
        """
        used: list[Buffer] = [side.buffer for side in (source, target) if side.buffer is not None]
        if not len(source.slots):
            return self._fences.record(stream, after, why)
        try:
            if source.on_disk or target.on_disk:
                self._with_file(stream, source, target, used, site)
            else:
                self._launch(stream, source, target, used, site)
        finally:  # also after an error: a part may have been submitted
            done = self._fences.record(stream, after, why)
            for buffer in used:
                buffer.busy, buffer.held = done, False
        return done

    def _with_file(self, stream: Stream, source: Side, target: Side, used: list[Buffer], site: str) -> None:
        if source.on_disk and (target.on_disk or not self._is_host(target)):
            source = self._read_file(stream, source, used, site)
        if source.on_disk or target.on_disk:
            self._file_task(stream, source, target, site)
        else:
            self._launch(stream, source, target, used, site)

    @staticmethod
    def _is_host(side: Side) -> bool:
        return side.pool is None or side.pool.key[0] == Level.HOST

    def _read_file(self, stream: Stream, source: Side, used: list[Buffer], site: str) -> Side:
        """Pages of a file into a buffer, for a kernel to take on from there."""
        assert source.pool is not None
        buffer = self.buffers.take(len(source.slots) * source.pool.spec.page_bytes)
        used.append(buffer)
        middle = Side(np.arange(len(source.slots), dtype=np.int32), None, buffer)
        self._file_task(stream, source, middle, site)
        return middle

    def _file_task(self, stream: Stream, source: Side, target: Side, site: str) -> None:
        """Pages between a file and pinned memory, by the host, in the order of the stream."""
        filed, other = (source, target) if source.on_disk else (target, source)
        assert filed.pool is not None and filed.pool.file is not None
        if (problem := filed.pool.file.problem()) is not None:
            raise DeviceError(problem)
        if self._faults.check_file():
            raise DeviceError(f"access to {filed.pool.file.path} refused")
        size = filed.pool.spec.page_bytes
        rows = other.memory.host_array()[: (other.memory.nbytes // size) * size].reshape(-1, size)
        move = filed.pool.file.read if source.on_disk else filed.pool.file.write
        task = partial(_each_page, move, filed.slots, rows, other.slots)
        self._device.host_task(stream, task, lambda: source.accesses(False) + target.accesses(True), site)

    def _launch(self, stream: Stream, source: Side, target: Side, used: list[Buffer], site: str) -> None:
        segments, nbytes = self._segments_between(source, target)
        pages = len(source.slots)
        descriptor = self.buffers.take(descriptor_bytes(pages, len(segments)))
        fill_descriptor(descriptor.words, segments, source.slots, target.slots)
        used.append(descriptor)
        self._device.launch(
            stream,
            COPY_PAGES,
            blocks_for(pages * nbytes),
            THREADS,
            (source.memory, target.memory, descriptor.memory, pages, len(segments)),
            lambda: [*source.accesses(False), *target.accesses(True), descriptor.access(False)],
            site,
        )

    def _segments_between(self, source: Side, target: Side) -> tuple[npt.NDArray[np.int64], int]:
        """The segments of a page, and its bytes."""
        between = (source.pool.key if source.pool else None, target.pool.key if target.pool else None)
        known = self._segments.get(between)
        if known is None:
            segments = segment_words(source.spec, target.spec)
            known = self._segments[between] = (segments, int(segments[:, 4].sum()))
        return known

    def close(self) -> None:
        """Give the buffers and the lanes back."""
        self.buffers.close()
        for lane in self._lanes:
            self._device.give_back(lane.stream)


def _each_page(move: object, file_slots: Int32, rows: npt.NDArray[np.uint8], row_numbers: Int32) -> None:
    assert callable(move)
    for slot, row in zip(file_slots.tolist(), row_numbers.tolist(), strict=True):
        move(slot, rows[row])
