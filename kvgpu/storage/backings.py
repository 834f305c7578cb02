"""The places of pages that have several, with private ownership: a backing, which all may refer to, and copies (R14.1).

Each place is a row of the page table. The rows of one page are in a ring, and each names the backing. What this reads is changed
by ``operations.places``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvgpu.runs import Int32
from kvgpu.storage.pages import NO_PAGE, NOBODY, PageTable
from kvspec.config import Level

Mask = npt.NDArray[np.bool_]


class Backings:
    """What the page table says of the places of pages."""

    def __init__(self, pages: PageTable) -> None:
        """Of a page table that was made with ``places``."""
        self._pages = pages

    def has_places(self, numbers: Int32) -> Mask:
        """Which rows are places of committed pages of sparse groups; the others have one location, as ever."""
        found: Mask = self._pages.next_place[numbers] != NO_PAGE
        return found

    def places(self, page: int) -> list[int]:
        """All places of a page, by any of them: that first."""
        return [page, *self.others(page)]

    def others(self, page: int) -> Iterator[int]:
        """The other places of a page."""
        following = self._pages.next_place
        other = int(following[page])
        while other not in (page, NO_PAGE):
            yield other
            other = int(following[other])

    def before(self, page: int) -> int:
        """The place in whose ring a place is the next; itself if it is alone."""
        before, following = page, self._pages.next_place
        while following[before] != page:
            before = int(following[before])
        return before

    def copies(self, page: int) -> list[int]:
        """The copies of a page, oldest first (R14.2)."""
        copies = [place for place in self.places(page) if self._pages.copy_of[place] != NOBODY]
        return sorted(copies, key=self._pages.serial.__getitem__)

    def shown(self, page: int) -> int:
        """What who has no copy refers to: the backing, or else the oldest copy (R14.2)."""
        backing = int(self._pages.backing[page])
        return backing if backing != NO_PAGE else self.copies(page)[0]

    def kept(self, page: int) -> bool:
        """Whether some request refers to the page: as this place, or as a copy beside this backing (R14.8)."""
        return bool(self._pages.users[page]) or any(self._pages.copy_of[place] != NOBODY for place in self.places(page))

    def is_copy(self, numbers: Int32) -> Mask:
        """Which rows are copies."""
        found: Mask = self._pages.copy_of[numbers] != NOBODY
        return found

    def is_backing(self, numbers: Int32) -> Mask:
        """Which rows are backings."""
        found: Mask = self._pages.backing[numbers] == numbers
        return found

    def on_host(self, numbers: Int32) -> Mask:
        """Which copies have a backing on the host: who gives them up can attach (R14.6)."""
        backing = self._pages.backing[numbers]
        found: Mask = (backing != NO_PAGE) & (backing != numbers) & (self._pages.level[backing] == Level.HOST)
        return found

    def behind(self, numbers: Int32) -> Int32:
        """The backings of those rows that are copies: active requests lock them, too (R14.8)."""
        found = self._pages.backing[numbers[self.is_copy(numbers)]]
        there: Int32 = found[found != NO_PAGE]
        return there

    def active(self, page: int) -> int:
        """How many active requests have a copy of a page."""
        return sum(int(self._pages.locks[copy]) for copy in self.copies(page))
