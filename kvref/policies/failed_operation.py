"""Policy ``failed_operation``: whether pages have left for an operation that then does not fit (R3.14)."""

from __future__ import annotations

from kvref.eviction import act, evictable, leave, new_plan
from kvref.failure import NoRoom
from kvref.state import State, pool_group_of


def evicted(state: State, full: NoRoom) -> State:
    """The state in which an operation found no room: as it was (``evicts_nothing``), or without the pages that it found before it
    ran out (``may_have_evicted``). Raises `Refused`.
    """
    if state.layout.policies.failed_operation == "evicts_nothing":
        return state
    plan = new_plan(state)
    for page in (state.pages[pid] for pid in full.leaving if pid in state.pages):
        if page in evictable(state, pool_group_of(state, page)):  # not one that the operation would have given up
            plan = leave(state, plan, page) or plan
    return act(state, plan)
