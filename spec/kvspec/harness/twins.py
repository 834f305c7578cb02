"""Telling apart pages of the tree with equal tokens, which a system may have (policy ``dedupe``).

The one that is seen first has the usual key of a page of the tree. Each next one has a number, which it keeps for as long as it
is there, so that pages that entered in one order have the same numbers in both systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TypeAlias

from kvspec.observation import Observation, PageView
from kvspec.tokens import Token

Tokens: TypeAlias = tuple[str, tuple[Token, ...]]
"""The group of a page of the tree, and its tokens."""


def twins_of(now: Observation, before: Observation | None, numbers: Mapping[int, int]) -> dict[int, int]:
    """The numbers, from 1, of pages that are not the first with their tokens, by their places in an observation.

    :param before: what the same system showed a step before.
    :param numbers: the numbers of its pages.
    """
    earlier: dict[Tokens, list[tuple[PageView, int]]] = {}
    for place, tokens in _of_the_tree(before.pages if before is not None else ()):
        assert before is not None
        earlier.setdefault(tokens, []).append((before.pages[place], numbers.get(place, 0)))
    families: dict[Tokens, list[int]] = {}
    for place, tokens in _of_the_tree(now.pages):
        families.setdefault(tokens, []).append(place)
    turns = {place: turn for pool in now.pools.values() for turn, place in enumerate(pool.evictable)}
    found: dict[int, int] = {}
    for tokens, family in families.items():
        if len(family) > 1 or any(number for _, number in earlier.get(tokens, ())):
            found.update(_numbered(now.pages, family, earlier.get(tokens, ()), turns))
    return {place: number for place, number in found.items() if number}


def _of_the_tree(pages: Sequence[PageView]) -> Iterator[tuple[int, Tokens]]:
    return (
        (place, (page.group, page.tokens)) for place, page in enumerate(pages) if page.tokens is not None and page.copy_of is None
    )


def _numbered(
    pages: Sequence[PageView], family: Sequence[int], earlier: Sequence[tuple[PageView, int]], turns: Mapping[int, int]
) -> dict[int, int]:
    """The numbers of pages with the same tokens: as they were, by their slots or by who refers to them; else the next ones."""
    found: dict[int, int] = {}
    for place in family:
        page = pages[place]
        same = [number for old, number in earlier if (old.level, old.slot) == (page.level, page.slot)]
        same += [number for old, number in earlier if old.refs & page.refs]
        known = [number for number in same if number not in found.values()]
        if known:
            found[place] = known[0]
    new = [place for place in family if place not in found]
    new.sort(key=lambda place: (not pages[place].refs, sorted(pages[place].refs), pages[place].level, turns.get(place, -1)))
    spare = (number for number in count() if number not in found.values())
    return {**found, **dict(zip(new, [next(spare) for _ in new], strict=True))}
