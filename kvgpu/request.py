"""A request: its lengths, its stream, its row, and for each layer group an array from block to page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Stream
from kvgpu.fences import Fence, FenceTable
from kvgpu.pages import NO_PAGE, PageTable
from kvgpu.prefix_tree import Node
from kvgpu.readiness import Readiness
from spec.observation import BAD, Phase, RequestStatus

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]


class Membership(Protocol):
    """What a request knows of the batch that it is in. A batch implements it."""

    name: str

    def member_closed(self, request: Request) -> None:
        """The request was closed, and the manager has taken it out already (R8.2)."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of (request, group, beam), R6.1. It never changes.

    ``indices``: int32 ``[blocks]``, raw slots, BAD where there is none. ``levels``: int8 ``[blocks]``, -1 for none.
    ``ready``: per block the fence of the mapped page, or ``None``.
    """

    request: str
    group: int
    beam: int
    indices: Int32
    levels: Int8
    eligible: int
    ready: Sequence[Fence | None]
    row: int | None
    version: int


class GroupBlocks:
    """The pages of one request in one layer group: int32 ``page``, bool ``locked`` and ``kept``, ``[beams, room]`` each.

    A page that is not locked is held (R2.2): its index is BAD. ``kept``: it is stale and held until it is committed or
    committing ends (R3.7). Columns at ``room`` and beyond the request's blocks hold
    ``NO_PAGE``.
    """

    __slots__ = ("_held", "_index", "_level", "_on_host", "_readiness", "_view_valid", "kept", "locked", "page")

    def __init__(self) -> None:
        """No blocks."""
        self.page: Int32 = np.full((1, 8), NO_PAGE, dtype=np.int32)
        self.locked: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self.kept: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self._index: list[Int32] = [np.full(8, BAD, dtype=np.int32)]
        self._level: list[Int8] = [np.full(8, BAD, dtype=np.int8)]
        self._view_valid = [True]
        self._held = False
        self._on_host: int | None = 0
        self._readiness = Readiness()

    def reserve(self, blocks: int, beams: int) -> None:
        """Make room for more blocks or beam rows."""
        rows, room = self.page.shape
        if blocks <= room and beams <= rows:
            return
        new_room = room if blocks <= room else max(blocks, 2 * room)
        page = np.full((max(rows, beams), new_room), NO_PAGE, dtype=np.int32)
        locked, kept = np.zeros(page.shape, dtype=np.bool_), np.zeros(page.shape, dtype=np.bool_)
        page[:rows, :room], locked[:rows, :room], kept[:rows, :room] = self.page, self.locked, self.kept
        self.page, self.locked, self.kept = page, locked, kept
        self._index = [np.full(new_room, BAD, dtype=np.int32) for _ in range(page.shape[0])]
        self._level = [np.full(new_room, BAD, dtype=np.int8) for _ in range(page.shape[0])]
        self._view_valid = [False] * page.shape[0]
        self._on_host = None
        self._readiness.forget()

    def changed(self) -> None:
        """What the views show, and what they wait for, must be worked out anew."""
        self._view_valid = [False] * len(self._view_valid)
        self._on_host = None
        self._readiness.forget()

    def readiness_changed(self) -> None:
        """What mapped pages wait for must be worked out anew."""
        self._readiness.forget()

    def moved(self, numbers: Int32, blocks: Int32, slots: Int32, level: int, fences: FenceTable, was: Int32, ready: int) -> None:
        """Pages moved, and those of them that are locked here are in beam row 0: keep what is known in step, at their cost alone.

        ``was``: the fence of each before; ``ready``: that of all now.
        """
        mine = blocks < self.page.shape[1]
        mine[mine] = self.locked[0, blocks[mine]] & (self.page[0, blocks[mine]] == numbers[mine])
        blocks, slots, was = blocks[mine], slots[mine], was[mine]
        if not blocks.size:
            return
        self._readiness.moved(fences, was, ready)
        if not self._view_valid[0]:
            return
        if self._held:
            self._index[0], self._level[0], self._held = self._index[0].copy(), self._level[0].copy(), False
        self._index[0][blocks] = slots
        self._level[0][blocks] = level
        if self._on_host is not None:
            first = int(blocks.min())
            if level != 1:
                self._on_host = min(self._on_host, first)
            elif first <= self._on_host:
                self._on_host += _leading_ones(self._level[0][self._on_host :])

    def view(self, pages: PageTable, beam: int) -> tuple[Int32, Int8]:
        """Index and level of each column, BAD and -1 where nothing is locked (R6.2)."""
        if not self._view_valid[beam]:
            page, locked = self.page[beam], self.locked[beam]
            self._index[beam] = np.where(locked, pages.slot[page], np.int32(BAD))
            self._level[beam] = np.where(locked, pages.level[page], np.int8(BAD))
            self._view_valid[beam] = True
            self._held = self._held and beam != 0
        return self._index[beam], self._level[beam]

    def hold(self) -> None:
        """Whoever has the views of beam row 0 keeps them: a later change makes new ones."""
        self._held = True

    def on_host(self, pages: PageTable, beam: int) -> int:
        """How many leading columns are mapped on the host."""
        if beam:
            return _leading_ones(self.view(pages, beam)[1])
        if self._on_host is None:
            self._on_host = _leading_ones(self.view(pages, 0)[1])
        return self._on_host

    def readiness(self, pages: PageTable, fences: FenceTable) -> Fence:
        """What has to have run before all mapped pages are valid (R7.5)."""
        if not self._readiness.known:
            self._readiness.count(pages.ready[self.page[self.locked]])
        return self._readiness.all(fences)


def _leading_ones(levels: Int8) -> int:
    others = levels != 1
    first = int(np.argmax(others)) if len(levels) else 0
    return first if len(levels) and others[first] else len(levels)


@dataclass(slots=True, eq=False)
class Request:
    """A request of one manager. Read it freely under the manager's lock; only the manager changes it.

    ``uid``: never used again. ``manager``: an identity to compare. ``tokens``: those committed. ``tail``: the tree block that
    ends its committed path. ``groups``: its pages, by layer group. ``partial``: the first resume has to copy the matched
    last block (R3.4). ``leaving``: pages that the operation in progress lets go of.
    ``maybe_deferred``: false only if no page is deferred (R4.2).
    """

    name: str
    uid: int
    manager: object
    table: PageTable
    group_count: int
    sparse: tuple[bool, ...]
    ssm: tuple[bool, ...]
    tokens_per_block: int
    priority: int
    prompt_length: int
    tail: Node
    status: RequestStatus = RequestStatus.SUSPENDED
    phase: Phase = Phase.PREFILL
    capacity: int = 0
    history: int = 0
    tokens: list[int] = field(default_factory=list)
    stream: Stream | None = None
    row: int | None = None
    batch: Membership | None = None
    beam_width: int = 1
    beams_set: bool = False
    version: int = 0
    acknowledged: int | None = None
    committing: bool = True
    ended: bool = False
    resumed: bool = False
    partial: bool = False
    maybe_deferred: bool = False
    groups: list[GroupBlocks] = field(default_factory=list)
    leaving: Int32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    def __post_init__(self) -> None:
        """Start without blocks."""
        self.groups = [GroupBlocks() for _ in range(self.group_count)]

    @property
    def active(self) -> bool:
        """Whether it is active."""
        return self.status is RequestStatus.ACTIVE

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.status is RequestStatus.CLOSED

    @property
    def decoding(self) -> bool:
        """Whether its phase is decode."""
        return self.phase is Phase.DECODE

    @property
    def committed(self) -> int:
        """How many tokens are committed."""
        return len(self.tokens)

    @property
    def dirty(self) -> bool:
        """Whether its version is not the one last acknowledged (R6.5)."""
        return self.version != self.acknowledged

    @property
    def blocks(self) -> int:
        """How many blocks its capacity takes; 0 when closed."""
        return -(-self.capacity // self.tokens_per_block)

    @property
    def history_blocks(self) -> int:
        """How many of its blocks are complete history."""
        return self.history // self.tokens_per_block

    def entries(self, group: int) -> int:
        """How many entries a snapshot of a group has: one a block, one for the state of an SSM group (R1.3)."""
        if self.closed:
            return 0
        return 1 if self.ssm[group] else self.blocks

    def indices(self, group: int, beam: int = 0) -> Int32:
        """int32 ``[entries]``: the raw slot of each block, BAD where none is mapped (R6.2).

        A view that the next operation may change: copy what is kept.
        """
        return self.groups[group].view(self.table, beam)[0][: self.entries(group)]

    def levels(self, group: int, beam: int = 0) -> Int8:
        """int8 ``[entries]``: the level of each block, -1 where none is mapped. A view, as ``indices``."""
        return self.groups[group].view(self.table, beam)[1][: self.entries(group)]

    def eligible(self, group: int, beam: int = 0) -> int:
        """How many leading blocks of complete history are mapped on the host in a beam row (R6.3)."""
        if not (self.active and self.decoding and self.sparse[group]):
            return 0
        return min(self.groups[group].on_host(self.table, beam), self.history_blocks)

    def show(self, groups: Sequence[int], indices: list[Int32], levels: list[Int8], eligible: list[int]) -> None:
        """Append, for each of ``groups``, the indices, levels and eligible count of beam row 0, for a caller who keeps them.

        The arrays may be longer than the request's blocks. No group is an SSM group. Made for all rows of a batch at once, so
        what does not depend on the group is asked once.
        """
        complete = self.history_blocks if self.active and self.decoding else 0
        for group in groups:
            blocks = self.groups[group]
            index, level = blocks.view(self.table, 0)
            blocks.hold()
            indices.append(index)
            levels.append(level)
            eligible.append(min(blocks.on_host(self.table, 0), complete) if complete and self.sparse[group] else 0)

    def pages(self, group: int) -> Int32:
        """The page numbers of all beam rows and blocks of a group, in order of row, then block; without gaps."""
        every = self.groups[group].page[:, : self.entries(group)].reshape(-1)
        found: Int32 = every[every != NO_PAGE]
        return found

    def locked_pages(self, group: int) -> Int32:
        """The page numbers that it has locked in a group."""
        blocks = self.groups[group]
        found: Int32 = blocks.page[blocks.locked]
        return found


def take_snapshot(fences: FenceTable, request: Request, group: int, beam: int) -> Snapshot:
    """A snapshot (R6.1), under the manager's lock."""
    count = request.entries(group)
    own = request.groups[group]
    if beam < own.page.shape[0]:
        indices, levels = request.indices(group, beam).copy(), request.levels(group, beam).copy()
        pages = own.page[beam, :count]
        numbers = np.where(indices == BAD, -1, request.table.ready[pages]).tolist()
    else:
        indices, levels = np.full(count, BAD, dtype=np.int32), np.full(count, BAD, dtype=np.int8)
        numbers = [-1] * count
    eligible = request.eligible(group, beam) if beam < own.page.shape[0] else 0
    for array in (indices, levels):
        array.flags.writeable = False
    ready = tuple(None if number < 0 else fences[number] for number in numbers)
    return Snapshot(request.name, group, beam, indices, levels, eligible, ready, request.row, request.version)
