"""What holds in every state that random lifecycles reach, and after every failure (R2.4, R3.2, R3.14)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kvref.observe import observe
from kvref.state import State, Trace, keepers, mapped, pool_group_of
from kvref.step import initial, step
from kvspec.audit.drawing import STREAMS
from kvspec.audit.managers import Profile, random_manager
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
    for (level, pool), numbers in used.items():
        assert sorted(numbers) == list(range(state.layout.slots[level][pool])), "a slot is lost, or in use twice"
    for r in state.requests.values():
        assert len(r.tokens) <= r.history <= r.capacity
        for (group, _, _), page in (mapped(state, r) if r.active else {}).items():
            assert page.level is Level.GPU or (page.level is Level.HOST and state.layout.groups[group].sparse)


def values(state: State) -> State:
    return replace(state, step=0, serial=0, trace=Trace())


@pytest.mark.parametrize("seed", range(24))
def test_no_slot_is_lost_and_a_failure_changes_nothing(seed: int) -> None:
    rng = Random(seed)
    manager = random_manager(rng, Profile())
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
