"""Reservation: the GPU slots that decoding requests hold for fetched history (R15.2)."""

from __future__ import annotations

from kvref.cached import Reservation
from kvref.layout import Group, PoolGroup
from kvref.pages import free_slot, take_slot
from kvref.state import Request, State, fresh
from kvref.values import replace
from kvspec.config import Level


def reservation(state: State, r: Request, group: int) -> Reservation | None:
    """What a request has reserved in a group."""
    held = (one for one in state.reservations.values() if one.held and (one.request, one.group) == (r.name, group))
    return next(held, None)


def reserving(state: State, r: Request) -> list[Group]:
    """The groups in which a request reserves slots."""
    ready = r.active and r.decoding and r.width == 1
    return [g for g in state.layout.groups if g.reserve] if ready else []


def lacking(state: State, r: Request, group: Group) -> int:
    """How many slots a request has to reserve in a group, besides those that it has."""
    held = reservation(state, r, group.index)
    return min(group.reserve, r.history // state.layout.tpb) - (len(held.slots) if held else 0)


def reserved_pools(state: State, r: Request) -> list[PoolGroup]:
    """The pool group of each slot that a request has to reserve: part of the plan (R3.14)."""
    return [
        state.layout.pool_group(Level.GPU, group.index) for group in reserving(state, r) for _ in range(lacking(state, r, group))
    ]


def reserve(state: State, r: Request) -> State:
    """R15.2: take what a request, as it is after the operation, has to reserve; there is room."""
    for group in reserving(state, r):
        held = reservation(state, r, group.index)
        if held is None:
            state, number = fresh(state)
            held = Reservation(number, r.name, group.index)
        slots = list(held.slots)
        for _ in range(lacking(state, r, group)):
            state, slot = take_slot(state, state.layout.pool_group(Level.GPU, group.index))
            slots.append(slot)
        state = put_reservation(state, replace(held, slots=tuple(slots)))
    return state


def put_reservation(state: State, one: Reservation) -> State:
    """The state with a reservation as it now is."""
    return replace(state, reservations=state.reservations.set(one.id, one))


def give_back(state: State, name: str) -> State:
    """R15.2: what a request has reserved becomes free, behind fetches and recorded reads."""
    for one in sorted(state.reservations.values(), key=lambda one: one.group):
        if one.held and one.request == name:
            for slot in one.slots:
                state = free_slot(state, state.layout.pool_group(Level.GPU, one.group), slot.number, slot.fence)
            state = put_reservation(state, replace(one, held=False, caches=type(one.caches)()))
    return forget(state)


def forget(state: State) -> State:
    """R15.7: forget what was given back and belongs to no row as last published."""
    named = {number for b in state.batches.values() if b.open for row in b.reserved for number in row}
    gone = [number for number, one in state.reservations.items() if not one.held and number not in named]
    return replace(state, reservations=state.reservations.without(*gone)) if gone else state


def slots_of(state: State, one: Reservation) -> list[tuple[PoolGroup, int]]:
    """The slots of a reservation, those given back included."""
    return [(state.layout.pool_group(Level.GPU, one.group), slot.number) for slot in one.slots]
