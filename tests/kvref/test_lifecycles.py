"""What holds in every state that random lifecycles reach, and after every failure (R2.4, R3.2, R3.14)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kvref.cached import Reservation
from kvref.observe import observe
from kvref.state import State, Trace, keepers, mapped, pool_group_of
from kvref.step import initial, step
from kvspec.audit.drawing import STREAMS
from kvspec.audit.managers import Fetches, Profile, fetching, random_manager
from kvspec.audit.workload import Chooser
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.system import Setup

STAYS = {"commit", "iterate", "publish", "resize_batch", "resume", "admit_generation"}
"""Operations of which something may stay when they fail (R3.2, R3.9, R8.6, R8.9)."""


def check(state: State) -> None:
    used = {pool: [slot.number for slot in slots] for pool, slots in state.free.items()}
    for page in state.pages.values():
        used[pool_group_of(state, page)].append(page.slot)
        assert page.node in state.nodes if page.node is not None else keepers(state, page)
    for pool, slots in state.taken.values():
        used[pool] += [slot.number for slot in slots]
    for one in state.reservations.values():
        if one.held:
            check_reservation(state, one)
            used[state.layout.pool_group(Level.GPU, one.group)] += [slot.number for slot in one.slots]
    for (level, pool), numbers in used.items():
        assert sorted(numbers) == list(range(state.layout.slots[level][pool])), "a slot is lost, or in use twice"
    for r in state.requests.values():
        assert len(r.tokens) <= r.history <= r.capacity
        for (group, _, _), page in (mapped(state, r) if r.active else {}).items():
            assert page.level is Level.GPU or (page.level is Level.HOST and state.layout.groups[group].sparse)


def check_reservation(state: State, one: Reservation) -> None:
    """R15.2, R15.3, R15.6: as many slots as the history asks for, and in them complete history, each part of it once."""
    r, group = state.requests[one.request], state.layout.groups[one.group]
    blocks = r.history // state.layout.tpb
    assert r.active and r.decoding and len(one.slots) == min(group.reserve, blocks)
    for cache in one.caches.values():
        numbers = [cached.number for cached in cache.cached]
        entries = [cached.entry for cached in cache.cached]
        assert len(set(numbers)) == len(numbers) and all(0 <= number < blocks * group.units for number in numbers)
        assert len(set(entries)) == len(entries) and all(0 <= entry < len(one.slots) * group.units for entry in entries)


def values(state: State) -> State:
    return replace(state, step=0, serial=0, trace=Trace())


@pytest.mark.parametrize("seed", range(24))
def test_no_slot_is_lost_and_a_failure_changes_nothing(seed: int) -> None:
    rng = Random(seed)
    manager = fetching(random_manager(rng, Profile()), seed, Fetches.ALL if seed % 2 else Fetches.NONE)
    state = initial(Setup(manager, STREAMS))
    chooser = Chooser(rng=rng, manager=manager)
    for _ in range(60):
        before, op = state, chooser.next(observe(state))
        state, outcome = step(state, op)
        check(state)
        failed = outcome.value is False or outcome.error not in (None, ErrorKind.COPY_FAILED)
        if failed and op.verb not in STAYS:
            assert values(state) == values(before), f"{op.verb} failed and left something over"
    for op in chooser.finish(observe(state)):
        state, _ = step(state, op)
    assert not state.pages
    assert not state.taken
