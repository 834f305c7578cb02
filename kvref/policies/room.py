"""Policy ``room``: whether what an operation gives up is room for that same operation (R3.14)."""

from __future__ import annotations

from collections.abc import Iterable

from kvref.eviction import Plan, new_plan
from kvref.state import Page, State, locked
from kvref.values import replace


def plan_after(before: State, state: State, pinned: Iterable[Page]) -> Plan:
    """An empty plan of an operation that began at ``before`` and has given up in ``state`` what it gives up.

    ``counts``: slots that have become free are, and pages that have left LOCKED may be evicted. ``not_counted``: neither.
    """
    if state.layout.policies.room == "counts":
        return new_plan(state, pinned)
    held_back = [state.pages[pid] for pid in locked(before) if pid in state.pages and pid not in locked(state)]
    return replace(new_plan(state, (*pinned, *held_back)), free=new_plan(before).free)
