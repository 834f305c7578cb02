"""Slots and pages: how they are taken, released and freed, and the fences that this leaves (R7.2, R7.4, R7.7, R7.9)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from kvref.cached import Slot
from kvref.layout import PoolGroup
from kvref.locations import locations, redirect
from kvref.order import NOTHING, Work, join, pending
from kvref.policies.recency import renewed
from kvref.state import (
    Key,
    Page,
    Request,
    State,
    can_commit,
    fresh,
    in_order,
    pool_group_of,
    put_page,
    put_pages,
    put_request,
    stale,
    stale_pages,
    users,
)
from kvref.values import replace
from kvspec.config import Level
from kvspec.payload import Content, next_content


def follow(state: State, stream: str | None, *works: Work) -> State:
    """Order a stream after ``works``: what is submitted to it next runs after them."""
    if stream is None:
        return state
    s = state.streams[stream]
    return replace(state, streams=state.streams.set(stream, replace(s, last=join(s.last, *works))))


def submit_visible(state: State, stream: str, *works: Work) -> tuple[State, Work]:
    """Submit a user-visible item to a stream, behind the stream and ``works``: its work, which the stream follows from now on."""
    s = state.streams[stream]
    item = join(s.last, *works)
    item = replace(item, after=item.after.set(stream, len(s.log) + 1))
    return replace(state, streams=state.streams.set(stream, replace(s, last=item, log=(*s.log, state.step)))), item


def last_work(state: State, r: Request) -> Work:
    """The work submitted so far on a request's stream; nothing before it has one."""
    return NOTHING if r.stream is None else state.streams[r.stream].last


def take_slot(state: State, pool: PoolGroup) -> tuple[State, Slot]:
    """R7.2: take a free slot: one whose fence has passed before others, then the one that became free first."""
    free = state.free[pool]
    at = next((n for n, s in enumerate(free) if not pending(s.fence, state.gates)), 0)
    return replace(state, free=state.free.set(pool, free[:at] + free[at + 1 :])), free[at]


def free_slot(state: State, pool: PoolGroup, number: int, fence: Work) -> State:
    """R7.2: a slot becomes free, and is the last in the order; its next use runs after ``fence``."""
    return replace(state, free=state.free.set(pool, (*state.free[pool], Slot(number, fence))))


