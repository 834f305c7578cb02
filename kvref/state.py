"""The state of a manager, and what is defined by it: owners, status, eligible counts (sections 2, 3 and 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from kvref.cached import Captured, FetchCount, Fetched, Reservation, Slot
from kvref.layout import Layout, PoolGroup
from kvref.maps import Map
from kvref.order import NOTHING, Stream, Work
from kvref.values import memo_of, memoised, replace
from kvref.why import Why
from kvspec.config import Level
from kvspec.observation import BAD, Counters, PageStatus, Phase, RequestStatus, TreeEvent
from kvspec.ops import Direction, Retry
from kvspec.payload import Content
from kvspec.tokens import Token

Key: TypeAlias = tuple[int, int, int]
"""Which page of a request: layer group, block, beam row."""


@dataclass(frozen=True)
class Page:
    """A page (R2.1, R2.4).

    ``ready``: the work after which its payload is valid here; ``move``: which readiness that is, new at every move. ``reads`` and
    ``fence``: what the next use of its slot runs after besides: recorded reads (R7.7), and all else (R7.1, R7.4, R4.8).
    ``written``: by anyone, or copied. ``node``: the tree block that it is committed to. ``since``: the step, and the part
    of it, in which it left LOCKED, or else was created (R10.2). ``entered``: lower if it entered the tree before another.

    Of a page that has a backing and copies (R14.1) each is a `Page`. ``identity``: the same number for all of these, from the
    commit on; None for a page with one location. ``copy_of``: the request whose copy it is; None: it is the backing.
    """

    id: int
    group: int
    block: int
    beam: int
    level: Level
    slot: int
    priority: int
    since: tuple[int, int]
    ready: Work = NOTHING
    move: int = 0
    reads: Work = NOTHING
    fence: Work = NOTHING
    content: Content | None = None
    written: bool = False
    node: int | None = None
    entered: int = 0
    identity: int | None = None
    copy_of: str | None = None

    @property
    def backing(self) -> bool:
        """R14.1: whether it is the location that every request may refer to."""
        return self.identity is not None and self.copy_of is None

    @property
    def key(self) -> Key:
        """Which page it is of the requests that lock it."""
        return self.group, self.block, self.beam


@dataclass(frozen=True)
class Node:
    """A block of the prefix tree (R2.6): its own tokens, with their keys (R2.7), at most tpb.

    A lower ``id`` is older; ``parent`` None at the root. ``prefix``: all tokens from the root to its end. ``gone``: it has left
    the tree alone, and is only the way to what is below it, or to what a request commits there (R10.3, policy ``on_drop``).
    """

    id: int
    parent: int | None
    tokens: tuple[Token, ...]
    prefix: tuple[Token, ...]
    gone: bool = False


@dataclass(frozen=True)
class Request:
    """A request (section 3). ``key``: that of all its tokens (R2.7). ``tokens``: the committed ones. ``path``: the tree blocks of
    its whole committed blocks.

    ``pages``: every page that it locks or holds. ``prompt``: tokens of the prompt. ``resumed``: had its first resume.
    ``versioned``: what its version stands for (R6.4). ``beams``: whether `set_beam_width` was called.
    ``ended``: committing is over; ``terminal``: by `end` (R3.9). ``closed_with``: how many tokens were committed when it was
    closed; the tokens themselves are not kept then, nor is anything else that it does not answer any more (R3.10). ``again``: the
    tokens that it matches when it resumes, where a suspend has let go of everything (policy ``suspend``).
    ``copied``: `create` has made its private copies (policy ``copy_at``).
    """

    name: str
    uid: int
    priority: int
    prompt: int
    key: str | None
    tokens: tuple[Token, ...]
    path: tuple[int, ...]
    pages: Map[Key, int]
    capacity: int
    history: int
    status: RequestStatus = RequestStatus.SUSPENDED
    phase: Phase = Phase.PREFILL
    stream: str | None = None
    row: int | None = None
    width: int = 1
    beams: bool = False
    ended: bool = False
    terminal: bool = False
    resumed: bool = False
    version: int = 0
    acknowledged: int | None = None
    versioned: object = None
    closed_with: int | None = None
    again: tuple[Token, ...] | None = None
    copied: bool = False

    @property
    def committed(self) -> int:
        """The number of its committed tokens (R3.10: also of a closed one)."""
        return len(self.tokens) if self.closed_with is None else self.closed_with

    @property
    def active(self) -> bool:
        """Whether it is active: resumed, neither suspended nor closed since (section 3)."""
        return self.status is RequestStatus.ACTIVE

    @property
    def decoding(self) -> bool:
        """Whether its phase is decode."""
        return self.phase is Phase.DECODE


@dataclass(frozen=True)
class Snapshot:
    """A snapshot (R6.1) of one request, group and beam row."""

    indices: tuple[int, ...]
    levels: tuple[Level | None, ...]
    eligible: int
    ready: tuple[Work | None, ...]
    moves: tuple[int | None, ...]
    row: int | None
    version: int


@dataclass(frozen=True)
class Entries:
    """What a row shows in one group: index and level of each block of the table, and the eligible count (R8.4)."""

    indices: tuple[int, ...]
    levels: tuple[Level | None, ...]
    eligible: int


@dataclass(frozen=True)
class Upload:
    """A publication: its work, and the tables after it, by row and then by attention group."""

    work: Work
    rows: tuple[tuple[Entries, ...], ...]


NEVER, EMPTY = -1, 0
"""What a row published last, where it is not a version: nothing yet, or that it has no member."""


@dataclass(frozen=True)
class Batch:
    """A batch (section 8). ``published``: by row, the version last published, `NEVER` or `EMPTY`. ``uploads``: the last one, and
    before it those that may be pending. ``refused``: queued work of refused uploads. ``reads``: reads recorded on the tables.
    ``members``, ``reserved``: by row, as last published, the member, and its reservations by number (R15.7). ``fetches``: the
    last one by layer group. ``retry``: R8.6.
    """

    uid: int
    name: str
    rows: tuple[str | None, ...]
    blocks: int
    levels: bool
    published: tuple[int, ...]
    uploads: tuple[Upload, ...]
    refused: tuple[Work, ...] = ()
    reads: Work = NOTHING
    staging: int = 2
    open: bool = True
    members: tuple[str | None, ...] = ()
    reserved: tuple[tuple[int, ...], ...] = ()
    fetches: Map[int, Work] = Map()  # noqa: RUF009
    retry: Retry = Retry.STRICT


@dataclass(frozen=True)
class Read:
    """A device read: its work, and what it returns when it has run."""

    work: Work
    entries: tuple[tuple[int, ...], ...] | None = None
    payload: Content | None = None


@dataclass(frozen=True)
class Fault:
    """A copy that will be refused: the ``call``-th next submission of its direction (R4.8)."""

    direction: Direction
    call: int
    queued: bool


@dataclass(frozen=True)
class Submission:
    """A copy submission of the operation under way: its work, its source pages, and the slots reserved for it.

    ``refused``: it is the one that was refused, after work was queued.
    """

    work: Work
    sources: tuple[int, ...]
    slots: tuple[tuple[PoolGroup, int], ...]
    refused: bool = False


@dataclass(frozen=True)
class Trace:
    """What the operation under way has done so far. ``newer``: requests whose version is newer whatever they show (R6.4).

    ``part``: of a call that consists of operations (R8.9, R11.1), which of them is under way. ``evicted``: by that one (R10.1).
    ``why``: what is false in it, and why.
    """

    events: tuple[TreeEvent, ...] = ()
    newer: frozenset[str] = frozenset()
    part: int = 0
    evicted: frozenset[int] = frozenset()
    submissions: tuple[Submission, ...] = ()
    writes: tuple[tuple[str, int, Content], ...] = ()
    why: tuple[Why, ...] = ()


@dataclass(frozen=True)
class Capture:
    """A capture under way: its stream, and the reads and fetches so far."""

    stream: str
    reads: tuple[Captured, ...] = ()


@dataclass(frozen=True)
class State:
    """Everything. ``step``: the number of operations before this one. ``serial``: the last identity handed out.

    ``free``: by pool group, in the order in which the slots became free. ``taken``: by label. ``gates``: the closed ones.
    ``fetches``: by label. ``counting``: what fetches that have not run will have counted (R15.10).
    """

    layout: Layout
    counters: Counters
    reset: Counters
    free: Map[PoolGroup, tuple[Slot, ...]]
    streams: Map[str, Stream]
    step: int = 0
    serial: int = 0
    pages: Map[int, Page] = Map()  # noqa: RUF009 - immutable
    nodes: Map[int, Node] = Map()  # noqa: RUF009
    requests: Map[str, Request] = Map()  # noqa: RUF009
    batches: Map[int, Batch] = Map()  # noqa: RUF009
    taken: Map[str, tuple[PoolGroup, tuple[Slot, ...]]] = Map()  # noqa: RUF009
    labels: Map[str, Snapshot] = Map()  # noqa: RUF009
    reads: Map[str, Read] = Map()  # noqa: RUF009
    gates: Map[str, int] = Map()  # noqa: RUF009
    graphs: Map[str, tuple[Captured, ...]] = Map()  # noqa: RUF009
    reservations: Map[int, Reservation] = Map()  # noqa: RUF009
    fetches: Map[str, Fetched] = Map()  # noqa: RUF009
    counting: tuple[FetchCount, ...] = ()
    capture: Capture | None = None
    faults: tuple[Fault, ...] = ()
    calls: Map[str, int] = Map()  # noqa: RUF009
    trace: Trace = Trace()


def fresh(state: State) -> tuple[State, int]:
    """A serial number that no page, request, version or batch has had (R6.4)."""
    return replace(state, serial=state.serial + 1), state.serial + 1


def put_page(state: State, page: Page) -> State:
    """The state with ``page`` as it now is."""
    return replace(state, pages=state.pages.set(page.id, page))


def put_pages(state: State, pages: Iterable[Page]) -> State:
    """The state with ``pages`` as they now are."""
    now = {page.id: page for page in pages}
    return replace(state, pages=state.pages.updated(now)) if now else state


def put_request(state: State, request: Request) -> State:
    """The state with ``request`` as it now is."""
    return replace(state, requests=state.requests.set(request.name, request))


def pool_group_of(state: State, page: Page) -> PoolGroup:
    """The pool group in which a page lies (R2.4)."""
    return state.layout.pool_group(page.level, page.group)


def stale(state: State, r: Request, key: Key) -> bool:
    """Whether a block of a request is stale at its history (R1.8)."""
    return state.layout.stale(key[0], key[1], r.history)


@memoised
def in_order(pages: Map[Key, int]) -> dict[Key, int]:
    """The pages of a request in order of block, then group, then beam row."""
    entries = dict(pages.items())
    return {k: entries[k] for k in sorted(entries, key=itemgetter(1, 0, 2))}


@memoised
def needed(pages: Map[Key, int], layout: Layout, history: int) -> Map[Key, int]:
    """The pages of a request whose blocks are not stale at a history."""
    gone = [layout.stale_blocks(g.index, history) for g in layout.groups]
    return Map({k: pid for k, pid in pages.items() if k[1] not in gone[k[0]]}) if any(gone) else pages


@memoised
def row_of(pages: Map[Key, int], layout: Layout, history: int, group: int, beam: int) -> list[tuple[Key, int]]:
    """Of those, the ones of a group and beam row."""
    return [(k, pid) for k, pid in in_order(needed(pages, layout, history)).items() if k[0] == group and k[2] == beam]


def blocks_of(state: State, r: Request) -> dict[Key, int]:
    """The pages of a request's blocks that are not stale, by number, in order of block, then group, then beam row."""
    return in_order(needed(r.pages, state.layout, r.history))


