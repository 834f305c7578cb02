"""Policy ``match_renews``: whether a match makes a page young (R10.2)."""

from __future__ import annotations

from collections.abc import Iterable

from kvref.pages import now
from kvref.state import State, put_page
from kvref.values import replace


def matched(state: State, pages: Iterable[int]) -> State:
    """The state after a match of pages, by number: with ``yes`` they are as young as if they left LOCKED now."""
    for pid in pages if state.layout.policies.match_renews else ():
        state = put_page(state, replace(state.pages[pid], since=now(state)))
    return state
