"""What a manager is made of, its lock, and what others may see of it; the operations are in ``kvgpu.manager``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from kvgpu.config import Layout, build_layout
from kvgpu.device.api import Access, Device, Graph, Memory, Stream
from kvgpu.errors import LogicError, OutOfRange
from kvgpu.fetch.caches import GroupCaches
from kvgpu.fetch.counts import with_fetches
from kvgpu.locks import ManagerLock
from kvgpu.operations import inspection, seeding
from kvgpu.operations.build import build
from kvgpu.operations.capture import Capture
from kvgpu.operations.inside import Inside
from kvgpu.operations.inspection import PageInfo, PoolInfo, SeenInfos
from kvgpu.operations.state import PayloadHook, TreeListener
from kvgpu.operations.taken_slots import TakenSlots
from kvgpu.requests.request import Request
from kvgpu.storage.counters import CounterView
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import FenceTable
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.texts import Text
from kvspec.config import ManagerConfig


class ManagerBase:
    """A manager without its operations."""

    def __init__(self, config: ManagerConfig, device: Device, *, payload_hook: PayloadHook | None = None) -> None:
        """Allocate the pools of all levels.

        ``payload_hook(request, targets)`` is called when blocks of a request are about to become complete history, with those of
        their pages that nobody has written, by block, group, beam row: before anything is copied out of these pages. It may call
        ``write_payloads``.

        Raises ``ConfigurationError`` (section 1), and ``DeviceError`` if there is not enough memory or no space on the disk.
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
        """Layer groups, pools, pool groups, and whatever else follows from the configuration (section 1)."""
        return self._layout

    @property
    def device(self) -> Device:
        """The device that it was built on."""
        return self._device

    @property
    def pages(self) -> PageTable:
        """The table of all pages: a column for level, slot, readiness and so on. To be read, under the lock."""
        return self._core.pages

    @property
    def fences(self) -> FenceTable:
        """The fences: what pages and slots wait for (R7.2, R7.3)."""
        return self._core.fences

    @property
    def faults(self) -> FaultPlan:
        """Which submissions will be refused (R4.8). A batch asks it before an upload: ``faults.check("upload")``."""
        return self._core.faults

    def is_sparse(self, layer: str, role: str) -> bool:
        """Whether a buffer is sparse (R1.7). Raises ``OutOfRange`` if there is none."""
        return self._layout.buffer(layer, role)[0].sparse

    def page_index_scale(self, layer: str, role: str | None = None) -> int:
        """What to multiply a slot with to count in pages of the buffer; ``role``: ``None`` for the layer's first (R1.7).

        Raises ``OutOfRange`` if there is no such buffer.
        """
        return self._layout.scale(layer, role)

    def page_index_offset(self, layer: str, role: str | None = None) -> int:
        """What to add to that, in pages of the buffer: the layer's own offset inside its pool's slot (R1.7).

        Raises ``OutOfRange`` if there is no such buffer.
        """
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

    # ---- capture (R8.8) and what batches and executors use ----------------------------------------------------------

    def begin_capture(self, stream: Stream) -> None:
        """Begin the capture of a graph on ``stream`` (R8.8). Raises ``LogicError`` while one runs."""
        with self._lock.exclusive():
            self._capture.begin(stream)

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture, and return the graph (R8.8). Raises ``LogicError`` if none runs on that stream."""
        with self._lock.exclusive():
            return self._capture.end(stream)

    @property
    def capturing(self) -> Stream | None:
        """The stream of the capture that ``begin_capture`` began and that still runs, or ``None``."""
        return self._capture.stream

    @property
    def inside(self) -> Inside:
        """What a batch or an executor does in a manager, while it holds the lock (``exclusive``)."""
        return self._inside

    def live(self, stream: Stream) -> Stream:
        """Where work for a stream goes: itself, or, in a manager's capture, the stream beside it: see ``FenceTable.live``."""
        with self._lock.shared():
            return self._core.fences.live(stream)

    def slot_reads(self, level: int, pool_group: int, slots: npt.NDArray[np.int32]) -> list[Access]:
        """What a submission that reads slots (int32 ``[n]``) of a pool group declares for the ordering check."""
        return self._pool(level, pool_group).accesses(slots, write=False)

    def pool_memory(self, level: int, pool_group: int) -> Memory:
        """The memory of a pool group on the GPU or the host, for consumers that follow published tables.

        Raises ``OutOfRange`` for the disk level, which no device can address, and for a pool group that is not there.
        """
        with self._lock.shared():
            memory = self._pool(level, pool_group).memory
            if memory is None:
                raise OutOfRange(f"level {level} is a file, which no device can address")
            return memory

    # ---- for observers ---------------------------------------------------------------------------------------------

    def page_infos(self, seen: SeenInfos | None = None) -> list[PageInfo]:
        """All pages, those that only the tree keeps included, oldest first. An object a page: for tests and reports.

        :param seen: of the observer's look before, brought up to date: a page that reads as before is the same object again.
        """
        with self._lock.shared():
            return inspection.page_infos(self._core, seen)

    def pool_info(self, level: int, pool_group: int) -> PoolInfo:
        """How many slots a pool group has and how many are free, their fences, and the evictable pages in order (R10.2)."""
        with self._lock.exclusive():
            return inspection.pool_info(self._core, level, pool_group)

    def tree_blocks(self) -> list[Text]:
        """The blocks of the prefix tree, parents first: of each all tokens from the root to its end, with their keys (R2.7)."""
        with self._lock.shared():
            return [node.kept_prefix() for node in self._core.tree.walk()]

    def lifetime_counters(self) -> CounterView:
        """Pages and bytes moved and dropped by layer group, suspends and resumes, since the manager was built (R13.1)."""
        with self._lock.shared():
            return with_fetches(self._core.counters.view(since_reset=False), self._core.caches, since_reset=False)

    def counters(self, reset: bool = False) -> CounterView:
        """The same since the last reset (R13.1). ``reset``: begin anew after this."""
        with self._lock.exclusive():
            view = with_fetches(self._core.counters.view(since_reset=True), self._core.caches, since_reset=True)
            if reset:
                self._core.counters.reset()
                for caches in self._core.caches.values():
                    caches.reset()
            return view

    def caches(self, group: int) -> GroupCaches:
        """What the device keeps of the caches of a group that reserves slots (R15.3). For tests and reports."""
        return self._core.caches[group]

    def copy_calls(self) -> dict[str, int]:
        """How many copies were submitted and kept (R13.2), by direction: ``offload``, ``onboard``, ``copy``."""
        with self._lock.shared():
            return {direction.value: count for direction, count in self._core.counters.calls.items()}

    def listen(self, listener: TreeListener | None) -> None:
        """Hand the tree events (R13.3) of each successful operation to ``listener``, in order; ``None``: to nobody any more."""
        with self._lock.exclusive():
            self._core.listener = listener

    def shut(self) -> None:
        """Give back the memory and files of all pools. The device stays open. Idempotent."""
        with self._lock.exclusive():
            self._holds.close()

    def payload_now(self, page: int) -> bytes:
        """The bytes of a page as they are now, pools in the order of R1.6. For tests: the device must have settled."""
        with self._lock.shared():
            return self._core.pool(self._core.key_of(page)).bytes_now(int(self._core.pages.slot[page]))

    def payloads_now(self, level: int, pool_group: int, slots: Sequence[int]) -> list[bytes]:
        """The bytes in each of ``slots`` of a pool group as they are now. For tests: the device must have settled."""
        with self._lock.shared():
            return self._core.pools[level][pool_group].bytes_of(slots)

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