def stale_pages(state: State, r: Request) -> dict[Key, int]:
    """The pages, by number, of a request's blocks that are stale, in no order."""
    live = needed(r.pages, state.layout, r.history).keys()
    return {} if len(live) == len(r.pages) else {k: pid for k, pid in r.pages.items() if k not in live}


def mapped(state: State, r: Request) -> dict[Key, Page]:
    """The pages of a request's blocks that are not stale, in order of block, then group, then beam row."""
    return {k: state.pages[pid] for k, pid in blocks_of(state, r).items()}


@memoised
def active(requests: Map[str, Request]) -> tuple[Request, ...]:
    """The active ones among the requests."""
    return tuple(r for r in requests.values() if r.active)


def locks(state: State, r: Request, page: Page) -> bool:
    """Whether an active request has the page locked: every block that is not stale is (R2.2, R3.2, R3.7)."""
    own = page.copy_of in (None, r.name)  # R14.2: nobody locks the copy of another
    return r.active and own and r.pages.get(page.key) == page.id and not stale(state, r, page.key)


def owners(state: State, page: Page) -> tuple[Request, ...]:
    """R2.3: the active requests that have the page locked."""
    return tuple(r for r in active(state.requests) if locks(state, r, page))


@memoised
def locked(state: State) -> dict[int, list[Request]]:
    """R2.3: the owners of every page that has any, by its number."""
    found: dict[int, list[Request]] = {}
    for r in active(state.requests):
        for key, pid in blocks_of(state, r).items():
            if state.pages[pid].key == key and state.pages[pid].copy_of in (None, r.name):
                found.setdefault(pid, []).append(r)
    return found


