"""What the operations of a manager work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kvgpu.config import Layout, SlotKey
from kvgpu.device.api import Device, Stream
from kvgpu.fetch.caches import GroupCaches
from kvgpu.requests.request import Request
from kvgpu.runs import SHORT, Int32, distinct, read
from kvgpu.storage.backings import Backings
from kvgpu.storage.copier import Copier
from kvgpu.storage.counters import Counters
from kvgpu.storage.eviction import EvictionQueue
from kvgpu.storage.faults import FaultPlan
from kvgpu.storage.fences import EMPTY, FenceTable, Point
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.prefix_tree import PrefixTree
from kvgpu.storage.texts import Text, Tokens


@dataclass(frozen=True, slots=True)
class TreeEvent:
    """A tree event (R13.3). ``kind``: ``stored``, ``removed`` or ``level``. ``text``: the tokens of the whole prefix, and their
    keys. The rest for ``level`` alone.
    """

    kind: str
    text: Text
    group: int = -1
    old: int = -1
    new: int = -1

    @property
    def tokens(self) -> Tokens:
        """The tokens without their keys."""
        return self.text.tokens


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A page that a write goes to, and as what its request knows it."""

    page: int
    group: int
    block: int
    beam: int


TreeListener: TypeAlias = Callable[[TreeEvent], None]
PayloadHook: TypeAlias = Callable[[Request, Sequence[WriteTarget]], None]


