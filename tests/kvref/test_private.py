"""Private copies (section 14): what holds of every state, over random lifecycles of the reference alone."""

from __future__ import annotations

from random import Random

import pytest

from kvref.locations import locations
from kvref.state import State, users
from kvref.system import Reference
from kvspec.audit.drawing import STREAMS
from kvspec.audit.managers import Profile, random_manager
from kvspec.audit.workload import Chooser
from kvspec.config import Level, Ownership
from kvspec.ops import Operation
from kvspec.system import Setup

SEEDS, STEPS = 40, 60


def check_places(state: State) -> None:
    """No slot is used twice, and none is lost."""
    used = [(state.layout.pool_group(page.level, page.group), page.slot) for page in state.pages.values()]
    used += [(pool, slot.number) for pool, slots in state.taken.values() for slot in slots]
    used += [(pool, slot.number) for pool, slots in state.free.items() for slot in slots]
    slots = {(level, pool): state.layout.slots[level][pool] for level, pool in state.layout.pool_groups()}
    assert sorted(used) == sorted((pool, number) for pool, count in slots.items() for number in range(count))


def check_locations(state: State) -> None:
    """R14.1: one backing at most, one copy a request, and no backing on the GPU of a page that an active request refers to."""
    for page in state.pages.values():
        there = locations(state, page)
        if page.identity is None:
            assert page.copy_of is None
            assert page.node is None or not state.layout.copied(page.group)
            continue
        assert [one.copy_of for one in there].count(None) <= 1
        assert len({one.copy_of for one in there}) == len(there)
        assert len({one.node for one in there}) == 1
        if page.copy_of is not None:
            assert page.level is Level.GPU
            assert state.requests[page.copy_of].pages.get(page.key) == page.id
        assert page.node is not None or users(state, page), "R2.2: a page that nobody keeps is freed"
        if page.backing and page.level is Level.GPU:
            assert not any(r.active for r in users(state, page))


def check_mappings(state: State) -> None:
    """R14.2: a request refers to its copy, else to the backing, else to the oldest copy; an active one to no copy of another."""
    for r in state.requests.values():
        for pid in r.pages.values():
            page = state.pages[pid]
            if page.identity is None:
                continue
            there = locations(state, page)
            own = [one for one in there if one.copy_of == r.name]
            backing = [one for one in there if one.backing]
            assert (own or backing or there)[0].id == pid
            if r.active:
                assert own or page.level is Level.HOST


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_state_of_a_lifecycle(seed: int) -> None:
    rng, profile = Random(seed), Profile()
    manager = random_manager(rng, profile).model_copy(update={"ownership": Ownership.PRIVATE})
    chooser, system = Chooser(rng, manager, profile), Reference(Setup(manager, STREAMS))
    ending: list[Operation] | None = None
    for step in range(STEPS * 2):
        seen = system.observe()
        if step >= STEPS:
            ending = chooser.finish(seen) if ending is None else ending
            if not ending:
                break
        system.apply(chooser.next(seen) if ending is None else ending.pop(0))
        for check in (check_places, check_locations, check_mappings):
            check(system.state)
    assert not system.state.pages, "R14.8: everything was let go of"
