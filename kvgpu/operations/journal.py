"""The changes of one operation, each with what takes it back (R3.14): values, locks, releases, free slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import numpy.typing as npt

from kvgpu.config import SlotKey
from kvgpu.operations.state import Core, Scope, TreeEvent
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, read, write
from kvgpu.storage.fences import EMPTY, Point
from kvgpu.storage.pages import NO_NODE
from kvgpu.storage.pools import FREE, Mark, SlotPool
from kvgpu.storage.prefix_tree import Node


def released_work(core: Core, request: Request) -> list[Point]:
    """The work so far on a request's stream, for the fences of the slots that it releases (R7.4)."""
    if request.stream is None:
        return []
    return [core.fences.record(request.stream, "R7.4 work before a release", "R7.4 freed slot: work before its release")]


class Journal:
    """The changes of one operation, in order, and how to undo them.

    ``events``: of the tree. ``dropped``: the groups of pages dropped; ``attached``: of those attached. ``forgotten``: blocks that
    left the tree; ``removals``: how many times a block did so with all below it; ``left_tree``: pages that stayed when their
    block went. ``dead``: pages freed.
    ``freed``: by pool group, the slots whose page was freed without a copy.
    """

    def __init__(self, core: Core, scope: Scope) -> None:
        """Begin. Nothing is changed yet."""
        self.core = core
        self.scope = scope
        self.events: list[TreeEvent] = []
        self.dropped: list[int] = []
        self.attached: list[int] = []
        self.forgotten: list[Node] = []
        self.removals = 0
        self.left_tree: set[int] = set()
        self.dead: list[Int32] = []
        self.freed: dict[SlotKey, list[Int32]] = {}
        self._undo: list[Callable[[], object]] = []
        self._marks: dict[SlotKey, Mark] = {}
        self._touched: dict[Request, None] = {}
        self._made: list[Int32] = []
        self._unsettled: list[Int32] = []
        self._vacated: list[tuple[SlotPool, Int32]] = []

    # ---- values ----------------------------------------------------------------------------------------------------

    def on_undo(self, action: Callable[[], object]) -> None:
        """What takes back a change that was just made."""
        self._undo.append(action)

    def put(self, name: str, numbers: Int32, values: object) -> None:
        """Set a property of pages."""
        pages = self.core.pages
        old = read(getattr(pages, name), numbers)
        write(getattr(pages, name), numbers, values)
        self._undo.append(lambda: write(getattr(pages, name), numbers, old))

    def put_slots(self, pool: SlotPool, name: str, slots: Int32, values: object) -> None:
        """Set a property of slots."""
        array = getattr(pool, name)
        old = read(array, slots)
        write(array, slots, values)
        self._undo.append(lambda: write(array, slots, old))

    def take_over_readers(self, pool: SlotPool, slots: Int32) -> Int32:
        """The fence of the reads recorded on each slot: whoever asks has them waited for, and they are forgotten here (R7.7)."""
        old = pool.readers(slots)
        pool.set_readers(slots, EMPTY)
        self._undo.append(lambda: pool.set_readers(slots, old))
        return old

    def put_blocks(self, blocks: GroupBlocks, name: str, where: object, values: object) -> None:
        """Set ``page``, ``locked`` or ``kept`` of blocks of a request."""
        old = getattr(blocks, name)[where]
        old = old.copy() if isinstance(old, np.ndarray) else old
        getattr(blocks, name)[where] = values
        blocks.changed()

        def restore() -> None:
            getattr(blocks, name)[where] = old
            blocks.changed()

        self._undo.append(restore)

    def put_attribute(self, target: object, name: str, value: object) -> None:
        """Set an attribute, and remember what it was."""
        old = getattr(target, name)
        setattr(target, name, value)
        self._undo.append(lambda: setattr(target, name, old))

    def pool(self, key: SlotKey) -> SlotPool:
        """A pool group whose slots are about to be taken or given."""
        pool = self.core.pool(key)
        if key not in self._marks:
            self._marks[key] = pool.mark()
        return pool

    def touch(self, request: Request) -> None:
        """The version of a request is newer after this (R6.4)."""
        self._touched[request] = None

    def unsettle(self, numbers: Int32) -> None:
        """Pages that were evictable and may have left a queue: put back if this is undone (R10.4)."""
        self._unsettled.append(numbers)

    # ---- pages -----------------------------------------------------------------------------------------------------

    def new_pages(self, group: int, blocks: Int32, beams: Int32, key: SlotKey, slots: Int32, priority: int) -> Int32:
        """New pages in reserved slots, ready at once (R6.4); nobody uses them yet, and they are not evictable yet."""
        pages = self.core.pages
        numbers = pages.allocate(len(slots))
        self._made.append(numbers)
        for name, values in (("group", group), ("block", blocks), ("beam", beams), ("priority", priority)):
            getattr(pages, name)[numbers] = values
        pages.stamp[numbers] = self.scope.stamp
        pages.level[numbers] = key[0]
        pages.slot[numbers] = slots
        self.put_slots(self.core.pool(key), "page", slots, numbers)
        return numbers

    def lock_new(self, numbers: Int32, request: Request) -> None:
        """A request keeps and has locked new pages."""
        pages = self.core.pages
        pages.add_user(numbers, request.uid)
        pages.locks[numbers] = 1
        pages.needs[numbers] = 0 if request.decoding else 1

    def add_user(self, numbers: Int32, request: Request) -> None:
        """A request keeps pages from now on; it has not locked them."""
        pages = self.core.pages
        pages.add_user(numbers, request.uid)
        self._undo.append(lambda: pages.drop_user(numbers, request.uid))

    def drop_user(self, numbers: Int32, request: Request) -> None:
        """A request keeps pages no more."""
        pages = self.core.pages
        pages.drop_user(numbers, request.uid)
        self._undo.append(lambda: pages.add_user(numbers, request.uid))

    def set_page(self, node: Node, group: int, page: int) -> None:
        """A block of the tree has a page in a layer group, or none."""
        old = node.pages[group]
        node.pages[group] = page
        self._undo.append(lambda: node.pages.__setitem__(group, old))

    def lock(self, numbers: Int32, prefill: bool) -> None:
        """An active request locks pages that it keeps."""
        pages = self.core.pages
        for key, part in self.core.by_key(numbers[pages.locks[numbers] == 0]):
            self.pool(key).evictable -= len(part)
            self.unsettle(part)
        self.put("locks", numbers, pages.locks[numbers] + 1)
        if prefill:
            self.put("needs", numbers, pages.needs[numbers] + 1)

    def need_no_more(self, numbers: Int32) -> None:
        """Their owner enters decode, and needs them on the GPU no more (R4.2)."""
        self.put("needs", numbers, read(self.core.pages.needs, numbers) - 1)

    def unlock(self, numbers: Int32, prefill: bool) -> None:
        """An active request unlocks pages. Those that leave LOCKED get their turn in the eviction order (R10.2)."""
        pages = self.core.pages
        self.put("locks", numbers, pages.locks[numbers] - 1)
        if prefill:
            self.put("needs", numbers, pages.needs[numbers] - 1)
        self.make_evictable(numbers[pages.locks[numbers] == 0])

    def make_evictable(self, numbers: Int32) -> None:
        """Pages left LOCKED, or were made and nobody locked them."""
        self.put("stamp", numbers, self.scope.stamp)
        for (level, group), part in self.core.by_key(numbers):
            self.pool((level, group)).evictable += len(part)
            self.core.queues[level][group].push(part)

    def fence_slots(self, numbers: Int32, points: Iterable[Point]) -> None:
        """Later use of the slots of pages runs after these points (R7.4)."""
        more = tuple(points)
        for key, part in self.core.by_key(numbers):
            pool, slots = self.core.pool(key), self.core.pages.slot[part]
            self.put_slots(pool, "fence", slots, self.core.fences.merged(pool.fence[slots], more))

    def join_readiness(self, numbers: Int32, points: Iterable[Point]) -> None:
        """The readiness of pages includes these points from now on."""
        self.put("ready", numbers, self.core.fences.merged(self.core.pages.ready[numbers], points))
        for owner in self.core.owners(numbers):
            for blocks in owner.groups:
                blocks.readiness_changed()
                self._undo.append(blocks.readiness_changed)

    def release(self, numbers: Int32, request: Request) -> None:
        """A request keeps pages no more, and has not locked them. Those that nobody keeps and the tree has not are freed."""
        pages = self.core.pages
        self.drop_user(numbers, request)
        self.free(numbers[(pages.users[numbers] == 0) & (pages.node[numbers] == NO_NODE)])

    def free(self, numbers: Int32) -> None:
        """Pages that nobody has: their slots are free, behind their readiness (R7.2)."""
        pages, fences = self.core.pages, self.core.fences
        for key, part in self.core.by_key(numbers):
            pool, slots = self.pool(key), pages.slot[part]
            readers = self.take_over_readers(pool, slots)
            behind = fences.united(fences.united(pool.fence[slots], pages.ready[part]), readers)
            self.put_slots(pool, "fence", slots, behind)
            self.vacate(pool, slots)
            pool.evictable -= len(part)
            self.freed.setdefault(key, []).append(slots)
            self.unsettle(part)
            self.dead.append(part)
            self.put("alive", part, False)

    def vacate(self, pool: SlotPool, slots: Int32) -> None:
        """Slots become free; their fences are right already, or will be."""
        self.put_slots(pool, "page", slots, FREE)
        pool.give(slots)
        self._vacated.append((pool, slots))

    def untouched(self, pool: SlotPool, slots: Int32) -> npt.NDArray[np.bool_]:
        """For each slot, whether it was free when the operation began."""
        vacated = [own for owner, own in self._vacated if owner is pool]
        return ~np.isin(slots, np.concatenate(vacated)) if vacated else np.ones(len(slots), dtype=np.bool_)

    def begin_slots(self, pool: SlotPool, slots: Int32) -> None:
        """Pages without contents are about to begin in slots that were taken (R7.2)."""
        for one, done in self.core.poison_new(pool, slots[self.untouched(pool, slots)]):
            self._undo.append(partial(self._behind_undone, pool, one, done))
            self.put_slots(pool, "fence", one, self.core.fences.add([done]))

    def _behind_undone(self, pool: SlotPool, slots: Int32, done: Point) -> None:
        """Slots are free again, and are used after something that happened in them all the same."""
        pool.fence[slots] = self.core.fences.merged(pool.fence[slots], [done])

    def place(self, numbers: Int32, target: SlotPool, slots: Int32) -> None:
        """Pages are in other slots from now on (R2.4)."""
        self.put("level", numbers, target.key[0])
        self.put("slot", numbers, slots)
        self.put_slots(target, "page", slots, numbers)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Keep everything: count it, make versions newer (R6.4), tell the listener."""
        core = self.core
        for group in self.dropped:
            core.counters.dropped(group)
        for group in self.attached:
            core.counters.attached(group)
        for node in self.forgotten:
            for uid in node.tails:  # they commit no more (R10.3), and keep nothing of a block that is gone
                core.by_uid[uid].tail = core.tree.root
            core.tree.root.tails |= node.tails
            core.tree.forget(node)
        for numbers in self.dead:
            core.pages.recycle(numbers)
        for request in self._touched:
            core.renew(request)
        if core.listener is not None:
            for event in self.events:
                core.listener(event)

    def undo(self) -> None:
        """Take everything back, the last change first."""
        core = self.core
        for action in reversed(self._undo):
            action()
        for key, mark in self._marks.items():
            core.pool(key).restore(mark)
        for numbers in self._made:
            core.pages.recycle(numbers)
        for numbers in self._unsettled:
            evictable = numbers[core.pages.alive[numbers] & (core.pages.locks[numbers] == 0)]
            for (level, group), part in core.by_key(evictable):
                core.queues[level][group].push(part)
