"""The cache manager: the public face of ``kvgpu``, one method per operation of the rules.

Every method takes the manager's lock, checks in the order of section 9, and hands over to the module of the rule. Errors are
those of ``kvgpu.errors``. Groups are layer-group numbers, levels are 0, 1, 2. No method blocks on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from kvgpu.config import Layout, build_layout
from kvgpu.device.api import Access, Device, Graph, Memory, Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfRange
from kvgpu.locks import ManagerLock
from kvgpu.operations import commit as committing
from kvgpu.operations import create, growth, inspection, lifecycle, payloads, recorded_reads, seeding
from kvgpu.operations.build import build
from kvgpu.operations.capture import Capture
from kvgpu.operations.inside import Inside
from kvgpu.operations.inspection import PageInfo, PoolInfo
from kvgpu.operations.payloads import PageRead
from kvgpu.operations.state import PayloadHook, TreeListener, WriteTarget
from kvgpu.operations.taken_slots import TakenSlots
from kvgpu.requests.request import Request, Snapshot, take_snapshot, wait_snapshot
from kvgpu.storage.counters import CounterView
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import FenceTable
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import SlotPool
from kvspec.config import DEFAULT_PRIORITY, ManagerConfig


class Manager:
    """A cache manager on one device."""

    def __init__(self, config: ManagerConfig, device: Device, *, payload_hook: PayloadHook | None = None) -> None:
        """Allocate all pools. ``payload_hook(request, targets)`` is called when blocks of a request are about to become complete
        history, with those of their pages that nobody has written, by block, group, beam row: before anything is copied out of
        these pages. It may call ``write_payloads``.

        Raises ``ConfigurationError``, and ``DeviceError`` if there is not enough memory.
        """
        self._layout, self._device = build_layout(config), device
        self._lock = ManagerLock()
        self._core, self._holds = build(self._layout, device)
        self._core.hook = payload_hook
        self._by_name: dict[str, Request] = {}
        self._made = 0
        self._taken = TakenSlots()
        self._capture = Capture(self._core)
        self._inside = Inside(self._core, self._capture)

    # ---- what it is ------------------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Groups, pools, pool groups and what follows from the configuration (section 1)."""
        return self._layout

    @property
    def device(self) -> Device:
        """The device."""
        return self._device

    @property
    def pages(self) -> PageTable:
        """The page table, to be read."""
        return self._core.pages

    @property
    def fences(self) -> FenceTable:
        """What pages and slots wait for."""
        return self._core.fences

    @property
    def faults(self) -> FaultPlan:
        """Which submissions will be refused (R4.8). A batch asks it before an upload: ``faults.check("upload")``."""
        return self._core.faults

    def is_sparse(self, layer: str, role: str) -> bool:
        """Whether a buffer is sparse (R1.7). ``OutOfRange`` if there is none."""
        return self._layout.buffer(layer, role)[0].sparse

    def page_index_scale(self, layer: str, role: str | None = None) -> int:
        """The factor from slot to the buffer's page index (R1.7)."""
        return self._layout.scale(layer, role)

    def page_index_offset(self, layer: str, role: str | None = None) -> int:
        """The layer's own offset, in pages of the buffer (R1.7)."""
        return self._layout.buffer(layer, role)[1].index_offset

    @property
    def lock(self) -> ManagerLock:
        """The manager-wide lock: its hook tells when a thread has reached it and has to wait (R12.2)."""
        return self._lock

    def exclusive(self) -> AbstractContextManager[None]:
        """The manager-wide lock, for changes and snapshots (R12.1). Re-entrant; ``LockUpgrade`` inside ``shared``."""
        return self._lock.exclusive()

    def shared(self) -> AbstractContextManager[None]:
        """The manager-wide lock, for pure reads (R12.1). Re-entrant, also inside ``exclusive``."""
        return self._lock.shared()

    # ---- requests (section 3) --------------------------------------------------------------------------------------

    def request(self, name: str) -> Request:
        """The request of that name, closed or not. ``OutOfRange`` if there never was one (R3.13)."""
        with self._lock.shared():
            found = self._by_name.get(name)
            if found is None:
                raise OutOfRange(f"no request {name!r}: there is {', '.join(self._by_name) or 'none'}")
            return found

    def requests(self) -> tuple[Request, ...]:
        """Every request by name, in order of creation; of several with one name the last."""
        with self._lock.shared():
            return tuple(self._by_name.values())

    def create(
        self, name: str, tokens: Sequence[int] | None = None, prompt_length: int | None = None, priority: int = DEFAULT_PRIORITY
    ) -> Request:
        """A new suspended request, matched against the tree (R3.1). ``request.history`` is the number of tokens matched."""
        with self._lock.exclusive():
            create.check_create(self._core, self._by_name.get(name), name, tokens, prompt_length)
            self._by_name.pop(name, None)
            self._made += 1
            self._by_name[name] = request = create.create(
                self._core, self, name, self._made, tokens or (), prompt_length or 0, priority
            )
            return request

    def resume(self, request: Request, stream: Stream | None = None, decode: bool | None = None) -> bool:
        """Make it active (R3.2-R3.5)."""
        with self._lock.exclusive():
            self._live(request)
            if stream is None and request.stream is None:
                raise InvalidArgument(f"resume of {request.name}: it has no stream yet, so one must be given")
            if decode is False and request.decoding:
                raise InvalidArgument(f"resume of {request.name}: it is decoding, and there is no way back to prefill")
            if request.active:
                raise LogicError(f"resume of {request.name}: it is active already")
            self._core.refuse_capture(request, stream or request.stream)
            if stream is not None:
                self._change_stream(request, stream)
            return lifecycle.resume(self._core, request, request.decoding or bool(decode))

    def resize(self, request: Request, capacity: int | None = None, history: int | None = None) -> bool:
        """Set the lengths, in tokens (R3.6)."""
        with self._lock.exclusive():
            self._live(request)
            lengths = growth.check_lengths(request, capacity, history)
            self._active(request, "resize")
            growth.check_growth(request, *lengths)
            return growth.resize(self._core, request, *lengths)

    def enter_decode(self, request: Request) -> bool:
        """Enter decode, or retry deferred pages (R3.8)."""
        with self._lock.exclusive():
            self._active(request, "enter_decode")
            if request.decoding:
                return growth.resize(self._core, request, request.capacity, request.history)
            return growth.enter_decode(self._core, request)

    def commit(self, request: Request, tokens: Sequence[int], end: bool = False) -> None:
        """Append tokens; each block that they fill enters the prefix tree (R3.9)."""
        with self._lock.exclusive():
            self._live(request)
            committing.check_commit(request, tokens)
            self._core.refuse_capture(request)
            committing.commit(self._core, request, list(tokens), end)

    def stop_committing(self, request: Request) -> None:
        """End committing without adding anything (R3.9)."""
        with self._lock.exclusive():
            self._live(request)
            committing.end_committing(self._core, request)

    def suspend(self, request: Request) -> None:
        """Turn locks into holds (R3.10)."""
        with self._lock.exclusive():
            self._active(request, "suspend")
            committing.suspend_request(self._core, request)

    def close(self, request: Request) -> None:
        """Release everything, leave the row (R3.10). Idempotent."""
        with self._lock.exclusive():
            if request.closed:
                return
            self._own(request)
            self._core.refuse_capture(request)
            batch, request.batch, request.row = request.batch, None, None
            committing.close(self._core, request)
            if batch is not None:
                batch.member_closed(request)

    def prefetch(self, request: Request, level: int) -> bool:
        """Bring a suspended request's pages up (R3.11)."""
        with self._lock.exclusive():
            self._live(request)
            seeding.check_level(self._core, level)
            if request.active:
                raise LogicError(f"prefetch of {request.name}: it is active, only a suspended request prefetches")
            return lifecycle.prefetch(self._core, request, level)

    def offload(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> None:
        """The bare offload (R4.9). ``groups``: ``None`` for all sparse ones."""
        with self._lock.exclusive():
            self._live(request)
            growth.offload_blocks(self._core, request, blocks, groups)

    def set_beam_width(self, request: Request, width: int) -> bool:
        """Split the blocks after the prompt into beam rows (R3.12)."""
        with self._lock.exclusive():
            self._live(request)
            return growth.set_beam_width(self._core, request, width)

    def set_stream(self, request: Request, stream: Stream) -> None:
        """Change the stream; the new one runs after the old (R7.8)."""
        with self._lock.exclusive():
            self._live(request)
            self._change_stream(request, stream)

    def snapshot(self, request: Request, group: int, beam: int = 0) -> Snapshot:
        """A snapshot (R6.1)."""
        with self._lock.exclusive():
            self._own(request)
            self._group(group)
            if not 0 <= beam < request.beam_width:
                raise InvalidArgument(f"snapshot of {request.name}: no beam row {beam} of {request.beam_width}")
            return take_snapshot(self._core.fences, request, group, beam)

    def wait_snapshot(self, snapshot: Snapshot, stream: Stream) -> None:
        """Order a stream after the readiness in a snapshot (R6.1)."""
        with self._lock.exclusive():
            wait_snapshot(self._core.fences, snapshot, stream)

    def acknowledge(self, request: Request, version: int) -> bool:
        """Acknowledge a version; true if it is the newest (R6.5)."""
        with self._lock.exclusive():
            self._live(request)
            return request.acknowledge(version)

    def bind_row(self, request: Request, row: int | None) -> None:
        """Give a row to a request in no batch, or, with ``None``, take it away again (R6.6)."""
        with self._lock.exclusive():
            self._own(request)
            lifecycle.bind_row(self._core, request, row)

    def record_read(self, request: Request, stream: Stream) -> None:
        """Order later use of all that it has mapped after the reads so far on a stream (R7.7)."""
        with self._lock.exclusive():
            self._active(request, "record_read")
            if request.batch is not None:
                raise LogicError(f"record_read of {request.name}: it is in batch {request.batch.name}, record the batch's reads")
            self._capture.refuse(f"record_read of {request.name}", stream)
            recorded_reads.of_request(self._core, request, stream)

    # ---- checks ----------------------------------------------------------------------------------------------------

    def _own(self, request: Request) -> None:
        if request.manager is not self:
            raise LogicError(f"request {request.name!r} is of another manager")

    def _live(self, request: Request) -> None:
        self._own(request)
        if request.closed:
            raise LogicError(f"request {request.name!r} is closed: create a new one")

    def _active(self, request: Request, what: str) -> None:
        self._live(request)
        if not request.active:
            raise LogicError(f"{what} of {request.name}: it is suspended, resume it first")
        self._core.refuse_capture(request)

    def _group(self, group: int) -> None:
        if not 0 <= group < len(self._layout.groups):
            raise OutOfRange(f"no layer group {group}: the manager has {len(self._layout.groups)}")

    def _pool(self, level: int, pool_group: int) -> SlotPool:
        seeding.check_level(self._core, level)
        if not 0 <= pool_group < len(self._core.pools[level]):
            raise OutOfRange(f"no pool group {pool_group} on level {level}: there are {len(self._core.pools[level])}")
        return self._core.pools[level][pool_group]

    def _change_stream(self, request: Request, stream: Stream) -> None:
        """The new stream runs after the old (R7.8)."""
        if request.stream is not None and request.stream is not stream:
            old = self._core.fences.record(request.stream, "R7.8 work on the stream before")
            self._core.fences.wait(stream, [old], "R7.8 a new stream after the one before")
        request.stream = stream

    # ---- payloads --------------------------------------------------------------------------------------------------

    def writable(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> list[WriteTarget]:
        """The pages that a ``write`` of these blocks goes to, all beam rows; the errors of R2.1."""
        with self._lock.shared():
            self._live(request)
            return payloads.writable(self._core, request, blocks, groups)

    def write_payloads(self, request: Request, writes: Sequence[tuple[WriteTarget, bytes]]) -> None:
        """Write whole pages on the request's stream, in one submission. Bytes: pools in the order of R1.6."""
        with self._lock.exclusive():
            payloads.write(self._core, request, writes)

    def read_page(self, request: Request, group: int, block: int, beam: int, stream: Stream) -> PageRead:
        """Read a payload on a stream, from where the request has it now; waits for nothing by itself.

        ``LogicError`` if no page is mapped there.
        """
        with self._lock.exclusive():
            self._live(request)
            self._group(group)
            return payloads.read(self._core, request, group, block, beam, stream)

    def payload_now(self, page: int) -> bytes:
        """The bytes of a page as they are now, pools in the order of R1.6; for observers only."""
        with self._lock.shared():
            return self._core.pool(self._core.key_of(page)).bytes_now(int(self._core.pages.slot[page]))

    def payloads_now(self, level: int, pool_group: int, slots: Sequence[int]) -> list[bytes]:
        """The bytes in slots of a pool group as they are, pools in the order of R1.6. The device must have settled."""
        with self._lock.shared():
            return self._core.pools[level][pool_group].bytes_of(slots)

    # ---- tree and pools (section 10) -------------------------------------------------------------------------------

    def seed_prefix(
        self,
        tokens: Sequence[int],
        level: int,
        groups: Sequence[int] | None = None,
        priority: int = DEFAULT_PRIORITY,
        *,
        content: Callable[[tuple[int, ...], int, int], bytes],
    ) -> None:
        """Put blocks and pages into the tree (R10.5). ``content(prefix, group, block)``: the bytes of a new page."""
        with self._lock.exclusive():
            seeding.seed(self._core, tokens, level, groups, priority, content)

    def evict(self, level: int, pool_group: int, pages: int) -> None:
        """Move or drop the first evictable pages of a pool group (R10.5)."""
        with self._lock.exclusive():
            self._pool(level, pool_group)
            seeding.evict(self._core, level, pool_group, pages)

    def clear_reusable(self) -> None:
        """Drop every droppable page (R10.5)."""
        with self._lock.exclusive():
            seeding.clear(self._core)

    def take_slots(self, label: str, level: int, pool_group: int, count: int | None) -> None:
        """Take free slots (``None``: all) and keep them under a label (R10.5)."""
        with self._lock.exclusive():
            pool = self._pool(level, pool_group)
            self._taken.take(pool, label, count)

    def give_slots(self, label: str) -> None:
        """Give them back. ``OutOfRange`` for an unknown label."""
        with self._lock.exclusive():
            self._taken.give(label)

    def slot_reads(self, level: int, pool_group: int, slots: npt.NDArray[np.int32]) -> list[Access]:
        """What a submission that reads slots declares for the ordering check."""
        return self._pool(level, pool_group).accesses(slots, write=False)

    def pool_memory(self, level: int, pool_group: int) -> Memory:
        """The memory of a pool group, for consumers that follow published tables. ``OutOfRange`` for the disk level."""
        with self._lock.shared():
            memory = self._pool(level, pool_group).memory
            if memory is None:
                raise OutOfRange(f"level {level} is a file, which no device can address")
            return memory

    # ---- capture (R8.8) and what batches and executors use ----------------------------------------------------------

    def begin_capture(self, stream: Stream) -> None:
        """Begin a capture on a stream (R8.8). ``LogicError`` while one runs."""
        with self._lock.exclusive():
            self._capture.begin(stream)

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture. ``LogicError`` without one on that stream (R8.8)."""
        with self._lock.exclusive():
            return self._capture.end(stream)

    @property
    def capturing(self) -> Stream | None:
        """The stream in a capture that was begun here (``begin_capture``)."""
        return self._capture.stream

    @property
    def inside(self) -> Inside:
        """What a batch or an executor does in a manager, while it holds the lock (``exclusive``)."""
        return self._inside

    def live(self, stream: Stream) -> Stream:
        """Where work for a stream goes: itself, or, in a manager's capture, the stream beside it: see ``FenceTable.live``."""
        with self._lock.shared():
            return self._core.fences.live(stream)

    # ---- for observers ---------------------------------------------------------------------------------------------

    def page_infos(self) -> list[PageInfo]:
        """Every page, those of the tree alone included, in order of age."""
        with self._lock.shared():
            return inspection.page_infos(self._core)

    def pool_info(self, level: int, pool_group: int) -> PoolInfo:
        """Slots, free slots, their fences, and the evictable pages in order (R10.2)."""
        with self._lock.exclusive():
            return inspection.pool_info(self._core, level, pool_group)

    def tree_blocks(self) -> list[tuple[int, ...]]:
        """The whole prefix of each block of the tree, parents first."""
        with self._lock.shared():
            return [node.kept_prefix() for node in self._core.tree.walk()]

    def lifetime_counters(self) -> CounterView:
        """The counters, never reset (R13.1)."""
        with self._lock.shared():
            return self._core.counters.view(since_reset=False)

    def counters(self, reset: bool = False) -> CounterView:
        """The counters since the last reset (R13.1)."""
        with self._lock.exclusive():
            view = self._core.counters.view(since_reset=True)
            if reset:
                self._core.counters.reset()
            return view

    def copy_calls(self) -> dict[str, int]:
        """Submissions made and kept, by ``offload``, ``onboard``, ``copy``."""
        with self._lock.shared():
            return {direction.value: count for direction, count in self._core.counters.calls.items()}

    def listen(self, listener: TreeListener | None) -> None:
        """Hand every tree event (R13.3) of a successful operation to a listener, in order."""
        with self._lock.exclusive():
            self._core.listener = listener

    def shut(self) -> None:
        """Give back pools and files; closes no device. Idempotent."""
        with self._lock.exclusive():
            self._holds.close()
