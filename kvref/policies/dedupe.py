"""Policy ``dedupe``: what a commit does with a block that the tree has already (R3.9)."""

from __future__ import annotations

from kvref.state import State


def rebases(state: State) -> bool:
    """Whether the request takes the tree's pages for its own (``rebase``), or its own enter beside them (``keep_both``)."""
    return state.layout.policies.dedupe == "rebase"
