"""Policy ``partial_blocks``: whether the tree keeps a last block that is not full (R3.9, R10.5)."""

from __future__ import annotations

from kvref.state import State
from kvspec.tokens import Token


def enters(state: State, tokens: tuple[Token, ...]) -> bool:
    """Whether a block of these tokens may enter the tree: a full one always, any other if they are ``kept``."""
    return len(tokens) == state.layout.tpb or state.layout.policies.partial_blocks == "kept"
