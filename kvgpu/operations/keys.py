"""Keys beside tokens (R2.7): what of them is refused, and tokens with the keys that a call gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kvgpu.errors import InvalidArgument
from kvgpu.storage.texts import Key, Text, text_of

Span: TypeAlias = tuple[int, int, str]
"""A part of some tokens that has a key: from the first number up to the second."""


def check_keys(what: str, tokens: int, key: str | None, spans: Sequence[Span] = ()) -> None:
    """``InvalidArgument`` for a key that is no text, or an empty one, and for spans that cannot be. ``tokens``: how many."""
    for one in (key, *(of_span for _, _, of_span in spans)):
        if one is not None and (not isinstance(one, str) or not one):
            raise InvalidArgument(f"{what}: a key is a text with at least a letter, got {one!r} (R2.7)")
    end = 0
    for first, last, of_span in spans:
        if of_span is None:
            raise InvalidArgument(f"{what}: the span [{first}, {last}) has no key (R2.7)")
        if first < end or last <= first or last > tokens:
            raise InvalidArgument(
                f"{what}: the span [{first}, {last}) is empty, begins before {end}, where the one before ends, or is beyond the "
                f"{tokens} tokens (R2.7)"
            )
        end = last


def marked(tokens: Sequence[int], key: str | None, spans: Sequence[Span] = ()) -> Text:
    """Tokens with the key of their request, and those of spans."""
    keys: list[Key] = [(key, None)] * len(tokens) if key is not None or spans else []
    for first, last, of_span in spans:
        keys[first:last] = [(key, of_span)] * (last - first)
    return text_of(tuple(tokens), tuple(keys))
