"""Copy submissions: moves, private copies, and refusals (R3.4, R4.5, R4.8, R7.1-R7.3, R13)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from kvref.cached import Slot
from kvref.failure import Refused
from kvref.layout import PoolGroup
from kvref.locations import backing, redirect
from kvref.order import NOTHING, Work, join
from kvref.pages import delete, fence_slots, follow, free_slot, free_unkept, last_work, now, take_slot, write_page
from kvref.state import Key, Page, Request, State, Submission, fresh, owners, pool_group_of, put_page, put_request
from kvref.tree import count, emit, prefix
from kvref.values import replace
from kvspec.config import Level
from kvspec.observation import LevelChanged
from kvspec.ops import Direction

Moves = list[tuple[Page, Level]]
"""Pages, and the levels that they go to."""


def direction(old: Level, new: Level) -> Direction | None:
    """R13.1: the direction of a copy; none between host and disk."""
    if old is new is Level.GPU:
        return Direction.COPY
    if new is Level.GPU:
        return Direction.ONBOARD
    return Direction.OFFLOAD if old is Level.GPU else None


def refuses(state: State, kind: Direction) -> tuple[State, bool, bool]:
    """R4.8: count a submission against the faults of its direction: whether it is refused, and whether after work was queued."""
    hits = [f for f in state.faults if f.direction is kind and f.call == 1]
    left = tuple(replace(f, call=f.call - (f.direction is kind)) for f in state.faults if f not in hits)
    return replace(state, faults=left), bool(hits), any(f.queued for f in hits)


def submit(
    state: State, work: Work, sources: Iterable[Page], slots: Iterable[tuple[PoolGroup, int]], kind: Direction | None
) -> State:
    """R4.5, R13.2: one copy submission, counted if it is kept. Raises `Refused` (R4.8)."""
    made = Submission(work, tuple(p.id for p in sources), tuple(slots))
    made_so_far = replace(state, trace=replace(state.trace, submissions=(*state.trace.submissions, made)))
    if kind is None:
        return made_so_far
    counted, refused, queued = refuses(state, kind)
    if refused:
        tried = (*state.trace.submissions, replace(made, refused=True))
        queued_state = replace(counted, trace=replace(state.trace, submissions=tried)) if queued else counted
        raise Refused(
            queued_state, f"the {kind.value} of {len(made.sources)} page(s) was refused: repeat the call, or close a request"
        )
    return replace(made_so_far, faults=counted.faults, calls=state.calls.set(kind.value, state.calls.get(kind.value, 0) + 1))


def before_copy(state: State, page: Page) -> Work:
    """R7.1: what a copy of a page runs after: its readiness, its readers, releases, and the streams of all its owners."""
    return join(page.ready, page.reads, page.fence, *(last_work(state, r) for r in owners(state, page)))


def reserve(state: State, pools: Iterable[PoolGroup]) -> tuple[State, list[tuple[PoolGroup, Slot]]]:
    """Take a free slot of each pool group."""
    slots: list[tuple[PoolGroup, Slot]] = []
    for pool in pools:
        state, slot = take_slot(state, pool)
        slots.append((pool, slot))
    return state, slots


def move(state: State, moves: Moves) -> State:
    """R4.5: move pages: one submission per pair of pool groups, in order of the hotter pool group, then of the colder one.

    R7.3: after it the page's readiness is that copy. R7.2: the slot that it left is free at once, behind the copy.
    """
    moves = [(state.pages[p.id], to) for p, to in moves]
    pairs = sorted({(state.layout.pool_group(to, p.group), pool_group_of(state, p)) for p, to in moves}, key=sorted)
    reserved: list[tuple[list[Page], list[tuple[PoolGroup, Slot]]]] = []
    for dest, source in pairs:
        pages = [p for p, to in moves if (state.layout.pool_group(to, p.group), pool_group_of(state, p)) == (dest, source)]
        state, slots = reserve(state, [dest] * len(pages))
        reserved.append((pages, slots))
    works: list[Work] = []
    for pages, slots in reserved:
        work = join(*(before_copy(state, p) for p in pages), *(slot.fence for _, slot in slots))
        kind = direction(pages[0].level, slots[0][0][0])
        state = submit(state, work, pages, [(pool, slot.number) for pool, slot in slots], kind)
        works.append(work)
    for (pages, slots), work in zip(reserved, works, strict=True):
        for page, ((level, _), slot) in zip(pages, slots, strict=True):
            state = relocate(state, page, level, slot.number, work)
    return state


def relocate(state: State, page: Page, level: Level, slot: int, work: Work) -> State:
    """R2.4: a page is elsewhere now, for all its owners; counted (R13.1) and, if committed, an event (R13.3).

    R14.6, R14.8: a copy that leaves the GPU is the backing from then on, instead of one on the disk.
    """
    state, serial = fresh(state)
    old = backing(state, page) if page.copy_of is not None else None
    moved = replace(page, level=level, slot=slot, ready=work, move=serial, reads=NOTHING, fence=NOTHING, copy_of=None)
    state = put_page(state, moved)
    state = free_slot(state, pool_group_of(state, page), page.slot, work)
    if page.copy_of is not None:
        state = redirect(state, moved) if old is None else redirect(delete(state, old), old)
    state = count_copy(state, page.group, direction(page.level, level))
    return tell_level(state, page, level)


def tell_level(state: State, page: Page, level: Level) -> State:
    """R13.3: the event that a page is on another level than ``page`` says; none of a page that is not committed."""
    if page.node is None:
        return state
    name = state.layout.groups[page.group].name
    return emit(state, LevelChanged(prefix(state, page.node), name, page.level, level))


def count_copy(state: State, group: int, kind: Direction | None) -> State:
    """R13.1: count a page copied, and its bytes if it changes level; moves between host and disk count in neither direction."""
    if kind is None:
        return state
    nbytes = state.layout.groups[group].page_bytes
    return count(
        state, group, **{f"{kind.value}_pages": 1}, **({} if kind is Direction.COPY else {f"{kind.value}_bytes": nbytes})
    )


def copy_private(state: State, r: Request, copies: list[tuple[Page, Key]], fills: Container[Key] = ()) -> State:
    """R3.4, R1.3: give a request private GPU pages with the payloads of matched pages, wherever these are.

    ``fills``: the blocks that get a copy of a committed page (R14.4); the others get a page that is not committed.
    """
    state, made = copy_out(state, copies, Level.GPU)
    for source, key, slot, work in made:
        state, pid = fresh(state)
        private = Page(pid, *key, Level.GPU, slot, r.priority, now(state), work, pid, content=source.content, written=True)
        if key in fills:
            private = replace(private, node=source.node, identity=source.identity, copy_of=r.name, entered=source.entered)
        state = put_page(state, private)
        r = state.requests[r.name]
        state = put_request(state, replace(r, pages=r.pages.set(key, pid)))
        state = free_unkept(state, state.pages[source.id])  # R10.3: its tree block may be gone
        state = count_copy(state, key[0], direction(source.level, Level.GPU))
    return state


def copy_out(state: State, copies: list[tuple[Page, Key]], level: Level) -> tuple[State, list[tuple[Page, Key, int, Work]]]:
    """Copy pages to slots of a level: by source, for which block, the slot and the work. The sources stay where they are.

    R4.5: in order of the GPU's pool group. R7.1: a submission like any other; it disturbs no owner, and the source's slot is not
    reused before it has run.
    """
    pairs = sorted({(state.layout.pool_group(level, p.group), pool_group_of(state, p)) for p, _ in copies}, key=sorted)
    reserved: list[tuple[list[tuple[Page, Key]], list[tuple[PoolGroup, Slot]]]] = []
    for dest, origin in pairs:
        chosen = [
            (p, k) for p, k in copies if state.layout.pool_group(level, p.group) == dest and pool_group_of(state, p) == origin
        ]
        state, slots = reserve(state, [dest] * len(chosen))
        reserved.append((chosen, slots))
    made: list[tuple[Page, Key, int, Work]] = []
    for chosen, slots in reserved:
        work = join(*(before_reading(state, p) for p, _ in chosen), *(slot.fence for _, slot in slots))
        kind = direction(chosen[0][0].level, level)
        state = submit(state, work, [p for p, _ in chosen], [(pool, slot.number) for pool, slot in slots], kind)
        for (source, key), (_, slot) in zip(chosen, slots, strict=True):
            page = state.pages[source.id]
            state = put_page(state, replace(page, fence=join(page.fence, work)))
            made.append((page, key, slot.number, work))
    return state, made


def before_reading(state: State, page: Page) -> Work:
    """R7.1: what a copy out of a page that stays runs after. R14.12: of a page with copies, its readiness alone."""
    return before_copy(state, page) if page.identity is None else page.ready


def start(state: State) -> State:
    """Begin the acting part of an operation, or of a block or member of it, that a refused copy undoes as a whole (R4.8)."""
    return replace(state, trace=replace(state.trace, submissions=(), writes=()))


def undo(base: State, reached: State) -> State:
    """R4.8, R10.4: the state after a refused copy: as ``base``, but for what was written, and for the work that was queued.

    Queued work becomes part of the readiness of every source page and of the fence of every slot reserved for it; a page that is
    back in such a slot is like a source page. The owners' streams are ordered after it.
    """
    state = replace(base, faults=reached.faults)
    for stream, pid, content in reached.trace.writes:  # what a failed call wrote stays
        state = write_page(state, stream, state.pages[pid], content)
    read: dict[tuple[PoolGroup, int], Work] = {}
    for made in reversed(reached.trace.submissions):
        works = {at: join(made.work, read.get(at, NOTHING)) for at in made.slots}
        state = fence_slots(state, works, read=False)
        back = put_back(state, made, works)
        for at, work in sources_of(reached, back):
            state = fence_slots(state, {at: work}, read=False)
            read[at] = join(read.get(at, NOTHING), work)
        for pid in dict.fromkeys((*made.sources, *back)):
            state = join_queued(state, pid, join(made.work, back.get(pid, NOTHING)))
    return replace(state, trace=base.trace)


def put_back(state: State, made: Submission, works: dict[tuple[PoolGroup, int], Work]) -> dict[int, Work]:
    """R4.8: the pages that are back in slots into which a submission, which is undone, may have copied; behind which work."""
    if made.refused:  # a refused copy stays away from slots that pages come back into
        return {}
    return {p.id: works[at] for p in state.pages.values() if (at := (pool_group_of(state, p), p.slot)) in works}


def sources_of(reached: State, back: dict[int, Work]) -> list[tuple[tuple[PoolGroup, int], Work]]:
    """R4.8: where pages that are back had gone, from where they are put back; later use of these slots runs after that."""
    return [
        (at, back[pid])
        for other in reached.trace.submissions
        for pid, at in zip(other.sources, other.slots, strict=True)
        if pid in back
    ]


def join_queued(state: State, pid: int, work: Work) -> State:
    """R4.8: queued work becomes part of a page's readiness, and the streams of its owners are ordered after it."""
    state, serial = fresh(state)
    page = state.pages[pid]
    state = put_page(state, replace(page, ready=join(page.ready, work), move=serial))
    for owner in owners(state, page):
        state = follow(state, owner.stream, work)
    return state
