"""Room for an operation: reserving slots, evicting in cascades (R3.14, R10.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvgpu.config import LEVEL_NAMES, SlotKey
from kvgpu.core import TreeEvent
from kvgpu.fences import EMPTY, PENDING
from kvgpu.pages import NO_NODE, NO_PAGE
from kvgpu.tree_changes import drop

if TYPE_CHECKING:
    from kvgpu.transaction import Transaction

Int32 = npt.NDArray[np.int32]


class NoRoom(Exception):
    """Slots run out on a level: the operation cannot be done."""

    def __init__(self, key: SlotKey, wanted: int) -> None:
        """``wanted``: the slots that the operation needs there."""
        super().__init__(
            f"no {wanted} free slots on the {LEVEL_NAMES[key[0]]} level, pool group {key[1]}, and no room can be made: "
            f"close or suspend requests, or configure more slots"
        )


@dataclass(frozen=True, slots=True)
class Move:
    """An eviction that is decided and not submitted yet. ``waits``: fence numbers of the source slot that the copy waits for.

    ``freed_fence``: what the source slot's fence would be, were the page freed there instead.
    """

    page: int
    source_slot: int
    target_slot: int
    waits: tuple[int, int]
    freed_fence: int


@dataclass(slots=True)
class _Line:
    """The evictable pages of a pool group in order, as they were when they were first asked for."""

    pages: list[int]
    next: int
    epoch: int


class Room:
    """Room for an operation (R3.14, R10.1): slots are reserved one after the other, pages leave in order, in cascades.

    The operation reserves on the coldest level first, so that what it needs itself comes before what it evicts. A decision is a
    change of the transaction at once; ``moves`` are the copies to submit, all before anything else is copied.
    """

    def __init__(self, tx: Transaction) -> None:
        """No page is pinned, nothing decided."""
        self._tx = tx
        self._pinned: list[Int32] = []
        self._pin_mask: npt.NDArray[np.bool_] | None = None
        self._lines: dict[SlotKey, _Line] = {}
        self._epoch = 0
        self.moves: dict[tuple[SlotKey, SlotKey], dict[int, Move]] = {}
        self._events: list[tuple[SlotKey, int, TreeEvent]] = []

    def pin(self, numbers: Int32) -> None:
        """The operation is about to use these pages: it does not evict them (R3.14)."""
        self._pinned.append(numbers)
        self._pin_mask = None

    def reserve(self, key: SlotKey, count: int) -> Int32:
        """Slots of a pool group, by eviction if need be. Raises ``NoRoom``."""
        pool = self._tx.pool(key)
        while pool.free < count:
            if not self.evict_one(key):
                raise NoRoom(key, count)
        return pool.take(count)

    def reserve_some(self, key: SlotKey, count: int) -> Int32:
        """As many slots of a pool group as can be had, up to ``count`` (R4.7)."""
        pool = self._tx.pool(key)
        while pool.free < count and self.evict_one(key):
            pass
        return pool.take(min(count, pool.free))

    def evict_one(self, key: SlotKey) -> bool:
        """Move one page down or drop one, the first that can leave; whether there was one."""
        line = self._lines.get(key)
        if line is None:
            ordered = self._tx.core.queues[key[0]][key[1]].ordered().tolist()
            line = self._lines[key] = _Line(ordered, 0, self._epoch)
        if line.epoch != self._epoch:  # a removed subtree may have made room for those passed over
            line.next, line.epoch = 0, self._epoch
        while line.next < len(line.pages):
            page = line.pages[line.next]
            line.next += 1
            if self._may_leave(page, key) and self._leave(page, key):
                return True
        return False

    def subtree_removed(self) -> None:
        """Slots may have become free on any level."""
        self._epoch += 1

    def _may_leave(self, page: int, key: SlotKey) -> bool:
        pages, core = self._tx.core.pages, self._tx.core
        return (
            bool(pages.alive[page])
            and not pages.locks[page]
            and page not in self._tx.scope.evicted
            and core.key_of(page) == key
            and not self._is_pinned(page)
        )

    def _is_pinned(self, page: int) -> bool:
        if self._pin_mask is None or page >= len(self._pin_mask):
            self._pin_mask = np.zeros(self._tx.core.pages.room, dtype=np.bool_)
            for numbers in self._pinned:
                self._pin_mask[numbers] = True
        return bool(self._pin_mask[page])

    def _leave(self, page: int, key: SlotKey) -> bool:
        core = self._tx.core
        below = core.pool(key).spec.below
        if below is not None:
            lower = (key[0] + 1, below)
            if core.pool(lower).free or self.evict_one(lower):
                if core.pages.alive[page]:  # else it went with a removed subtree, and its slot is free
                    self._move(page, key, lower)
                return True
        if core.pages.users[page] or core.pages.node[page] == NO_NODE:
            return False  # R10.1: HELD pages are never dropped
        events: list[TreeEvent] = []
        drop(self._tx, page, events)
        self._events += [(key, NO_PAGE, event) for event in events]
        return True

    def _move(self, page: int, key: SlotKey, lower: SlotKey) -> None:
        tx, pages, fences = self._tx, self._tx.core.pages, self._tx.core.fences
        source, target = tx.pool(key), tx.pool(lower)
        one = np.array([page], dtype=np.int32)
        slots, old = target.take(1), pages.slot[one]
        behind = fences.united(fences.united(source.fence[old], pages.ready[one]), source.readers[old])
        waits = (int(source.fence[old[0]]), int(source.readers[old[0]]))
        self.moves.setdefault((key, lower), {})[page] = Move(page, int(old[0]), int(slots[0]), waits, int(behind[0]))
        tx.scope.evicted.add(page)
        tx.on_undo(lambda: tx.scope.evicted.discard(page))
        tx.put_slots(source, "fence", old, PENDING)
        tx.put_slots(source, "readers", old, EMPTY)
        tx.vacate(source, old)
        tx.place(one, target, slots)
        source.evictable -= 1
        target.evictable += 1
        tx.unsettle(one)
        tx.core.queues[lower[0]][lower[1]].push(one)
        if pages.node[page] != NO_NODE:
            tokens = tx.core.tree.nodes[int(pages.node[page])].prefix()
            self._events.append((key, page, TreeEvent("level", tokens, int(pages.group[page]), key[0], lower[0])))

    def cancel_moves(self, numbers: Int32) -> None:
        """Pages are about to be freed: a move of theirs that was decided is not made."""
        if not self.moves:
            return
        for page in numbers.tolist():
            for (key, _), moves in self.moves.items():
                move = moves.pop(page, None)
                if move is not None:
                    slot = np.array([move.source_slot], dtype=np.int32)
                    self._tx.put_slots(self._tx.core.pool(key), "fence", slot, move.freed_fence)
                    self._tx.put("ready", np.array([page], dtype=np.int32), EMPTY)
                    self._events = [entry for entry in self._events if entry[1] != page]

    def take_moves(self) -> list[tuple[SlotKey, SlotKey, list[Move]]]:
        """The moves to submit: coldest level first, then pool group (R3.14). Their events stand in the same order."""
        moves = [(source, target, list(each.values())) for (source, target), each in self.moves.items() if each]
        self.moves = {}
        self._tx.events += [event for _, _, event in sorted(self._events, key=lambda entry: (-entry[0][0], entry[0][1]))]
        self._events = []
        return sorted(moves, key=lambda move: (-move[0][0], move[0][1]))
