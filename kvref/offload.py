"""Offload and deferral (section 4, R14.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvref.copies import Moves, move
from kvref.eviction import Plan, act, new_plan, reserve_all, reserve_room
from kvref.layout import PoolGroup
from kvref.locations import attaches
from kvref.pages import give_up, unlock
from kvref.reserving import reserve, reserved_pools
from kvref.state import Page, Request, State, locks, mapped, owners
from kvref.tree import count
from kvspec.config import Level


def eligible(state: State, r: Request) -> list[Page]:
    """R4.1: the sparse pages at level 0 that a decoding request has locked and whose blocks are complete history."""
    return [
        p
        for k, p in mapped(state, r).items()
        if locks(state, r, p)
        and r.decoding
        and state.layout.groups[k[0]].sparse
        and p.level is Level.GPU
        and state.layout.complete(k[1], r.history)
    ]


def movable(state: State, page: Page) -> bool:
    """R4.2: the owner check: an eligible page moves only if every owner is decoding; else it is deferred, which is no failure."""
    return all(owner.decoding for owner in owners(state, page))


@dataclass(frozen=True)
class Offload:
    """An operation's offload (R4.7). ``must``: pages that have to fit; ``may``: older deferred ones, in the order of trying."""

    must: tuple[Page, ...]
    may: tuple[Page, ...] = ()


def offload_of(state: State, r: Request, must: Iterable[int] | None) -> Offload:
    """R4.7: what an operation of ``r`` offloads: the movable eligible pages, of which those of the blocks ``must`` have to fit.

    ``must``: ``None`` for all (a decode entry, R3.8; a publication, R8.6).
    """
    pages = [p for p in eligible(state, r) if movable(state, p)]
    needed = {p.block for p in pages} if must is None else set(must)
    return Offload(tuple(p for p in pages if p.block in needed), tuple(p for p in pages if p.block not in needed))


def host(state: State, page: Page) -> PoolGroup:
    """The pool group of the host that a page goes to."""
    return state.layout.pool_group(Level.HOST, page.group)


def plan_offload(state: State, plan: Plan, work: Offload, pools: Iterable[PoolGroup] = ()) -> tuple[Plan, tuple[Page, ...]]:
    """R4.7: room for what must fit and for ``pools``, then for each older deferred page that finds a slot. Raises `NoRoom`.

    Returns the plan and the pages to move, all in one submission a pair of pool groups (R4.5).
    """
    plan = reserve_all(state, plan, (*pools, *(host(state, p) for p in work.must if not attaches(state, p))))
    chosen = list(work.must)
    for page in work.may:
        roomy = plan if attaches(state, page) else reserve_room(state, plan, host(state, page))
        if roomy is not None:
            plan = roomy
            chosen.append(page)
    return plan, tuple(chosen)


def offload(state: State, pages: Iterable[Page]) -> State:
    """R4.6: move pages to the host, for all owners; R14.6: or attach, where the host has the page. Raises `Refused`."""
    moves: Moves = []
    attached: list[Page] = []
    for page in pages:
        if attaches(state, page):
            attached.append(page)
        else:
            moves.append((page, Level.HOST))
    state = move(state, moves) if moves else state
    for page in attached:
        state = attach(state, page)
    return state


def attach(state: State, page: Page) -> State:
    """R14.6: the request of a copy maps the backing on the host; its copy is released (R7.4), nothing is transferred."""
    assert page.copy_of is not None
    state = give_up(unlock(state, state.requests[page.copy_of], page), page)
    return count(state, page.group, attach_pages=1)


def move_history(state: State, r: Request, must: Iterable[int] | None) -> State:
    """R4.3, R4.7: offload what has to fit of a request's complete history, and retry its older deferred pages. ``must``: as in
    `offload_of`. R4.4: a page that stays holds up none after it. R15.2: a decode entry reserves slots.

    Raises `NoRoom`, `Refused`.
    """
    plan = new_plan(state, mapped(state, r).values())
    plan, chosen = plan_offload(state, plan, offload_of(state, r, must), reserved_pools(state, r))
    return offload(reserve(act(state, plan), r), chosen)
