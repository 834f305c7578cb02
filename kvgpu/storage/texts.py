"""Tokens with their keys: what blocks of the prefix tree are told apart by (R2.7)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, TypeAlias

Tokens: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[str | None, str | None]
"""Of a token: the key of its request, and its own."""
Keys: TypeAlias = tuple[Key, ...]
NO_KEY: Key = (None, None)


class Text(NamedTuple):
    """Tokens, and the key of each; no keys at all where no token has any. Equal texts are the same tokens with the same keys."""

    tokens: Tokens
    keys: Keys = ()

    def part(self, start: int, end: int) -> Text:
        """The tokens from ``start`` up to ``end``."""
        return text_of(self.tokens[start:end], self.keys[start:end])

    def key(self, place: int) -> Key:
        """The key of a token."""
        return self.keys[place] if self.keys else NO_KEY

    def common(self, other: Text) -> int:
        """How many tokens both begin with, each with the same key in both."""
        most = min(len(self.tokens), len(other.tokens))
        keyed = bool(self.keys or other.keys)
        for place in range(most):
            if self.tokens[place] != other.tokens[place] or (keyed and self.key(place) != other.key(place)):
                return place
        return most


def text_of(tokens: Tokens, keys: Keys) -> Text:
    """A text. ``keys``: one a token, or none; they are left out where no token has one."""
    return Text(tokens, keys if any(key != NO_KEY for key in keys) else ())


def joined(parts: Iterable[Text]) -> Text:
    """The texts one after the other."""
    each = list(parts)
    if len(each) == 1:
        return each[0]
    tokens = tuple(chain.from_iterable(part.tokens for part in each))
    if not any(part.keys for part in each):
        return Text(tokens)
    return Text(tokens, tuple(chain.from_iterable(part.keys or (NO_KEY,) * len(part.tokens) for part in each)))
