"""What can be seen of a system after an operation: the whole of what the harness compares.

A system names slots, versions and readiness as it likes; the harness compares them up to renaming. All
containers are plain and immutable by convention, so that any cache manager can fill them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from kvspec.config import Level
from kvspec.forms import ByGroupAndBeam, ByLevelAndGroup, InOrder, named
from kvspec.payload import Content, Part
from kvspec.tokens import Token

BAD = -1
"""The unused index (R1.9)."""


class PageStatus(StrEnum):
    """Who keeps a page (R2.2)."""

    LOCKED = "locked"
    HELD = "held"
    DROPPABLE = "droppable"


class RequestStatus(StrEnum):
    """The status of a request (section 3)."""

    SUSPENDED = "suspended"
    ACTIVE = "active"
    CLOSED = "closed"


class Phase(StrEnum):
    """The phase of a request (section 3)."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, order=True)
class PageRef:
    """A page as a request sees it: its layer group's name, block number, beam row."""

    request: str
    group: str
    block: int
    beam: int = 0

    def __str__(self) -> str:
        """``request.group.block``, with ``.beam`` for a beam row other than 0."""
        return f"{self.request}.{self.group}.{self.block}" + (f".{self.beam}" if self.beam else "")


@dataclass(frozen=True, slots=True)
class Order:
    """What a piece of device work runs behind, as far as it is known.

    ``gates``: labels of the closed gates that hold it up; empty means that it has run, or will without
    anyone's help. ``after``: for each stream name, the number of the step (0 for the first ``apply``) such
    that it runs after all user-visible work (payload writes, page and table reads, gates, uploads) that was submitted to that
    stream up to and including that step; a stream that is not named demands nothing. ``None``: not known.
    """

    gates: InOrder[str] = frozenset()
    after: Mapping[str, int] | None = None

    @property
    def pending(self) -> bool:
        """Whether a closed gate holds it up."""
        return bool(self.gates)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A snapshot (R6.1) of one request, group and beam row. Per block: index, level, readiness."""

    indices: tuple[int, ...]
    levels: tuple[Level | None, ...]
    eligible: int
    ready: tuple[Order | None, ...]
    row: int | None
    version: int


@dataclass(frozen=True, slots=True)
class RequestView:
    """Everything of a request, closed ones included. ``snapshots``: by (group, beam); empty when closed."""

    status: RequestStatus
    phase: Phase
    capacity: int
    history: int
    committed: int
    row: int | None
    batch: str | None
    beam_width: int
    version: int
    acknowledged: int | None
    dirty: bool
    snapshots: Annotated[Mapping[tuple[str, int], SnapshotView], ByGroupAndBeam()]


@dataclass(frozen=True, slots=True)
class PageView:
    """A page that exists: mapped, held, or in the tree only (section 2).

    ``refs``: every request that locks or holds it, and as which block. ``tokens``: the whole prefix that its
    tree block ends, ``None`` for a page outside the tree. ``payload``: the contents, by name or as bytes
    (pools in the order of R1.6); ``None``: never written. An implementation gives bytes only while ``ready``
    is not pending, and also for pages that it thinks were never written (the harness ignores those).

    With private ownership (R14.1) each location of a page is one of these. ``copy_of``: the request whose copy it is, ``None``
    for any other page and for a backing. ``others``: level and slot of the page's other locations. ``refs`` of a location: the
    requests that map it, or would get their copy from it (R14.2).
    """

    group: str
    block: int
    beam: int
    refs: InOrder[PageRef]
    tokens: tuple[Token, ...] | None
    level: Level
    slot: int
    status: PageStatus
    owners: InOrder[str]
    ready: Order
    payload: Content | bytes | None
    copy_of: str | None = None
    others: frozenset[tuple[Level, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool group of one level, keyed in the observation by (level, name of its first layer group).

    ``groups``: the layer groups that it serves. ``free``: free slots, those behind a fence included.
    ``fences``: the fences of the free slots, in no order. ``evictable``: its evictable pages in eviction
    order (R10.2), each as its index in ``Observation.pages``.
    """

    groups: tuple[str, ...]
    slots: int
    free: int
    fences: tuple[Order, ...]
    evictable: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableEntries:
    """The entries of one group's tables: ``page_table[rows][blocks]``, ``num_blocks[rows]``, ``page_level``."""

    page_table: tuple[tuple[int, ...], ...]
    num_blocks: tuple[int, ...]
    page_level: tuple[tuple[int, ...], ...] | None = None


