"""Policy ``match``: how far a match goes (R3.1)."""

from __future__ import annotations

from kvref.state import State


def inside_a_block(state: State) -> bool:
    """Whether a match may cover a part of its last block (``token``), or whole blocks alone (``block``)."""
    return state.layout.policies.match == "token"