@memoised
def kept(state: State) -> dict[int, list[tuple[str, Key]]]:
    """Of every page that some request locks or holds, by its number: the requests' names, and as which block."""
    found: dict[int, list[tuple[str, Key]]] = {}
    for r in state.requests.values():
        for key, pid in r.pages.items():
            found.setdefault(pid, []).append((r.name, key))
    return found


def keepers(state: State, page: Page) -> tuple[tuple[Request, Key], ...]:
    """Every request that locks or holds the page, and as which block. A matched SSM snapshot is held as block 0 (R1.3)."""
    keys = {page.key, (page.group, 0, 0)} if state.layout.groups[page.group].ssm else {page.key}
    return tuple((r, k) for r in state.requests.values() for k in keys if r.pages.get(k) == page.id)


def is_locked(state: State, page: Page) -> bool:
    """R2.2: whether a page is LOCKED."""
    return bool(owners(state, page)) or page.id in locked_backings(state)


def status(state: State, page: Page) -> PageStatus:
    """R2.2: locked by an active request, or held by some request, or kept by the tree alone."""
    if page.id in locked(state) or page.id in locked_backings(state):
        return PageStatus.LOCKED
    return PageStatus.HELD if users(state, page) else PageStatus.DROPPABLE


@memoised
def locked_backings(state: State) -> frozenset[int]:
    """R14.8: the backings of the pages that an active request refers to, whether it maps them or has a copy."""
    if not state.layout.private:
        return frozenset()
    pages = state.pages
    used = {pages[pid].identity for r in active(state.requests) for pid in r.pages.values()}
    return frozenset(p.id for p in pages.values() if p.backing and p.identity in used)


