"""The page table: one row a page, one array a property (section 2).

Who uses a page is counted: ``users`` (requests that keep it), ``locks`` (active ones, R2.3), ``needs`` (active ones in prefill,
which need it on the GPU, R4.2). One user is named in an array; only a page with several has a set.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kvgpu.runs import Int32
from kvgpu.storage.fences import EMPTY, FenceTable

NO_PAGE = -1
NOBODY = -1
NO_NODE = -1

FIELDS: dict[str, tuple[type[np.generic], int]] = {
    "level": (np.int8, 0),
    "slot": (np.int32, 0),
    "group": (np.int16, 0),
    "block": (np.int32, 0),
    "beam": (np.int16, 0),
    "locks": (np.int32, 0),
    "needs": (np.int32, 0),
    "users": (np.int32, 0),
    "user": (np.int32, NOBODY),
    "node": (np.int32, NO_NODE),
    "priority": (np.int64, 0),
    "stamp": (np.int64, 0),
    "serial": (np.int64, 0),
    "origin": (np.int64, -1),
    "written": (np.bool_, 0),
    "alive": (np.bool_, 0),
}
"""Each property, its type and its value in a new page; ``ready``, a fence number, is the other one."""

PLACE_FIELDS: dict[str, tuple[type[np.generic], int]] = {
    "next_place": (np.int32, NO_PAGE),
    "backing": (np.int32, NO_PAGE),
    "copy_of": (np.int32, NOBODY),
}
"""Those that there are with private ownership alone (R14.1)."""


class PageTable:
    """All pages of a manager. Arrays are indexed by page number and grow; take them from the table at each use.

    ``level``, ``slot``: the location (R2.4). ``ready``: the fence after which the payload is valid there. ``block``: the block,
    for a page of the tree its depth. ``node``: the tree block that has it. ``stamp``: the operation at which it left LOCKED or
    was made (R10.2). ``serial``: its age, never used again. ``origin``: the serial of the page whose payload it has a copy of,
    also where that came through other copies; -1 if it was written itself.

    With private ownership a committed page of a sparse group has a row for each of its places, which ``storage.backings`` reads:
    ``next_place``: the next of them, in a ring; ``backing``: that which all may refer to, or ``NO_PAGE``; ``copy_of``: the uid of
    the request whose copy it is.
    """

    level: npt.NDArray[np.int8]
    slot: Int32
    group: npt.NDArray[np.int16]
    block: Int32
    beam: npt.NDArray[np.int16]
    locks: Int32
    needs: Int32
    users: Int32
    user: Int32
    node: Int32
    priority: npt.NDArray[np.int64]
    stamp: npt.NDArray[np.int64]
    serial: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]
    written: npt.NDArray[np.bool_]
    alive: npt.NDArray[np.bool_]
    ready: Int32
    next_place: Int32
    backing: Int32
    copy_of: Int32

    def __init__(self, fences: FenceTable, size: int = 1024, *, places: bool = False) -> None:
        """An empty table. ``places``: a page may have several (R14.1)."""
        self._fences = fences
        self._fields = FIELDS | PLACE_FIELDS if places else FIELDS
        self._size = 0
        self._spare: Int32 = np.empty(0, dtype=np.int32)
        self._spares = 0
        self._serial = 0
        self.shared: dict[int, set[int]] = {}
        self.ready = fences.register(np.empty(0, dtype=np.int32))
        for name, (dtype, _) in self._fields.items():
            setattr(self, name, np.empty(0, dtype=dtype))
        self._grow(size)

    @property
    def size(self) -> int:
        """The length of the arrays."""
        return self._size

    def _grow(self, at_least: int) -> None:
        old, new = self._size, max(at_least, 2 * self._size)
        for name, (dtype, value) in self._fields.items():
            grown = np.full(new, value, dtype=dtype)
            grown[:old] = getattr(self, name)
            setattr(self, name, grown)
        ready = np.full(new, EMPTY, dtype=np.int32)
        ready[:old] = self.ready
        self.ready = self._fences.replace(self.ready, ready)
        # The first ``_spares`` of them are spare, and taken from the end: low numbers first.
        spare = np.empty(new, dtype=np.int32)
        spare[: new - old] = np.arange(new - 1, old - 1, -1)
        spare[new - old : new - old + self._spares] = self._spare[: self._spares]
        self._spare, self._spares = spare, self._spares + new - old
        self._size = new

    def allocate(self, count: int) -> Int32:
        """Numbers of ``count`` new pages, alive, all properties but ``serial`` at their first value."""
        if count > self._spares:
            self._grow(self._size + count)
        self._spares -= count
        numbers = self._spare[self._spares : self._spares + count][::-1].copy()
        for name, (_, value) in self._fields.items():
            getattr(self, name)[numbers] = value
        self.ready[numbers] = EMPTY
        self.alive[numbers] = True
        self.serial[numbers] = np.arange(self._serial, self._serial + count)
        self._serial += count
        return numbers

    def recycle(self, numbers: Int32) -> None:
        """These numbers may be given to new pages. Serials are never used again."""
        self.alive[numbers] = False
        self.ready[numbers] = EMPTY
        self._spare[self._spares : self._spares + len(numbers)] = numbers[::-1]
        self._spares += len(numbers)

    def add_user(self, numbers: Int32, uid: int) -> None:
        """A request keeps these pages from now on."""
        used = self.users[numbers] > 0
        for page in numbers[used].tolist():
            self.shared.setdefault(page, {int(self.user[page])}).add(uid)
        self.user[numbers[~used]] = uid
        self.users[numbers] += 1

    def drop_user(self, numbers: Int32, uid: int) -> None:
        """A request keeps these pages no more."""
        several = self.users[numbers] > 1
        for page in numbers[several].tolist():
            left = self.shared[page]
            left.discard(uid)
            if len(left) == 1:
                self.user[page] = next(iter(left))
                del self.shared[page]
        self.user[numbers[~several]] = NOBODY
        self.users[numbers] -= 1

    def users_of(self, page: int) -> Iterable[int]:
        """The uids of the requests that keep a page."""
        if self.users[page] > 1:
            return self.shared[page]
        return (int(self.user[page]),) if self.users[page] else ()

    def living(self) -> Int32:
        """The numbers of all pages, oldest first."""
        numbers = np.flatnonzero(self.alive).astype(np.int32)
        return numbers[np.argsort(self.serial[numbers])]