def fence_slots(state: State, works: Mapping[tuple[PoolGroup, int], Work], *, read: bool) -> State:
    """R7.7, R4.8: later use of slots, whoever has them now, runs after the work of each: recorded reads, or something else."""

    def fenced(pool: PoolGroup, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        after = [(s, works.get((pool, s.number))) for s in slots]
        return tuple([s if work is None else replace(s, fence=join(s.fence, work)) for s, work in after])

    for pool in {pool for pool, _ in works}:
        state = replace(state, free=state.free.set(pool, fenced(pool, state.free[pool])))
    for label, (pool, slots) in state.taken.items():
        state = replace(state, taken=state.taken.set(label, (pool, fenced(pool, slots))))
    for held in state.reservations.values():
        if held.held:  # R15.2
            pool = state.layout.pool_group(Level.GPU, held.group)
            kept = replace(held, slots=fenced(pool, held.slots))
            state = replace(state, reservations=state.reservations.set(kept.id, kept))
    occupied = at_slots(state)
    for at, work in works.items():
        if (page := occupied.get(at)) is not None:
            later = replace(page, reads=join(page.reads, work)) if read else replace(page, fence=join(page.fence, work))
            state = put_page(state, later)
    return state


def at_slots(state: State) -> dict[tuple[PoolGroup, int], Page]:
    """The page in each slot that has one."""
    return {(pool_group_of(state, page), page.slot): page for page in state.pages.values()}


def new_page(state: State, key: Key, level: Level, priority: int) -> tuple[State, Page, Work]:
    """R6.4: a new page in a free slot, ready at once; and the slot's fence, which its first use runs after."""
    state, slot = take_slot(state, state.layout.pool_group(level, key[0]))
    state, pid = fresh(state)
    page = Page(pid, *key, level, slot.number, priority, now(state), move=pid)
    return put_page(state, page), page, slot.fence


def add_page(state: State, r: Request, key: Key) -> State:
    """R3.6, R7.9: a new page at level 0 for a request, whose stream is ordered after the fence of the slot."""
    state, page, fence = new_page(state, key, Level.GPU, r.priority)
    state = follow(state, r.stream, fence)
    r = state.requests[r.name]
    return put_request(state, replace(r, pages=r.pages.set(key, page.id)))


def behind(pages: Iterable[Page]) -> Work:
    """R7.9: what the stream of a request that locks pages runs after: their readiness, and the reads on their slots (R7.7)."""
    return join(*(join(p.ready, p.reads) for p in pages))


def delete(state: State, *pages: Page) -> State:
    """R7.2: free pages without a copy out of them: readiness and readers of each stay in the fence of its slot."""
    if pages:
        state = replace(state, pages=state.pages.without(*(page.id for page in pages)))
    for page in pages:
        state = free_slot(state, pool_group_of(state, page), page.slot, join(page.ready, page.reads, page.fence))
    return state


def unlock(state: State, r: Request, *pages: Page) -> State:
    """R7.4: put the work so far on the request's stream into the fences of the pages' slots."""
    work = last_work(state, r)
    return put_pages(state, [replace(p, fence=join(p.fence, work)) for p in [state.pages[page.id] for page in pages]])


def let_go(state: State, r: Request, keys: Iterable[Key]) -> State:
    """Release pages of a request (R7.4), by group, beam row and block (R7.2); those that nothing else keeps are freed."""
    r, keys = state.requests[r.name], sorted(keys, key=lambda k: (k[0], k[2], k[1]))
    numbers = [r.pages[key] for key in keys]
    if any(state.pages[pid].identity is not None for pid in numbers):
        return let_go_one_by_one(state, r, keys)
    state = unlock(state, r, *(state.pages[pid] for pid in numbers))
    state = put_request(state, replace(r, pages=r.pages.without(*keys))) if keys else state
    return free_unkept(state, *(state.pages[pid] for pid in numbers))


def free_unkept(state: State, *pages: Page) -> State:
    """R2.2: free those pages that neither a request nor the tree keeps."""
    return delete(state, *(page for page in pages if page.node is None and not users(state, page)))


def let_go_one_by_one(state: State, r: Request, keys: Iterable[Key]) -> State:
    """The same where some of the pages have copies (R14.8): what is freed may leave another location as the backing."""
    for key in keys:
        r = state.requests[r.name]
        page = state.pages[r.pages[key]]
        state = put_request(state, replace(r, pages=r.pages.without(key)))
        if page.copy_of in (None, r.name):  # R14.2: to the copy of another it only referred
            state = release(unlock(state, r, page), page)
    return state


def release(state: State, page: Page) -> State:
    """A page that a request has let go of. R14.8: a copy is given up, and is the backing if the page has no other location."""
    if page.copy_of is not None:
        state = give_up(state, page)
    return free_unkept(state, *locations(state, page))


def give_up(state: State, page: Page) -> State:
    """R14.8: free a copy, or make it the backing if the page has no other location."""
    page = state.pages[page.id]
    if len(locations(state, page)) == 1:
        return put_page(state, replace(page, copy_of=None))
    return redirect(delete(state, page), page)


def let_go_stale(state: State, r: Request) -> State:
    """R3.7: release the stale pages of a request, except uncommitted ones while committing is still possible."""
    return let_go(state, r, unkept_stale(state, state.requests[r.name]))


def unkept_stale(state: State, r: Request) -> list[Key]:
    """R3.7: the stale pages that a request does not keep for a commit."""
    keep = can_commit(state, r) and r.width == 1  # R3.9: with more beams there is no commit any more
    return [k for k, p in stale_pages(state, r).items() if not (keep and state.pages[p].node is None)]


def write_page(state: State, stream: str, page: Page, content: Content) -> State:
    """Write a payload on a stream. Changes no readiness (R6.4)."""
    state, _ = submit_visible(state, stream)
    state = put_page(state, replace(state.pages[page.id], content=content, written=True))
    return replace(state, trace=replace(state.trace, writes=(*state.trace.writes, (stream, page.id, content))))


def write_of(state: State, r: Request, page: Page) -> State:
    """A write of a request to one of its pages, with the contents that come next there."""
    assert r.stream is not None  # an active request has one (R3.2)
    return write_page(
        state, r.stream, page, next_content(page.content, r.name, state.layout.groups[page.group].name, page.block, page.beam)
    )


def write_history(state: State, r: Request, old: int, new: int, among: Container[int] | None = None) -> State:
    """The payloads that come with history: every block that completes and that nobody has written is written.

    ``among``: the pages to look at, all if it is not given.
    """
    for key, pid in in_order(r.pages).items():
        if not old // state.layout.tpb <= key[1] < new // state.layout.tpb:
            continue
        page = state.pages[pid]
        if not page.written and (among is None or pid in among):
            state = write_of(state, r, page)
            if stale(state, r, key):  # R7.4: what is written to it is work before its release, too
                state = unlock(state, r, page)
    return state


def now(state: State) -> tuple[int, int]:
    """R10.2: the operation under way."""
    return state.step, state.trace.part


def next_part(state: State) -> State:
    """R8.9, R11.1: the next part of a call is an operation by itself, to what is evicted and in which order (R10.1, R10.2)."""
    return replace(state, trace=replace(state.trace, part=state.trace.part + 1, evicted=frozenset()))


def renew(before: State, state: State) -> State:
    """R10.2: a page that has become young since ``before`` is the last in the eviction order of its priority.

    ``before``: at the start of the operation, or of the call. What left in an earlier part of the call stays where it is.
    """
    for page in list(renewed(before, state)):
        if before.trace.part == state.trace.part or page.since[0] < state.step:
            state = put_page(state, replace(page, since=now(state)))
    return state
