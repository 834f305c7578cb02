"""What page payloads contain.

A payload is named by a ``Content`` and expanded to bytes only where bytes are needed: the reference keeps
the name, an implementation keeps the bytes, and the harness compares the two.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _hashlib import HASHXOF

from kvspec.tokens import Token


@dataclass(frozen=True, slots=True, order=True)
class Content:
    """The contents that one write puts into one page.

    ``source`` is the name of the request that wrote, or ``seed:`` and the comma-separated tokens of the whole
    prefix, with their keys, for a page that `seed_prefix` made (``beam`` and ``nth`` are 0 there). ``nth`` counts the writes
    of that source into that page before this one: 0 for the first; 0 again after another source's content.
    """

    source: str
    group: str
    block: int
    beam: int = 0
    nth: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Part of the contents of a page, by name: the bytes of each of ``ranges`` (first, end), one after the other."""

    content: Content
    ranges: tuple[tuple[int, int], ...]


def seed_content(tokens: tuple[Token, ...], group: str, block: int) -> Content:
    """The contents of a page seeded for the block that ends ``tokens``, the whole prefix."""
    return Content("seed:" + _spelled(tokens), group, block)


_last: tuple[tuple[Token, ...], str] = ((), "")


def _spelled(tokens: tuple[Token, ...]) -> str:
    """The tokens as text. Most are those of the call before, and some more: a long prefix is seeded block by block."""
    global _last
    before, text = _last
    if not before or (tokens is not before and tokens[: len(before)] != before):
        before, text = (), ""
    rest = ",".join(map(str, tokens[len(before) :]))
    spelled = f"{text},{rest}" if text and rest else text or rest
    _last = tokens, spelled
    return spelled


def next_content(old: Content | None, source: str, group: str, block: int, beam: int = 0) -> Content:
    """The contents of a write by ``source`` to a page that holds ``old``."""
    nth = old.nth + 1 if old is not None and old.source == source and old.group == group else 0
    return Content(source, group, block, beam, nth)


LONG = 1024
"""From so many characters on, a source is mostly a long prefix, which is seeded block by block: it begins with the one before."""


def expand(content: Content, nbytes: int) -> bytes:
    """The ``nbytes`` bytes of a payload: a fixed function of ``content``, different for different contents."""
    rest = f"|{content.group}|{content.block}|{content.beam}|{content.nth}"
    if len(content.source) < LONG:
        return hashlib.shake_128((content.source + rest).encode()).digest(nbytes)
    begun = _hashed(content.source)
    begun.update(rest.encode())
    return begun.digest(nbytes)


_before = ("", hashlib.shake_128())


def _hashed(source: str) -> HASHXOF:
    """A hash of a long source, to go on with."""
    global _before
    text, begun = _before
    if not source.startswith(text):
        text, begun = "", hashlib.shake_128()
    if len(source) > len(text):
        begun = begun.copy()
        begun.update(source[len(text) :].encode())
        _before = source, begun
    return begun.copy()
