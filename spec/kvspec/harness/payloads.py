"""Comparing payloads: contents by name on one side, bytes on the other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kvspec.payload import Content, Part, expand


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


def part_equal(reference: Part | bytes | None, implementation: Part | bytes | None, nbytes: int) -> bool:
    """The same of part of a page of ``nbytes`` bytes."""
    return part_bytes(reference, nbytes) == part_bytes(implementation, nbytes)


def part_bytes(part: Part | bytes | None, nbytes: int) -> bytes | None:
    """The bytes of part of a page."""
    if not isinstance(part, Part):
        return part
    whole = _bytes(part.content, nbytes)
    return b"".join(whole[first:end] for first, end in part.ranges)


def part_text(part: Part | bytes | None, nbytes: int, known: Iterable[Content]) -> str:
    """Part of a page for the reader; bytes are named if they are a part of one of the ``known`` contents."""
    if part is None:
        return "never written"
    if isinstance(part, Part):
        return f"bytes {', '.join(f'{a} to {b}' for a, b in part.ranges)} of {content_text(part.content)}"
    for content in known:
        if part and (at := _bytes(content, nbytes).find(part)) >= 0:
            return f"bytes from {at} of {content_text(content)}"
    return f"{len(part)} bytes of nothing that was written here ({part[:8].hex(' ')}{' ...' if len(part) > 8 else ''})"


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
