"""The cache manager: the public face of ``kvgpu``, one method per operation of the rules.

Every method takes the manager's lock, checks in the order of section 9, and hands over to the module of the rule. Errors are
those of ``kvgpu.errors``. Groups are layer-group numbers, levels are 0, 1, 2. No method blocks on the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy.typing as npt
import numpy as np

from kvgpu import committing, growth, inspection, lifecycle, seeding
from kvgpu.config import Layout
from kvgpu.core import Core, PayloadHook, TreeListener
from kvgpu.counters import CounterView
from kvgpu.device.api import Device, Stream
from kvgpu.errors import InvalidArgument, LogicError, OutOfPages, OutOfRange
from kvgpu.faults import FaultPlan
from kvgpu.fences import Point
from kvgpu.inspection import PageInfo, PoolInfo
from kvgpu.payloads import PageRead, WriteTarget
from kvgpu.request import Membership, Request, Snapshot
from spec.config import DEFAULT_PRIORITY, ManagerConfig


class Manager:
    """A cache manager on one device."""

    def __init__(self, config: ManagerConfig, device: Device, *, payload_hook: PayloadHook | None = None) -> None:
        """Allocate all pools. ``payload_hook(request, first, end)`` is called when blocks ``first..end-1`` of a request are about
        to become complete history: after pages were allocated, before anything is copied; it may call ``write_payloads``.

        Raises ``ConfigurationError``, and ``DeviceError`` if there is not enough memory.
        """

    # ---- what it is ------------------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Groups, pools, pool groups and what follows from the configuration (section 1)."""

    @property
    def device(self) -> Device:
        """The device."""

    @property
    def faults(self) -> FaultPlan:
        """Which submissions will be refused (R4.8). A batch asks it before an upload: ``faults.check("upload")``."""

    def is_sparse(self, layer: str, role: str) -> bool:
        """Whether a buffer is sparse (R1.7). ``OutOfRange`` if there is none."""

    def page_index_scale(self, layer: str, role: str | None = None) -> int:
        """The factor from slot to the buffer's page index (R1.7)."""

    def page_index_offset(self, layer: str, role: str | None = None) -> int:
        """The layer's own offset, in pages of the buffer (R1.7)."""

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """The manager-wide lock, for changes and snapshots (R12.1). Re-entrant."""

    @contextmanager
    def shared(self) -> Iterator[None]:
        """The manager-wide lock, for pure reads (R12.1). Re-entrant."""

    # ---- requests (section 3) --------------------------------------------------------------------------------------

    def request(self, name: str) -> Request:
        """The request of that name, closed or not. ``OutOfRange`` if there never was one (R3.13)."""

    def requests(self) -> tuple[Request, ...]:
        """Every request by name, in order of creation; of several with one name the last."""

    def create(
        self, name: str, tokens: Sequence[int] | None = None, prompt_length: int | None = None, priority: int = DEFAULT_PRIORITY
    ) -> Request:
        """A new suspended request, matched against the tree (R3.1). ``request.history`` is the number of tokens matched."""

    def resume(self, request: Request, stream: Stream | None = None, decode: bool | None = None) -> bool:
        """Make it active (R3.2-R3.5)."""

    def resize(self, request: Request, capacity: int | None = None, history: int | None = None) -> bool:
        """Set the lengths, in tokens (R3.6)."""

    def enter_decode(self, request: Request) -> bool:
        """Enter decode, or retry deferred pages (R3.8)."""

    def admit_generation(self, request: Request) -> bool:
        """``enter_decode`` of an active request, ``resume(decode=True)`` of a suspended one (R11.2)."""

    def commit(self, request: Request, tokens: Sequence[int], end: bool = False) -> None:
        """Append tokens and publish full blocks (R3.9)."""

    def stop_committing(self, request: Request) -> None:
        """End committing without adding anything (R3.9)."""

    def suspend(self, request: Request) -> None:
        """Turn locks into holds (R3.10)."""

    def close(self, request: Request) -> None:
        """Release everything, leave the row (R3.10). Idempotent."""

    def prefetch(self, request: Request, level: int) -> bool:
        """Bring a suspended request's pages up (R3.11)."""

    def offload(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> None:
        """The bare offload (R4.9). ``groups``: ``None`` for all sparse ones."""

    def set_beam_width(self, request: Request, width: int) -> bool:
        """Split the blocks behind the prompt into beam rows (R3.12)."""

    def set_stream(self, request: Request, stream: Stream) -> None:
        """Change the stream; the new one runs after the old (R7.8)."""

    def snapshot(self, request: Request, group: int, beam: int = 0) -> Snapshot:
        """A snapshot (R6.1)."""

    def wait_snapshot(self, snapshot: Snapshot, stream: Stream) -> None:
        """Order a stream after the readiness in a snapshot (R6.1)."""

    def acknowledge(self, request: Request, version: int) -> bool:
        """Acknowledge a version; true if it is the newest (R6.5)."""

    def bind_row(self, request: Request, row: int) -> None:
        """Give a row to a request in no batch (R6.6)."""

    def record_read(self, request: Request, stream: Stream) -> None:
        """Order later use of all that it has mapped after the reads so far on a stream (R7.7)."""

    # ---- payloads --------------------------------------------------------------------------------------------------

    def writable(self, request: Request, blocks: Sequence[int], groups: Sequence[int] | None = None) -> list[WriteTarget]:
        """The pages that a ``write`` of these blocks goes to, all beam rows; the errors of R2.1."""

    def unwritten(self, request: Request, first: int, end: int) -> list[WriteTarget]:
        """Mapped pages at level 0 of blocks ``first..end-1`` that nobody has written, all groups and beam rows (for the hook)."""

    def write_payloads(self, request: Request, writes: Sequence[tuple[WriteTarget, bytes]]) -> None:
        """Write whole pages on the request's stream, in one submission. Bytes: pools in the order of R1.6."""

    def read_page(self, request: Request, group: int, block: int, beam: int, stream: Stream) -> PageRead:
        """Read a payload on a stream, from where the request has it now; waits for nothing by itself.

        ``LogicError`` if no page is mapped there.
        """

    def payload_now(self, page: int) -> bytes:
        """The bytes of a page as they are now, pools in the order of R1.6; for observers only."""

    # ---- tree and pools (section 10) -------------------------------------------------------------------------------

    def seed_prefix(
        self,
        tokens: Sequence[int],
        level: int,
        groups: Sequence[int] | None = None,
        priority: int = DEFAULT_PRIORITY,
        content: Callable[[tuple[int, ...], int, int], bytes] | None = None,
    ) -> None:
        """Put blocks and pages into the tree (R10.5). ``content(prefix, group, block)``: the bytes of a new page."""

    def evict(self, level: int, pool_group: int, pages: int) -> None:
        """Move or drop the first evictable pages of a pool group (R10.5)."""

    def clear_reusable(self) -> None:
        """Drop every droppable page (R10.5)."""

    def take_slots(self, label: str, level: int, pool_group: int, count: int | None) -> None:
        """Take free slots (``None``: all) and keep them under a label (R10.5)."""

    def give_slots(self, label: str) -> None:
        """Give them back. ``OutOfRange`` for an unknown label."""

    # ---- for a batch (section 8) -----------------------------------------------------------------------------------

    def join(self, request: Request, batch: Membership, row: int) -> None:
        """Note that a request is in a batch now (R8.2). The batch has made its checks; the version is newer if the row changes."""

    def leave(self, request: Request) -> None:
        """Note that it is in no batch any more; it has no row then."""

    def retry_deferred(self, request: Request) -> bool:
        """Move the deferred pages of an active decoding request that may move, all or nothing (R8.4).

        Returns whether any moved. ``OutOfPages`` if one finds no host slot (R8.6), ``CopyFailed``. Cheap if none is deferred.
        """

    def readiness(self, requests: Iterable[Request]) -> tuple[Point, ...]:
        """The readiness of all mapped pages of requests, one point a stream (R7.5)."""

    def record(self, stream: Stream, site: str) -> Point:
        """An event after all work submitted to a stream so far."""

    def wait(self, stream: Stream, points: Iterable[Point], site: str) -> None:
        """Order a stream after points."""

    def reads_of_slots(self, reads: Point, slots: Iterable[tuple[int, int, npt.NDArray[np.int32]]]) -> None:
        """Order later use of slots after reads (R7.7). ``slots``: (level, pool group, slot numbers, BAD passed over).

        Also orders the streams of the active owners of the pages that are in these slots now. The members' own streams are the
        batch's affair (``wait``).
        """

    def begin_capture(self, stream: Stream) -> None:
        """Note that a capture runs on a stream (R8.8), and begin it. ``LogicError`` while one runs."""

    @property
    def capturing(self) -> Stream | None:
        """The stream in capture."""

    # ---- for observers ---------------------------------------------------------------------------------------------

    def page_infos(self) -> list[PageInfo]:
        """Every page, those of the tree alone included, in order of age."""

    def pool_info(self, level: int, pool_group: int) -> PoolInfo:
        """Slots, free slots, their fences, and the evictable pages in order (R10.2)."""

    def tree_blocks(self) -> list[tuple[int, ...]]:
        """The whole prefix of each block of the tree, parents first."""

    def lifetime_counters(self) -> CounterView:
        """The counters, never reset (R13.1)."""

    def counters(self, reset: bool = False) -> CounterView:
        """The counters since the last reset (R13.1)."""

    def copy_calls(self) -> dict[str, int]:
        """Submissions made and kept, by ``offload``, ``onboard``, ``copy``."""

    def listen(self, listener: TreeListener | None) -> None:
        """Hand every tree event (R13.3) of a successful operation to a listener, in order."""

    def shut(self) -> None:
        """Give back pools and files; closes no device. Idempotent."""
