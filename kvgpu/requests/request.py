"""A request: its lengths, its stream, its row, and for each layer group an array from block to page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from kvgpu.device.api import Stream
from kvgpu.requests.entries_tracker import EntriesTracker
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.requests.reservation import Reservation
from kvgpu.requests.row_entries import ChangedBlocks, RequestEntries
from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Fence, FenceTable
from kvgpu.storage.pages import NO_PAGE, PageTable
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import NO_KEY, Key, Text, text_of
from kvspec.observation import BAD, Phase, RequestStatus

NO_INDICES, NO_LEVELS = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8)
"""What a closed request shows (R6.1). Nothing can be written to them."""
NO_TRACKER = EntriesTracker(())


class Membership(Protocol):
    """What a request knows of the batch that it is in. A batch implements it."""

    name: str

    def member_closed(self, request: Request) -> None:
        """The request was closed, and the manager has taken it out already (R8.2)."""
        ...


class Steady(NamedTuple):
    """Lengths between which a request may go to and fro, and no block comes or goes, becomes complete history or stale.

    Capacities from ``least`` to ``most``, histories from ``first`` to ``last``, all of them included.
    """

    least: int
    most: int
    first: int
    last: int


UNKNOWN = Steady(0, -1, 0, -1)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a request showed in one layer group and beam row. It never changes (R6.1).

    ``request``: its name. ``group``, ``beam``: which. ``indices``: int32 ``[blocks]``, raw slots, BAD where none is mapped.
    ``levels``: int8 ``[blocks]``, -1 for none. ``eligible``: how many leading blocks are on the host and may be fetched from
    there (R6.3). ``ready``: for each block the fence of the mapped page, or ``None``. ``row``: in a batch, or bound (R6.6).
    ``version``: the request's own then (R6.4).
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


@dataclass(slots=True, eq=False)
class Request:
    """A request of one manager. Read it freely under the manager's lock; only the manager changes it.

    Of use to everybody: ``name``, ``status``, ``phase``, ``capacity`` and ``history`` in tokens, ``stream``, ``row``, ``batch``,
    ``beam_width``, ``version`` and ``acknowledged`` (R6.4, R6.5), and the properties and methods. The rest is for the manager:

    ``uid``: never used again. ``manager``: an identity to compare. ``tokens``: those committed; ``keys``: the key of each, or
    none at all; ``key``: what all its tokens have (R2.7). ``tail``: the tree block that ends its committed path. ``groups``: its
    pages, by layer group. ``tracker``: what rows show of those that are in tables (R1.3). ``partial``: the first resume has to
    copy the matched last block (R3.4). ``maybe_deferred``: false only if no page is deferred (R4.2). ``closed_with``: how many
    tokens were committed when it was closed; then it has no tokens, groups and tracker any more (R3.10). ``reserved``: by group,
    while it decodes (R15.2).
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
    keys: list[Key] = field(default_factory=list)
    key: str | None = None
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
    steady: Steady = UNKNOWN
    closed_with: int | None = None
    reserved: dict[int, Reservation] = field(default_factory=dict)
    groups: list[GroupBlocks] = field(init=False)
    tracker: EntriesTracker = field(init=False)

    def __post_init__(self) -> None:
        """Without any block, whatever the lengths."""
        numbers = itertools.count()
        self.tracker = EntriesTracker([sparse for sparse, ssm in zip(self.sparse, self.ssm, strict=True) if not ssm])
        # An SSM group has one that nobody looks at.
        self.groups = [
            GroupBlocks(EntriesTracker((False,)), 0) if ssm else GroupBlocks(self.tracker, next(numbers)) for ssm in self.ssm
        ]

    @property
    def active(self) -> bool:
        """Whether it is active: resumed, and neither suspended nor closed since (section 3)."""
        return self.status is RequestStatus.ACTIVE

    @property
    def closed(self) -> bool:
        """Whether it is closed, for good (R3.10)."""
        return self.status is RequestStatus.CLOSED

    @property
    def decoding(self) -> bool:
        """Whether its phase is decode, which it never leaves (section 3)."""
        return self.phase is Phase.DECODE

    @property
    def may_commit(self) -> bool:
        """Whether a commit may come: committing has not ended, and there is one beam (R3.9)."""
        return self.committing and self.beam_width == 1

    def text(self) -> Text:
        """What is committed, with its keys."""
        return text_of(tuple(self.tokens), tuple(self.keys))

    def hold(self, text: Text) -> None:
        """The tokens of a text are committed."""
        self.tokens, self.keys = list(text.tokens), list(text.keys)

    def text_with(self, tokens: Sequence[int], key: str | None) -> Text:
        """What is committed, and more tokens, which have the request's key and ``key`` (R2.7)."""
        more: Key = (self.key, key)
        if more == NO_KEY and not self.keys:
            return Text((*self.tokens, *tokens))
        before = self.keys or [NO_KEY] * len(self.tokens)
        return text_of((*self.tokens, *tokens), (*before, *[more] * len(tokens)))

    @property
    def committed(self) -> int:
        """How many of its tokens are committed (R3.9)."""
        return len(self.tokens) if self.closed_with is None else self.closed_with

    @property
    def dirty(self) -> bool:
        """Whether its version is not the one last acknowledged (R6.5)."""
        return self.version != self.acknowledged

    @property
    def blocks(self) -> int:
        """How many blocks its capacity takes: ``ceil(capacity / tokens_per_block)`` (R1.1)."""
        return -(-self.capacity // self.tokens_per_block)

    @property
    def history_blocks(self) -> int:
        """How many of its blocks are complete history: ``history // tokens_per_block`` (R4.1)."""
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
        return NO_INDICES if self.closed else self.groups[group].entries(self.table, beam)[0][: self.entries(group)]

    def levels(self, group: int, beam: int = 0) -> Int8:
        """int8 ``[entries]``: the level of each block, -1 where none is mapped. A view, as ``indices``."""
        return NO_LEVELS if self.closed else self.groups[group].entries(self.table, beam)[1][: self.entries(group)]

    def eligible(self, group: int, beam: int = 0) -> int:
        """How many leading blocks of complete history are mapped on the host in a beam row (R6.3)."""
        most = self.most_eligible()
        return min(self.groups[group].on_host(self.table, beam), most) if most and self.sparse[group] else 0

    def acknowledge(self, version: int) -> bool:
        """Note that a version has been seen, if it is the newest (R6.5); whether it is."""
        if version == self.version:
            self.acknowledged = version
        return version == self.version

    def most_eligible(self) -> int:
        """How many blocks of complete history count as eligible if they are on the host (R6.3)."""
        # Asked for each row of a publication: no properties.
        eligible = self.status is RequestStatus.ACTIVE and self.phase is Phase.DECODE
        return self.history // self.tokens_per_block if eligible else 0

    def show(self, fences: FenceTable, before: RequestEntries | None) -> tuple[RequestEntries, Sequence[ChangedBlocks | None]]:
        """What a row of a batch that shows ``before`` shows from now on: see ``EntriesTracker.show``."""
        tracker = self.tracker
        if not tracker.complete:
            in_tables = [blocks for blocks, ssm in zip(self.groups, self.ssm, strict=True) if not ssm]
            for number in tracker.missing():
                in_tables[number].put_entries(self.table, fences)
        return tracker.show(before)

    def pages(self, group: int) -> Int32:
        """int32: the numbers of its pages in a group, in order of beam row, then block."""
        if self.closed:
            return NO_INDICES
        every = self.groups[group].page[:, : self.entries(group)].reshape(-1)
        found: Int32 = every[every != NO_PAGE]
        return found

    def locked_pages(self, group: int) -> Int32:
        """int32: the numbers of the pages that it has locked in a group (R2.2)."""
        if self.closed:
            return NO_INDICES
        blocks = self.groups[group]
        found: Int32 = blocks.page[blocks.locked]
        return found

    def forget(self, root: Node) -> None:
        """It was closed, and keeps no more than what it still answers (R3.10). ``root``: of the tree."""
        self.closed_with = len(self.tokens)
        self.tokens, self.keys, self.key, self.groups, self.tracker = [], [], None, [], NO_TRACKER
        self.tail, self.stream = root, None


def take_snapshot(fences: FenceTable, request: Request, group: int, beam: int) -> Snapshot:
    """A snapshot (R6.1), under the manager's lock."""
    if request.closed:
        return Snapshot(request.name, group, beam, NO_INDICES, NO_LEVELS, 0, (), request.row, request.version)
    count = request.entries(group)
    own = request.groups[group]
    indices, levels = request.indices(group, beam).copy(), request.levels(group, beam).copy()
    pages = own.page[beam, :count]
    numbers = np.where(indices == BAD, -1, request.table.ready[pages]).tolist()
    eligible = request.eligible(group, beam)
    for array in (indices, levels):
        array.flags.writeable = False
    ready = tuple(None if number < 0 else fences[number] for number in numbers)
    return Snapshot(request.name, group, beam, indices, levels, eligible, ready, request.row, request.version)


def wait_snapshot(fences: FenceTable, snapshot: Snapshot, stream: Stream) -> None:
    """Order a stream after the readiness in a snapshot (R6.1)."""
    points = Fence(point for fence in snapshot.ready if fence is not None for point in fence.points).points
    fences.wait(stream, points, "R6.1 readiness in a snapshot")