TableWords = TableEntries
"""The name of `TableEntries` until 0.1.0."""


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch that is open (section 8).

    ``published``: by group, what the last publication submitted (before any: -1 and 0). ``device``: by group, the entries read
    back from the device now, which are older while an upload is pending. ``upload``: the last publication's
    order. ``address``: by group, the addresses of the arrays, which never change; empty if there are none.
    """

    rows: tuple[str | None, ...]
    blocks: int
    dirty_rows: tuple[int, ...]
    published: Mapping[str, TableEntries]
    device: Mapping[str, TableEntries]
    upload: Order
    staging: int
    address: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """The counters of a layer group (R13.1). ``attach_pages``: given up for a page that the host had already (R14.13).

    ``fetch_hits``, ``fetch_misses``, ``fetch_bytes``: of the fetches that have run (R15.10).
    """

    offload_pages: int = 0
    offload_bytes: int = 0
    onboard_pages: int = 0
    onboard_bytes: int = 0
    copy_pages: int = 0
    drop_pages: int = 0
    attach_pages: int = 0
    fetch_hits: int = 0
    fetch_misses: int = 0
    fetch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """All counters of a manager: by group, and suspends and resumes."""

    groups: Mapping[str, GroupCounters]
    suspends: int = 0
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """A block entered the tree; ``tokens`` are the whole prefix (R13.3)."""

    tokens: Annotated[tuple[Token, ...], named("stored")]


@dataclass(frozen=True, slots=True)
class Removed:
    """A block left the tree (R13.3)."""

    tokens: Annotated[tuple[Token, ...], named("removed")]


@dataclass(frozen=True, slots=True)
class LevelChanged:
    """A committed page moved (R13.3)."""

    tokens: Annotated[tuple[Token, ...], named("level")]
    group: str
    old: Annotated[Level, named("from")]
    new: Annotated[Level, named("to")]


@dataclass(frozen=True, slots=True)
class Cleared:
    """`clear_reusable` dropped every page that nothing but the tree kept (R13.3, policy ``clear_event``)."""


TreeEvent = Stored | Removed | LevelChanged | Cleared


@dataclass(frozen=True, slots=True)
class ReadView:
    """A labelled device read (`read_page`, `read_table`, `replay`).

    ``entries``: the rows of the page table that a table read returned; ``payload``: what a page read returned (a
    name or bytes); both ``None`` while the read is pending.
    """

    order: Order
    entries: tuple[tuple[int, ...], ...] | None = None
    payload: Content | bytes | None = None


@dataclass(frozen=True, slots=True)
class CachedView:
    """A block that is cached for a request and layer (R15.3), or a unit of one (R15.11).

    ``number``: that of the block or unit. ``entry``: where, as a fetch puts it out: slot times the units of a page, plus the
    position. ``payload``: what is there of the layer's buffers, in their order: by name, or as bytes.
    """

    number: int
    entry: int
    payload: Part | bytes | None


@dataclass(frozen=True, slots=True)
class CacheView:
    """The cache of a request and layer. ``order``: of the last fetch. ``cached``: the most recent first; ``None`` while that is
    pending.
    """

    order: Order
    cached: tuple[CachedView, ...] | None = None


@dataclass(frozen=True, slots=True)
class FetchView:
    """A labelled fetch, or the last replay of a captured one (R15.4).

    ``requests``: who is in each row as last published. ``entries``: what it put out, int [rows, k]. ``found``: for each
    of these ``hit``, ``miss`` or ``-``. Both ``None`` while it is pending.
    """

    order: Order
    layer: str
    requests: tuple[str | None, ...]
    entries: tuple[tuple[int, ...], ...] | None = None
    found: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class TreeBlockView:
    """A block of the prefix tree that no page need stand in (R2.6, R3.9)."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that the harness compares, after one operation.

    ``groups``: the layer groups' names in order. ``lifetime``: counters that are never reset. ``since_reset``:
    what `stats` would return now. ``copy_calls``: submissions ever made and kept, by direction (``offload``,
    ``onboard``, ``copy``). ``events``: the tree events of the last operation alone, in order.
    ``labels``: the snapshots kept by `snapshot`. ``reads``: by label.
    ``streams``: by stream name, the order of work submitted next. ``faults``: problems that the system itself
    found (an unordered access, say), one readable text each; any is a failure. ``reserved``: by request and group, the GPU slots
    that it has reserved, where it has some (R15.2). ``caches``: by request and layer, where it has reserved slots (R15.3).
    ``fetches``: by label.
    """

    groups: tuple[str, ...]
    requests: Mapping[str, RequestView]
    pages: tuple[PageView, ...]
    tree: tuple[TreeBlockView, ...]
    pools: Annotated[Mapping[tuple[Level, str], PoolView], ByLevelAndGroup()]
    batches: Mapping[str, BatchView]
    lifetime: Counters
    since_reset: Counters
    copy_calls: Mapping[str, int]
    events: tuple[TreeEvent, ...]
    labels: Mapping[str, SnapshotView]
    reads: Mapping[str, ReadView]
    streams: Mapping[str, Order] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    reserved: Mapping[str, Mapping[str, InOrder[int]]] = field(default_factory=dict)
    caches: Mapping[str, Mapping[str, CacheView]] = field(default_factory=dict)
    fetches: Mapping[str, FetchView] = field(default_factory=dict)
