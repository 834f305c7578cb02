"""Making room: which pages leave, in which order, and whether a plan fits (R3.14, section 10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kvref.copies import move
from kvref.failure import NoRoom
from kvref.layout import PoolGroup
from kvref.locations import locations
from kvref.maps import Map
from kvref.pages import give_up
from kvref.policies.evict_unit import with_it
from kvref.policies.held import may_leave
from kvref.policies.release_order import turn
from kvref.state import Page, Request, State, locked, locked_backings, pool_group_of, status
from kvref.tree import doomed, drop, kept_for
from kvref.values import memoised, replace
from kvref.why import Shortage, TooFew
from kvspec.config import Level
from kvspec.observation import PageStatus


@dataclass(frozen=True)
class Plan:
    """Room that is being planned, by numbers alone: nothing has happened yet (R3.14).

    ``free``: free slots that the plan has left by pool group. ``pinned``: pages that are about to be used. ``at``: the pages that
    it moves, and where to. ``dropped``: the pages that it drops, those that go or are released with a subtree included.
    ``leaving``: in order.
    """

    free: Map[PoolGroup, int]
    pinned: frozenset[int]
    at: Map[int, PoolGroup] = Map()  # noqa: RUF009 - immutable
    dropped: frozenset[int] = frozenset()
    leaving: tuple[tuple[int, Level | None], ...] = ()


def new_plan(state: State, pinned: Iterable[Page] = ()) -> Plan:
    """An empty plan: what an operation has given up itself is free in ``state`` already (R3.14).

    R10.1: what it has evicted already, for an earlier block or member, is not evicted again.
    """
    free: Map[PoolGroup, int] = Map({pool: len(slots) for pool, slots in state.free.items()})
    return Plan(free, state.trace.evicted.union(p.id for p in pinned))


def evictable(state: State, pool: PoolGroup) -> list[Page]:
    """R10.2: the evictable pages of a pool group (R2.2, R2.5), the one that leaves first before the others."""
    return queues(state).get(pool, [])


@memoised
def queues(state: State) -> dict[PoolGroup, list[Page]]:
    """R10.2: the evictable pages of each pool group that has some, in order."""
    owned = locked(state).keys() | locked_backings(state)
    found: dict[PoolGroup, list[Page]] = {}
    for p in state.pages.values():
        if p.id not in owned and may_leave(state, p):
            found.setdefault(pool_group_of(state, p), []).append(p)
    for pages in found.values():
        pages.sort(key=lambda p: order(state, p))
    return found


def order(state: State, page: Page) -> tuple[int, tuple[int, int], tuple[int, int], int]:
    """R10.2: the place of a page in the order of eviction; the lowest leaves first."""
    return page.priority, page.since, turn(state, page), page.id


def reserve_room(state: State, plan: Plan, pool: PoolGroup, n: int = 1) -> Plan | None:
    """R10.1: the plan that has ``n`` slots more of a pool group in use, evicting if need be; ``None`` if it does not fit."""
    while plan.free[pool] < n:
        grown = first_to_leave(state, plan, pool)
        if grown is None:
            return None
        plan = grown
    return replace(plan, free=plan.free.set(pool, plan.free[pool] - n))


def first_to_leave(state: State, plan: Plan, pool: PoolGroup) -> Plan | None:
    """R10.1: the plan in which the first page that can leave a pool group does. What was passed over is looked at again."""
    left = (page for page in evictable(state, pool) if page.id not in plan.at and page.id not in plan.dropped)
    found = next(((page, p) for page in left if (p := leave(state, plan, page))), None)
    if found is None:
        return None
    page, plan = found
    for other in with_it(state, page):
        plan = (leave(state, plan, other) if other in evictable(state, pool_group_of(state, other)) else None) or plan
    return plan


def leave(state: State, plan: Plan, page: Page) -> Plan | None:
    """R10.1: the plan in which a page moves one level down, cascading, or is dropped where it is; else ``None``."""
    if page.id in plan.pinned or page.id in plan.at or page.id in plan.dropped:
        return None  # about to be used, or evicted by this operation already
    pool = pool_group_of(state, page)
    if page.copy_of is not None and spare(state, plan, page):
        free = plan.free.set(pool, plan.free[pool] + 1)
        return replace(plan, free=free, dropped=plan.dropped | {page.id}, leaving=(*plan.leaving, (page.id, None)))
    if len(state.layout.levels) > page.level + 1:
        level = Level(page.level + 1)
        below = state.layout.pool_group(level, page.group)
        roomy = reserve_room(state, plan, below)
        if roomy is not None and page.id in roomy.dropped:  # it went with a subtree that made room, and needs none
            return replace(roomy, free=roomy.free.set(below, roomy.free[below] + 1))
        if roomy is not None:
            free = roomy.free.set(pool, roomy.free[pool] + 1)
            return replace(roomy, free=free, at=roomy.at.set(page.id, below), leaving=(*roomy.leaving, (page.id, level)))
    if status(state, page) is not PageStatus.DROPPABLE:
        return None
    nodes, droppable = doomed(state, page, plan.dropped)
    pages = (*droppable, *(p for p in kept_for(state, nodes) if p.id not in plan.dropped))
    free = plan.free
    for p in pages:
        where = plan.at.get(p.id, pool_group_of(state, p))
        free = free.set(where, free[where] + 1)
    return replace(plan, free=free, dropped=plan.dropped | {p.id for p in pages}, leaving=(*plan.leaving, (page.id, None)))


def spare(state: State, plan: Plan, page: Page) -> bool:
    """R14.8: whether a copy leaves by being freed: its page has a backing, or has one when the plan is carried out."""
    return any(p.id != page.id and (p.backing or p.id in plan.at) for p in locations(state, page))


def reserve_all(state: State, plan: Plan, pools: Iterable[PoolGroup]) -> Plan:
    """R3.14: the plan that has a slot more in use for each of ``pools``, the coldest level first. Raises `NoRoom`."""
    for (level, pool), n in sorted(Counter(pools).items(), key=lambda item: (-item[0][0], item[0][1])):
        roomy = reserve_room(state, plan, (level, pool), n)
        if roomy is None:
            raise no_room(state, plan, (level, pool), n)
        plan = roomy
    return plan


def no_room(state: State, plan: Plan, pool: PoolGroup, n: int) -> NoRoom:
    """What a plan lacks that needs ``n`` slots more of a pool group than it can have."""
    free = plan.free[pool]
    while grown := first_to_leave(state, plan, pool):
        plan = grown
    gone = plan.pinned.union(plan.at, plan.dropped)
    stuck = sum(p.id not in gone for p in evictable(state, pool))
    reason = Shortage(pool[0], state.layout.served(pool)[0].name, n, free, plan.free[pool] - free, stuck)
    return NoRoom(reason, tuple(pid for pid, _ in plan.leaving))


def act(state: State, plan: Plan) -> State:
    """R3.14: carry out the evictions of a plan: drops, then moves, the coldest level first, then by pool group. Raises `Refused`.

    Drops come first, so that what goes with a subtree makes room for the moves. R4.5: one submission from one pool group into
    another.
    """
    pools = {pid: pool_group_of(state, state.pages[pid]) for pid, to in plan.leaving if to is not None}
    state = drop_all(state, [pid for pid, to in plan.leaving if to is None])
    for pool in sorted(set(pools.values()), key=lambda pool: (-pool[0], pool[1])):
        moves = [(state.pages[p], to) for p, to in plan.leaving if to is not None and pools[p] == pool and p in state.pages]
        state = move(state, moves) if moves else state
    evicted = state.trace.evicted.union(pid for pid, _ in plan.leaving)
    return replace(state, trace=replace(state.trace, evicted=evicted))


def drop_all(state: State, pids: Iterable[int]) -> State:
    """Drop pages, one after the other, but for those that have gone with another."""
    for pid in pids:
        if pid in state.pages:
            page = state.pages[pid]
            state = drop(state, page) if page.copy_of is None else give_up(state, page)  # R14.8
    return state


def make_room(state: State, pools: Iterable[PoolGroup], pinned: Iterable[Page]) -> State:
    """Plan the room for a slot at each of ``pools``, and make it. Raises `NoRoom`, `Refused`."""
    return act(state, reserve_all(state, new_plan(state, pinned), pools))


def use(state: State, r: Request) -> list[tuple[int, int]]:
    """R3.5: of each GPU pool group that growth takes from, the slots that are neither free nor evictable, and all its slots.

    The pages that a suspended request holds itself are not in use for it, whether or not they may be evicted.
    """
    slots = state.layout.slots[Level.GPU]
    pools = sorted({state.layout.pool_group(Level.GPU, g.index) for g in state.layout.attention})
    own = [state.pages[pid] for pid in set(r.pages.values()) if pid not in locked(state)]
    found = []
    for at in pools:
        available = {p.id for p in (*evictable(state, at), *own) if pool_group_of(state, p) == at}
        found.append((slots[at[1]] - len(state.free[at]) - len(available), slots[at[1]]))
    return found


def gone(state: State, plan: Plan, pool: PoolGroup) -> int:
    """The number of pages that a plan takes out of a pool group."""
    return sum(1 for p in {*plan.at, *plan.dropped} if pool_group_of(state, state.pages[p]) == pool)


def evict(state: State, pool: PoolGroup, n: int) -> State:
    """R10.5: the first ``n`` evictable pages of a pool group leave it. Raises `NoRoom`, `Refused`."""
    plan = new_plan(state)
    while (left := gone(state, plan, pool)) < n:
        grown = first_to_leave(state, plan, pool)
        if grown is None:
            raise NoRoom(TooFew(pool[0], n, left), tuple(pid for pid, _ in plan.leaving))
        plan = grown
    return act(state, plan)


def clear(state: State) -> State:
    """R10.5: drop every droppable page on every level, in eviction order, the hottest level first."""
    for level in state.layout.levels:
        pages = [p for pool in state.layout.pool_groups() if pool[0] is level for p in evictable(state, pool)]
        for page in sorted(pages, key=lambda p: order(state, p)):
            if page.id in state.pages and status(state, state.pages[page.id]) is PageStatus.DROPPABLE:
                state = drop(state, state.pages[page.id])
    return state
