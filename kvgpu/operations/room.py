"""Room for an operation: reserving slots, evicting in cascades (R3.14, R10.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.config import LEVEL_NAMES, SlotKey
from kvgpu.operations import places
from kvgpu.operations.journal import Journal
from kvgpu.operations.state import TreeEvent
from kvgpu.operations.tree_changes import drop
from kvgpu.runs import Int32
from kvgpu.storage.pages import NO_NODE, NO_PAGE, NOBODY
from kvgpu.storage.prefix_tree import Node


class NoRoom(Exception):
    """Slots run out on a level: the operation cannot be done (R3.14, R5.5)."""

    def __init__(self, key: SlotKey, wanted: int) -> None:
        """``wanted``: the slots that the operation needs there."""
        super().__init__(
            f"no {wanted} free slots on the {LEVEL_NAMES[key[0]]} level, pool group {key[1]}, and no room can be made: "
            f"close or suspend requests, or configure more slots"
        )


@dataclass(slots=True)
class _Line:
    """The evictable pages of a pool group in order, as they were when they were first asked for."""

    pages: list[int]
    next: int
    epoch: int


class Room:
    """Room for an operation (R3.14, R10.1): slots are claimed one after the other, pages leave in order, in cascades.

    The operation claims on the coldest level first, so that what it needs itself comes before what it evicts. Drops are made at
    once; moves are decided here and submitted all together by ``Copies.evict``, before slots are taken.
    """

    def __init__(self, journal: Journal) -> None:
        """No page is pinned, nothing decided."""
        self._journal = journal
        self._pinned: list[Int32] = []
        self._pin_mask: npt.NDArray[np.bool_] | None = None
        self._lines: dict[SlotKey, _Line] = {}
        self._cancelled = 0
        self._moves: dict[tuple[SlotKey, SlotKey], dict[int, None]] = {}
        self._claimed: dict[SlotKey, int] = {}
        self._vacating: dict[SlotKey, int] = {}
        self._events: list[tuple[SlotKey, int, TreeEvent]] = []

    def pin(self, numbers: Int32) -> None:
        """The operation is about to use these pages: it does not evict them (R3.14)."""
        self._pinned.append(numbers)
        self._pin_mask = None

    def pin_blocks(self, nodes: Iterable[Node]) -> None:
        """The operation is about to use blocks of the tree: it evicts none of their pages (R3.9), in whatever place."""
        found = [page for node in nodes for page in node.pages if page != NO_PAGE]
        backings = self._journal.core.backings
        every = found if backings is None else [place for page in found for place in backings.places(page)]
        self.pin(np.array(every, dtype=np.int32))

    def pin_used(self, numbers: Int32) -> None:
        """The same, with the backings behind those that are copies, but without the copies of others (R14.4)."""
        backings = self._journal.core.backings
        self.pin(numbers if backings is None else np.concatenate([numbers, backings.behind(numbers)]))

    def pin_shown(self, node: Node) -> None:
        """The operation is about to use what a block of the tree shows (R14.2)."""
        self.pin_used(np.array([page for page in node.pages if page != NO_PAGE], dtype=np.int32))

    def left(self, key: SlotKey) -> int:
        """How many slots of a pool group are free, or will be, and nobody claims."""
        self._cancel_moves()
        return self._journal.core.pool(key).free + self._vacating.get(key, 0) - self._claimed.get(key, 0)

    def claim(self, counts: dict[SlotKey, int]) -> dict[SlotKey, int]:
        """Claim slots, by eviction if need be. Raises ``NoRoom``. Returns ``counts``."""
        for key, count in counts.items():
            if self.claim_some(key, count) < count:
                raise NoRoom(key, count)
        return counts

    def claim_some(self, key: SlotKey, count: int) -> int:
        """Claim as many slots of a pool group as can be had, up to ``count`` (R4.7)."""
        while self.left(key) < count and self.evict_one(key):
            pass
        claimed = min(count, max(self.left(key), 0))
        self._claimed[key] = self._claimed.get(key, 0) + claimed
        return claimed

    def take(self, claims: dict[SlotKey, int]) -> dict[SlotKey, Int32]:
        """Take claimed slots, once the evictions are submitted."""
        for key, count in claims.items():
            self._claimed[key] -= count
        return {key: self._journal.pool(key).take(count) for key, count in claims.items()}

    def evict_one(self, key: SlotKey) -> bool:
        """Move one page down or drop one, the first that can leave; whether there was one."""
        line = self._lines.get(key)
        if line is None:
            ordered = self._journal.core.queues[key[0]][key[1]].ordered().tolist()
            line = self._lines[key] = _Line(ordered, 0, self._journal.removals)
        if line.epoch != self._journal.removals:  # a removed subtree may have made room for those passed over
            line.next, line.epoch = 0, self._journal.removals
        while line.next < len(line.pages):
            page = line.pages[line.next]
            line.next += 1
            if self._may_leave(page, key) and self._leave(page, key):
                return True
        return False

    def _may_leave(self, page: int, key: SlotKey) -> bool:
        """Nobody has it locked (R2.5), nobody is about to use it, and this operation has not evicted it (R10.1)."""
        pages, core = self._journal.core.pages, self._journal.core
        return (
            bool(pages.alive[page])
            and not pages.locks[page]
            and page not in self._journal.scope.evicted
            and core.key_of(page) == key
            and not self._is_pinned(page)
        )

    def _is_pinned(self, page: int) -> bool:
        if self._pin_mask is None or page >= len(self._pin_mask):
            self._pin_mask = np.zeros(self._journal.core.pages.size, dtype=np.bool_)
            for numbers in self._pinned:
                self._pin_mask[numbers] = True
        return bool(self._pin_mask[page])

    def _leave(self, page: int, key: SlotKey) -> bool:
        core = self._journal.core
        backings = core.backings
        # R14.10: a copy and the backing leave each in its own turn.
        if backings is not None and core.pages.copy_of[page] != NOBODY and core.pages.backing[page] != NO_PAGE:
            places.evict_copy(self._journal, page)
            return True
        below = core.pool(key).spec.below
        if below is not None:
            lower = (key[0] + 1, below)
            if self.left(lower) > 0 or self.evict_one(lower):
                if core.pages.alive[page]:  # else it went with a removed subtree, and its slot is free
                    self._move(page, key, lower)
                return True
        kept = core.pages.users[page] if backings is None else backings.kept(page)
        if kept or core.pages.node[page] == NO_NODE:
            return False  # R10.1: HELD pages are never dropped
        drop(self._journal, page, self._journal.events)
        return True

    def _move(self, page: int, key: SlotKey, lower: SlotKey) -> None:
        journal, pages = self._journal, self._journal.core.pages
        self._moves.setdefault((key, lower), {})[page] = None
        self._claimed[lower] = self._claimed.get(lower, 0) + 1
        self._vacating[key] = self._vacating.get(key, 0) + 1
        journal.scope.evicted.add(page)
        journal.on_undo(lambda: journal.scope.evicted.discard(page))
        if journal.core.backings is not None and pages.copy_of[page] != NOBODY:
            places.become_backing(journal, page)
        if pages.node[page] != NO_NODE:
            tokens = journal.core.tree.node(int(pages.node[page])).prefix()
            self._events.append((key, page, TreeEvent("level", tokens, int(pages.group[page]), key[0], lower[0])))

    def moving(self) -> set[int]:
        """The pages whose moves are decided, and not submitted yet."""
        self._cancel_moves()
        return {page for moves in self._moves.values() for page in moves}

    def _cancel_moves(self) -> None:
        """Moves that were decided of pages that have been freed since are not made."""
        freed, self._cancelled = self._journal.dead[self._cancelled :], len(self._journal.dead)
        for page in (page for numbers in freed for page in numbers.tolist()) if self._moves else ():
            for (key, lower), moves in self._moves.items():
                if page in moves:
                    del moves[page]
                    self._claimed[lower] -= 1
                    self._vacating[key] -= 1
                    self._events = [entry for entry in self._events if entry[1] != page]

    def take_moves(self) -> Iterator[tuple[Int32, SlotKey, Int32]]:
        """The moves to submit, one after the other: pages, where to, slots there. Coldest level first, then pool group (R3.14).

        Their events stand in the same order.
        """
        self._cancel_moves()
        journal = self._journal
        told = [entry for entry in self._events if entry[1] not in journal.left_tree]  # else it is no page of the tree any more
        journal.events += [event for _, _, event in sorted(told, key=lambda entry: (-entry[0][0], entry[0][1]))]
        self._events = []
        for (key, lower), moves in sorted(self._moves.items(), key=lambda item: (-item[0][0][0], item[0][0][1])):
            if moves:
                numbers = np.fromiter(moves, np.int32, len(moves))
                self._vacating[key] -= len(numbers)
                yield numbers, lower, self.take({lower: len(numbers)})[lower]
        self._moves = {}
