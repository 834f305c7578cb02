"""Pool groups on their levels: slots, their fences, and their bytes (R1.2, R1.6, R7.2)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kvgpu.config import POOL_ALIGN, PoolGroup
from kvgpu.device.api import Access, Device, DeviceError, Memory
from kvgpu.runs import SHORT, Int32, read, write
from kvgpu.storage.fences import EMPTY, Fence, FenceTable, Point
from kvspec.config import Level

FREE = -1
"""``SlotPool.page`` of a free slot."""
TAKEN = -2
"""``SlotPool.page`` of a slot that was taken away (R10.5)."""
RESERVED = -3
"""``SlotPool.page`` of a slot that a request has reserved (R15.2)."""

CLOSE = 4
"""Slots are read together if they are at least every fourth one of those that they lie among."""

KINDS = ("device", "pinned", "file")


class PageFile:
    """The pages of a pool group of the disk level: a file of ``slots`` pages."""

    def __init__(self, path: Path, page_bytes: int, slots: int) -> None:
        """Make the file and reserve its space. Raises ``DeviceError`` if there is not enough."""
        self.path = path
        self._page_bytes = page_bytes
        self._nbytes = page_bytes * slots
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise DeviceError(
                f"no file for the disk level at {path}: {error.strerror}; is the folder there, and writable?"
            ) from error
        try:
            if self._nbytes:
                os.posix_fallocate(self._file, 0, self._nbytes)
        except OSError as error:
            self.close()
            raise DeviceError(
                f"no {self._nbytes} bytes for the disk level in {path}: {error.strerror}; make room or configure fewer slots"
            ) from error

    def problem(self) -> str | None:
        """What is wrong with the file now, if anything."""
        size = os.fstat(self._file).st_size
        return None if size >= self._nbytes else f"{self.path} has {size} of {self._nbytes} bytes: something truncated it"

    def read(self, slot: int, target: npt.NDArray[np.uint8]) -> None:
        """Read a page into ``target``, uint8 ``[page_bytes]``. Raises ``OSError`` if the file is too short."""
        self._must_be_whole()
        if os.preadv(self._file, [target.data], slot * self._page_bytes) != self._page_bytes:
            raise OSError(f"page {slot} of {self.path} is not there any more: something truncated the file")

    def write(self, slot: int, source: npt.NDArray[np.uint8]) -> None:
        """Write a page from ``source``, uint8 ``[page_bytes]``. Raises ``OSError``."""
        self._must_be_whole()
        if os.pwritev(self._file, [source.data], slot * self._page_bytes) != self._page_bytes:
            raise OSError(f"page {slot} of {self.path} could not be written in full: is the disk full?")

    def _must_be_whole(self) -> None:
        """A page beyond the end of a truncated file would read as zeros once another is written after it."""
        problem = self.problem()
        if problem is not None:
            raise OSError(problem)

    def close(self) -> None:
        """Close and remove the file."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Given:
    """Slots that became free, and those that did before them: what is given is put together when it is looked at."""

    slots: Int32
    before: Given | None


Mark = tuple[tuple[Int32, ...], int, Int32, Given | None, int, int]


class PendingReads(Protocol):
    """Recorded reads that are not noted yet at the slots that they concern."""

    def not_noted(self, pool: SlotPool, slots: Int32) -> Sequence[tuple[npt.NDArray[np.intp], Sequence[Point]]]:
        """Those that concern these slots: where in ``slots`` they stand, and the reads."""
        ...

    def points_of(self, pool: SlotPool, slots: Int32) -> Sequence[Point]:
        """The same for a few slots together: the reads that concern any of them."""
        ...

    def settle(self, pool: SlotPool, slots: Int32) -> bool:
        """Have these noted (``SlotPool.note_reads``). Whether there were any."""
        ...

    def noted(self, pool: SlotPool, slots: Int32) -> None:
        """They need not be noted any more at these slots."""
        ...


class NextUse(NamedTuple):
    """What the next use of slots runs after. ``reads``: whether reads recorded on them are among that."""

    points: tuple[Point, ...]
    reads: bool


_pools = itertools.count()
"""Pools ever made: managers may share a device, and the ordering check must tell their slots apart."""