def users(state: State, page: Page) -> tuple[Request, ...]:
    """The requests that lock or hold a page; R14.8: of a backing, all that refer to its page."""
    if not page.backing:
        return tuple(r for r, _ in keepers(state, page))
    mapped_by = ((r, state.pages.get(r.pages.get(page.key, -1))) for r in state.requests.values())
    return tuple(r for r, at in mapped_by if at is not None and at.identity == page.identity)


def eligible_count(state: State, r: Request, group: int, beam: int = 0) -> int:
    """R6.3: the leading blocks of complete history that are mapped, locked and at level 1, up to the first that is not."""
    if not (r.active and r.decoding and state.layout.groups[group].sparse):
        return 0
    count = 0
    while count < r.history // state.layout.tpb:
        page = r.pages.get((group, count, beam))
        if page is None or state.pages[page].level is not Level.HOST:
            break
        count += 1
    return count


def snapshot(state: State, r: Request, group: int, beam: int = 0) -> Snapshot:
    """R6.1, R6.2: a snapshot; BAD and none for a block that is stale or absent, and while the request is not active."""
    if r.status is RequestStatus.CLOSED:
        return Snapshot((), (), 0, (), (), None, r.version)
    blocks = 1 if state.layout.groups[group].ssm else state.layout.blocks(r.capacity)
    pages: list[Page | None] = [None] * blocks
    if r.active:
        for (_, block, _), pid in row_of(r.pages, state.layout, r.history, group, beam):
            if block < blocks:
                pages[block] = state.pages[pid]
    memo = memo_of(r)
    known = memo.get((snapshot, group, beam))
    if known is None or known[0] != pages:
        memo[snapshot, group, beam] = known = pages, _snapshot(state, r, group, beam, pages)
    found: Snapshot = known[1]
    return found


def _snapshot(state: State, r: Request, group: int, beam: int, pages: list[Page | None]) -> Snapshot:
    return Snapshot(
        tuple(p.slot if p else BAD for p in pages),
        tuple(p.level if p else None for p in pages),
        eligible_count(state, r, group, beam),
        tuple(p.ready if p else None for p in pages),
        tuple(p.move if p else None for p in pages),
        r.row,
        r.version,
    )


def batch_of(state: State, r: Request) -> Batch | None:
    """The batch that a request is a member of."""
    return next((b for b in state.batches.values() if b.open and r.name in b.rows), None)


def can_commit(state: State, r: Request) -> bool:
    """Whether committing is still possible: it has not ended, and the request's path is in the tree (R3.9).

    R10.3: all of it is where its last block is, as a block goes with all below it.
    """
    return not r.ended and (not r.path or r.path[-1] in state.nodes)


def mark_newer(state: State, names: Iterable[str]) -> State:
    """The state in which the versions of ``names`` will be newer (R6.4)."""
    return replace(state, trace=replace(state.trace, newer=state.trace.newer | frozenset(names)))
