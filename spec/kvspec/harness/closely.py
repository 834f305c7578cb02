"""What a comparison looks at closely: all that either side shows otherwise than a step before, and what depends on it.

The comparison of a page, or of a block of a snapshot, follows from what both sides show of it and from what is remembered of it.
Where none of that has changed since a comparison that found nothing, another would find nothing. Whether it has changed is
told by value, never because a system says so; only the same `PageView` of values that cannot change is taken for what it was.
Beside that, a digest of all pages of the one side, made anew at each step, is that of the other, or everything is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvspec.harness.naming import Matching, PageKey, Row
from kvspec.harness.side import Side
from kvspec.observation import PageRef


@dataclass(frozen=True, slots=True)
class Closely:
    """``pages``: numbers of the reference. ``refs``: by snapshot, the blocks whose pages are among them, or were."""

    pages: tuple[int, ...]
    refs: dict[Row, set[int]]

    def blocks(self, row: Row, sides: tuple[Side, Side]) -> Iterable[int]:
        """The blocks of a snapshot of now to look at; both sides have the same number."""
        blocks = set(self.refs.get(row, ()))
        for side in sides:
            assert side.before is not None
            blocks.update(side.now.blocks_changed(row, side.before))
        name, group, beam = row
        count = len(sides[0].now.observation.requests[name].snapshots[group, beam].indices)
        return sorted(block for block in blocks if block < count)


def closely(sides: tuple[Side, Side], matching: Matching, clean: bool, remembered: Iterable[PageKey]) -> Closely | None:
    """What to look at; ``None``: at everything.

    :param clean: whether the comparison before found nothing.
    :param remembered: the pages of which something is, or was a step before, remembered that a comparison asks for.
    """
    if not clean or matching.missing or matching.surplus or matching.loose:
        return None
    if sides[0].now.digest != sides[1].now.digest or any(side.now.problems for side in sides):
        return None
    keys = set(remembered)
    for side in sides:
        if side.now.fresh is None or side.before is None or not side.now.follows(side.before):
            return None
        keys.update(side.now.keys[number] for number in side.now.fresh)
        keys.update(side.now.gone)
    refs: dict[Row, set[int]] = {}
    for ref in _refs(keys, sides):
        refs.setdefault((ref.request, ref.group, ref.beam), set()).add(ref.block)
    by_key = sides[0].now.by_key
    return Closely(tuple(sorted(by_key[key] for key in keys if key in by_key)), refs)


def _refs(keys: Iterable[PageKey], sides: Iterable[Side]) -> Iterator[PageRef]:
    """All references, now and before, to pages that are known by one of these keys in either system."""
    for side in sides:
        for index in (side.now, side.before):
            for key in keys if index is not None else ():
                number = index.by_key.get(key) if index is not None else None
                if index is not None and number is not None:
                    yield from index.pages[number].refs
