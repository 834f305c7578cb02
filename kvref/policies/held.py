"""Policy ``held``: whether pages leave that a request keeps while it is not active (R10.1)."""

from __future__ import annotations

from kvref.state import Page, State, kept, users


def may_leave(state: State, page: Page) -> bool:
    """Whether a page that is not locked may leave: always (``evictable``), or only if no request keeps it (``pinned``)."""
    return state.layout.policies.held == "evictable" or not (page.id in kept(state) or (page.backing and users(state, page)))
