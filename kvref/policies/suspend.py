"""Policy ``suspend``: what a suspended request keeps (R3.10)."""

from __future__ import annotations

from kvref.pages import let_go, unlock
from kvref.state import Request, State, mapped, put_request
from kvref.values import replace
from kvspec.observation import RequestStatus


def suspended(state: State, r: Request) -> State:
    """R7.4: the state in which an active request is suspended.

    ``hold``: its locks are holds. ``recompute``: it has let go of everything; when it resumes, it matches the tokens that it had
    committed.
    """
    if state.layout.policies.suspend == "hold":
        state = unlock(state, r, *mapped(state, r).values())
        return put_request(state, replace(r, status=RequestStatus.SUSPENDED))
    state = let_go(state, r, r.pages)
    r = replace(state.requests[r.name], again=r.tokens, tokens=(), path=(), capacity=0, history=0)
    return put_request(state, replace(r, status=RequestStatus.SUSPENDED))
