"""Which pages leave a pool group first (R10.2).

A page gets its turn when it leaves LOCKED, or when it is made and nobody locks it. Pages come in by whole arrays, and nothing
is sorted before it is needed. Entries go stale silently and are left out then: the page table says what is true.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from kvgpu.config import Layout
from kvgpu.runs import Int32
from kvgpu.storage.pages import PageTable


class EvictionQueue:
    """The evictable pages of one pool group of one level, in bags by (priority, operation)."""

    def __init__(self, level: int, pool_group: int, layout: Layout, pages: PageTable) -> None:
        """An empty queue."""
        self._pages = pages
        self._level = level
        self._served = np.array([group.pool_groups[level] == pool_group for group in layout.groups])
        self._bags: dict[tuple[int, int], list[Int32]] = {}
        self._order: list[tuple[int, int]] = []
        self._pushed = 0
        self._collect_at = 1024

    def push(self, numbers: Int32) -> None:
        """Pages of this pool group that nobody has locked, their priority and stamp set."""
        if not numbers.size:
            return
        pages = self._pages
        keys = np.stack([pages.priority[numbers], pages.stamp[numbers]])
        if bool((keys == keys[:, :1]).all()):
            self._put((int(keys[0, 0]), int(keys[1, 0])), numbers)
            return
        unique, inverse = np.unique(keys, axis=1, return_inverse=True)
        for which, (priority, stamp) in enumerate(unique.T.tolist()):
            self._put((priority, stamp), numbers[inverse.reshape(-1) == which])

    def _put(self, key: tuple[int, int], numbers: Int32) -> None:
        if key not in self._bags:
            self._bags[key] = []
            insort(self._order, key)
        self._bags[key].append(numbers)
        self._pushed += 1

    def collect(self) -> None:
        """Forget stale entries, if many pages came in since: they would pile up where nothing is ever evicted.

        Not while an operation runs.
        """
        if self._pushed > self._collect_at:
            self.ordered()
            self._pushed = len(self._bags)
            self._collect_at = max(1024, 2 * self._pushed)

    def ordered(self) -> Int32:
        """All evictable pages, first to leave first."""
        pages = self._pages
        found: list[Int32] = []
        for key in list(self._order):
            bag = np.unique(np.concatenate(self._bags[key]))
            true = pages.alive[bag] & (pages.level[bag] == self._level) & (pages.locks[bag] == 0) & self._served[pages.group[bag]]
            bag = bag[true & (pages.priority[bag] == key[0]) & (pages.stamp[bag] == key[1])]
            if not bag.size:
                del self._bags[key]
                self._order.remove(key)
                continue
            # R10.2: higher blocks, then the lower group, then the older page.
            bag = bag[np.lexsort((pages.serial[bag], pages.group[bag], -pages.block[bag]))]
            self._bags[key] = [bag]
            found.append(bag)
        return np.concatenate(found) if found else np.empty(0, dtype=np.int32)
