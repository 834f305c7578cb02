"""Tokens and keys as the harness knows them (R2.7)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kvgpu.operations.keys import Span
from kvgpu.storage.texts import NO_KEY, Key, Text
from kvspec import ops
from kvspec.tokens import Keyed, Token


def shown(text: Text) -> tuple[Token, ...]:
    """A text of the tree: of one without keys its own tokens, the same tuple each time."""
    return _keyed(text) if text.keys else text.tokens


@lru_cache(maxsize=4096)
def _keyed(text: Text) -> tuple[Token, ...]:
    return tuple(_token(token, key) for token, key in zip(text.tokens, text.keys, strict=True))


def _token(token: int, key: Key) -> Token:
    return token if key == NO_KEY else Keyed(token, *key)


def spans_of(spans: Iterable[ops.Span]) -> tuple[Span, ...]:
    """Spans as the manager takes them."""
    return tuple((span.start, span.end, span.key) for span in spans)
