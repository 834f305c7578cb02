"""Policy ``copy_at``: when the private copy of a partly matched block is made (R3.4)."""

from __future__ import annotations

from kvref.state import State


def by_create(state: State) -> bool:
    """Whether the `create` that matches it makes the copy (``create``), or the first resume (``resume``)."""
    return state.layout.policies.copy_at == "create"
