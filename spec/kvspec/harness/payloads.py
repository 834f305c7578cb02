"""Comparing payloads: contents by name on one side, bytes on the other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kvspec.payload import Content, expand


@lru_cache(maxsize=4096)
def _bytes(content: Content, nbytes: int) -> bytes:
    return expand(content, nbytes)


def payload_equal(reference: Content | bytes, implementation: Content | bytes, nbytes: int) -> bool:
    """Whether two payloads of a page of ``nbytes`` bytes are the same; names are expanded where the other gives bytes."""
    if isinstance(reference, Content) and isinstance(implementation, Content):
        return reference == implementation
    one = _bytes(reference, nbytes) if isinstance(reference, Content) else reference
    two = _bytes(implementation, nbytes) if isinstance(implementation, Content) else implementation
    return one == two


def payload_text(payload: Content | bytes | None, known: Iterable[Content]) -> str:
    """A payload for the reader; bytes are named if they are those of one of the ``known`` contents, or of its beginning."""
    if payload is None:
        return "never written"
    if isinstance(payload, Content):
        return content_text(payload)
    for content in known:
        if payload and _bytes(content, len(payload)) == payload:
            return content_text(content)
    start = payload[:8].hex(" ")
    return f"{len(payload)} bytes of nothing that was written here ({start}{' ...' if len(payload) > 8 else ''})"


def content_text(content: Content) -> str:
    """A content for the reader."""
    beam = f" beam {content.beam}" if content.beam else ""
    nth = f", write {content.nth + 1}" if content.nth else ""
    return f"what {content.source} wrote to {content.group} block {content.block}{beam}{nth}"
