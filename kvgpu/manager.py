"""The cache manager: the public face of ``kvgpu``, one method per operation of the rules.

Every method takes the manager's lock, checks in the order of section 9, and hands over to the module of the rule. Errors are
those of ``kvgpu.errors``. Groups are layer-group numbers, levels are 0, 1, 2. No method blocks on the device.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
from kvspec.config import DEFAULT_PRIORITY, ManagerConfig

from kvgpu.config import Layout, SlotKey, build_layout
from kvgpu.device.api import Access, Device, DeviceError, Graph, Memory, Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfPages, OutOfRange
from kvgpu.locks import ManagerLock
from kvgpu.operations import commit as committing
from kvgpu.operations import growth, inspection, lifecycle, payloads, seeding
from kvgpu.operations.inspection import PageInfo, PoolInfo
from kvgpu.operations.payloads import PageRead
from kvgpu.operations.state import PayloadHook, TreeListener, WriteTarget, build_core
from kvgpu.requests.request import Membership, Request, Snapshot, take_snapshot
from kvgpu.storage.copy_kernels import COPY_PAGES, COPY_PAGES_ARRAYS
from kvgpu.storage.counters import CounterView
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import Fence, FenceTable, Point
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import FREE, TAKEN, SlotPool
from kvgpu.upload.scatter_kernels import SCATTER, SCATTER_ARRAYS


class Manager:
    """A cache manager on one device."""

    def __init__(self, config: ManagerConfig, device: Device, *, payload_hook: PayloadHook | None = None) -> None:
        """Allocate all pools. ``payload_hook(request, targets)`` is called when blocks of a request are about to become complete
        history, with those of their pages that nobody has written, by block, group, beam row: before anything is copied out of
        these pages. It may call ``write_payloads``.

        Raises ``ConfigurationError``, and ``DeviceError`` if there is not enough memory.
        """
        layout = build_layout(config)
        # Loaded now: later a closed gate could hold the loading up.
        device.prepare(COPY_PAGES, COPY_PAGES_ARRAYS)
        device.prepare(SCATTER, SCATTER_ARRAYS)
        self._layout = layout
        self._device = device
        self._lock = ManagerLock()
        self._folder = _temporary_folder() if len(layout.levels) > 2 else None
        try:
            self._core = build_core(layout, device, Path(self._folder.name) if self._folder is not None else Path())
        except BaseException:
            if self._folder is not None:
                self._folder.cleanup()
            raise
        self._core.hook = payload_hook
        self._by_name: dict[str, Request] = {}
        self._made = 0
        self._taken: dict[str, tuple[SlotPool, npt.NDArray[np.int32]]] = {}
        self._capture: Stream | None = None
        self._captures = 0
        self._shut = False

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
            self._check_create(name, tokens, prompt_length)
            self._by_name.pop(name, None)
            self._made += 1
            core, groups = self._core, self._layout.groups
            request = Request(
                name,
                self._made,
                self,
                core.pages,
                len(groups),
                tuple(group.sparse for group in groups),
                tuple(group.ssm for group in groups),
                self._layout.tokens_per_block,
                priority,
                prompt_length or 0,
                core.tree.root,
            )
            core.by_uid[request.uid] = self._by_name[name] = request
            core.tree.root.tails.add(request.uid)
            core.renew(request)
            lifecycle.adopt_match(core, request, tokens or ())
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
        """Append tokens and publish full blocks (R3.9)."""
        with self._lock.exclusive():
            self._live(request)
            committing.check_commit(request, tokens)
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
        """Split the blocks behind the prompt into beam rows (R3.12)."""
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
            points = Fence(point for fence in snapshot.ready if fence is not None for point in fence.points).points
            self._core.fences.wait(stream, points, "R6.1 readiness in a snapshot")

    def acknowledge(self, request: Request, version: int) -> bool:
        """Acknowledge a version; true if it is the newest (R6.5)."""
        with self._lock.exclusive():
            self._live(request)
            if version != request.version:
                return False
            request.acknowledged = version
            return True

    def bind_row(self, request: Request, row: int) -> None:
        """Give a row to a request in no batch (R6.6)."""
        with self._lock.exclusive():
            self._own(request)
            if request.closed or row < 0 or request.batch is not None:
                why = "it is closed" if request.closed else f"row {row} is negative" if row < 0 else "it is in a batch"
                raise LogicError(f"bind_row of {request.name}: {why}")
            request.row = row
            self._core.renew(request)

    def record_read(self, request: Request, stream: Stream) -> None:
        """Order later use of all that it has mapped after the reads so far on a stream (R7.7)."""
        with self._lock.exclusive():
            self._active(request, "record_read")
            if request.batch is not None:
                raise LogicError(f"record_read of {request.name}: it is in batch {request.batch.name}, record the batch's reads")
            if self._capture is not None:
                raise LogicError(f"record_read of {request.name}: a capture runs on stream {self._capture.name}")
            reads = self.record(stream, "R7.7 reads of a request so far")
            assert request.stream is not None
            self.wait(request.stream, [reads], "R7.7 work of a request after its reads")
            pages = self._core.pages
            numbers = np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
            for (level, number), part in self._core.by_key(numbers):
                self._read_slots(reads, level, number, pages.slot[part])

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

    def _group(self, group: int) -> None:
        if not 0 <= group < len(self._layout.groups):
            raise OutOfRange(f"no layer group {group}: the manager has {len(self._layout.groups)}")

    def _pool(self, level: int, pool_group: int) -> SlotPool:
        seeding.check_level(self._core, level)
        if not 0 <= pool_group < len(self._core.pools[level]):
            raise OutOfRange(f"no pool group {pool_group} on level {level}: there are {len(self._core.pools[level])}")
        return self._core.pools[level][pool_group]

    def _check_create(self, name: str, tokens: Sequence[int] | None, prompt_length: int | None) -> None:
        size = self._layout.tokens_per_block
        if prompt_length is not None and (prompt_length < 0 or prompt_length % size):
            raise InvalidArgument(f"create of {name!r}: prompt_length {prompt_length} is no multiple of {size} from 0")
        if tokens is not None and any(token < 0 for token in tokens):
            raise InvalidArgument(f"create of {name!r}: tokens are integers from 0, got {min(tokens)}")
        known = self._by_name.get(name)
        if known is not None and not known.closed:
            raise LogicError(f"create of {name!r}: a request of that name is {known.status.value}; close it first")

    def _change_stream(self, request: Request, stream: Stream) -> None:
        """The new stream runs after the old (R7.8)."""
        if request.stream is not None and request.stream is not stream:
            old = self.record(request.stream, "R7.8 work on the stream before")
            self.wait(stream, [old], "R7.8 a new stream after the one before")
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
            wanted = pool.free if count is None else count
            if count is not None and count < 1:
                raise InvalidArgument(f"take_slots of {count} slots: at least 1")
            if label in self._taken:
                raise LogicError(f"take_slots as {label!r}: slots are kept under that label already")
            if wanted > pool.free:
                raise OutOfPages(
                    f"take_slots of {wanted} slots: level {level}, pool group {pool_group} has {pool.free} free ones"
                )
            slots = pool.take(wanted)
            pool.page[slots] = TAKEN
            self._taken[label] = (pool, slots)

    def give_slots(self, label: str) -> None:
        """Give them back. ``OutOfRange`` for an unknown label."""
        with self._lock.exclusive():
            if label not in self._taken:
                raise OutOfRange(f"no slots are kept under {label!r}: there is {', '.join(self._taken) or 'none'}")
            pool, slots = self._taken.pop(label)
            pool.page[slots] = FREE
            pool.give(slots)

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

    # ---- for a batch (section 8) -----------------------------------------------------------------------------------

    def join(self, request: Request, batch: Membership, row: int) -> None:
        """Note that a request is in a batch now (R8.2), which has made its checks. The version is newer if the row changes."""
        with self._lock.exclusive():
            if request.row != row:
                self._core.renew(request)
            request.batch, request.row = batch, row

    def leave(self, request: Request) -> None:
        """Note that it is in no batch any more; it has no row then."""
        with self._lock.exclusive():
            request.batch, request.row = None, None
            self._core.renew(request)

    def retry_deferred(self, requests: Iterable[Request]) -> None:
        """Move the deferred pages of active decoding requests that may move, in order, each request all or nothing (R8.4).

        One operation: what it has evicted for one request it does not evict again for the next (R10.1).

        ``OutOfPages`` if one finds no host slot (R8.6), ``CopyFailed``. Cheap where none is deferred.
        """
        with self._lock.exclusive():
            found = [request for request in requests if request.maybe_deferred and request.active and request.decoding]
            if found:
                scope = self._core.scope()
                for request in found:
                    growth.retry_deferred(self._core, scope, request)

    def give_back(self, request: Request, capacity: int) -> None:
        """Shrink an active request to a capacity, not below its history, and do nothing else (R11.5)."""
        with self._lock.exclusive():
            growth.give_back(self._core, request, max(capacity, request.history))

    def undone(self, request: Request, version: int) -> None:
        """Note that an operation of several parts has undone all that it did to a request: its version is the old one."""
        with self._lock.exclusive():
            request.version = version

    def record(self, stream: Stream, site: str) -> Point:
        """An event after all work submitted to a stream so far."""
        with self._lock.exclusive():
            return self._core.fences.record(stream, site)

    def wait(self, stream: Stream, points: Iterable[Point], site: str) -> None:
        """Order a stream after points."""
        with self._lock.exclusive():
            self._core.fences.wait(stream, points, site)

    def reads_of_slots(
        self, reads: Point, slots: Iterable[tuple[int, int, npt.NDArray[np.int32]]], members: Iterable[Request]
    ) -> None:
        """Order later use of slots after reads (R7.7). ``slots``: (level, pool group, slot numbers, each once).

        Also orders the streams of the active owners of the pages that are in these slots now, but for ``members``, whose own
        streams are the batch's affair (``wait``).
        """
        with self._lock.exclusive():
            core, known = self._core, {member.uid for member in members}
            others = [request for uid, request in core.by_uid.items() if request.active and uid not in known]
            named: dict[SlotKey, npt.NDArray[np.bool_]] = {}
            for level, number, numbers in slots:
                self._read_slots(reads, level, number, numbers)
                if others:
                    named[level, number] = np.zeros(core.pools[level][number].spec.slots, dtype=np.bool_)
                    named[level, number][numbers] = True
            streams = {other.stream.name: other.stream for other in others if other.stream and self._locks_any(other, named)}
            for stream in streams.values():
                core.fences.wait(stream, [reads], "R7.7 work of an owner after reads of its slots")

    def _locks_any(self, request: Request, slots: Mapping[SlotKey, npt.NDArray[np.bool_]]) -> bool:
        """Whether a request has locked a page in one of the slots."""
        numbers = np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
        found = ((key, part) for key, part in self._core.by_key(numbers) if key in slots)
        return any(bool(slots[key][self._core.pages.slot[part]].any()) for key, part in found)

    def _read_slots(self, reads: Point, level: int, pool_group: int, slots: npt.NDArray[np.int32]) -> None:
        """Later use of slots runs after reads (R7.7)."""
        pool, fences = self._core.pools[level][pool_group], self._core.fences
        pool.readers[slots] = fences.merged(pool.readers[slots], [fences.again(reads, "R7.7 slot: reads of it")])

    def begin_capture(self, stream: Stream) -> None:
        """Note that a capture runs on a stream (R8.8), and begin it. ``LogicError`` while one runs."""
        with self._lock.exclusive():
            if self._capture is not None:
                raise LogicError(f"begin_capture on {stream.name}: a capture runs on stream {self._capture.name}; end it first")
            self._captures += 1
            self._core.fences.begin_capture(stream, self._device.stream(f"kv beside capture {self._captures}"))
            self._device.begin_capture(stream)
            self._capture = stream

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture. ``LogicError`` without one on that stream (R8.8)."""
        with self._lock.exclusive():
            if self._capture is not stream:
                where = "none runs" if self._capture is None else f"it runs on stream {self._capture.name}"
                raise LogicError(f"end_capture on {stream.name}: no capture runs there, {where}")
            self._capture = None
            graph = self._device.end_capture(stream)
            self._core.fences.end_capture(stream)
            return graph

    @property
    def capturing(self) -> Stream | None:
        """The stream in capture."""
        return self._capture

    def live(self, stream: Stream) -> Stream:
        """Where work for a stream goes: itself, or, while it is in capture, the stream beside it (R8.8)."""
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
            return [node.prefix() for node in self._core.tree.walk()]

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
            if self._shut:
                return
            self._shut = True
            with ExitStack() as last:  # one that fails keeps none of the others from being given back
                if self._folder is not None:
                    last.callback(self._folder.cleanup)
                for pools in self._core.pools:
                    for pool in pools:
                        last.callback(pool.close)
                last.callback(self._core.copier.close)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of our own for the files of the disk level. Raises ``DeviceError``."""
    try:
        return tempfile.TemporaryDirectory(prefix="kvgpu-")
    except OSError as error:
        raise DeviceError(
            f"no folder for the files of the disk level: {error}; set TMPDIR to a folder that can be written to"
        ) from error
