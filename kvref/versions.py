"""Versions (R6.4): here alone a version becomes newer."""

from __future__ import annotations

from kvref.state import Request, State, eligible_count, fresh, mapped, put_request
from kvref.values import replace


def versioned(state: State, r: Request) -> object:
    """R6.4: what of a request makes a version: status, phase, row, the blocks' indices, levels and readiness, eligible counts."""
    of_request = r.uid, r.status, r.phase, r.row, state.layout.blocks(r.capacity)
    if not r.active:  # R6.2, R6.3: then it shows nothing of its blocks
        return of_request
    pages = {k: (p.slot, p.level, p.move) for k, p in mapped(state, r).items()}
    attention = state.layout.attention
    counts = {(g.index, beam): eligible_count(state, r, g.index, beam) for g in attention for beam in range(r.width)}
    return *of_request, frozenset(pages.items()), frozenset((k, n) for k, n in counts.items() if n)


def settle(state: State) -> State:
    """R6.4: a newer version for every request that shows something else than its version does, or had a block committed or
    rebased, or a row bound.
    """
    for r in state.requests.values():
        now = versioned(state, r)
        if now != r.versioned or r.name in state.trace.newer:
            state, version = fresh(state)
            state = put_request(state, replace(state.requests[r.name], version=version, versioned=now))
    return replace(state, trace=replace(state.trace, newer=frozenset()))