class SlotPool:
    """The slots of one pool group of one level.

    ``fence[slots]``: what the next use of a slot waits for (R7.2, R7.4), beside the reads recorded on it (``readers``).
    ``table_reads``: reads of tables that are noted at slots when these are asked for their readers. ``noted``: how often reads
    were recorded that may concern slots of it.

    ``page[slots]``: who is in it, ``FREE``, ``TAKEN`` or ``RESERVED``. ``free``: how many are free. ``evictable``: how many pages
    that nobody has locked are in it.

    Free slots whose fence had passed when that was last looked at stand in ``_passed``, the others in ``_waiting``, then in
    ``_given``; all in the order in which they became free.
    """

    def __init__(self, spec: PoolGroup, device: Device, fences: FenceTable, folder: Path) -> None:
        """Allocate the memory or the file. Raises ``DeviceError``."""
        self._made = next(_pools)
        self.spec = spec
        self.key = (spec.level, spec.number)
        self._fences = fences
        self.fence = fences.register(np.full(spec.slots, EMPTY, dtype=np.int32))
        self._readers = fences.register(np.full(spec.slots, EMPTY, dtype=np.int32))
        self.table_reads: list[PendingReads] = []
        self.noted = 0
        self.page: Int32 = np.full(spec.slots, FREE, dtype=np.int32)
        self.free = spec.slots
        self.evictable = 0
        self._freed: npt.NDArray[np.int64] = np.arange(spec.slots, dtype=np.int64)
        self._clock = spec.slots
        self._passed: tuple[Int32, ...] = (np.arange(spec.slots, dtype=np.int32),)
        self._head = 0
        self._waiting: Int32 = np.empty(0, dtype=np.int32)
        self._given: Given | None = None
        self.memory: Memory | None = None
        self.file: PageFile | None = None
        name = f"{KINDS[spec.level]} pool group {spec.number}"
        if spec.level != Level.DISK:
            self.memory = device.allocate(KINDS[spec.level], max(spec.nbytes, POOL_ALIGN), name)
        else:
            self.file = PageFile(folder / f"pool-group-{spec.number}", spec.page_bytes, spec.slots)

    def readers(self, slots: Int32) -> Int32:
        """For each slot, the fence of the reads recorded on it (R7.7)."""
        self._settle(slots)
        return read(self._readers, slots)

    def readers_seen(self, slots: Int32) -> Int32:
        """The same for an observer: nothing is noted, and what comes later does not depend on it."""
        found = read(self._readers, slots)
        for pending in self.table_reads:
            for where, points in pending.not_noted(self, slots):
                found[where] = self._fences.merged(found[where], points)
        return found

    def note_reads(self, slots: Int32, reads: Iterable[Point]) -> None:
        """Reads were recorded on slots."""
        self.noted += 1
        self._readers[slots] = self._fences.merged(self._readers[slots], reads)

    def next_use(self, slots: Int32) -> NextUse:
        """What the next use of slots, a few, runs after: their fences, and the reads recorded on them. Nothing is noted yet."""
        named = [number for number in self.fence[slots].tolist() if number != EMPTY]
        readers = [number for number in self._readers[slots].tolist() if number != EMPTY]
        more = [point for pending in self.table_reads for point in pending.points_of(self, slots)]
        points = self._fences.points_of(named + readers) if named or readers else ()
        return NextUse(Fence((*points, *more)).points if more else points, bool(readers or more))

    def readers_waited_for(self, slots: Int32) -> None:
        """The next use of slots, which ``next_use`` was asked for, has been submitted: no reads are kept on them any more."""
        for pending in self.table_reads:
            pending.noted(self, slots)
        self._readers[slots] = EMPTY

    def set_readers(self, slots: Int32, fences: Int32 | int) -> None:
        """Whoever has asked for the ``readers`` of slots sees to it that they are waited for: other fences are in their place."""
        write(self._readers, slots, fences)

    def _settle(self, slots: Int32) -> bool:
        noted = [pending.settle(self, slots) for pending in self.table_reads]
        return any(noted)

    def mark(self) -> Mark:
        """What ``restore`` needs to undo takes and gives."""
        return (self._passed, self._head, self._waiting, self._given, self.free, self.evictable)

    def restore(self, mark: Mark) -> None:
        """Undo all takes and gives since ``mark``."""
        self._passed, self._head, self._waiting, self._given, self.free, self.evictable = mark

    def take(self, count: int) -> Int32:
        """Free slots: those whose fence has passed first, then in the order in which they became free (R7.2)."""
        assert count <= self.free
        if (slots := self._take_quickly(count)) is not None:
            return slots
        self._fences.refresh()
        self._look()
        chosen: list[Int32] = []
        missing = count
        while missing and self._passed:
            chunk = self._passed[0][self._head : self._head + missing]
            self._head += len(chunk)
            if self._head == len(self._passed[0]):
                self._passed, self._head = self._passed[1:], 0
            passed = self._have_passed(chunk)
            if not passed.all():  # a reader was recorded since
                self._waiting = self._in_order(np.concatenate([self._waiting, chunk[~passed]]))
                chunk = chunk[passed]
            missing -= len(chunk)
            chosen.append(chunk)
        if missing:
            chosen.append(self._waiting[:missing])
            self._waiting = self._waiting[missing:]
        self.free -= count
        return np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int32)

    def _take_quickly(self, count: int) -> Int32 | None:
        """The first slots, if nothing that has not passed comes in between: then no event need be asked about."""
        if count > SHORT or not self._passed or self._given is not None or self._waiting.size:
            return None
        if self._fences.long_not_looked_at():
            return None
        slots = self._passed[0][self._head : self._head + count]
        if len(slots) < count or any(self.fence[slots].tolist()) or any(self._readers[slots].tolist()):
            return None
        for pending in self.table_reads:
            if pending.points_of(self, slots):
                return None
        self._head += count
        if self._head == len(self._passed[0]):
            self._passed, self._head = self._passed[1:], 0
        self.free -= count
        return slots

    def give(self, slots: Int32) -> None:
        """Slots become free, in this order; their fences are set already."""
        write(self._freed, slots, np.arange(self._clock, self._clock + len(slots)))
        self._clock += len(slots)
        self._given = Given(slots, self._given)
        self.free += len(slots)

    def free_slots(self) -> Int32:
        """int32: the free slots, in the order in which they are taken (R7.2)."""
        self._collect()
        return (
            np.concatenate([self._passed[0][self._head :], *self._passed[1:], self._waiting]) if self._passed else self._waiting
        )

    def _collect(self) -> None:
        """Put what was given after the waiting slots."""
        parts: list[Int32] = []
        while self._given is not None:
            parts.append(self._given.slots)
            self._given = self._given.before
        if parts:
            self._waiting = np.concatenate([self._waiting, *reversed(parts)])

    def _in_order(self, slots: Int32) -> Int32:
        return slots[np.argsort(self._freed[slots], kind="stable")]

    def _look(self) -> None:
        """Move the waiting slots whose fence has passed to the others."""
        self._collect()
        if not self._waiting.size:
            return
        passed = self._have_passed(self._waiting)
        if not passed.any():
            return
        fresh, self._waiting = self._waiting[passed], self._waiting[~passed]
        chunks = list(self._passed)
        if chunks and self._head:
            chunks[0], self._head = chunks[0][self._head :], 0
        while chunks and (self._freed[chunks[-1][-1]] > self._freed[fresh[0]] or len(chunks[-1]) <= len(fresh)):
            fresh = self._in_order(np.concatenate([chunks.pop(), fresh]))
        self._passed = (*chunks, fresh)

    def _have_passed(self, slots: Int32) -> npt.NDArray[np.bool_]:
        """For each slot, whether all that its next use waits for had run when the fences were last looked at."""
        if self._settle(slots):
            self._fences.refresh()
        return self._fences.passed(read(self.fence, slots)) & self._fences.passed(read(self._readers, slots))

    def accesses(self, slots: Int32, write: bool) -> list[Access]:
        """The accesses of a submission to slots, for the ordering check."""
        level, number = self.key
        if level == Level.DISK:
            return [Access(("file", number, slot, self._made), write) for slot in slots.tolist()]
        return [Access(("slot", level, number, slot, self._made), write) for slot in slots.tolist()]

    def ranges(self, slots: Int32) -> list[tuple[int, int]]:
        """The (offset, bytes) of slots in the memory, pool by pool."""
        return [(offset + slot * size, size) for slot in slots.tolist() for offset, size in self.spec.pools]

    def bytes_now(self, slot: int) -> bytes:
        """The bytes of a slot as they are, pools in the order of R1.6."""
        if self.file is not None:
            page = np.empty(self.spec.page_bytes, dtype=np.uint8)
            self.file.read(slot, page)
            return page.tobytes()
        assert self.memory is not None
        return b"".join(self.memory.read_now(offset + slot * size, size) for offset, size in self.spec.pools)

    def bytes_of(self, slots: Sequence[int]) -> list[bytes]:
        """The same of several slots, read together where they lie close to each other."""
        if self.memory is None or not slots:
            return [self.bytes_now(slot) for slot in slots]
        low, end = min(slots), max(slots) + 1
        if end - low > CLOSE * len(slots):
            return [self.bytes_now(slot) for slot in slots]
        planes = []
        for offset, size in self.spec.pools:
            plane = self.memory.read_now(offset + low * size, (end - low) * size)
            planes.append([plane[at : at + size] for at in ((slot - low) * size for slot in slots)])
        return planes[0] if len(planes) == 1 else [b"".join(parts) for parts in zip(*planes, strict=True)]

    def close(self) -> None:
        """Give the memory or the file back."""
        if self.memory is not None:
            self.memory.free()
        if self.file is not None:
            self.file.close()
