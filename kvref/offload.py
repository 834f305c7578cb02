"""Offload and deferral (section 4), and where a use brings pages (R3.2, R3.3, R3.11, section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvref.copies import move
from kvref.eviction import Plan, act, new_plan, reserve_all, reserve_room
from kvref.layout import PoolGroup
from kvref.state import Page, Request, State, locks, mapped, owners
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
    plan = reserve_all(state, plan, (*pools, *(host(state, p) for p in work.must)))
    chosen = list(work.must)
    for page in work.may:
        roomy = reserve_room(state, plan, host(state, page))
        if roomy is not None:
            plan = roomy
            chosen.append(page)
    return plan, tuple(chosen)


def offload(state: State, pages: Iterable[Page]) -> State:
    """R4.6: move pages to the host, for all their owners. Raises `Refused`."""
    moves = [(p, Level.HOST) for p in pages]
    return move(state, moves) if moves else state


def move_history(state: State, r: Request, must: Iterable[int] | None) -> State:
    """R4.3, R4.7: offload what has to fit of a request's complete history, and retry its older deferred pages. ``must``: as in
    `offload_of`. R4.4: a page that stays holds up none after it. Raises `NoRoom`, `Refused`.
    """
    plan, chosen = plan_offload(state, new_plan(state, mapped(state, r).values()), offload_of(state, r, must))
    return offload(act(state, plan), chosen)


def lock_level(state: State, r: Request, page: Page, decoding: bool) -> Level:
    """R3.2: where a request has a page locked: level 0; in decode, sparse complete history where it is, on level 1 at most."""
    if decoding and state.layout.groups[page.group].sparse and state.layout.complete(page.block, r.history):
        return min(page.level, Level.HOST)
    return Level.GPU


def bring_up(state: State, moves: list[tuple[Page, Level]]) -> State:
    """R3.3, R5.1, R5.2: bring pages up, a sparse one for all its owners (promotion), any other by a plain move. Raises `Refused`.

    R5.3 and R5.4 follow: for decoding owners the page is eligible at level 0, so deferred, and their counts stop before it.
    """
    return move(state, moves) if moves else state
