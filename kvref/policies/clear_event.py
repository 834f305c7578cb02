"""Policy ``clear_event``: the events of clear_reusable (R13.3)."""

from __future__ import annotations

from kvref.state import State
from kvref.values import replace
from kvspec.observation import Cleared


def cleared(state: State) -> State:
    """The state after a clear: an event for each block removed (``each``), or a single one in their place (``one``)."""
    if state.layout.policies.clear_event == "each":
        return state
    return replace(state, trace=replace(state.trace, events=(Cleared(),)))