@dataclass(slots=True)
class Scope:
    """One operation. ``stamp``: its number. ``evicted``: pages that it has evicted already (R10.1)."""

    stamp: int
    evicted: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Core:
    """The state of a manager. ``pools[level][pool_group]``, ``queues`` likewise. ``by_uid``: requests not closed.

    ``pool_group[group, level]``: the pool group that serves a layer group there. ``backings``: with private ownership, the places
    of pages that have several. ``caches``: of the groups that reserve slots (R15.3). ``reservations``: how many there have been.
    ``versions``: another number whenever a version has changed, or what is reserved.
    """

    layout: Layout
    device: Device
    fences: FenceTable
    pages: PageTable
    tree: PrefixTree
    pools: tuple[tuple[SlotPool, ...], ...]
    queues: tuple[tuple[EvictionQueue, ...], ...]
    counters: Counters
    faults: FaultPlan
    copier: Copier
    pool_group: npt.NDArray[np.int32]
    poisoning: bool
    backings: Backings | None = None
    hook: PayloadHook | None = None
    listener: TreeListener | None = None
    by_uid: dict[int, Request] = field(default_factory=dict)
    operations: int = 0
    versions: int = 0
    caches: Mapping[int, GroupCaches] = field(default_factory=dict)
    reservations: int = 0
    _poisoned: int = 0

    @property
    def reserving(self) -> bool:
        """Whether any group reserves slots (R15.1)."""
        return bool(self.caches)

    def renew(self, request: Request) -> None:
        """The version of a request is newer (R6.4). No two requests ever have the same."""
        self.versions += 1
        request.version = self.versions

    def refuse_capture(self, request: Request, stream: Stream | None = None) -> None:
        """``LogicError`` while somebody else captures a stream: the given one, or that of an active request (R8.8).

        Whether or not anything has to be ordered on it this time: what is refused must not depend on how fast the device is.
        """
        stream = stream or (request.stream if request.active else None)
        if stream is not None:
            self.fences.live(stream)

    def scope(self) -> Scope:
        """Begin an operation: what it evicts is not evicted again in it (R10.1)."""
        self.fences.collect()
        for queues in self.queues:
            for queue in queues:
                queue.collect()
        self.operations += 1
        return Scope(self.operations)

    def pool(self, key: SlotKey) -> SlotPool:
        """The pool group of a key (level, number)."""
        return self.pools[key[0]][key[1]]

    def key_of(self, page: int) -> SlotKey:
        """The key (level, number) of the pool group that a page lies in."""
        level = int(self.pages.level[page])
        return (level, int(self.pool_group[self.pages.group[page], level]))

    def by_key(self, numbers: Int32) -> Iterator[tuple[SlotKey, Int32]]:
        """Pages by where they are, in order of level, then pool group."""
        if not numbers.size:
            return
        if len(numbers) <= SHORT:
            of_groups = self.layout.groups
            held = zip(self.pages.level[numbers].tolist(), self.pages.group[numbers].tolist(), strict=True)
            keys = [(level, of_groups[group].pool_groups[level]) for level, group in held]
            for each in sorted(set(keys)):
                yield each, numbers if keys.count(each) == len(keys) else numbers[[key == each for key in keys]]
            return
        levels = self.pages.level[numbers].astype(np.int32)
        keys = levels * self.pool_group.shape[0] + self.pool_group[self.pages.group[numbers], levels]
        found = distinct(keys)
        for key in found:
            yield divmod(key, self.pool_group.shape[0]), numbers if len(found) == 1 else numbers[keys == key]

    def has_locked(self, request: Request, page: int) -> bool:
        """Whether a request has a page locked."""
        group = int(self.pages.group[page])
        block = 0 if request.ssm[group] else int(self.pages.block[page])
        blocks = request.groups[group]
        beam = int(self.pages.beam[page])
        return (
            beam < blocks.page.shape[0]
            and block < blocks.page.shape[1]
            and bool(blocks.page[beam, block] == page)
            and bool(blocks.locked[beam, block])
        )

    def owners(self, numbers: Int32) -> list[Request]:
        """The active requests that have any of these pages locked (R2.3), oldest first."""
        pages = self.pages
        if self.backings is not None:  # a backing is locked by requests that do not map it, too (R14.8)
            users = [(uid, page) for page in numbers.tolist() if pages.locks[page] for uid in pages.users_of(page)]
            mapping = {uid for uid, page in users if self.has_locked(self.by_uid[uid], page)}
            return [self.by_uid[uid] for uid in sorted(mapping)]
        if len(numbers) <= SHORT:
            columns = (pages.locks[numbers].tolist(), pages.users[numbers].tolist(), pages.user[numbers].tolist())
            locked_by = [
                (page, users, user) for page, locks, users, user in zip(numbers.tolist(), *columns, strict=True) if locks
            ]
            found = {user for _, users, user in locked_by if users == 1}
            several = [page for page, users, _ in locked_by if users > 1]
        else:
            locked = numbers[read(pages.locks, numbers) > 0]
            alone = read(pages.users, locked) == 1
            found = set(distinct(read(pages.user, locked[alone])))
            several = locked[~alone].tolist()
        for page in several:
            found.update(uid for uid in pages.shared[page] if uid not in found and self.has_locked(self.by_uid[uid], page))
        return [self.by_uid[uid] for uid in sorted(found)]

    def poison_new(self, pool: SlotPool, slots: Int32) -> list[tuple[Int32, Point]]:
        """Overwrite slots in which pages without contents begin, where the device does that: nobody finds there what was before.

        It is the first thing that happens in them since they were released (R7.2), behind their fences, and replaces them.
        A slot whose fence has several points is left alone: one event instead of them would hide that one of them is missing.
        So is one without a fence: nothing was in it.
        Returns the slots overwritten and the end of it.
        """
        if pool.memory is None or not self.poisoning:
            return []
        made = []
        for slot, readers in zip(slots.tolist(), pool.readers(slots).tolist(), strict=True):
            points = self.fences[int(pool.fence[slot])].points
            if len(points) != 1 or readers != EMPTY:
                continue
            one = np.array([slot], dtype=np.int32)
            poisoned = self.device.poison(
                pool.memory, pool.ranges(one), [point.event for point in points], "R7.2 poison the slot of a new page"
            )
            if poisoned is not None:
                self._poisoned += 1
                made.append((one, self.fences.foreign(f"poison {self._poisoned}", poisoned, points[0].site)))
        return made
