"""Recorded reads of published tables, kept by what the tables name and not slot by slot (R7.7).

A read concerns every slot that the tables name when it is recorded. To note it at each of them would cost what there is, not what
has changed. So reads are numbered, and a slot that the tables name has the number of the first read that is not noted at it yet.
Reads are noted at a slot (``settle``) when somebody is about to look at what keeps it, and when the tables name it no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.operations.recorded_reads import OF_SLOT
from kvgpu.operations.state import Core
from kvgpu.requests.request import Membership, Request
from kvgpu.requests.row_entries import ChangedBlocks, RequestEntries
from kvgpu.runs import SHORT, Int32, distinct, read, write
from kvgpu.storage.fences import Point
from kvgpu.storage.pools import SlotPool

NOT_NAMED = 0
"""``TableReads._first`` of a slot that the tables do not name."""

FEW = 16
"""So many blocks of a row are looked at one by one."""

Addresses = npt.NDArray[np.int64]
"""Numbers of slots among those of all pools."""


class TableReads:
    """The reads of the tables of one batch.

    ``_entries``: by address, how many entries of the tables name the slot. ``_first``: by address, the number of the first read
    that is not noted at it. ``_count``: the number of the last read. ``_latest``: the last read of each stream with its number,
    ascending: it stands for those before it on that stream. ``_owners``: of requests that are no members, by uid, their version
    and whether they had locked a page in a named slot at that version.
    """

    def __init__(self, core: Core, groups: Sequence[int], shown: Sequence[RequestEntries | None]) -> None:
        """No read yet. ``groups``: the layer groups of the tables, in their order. ``shown``: what each row shows."""
        self._core = core
        self._pools = [pool for level in core.pools for pool in level]
        ends = np.cumsum([0, *(pool.spec.slots for pool in self._pools)])
        self._starts = {pool.key: int(start) for pool, start in zip(self._pools, ends, strict=False)}
        self._bounds = ends[1:-1]
        layouts = [core.layout.groups[group].pool_groups for group in groups]
        self._base_of = [[self._starts[key] for key in enumerate(numbers)] for numbers in layouts]
        self._bases = np.array(self._base_of, dtype=np.int64)
        self._entries: Int32 = np.zeros(int(ends[-1]), dtype=np.int32)
        self._first: npt.NDArray[np.int64] = np.zeros(int(ends[-1]), dtype=np.int64)
        self._count = 0
        self._latest: dict[str, tuple[int, Point]] = {}
        self._owners: dict[int, tuple[int, bool]] = {}
        for pool in self._pools:
            pool.table_reads.append(self)
        nothing = [None] * len(shown)
        self.published(nothing, shown, [None] * (len(shown) * len(layouts)))

    def record(self, reads: Point, members: Membership) -> None:
        """Later use of every slot that the tables name runs after reads.

        So does later work of the active owners of pages that are in such slots now, but for those in the batch ``members``, whose
        streams are that batch's affair.
        """
        self.note(reads)
        streams = {owner.stream.name: owner.stream for owner in self._strangers(members) if owner.stream is not None}
        for stream in streams.values():
            self._core.fences.wait(stream, [reads], "R7.7 work of an owner after reads of its slots")

    def note(self, reads: Point) -> None:
        """The same for slots alone, which is what a fetch asks for (R15.7)."""
        self._count += 1
        for pool in self._pools:
            pool.noted += 1
        self._latest.pop(reads.key, None)
        self._latest[reads.key] = (self._count, self._core.fences.again(reads, OF_SLOT))

    def not_noted(self, pool: SlotPool, slots: Int32) -> list[tuple[npt.NDArray[np.intp], list[Point]]]:
        """The reads that concern slots of a pool and are not noted at them: where in ``slots`` these stand, and the reads."""
        if len(slots) <= SHORT:
            first, count = self._first[slots + self._starts[pool.key]], self._count
            few = [at for at, number in enumerate(first.tolist()) if NOT_NAMED < number <= count]
            if not few:
                return []
            behind = np.array(few, dtype=np.intp)
        else:
            first = read(self._first, slots + self._starts[pool.key])
            behind = np.flatnonzero((first != NOT_NAMED) & (first <= self._count))
            if not behind.size:
                return []
        latest = list(self._latest.values())
        if len(latest) == 1:
            return [(behind, [latest[0][1]])]
        skipped = np.searchsorted([number for number, _ in latest], first[behind])
        return [(behind[skipped == skip], [point for _, point in latest[skip:]]) for skip in distinct(skipped)]

    def points_of(self, pool: SlotPool, slots: Int32) -> list[Point]:
        """The reads that concern any of a few slots and are not noted there, the last of each stream."""
        count = self._count
        numbers = [number for number in self._first[slots + self._starts[pool.key]].tolist() if NOT_NAMED < number <= count]
        if not numbers:
            return []
        first = min(numbers)
        return [point for number, point in self._latest.values() if number >= first]

    def noted(self, pool: SlotPool, slots: Int32) -> None:
        """Somebody has waited for ``points_of`` a few slots: these reads are not told of them again."""
        first, count = self._first, self._count
        for at in (slots + self._starts[pool.key]).tolist():
            if first[at] != NOT_NAMED:
                first[at] = count + 1

    def settle(self, pool: SlotPool, slots: Int32) -> bool:
        """Note these reads at the slots. Whether there were any."""
        found = self.not_noted(pool, slots)
        for where, points in found:
            pool.note_reads(slots[where], points)
            write(self._first, slots[where] + self._starts[pool.key], self._count + 1)
        return bool(found)

    def close(self) -> None:
        """The tables are gone: the reads so far stay with the slots that they name, and there will be no others."""
        self._settle_all(np.flatnonzero(self._entries))
        for pool in self._pools:
            pool.table_reads.remove(self)

    # ---- what the tables name ----------------------------------------------------------------------------------------

    def published(
        self,
        before: Sequence[RequestEntries | None],
        now: Sequence[RequestEntries | None],
        changes: Sequence[ChangedBlocks | None],
    ) -> None:
        """Rows were written that showed ``before`` and show ``now``.

        ``changes``: for each row and group, the blocks that may differ; ``None``: it is not known. Of ``before`` nothing has
        changed since it was shown.
        """
        groups = len(self._bases)
        if len(now) <= SHORT and self._published_few(before, now, changes):
            return
        found = [
            (number, table, None if moved is None else _each_once(moved.blocks))
            for number in range(len(now))
            for table, moved in enumerate(changes[number * groups : (number + 1) * groups])
            if moved is None or moved.blocks.size
        ]
        gone = self._addresses([(before[number], table, blocks) for number, table, blocks in found])
        come = self._addresses([(now[number], table, blocks) for number, table, blocks in found])
        fresh = come[self._entries[come] == 0]
        np.add.at(self._entries, come, 1)
        np.subtract.at(self._entries, gone, 1)
        left = np.unique(gone[self._entries[gone] == 0])
        self._first[fresh] = self._count + 1
        self._settle_all(left)
        self._first[left] = NOT_NAMED
        if self._owners:
            self._ask_again(np.unique(np.concatenate([fresh, left])))

    def _published_few(
        self,
        before: Sequence[RequestEntries | None],
        now: Sequence[RequestEntries | None],
        changes: Sequence[ChangedBlocks | None],
    ) -> bool:
        """The same where a few blocks may differ, without arrays: as in most decode steps. Whether it was so."""
        gone: list[int] = []
        come: list[int] = []
        groups = len(self._bases)
        for pair, moved in enumerate(changes):
            number, table = divmod(pair, groups)
            if moved is None or len(moved.blocks) > FEW:
                return False
            for block in set(moved.blocks.tolist()):
                for entries, addresses in ((before[number], gone), (now[number], come)):
                    if entries is not None and (level := int(entries.groups[table].levels[block])) >= 0:
                        addresses.append(self._base_of[table][level] + int(entries.groups[table].indices[block]))
        named, first, count = self._entries, self._first, self._count
        fresh = [address for address in come if not named[address]]
        for address in come:
            named[address] += 1
        for address in gone:
            named[address] -= 1
        left = sorted({address for address in gone if not named[address]})
        for address in fresh:
            first[address] = count + 1
        if any(NOT_NAMED < first[address] <= count for address in left):
            self._settle_all(np.array(left))
        for address in left:
            first[address] = NOT_NAMED
        if self._owners and (fresh or left):
            self._ask_again(np.unique(np.array(fresh + left)))
        return True

    def _addresses(self, parts: Sequence[tuple[RequestEntries | None, int, Int32 | None]]) -> Addresses:
        """The slots that blocks of rows and groups name, once for each that does. ``None`` for all blocks."""
        found: list[Addresses] = []
        alone: list[int] = []
        for entries, table, blocks in parts:
            if entries is None:
                continue
            shown = entries.groups[table]
            slots, levels = shown.indices, shown.levels
            if blocks is not None and len(blocks) == 1:  # most decode steps: arrays of one take ten times as long
                block = int(blocks[0])
                level = int(levels[block])
                if level >= 0:
                    alone.append(self._base_of[table][level] + int(slots[block]))
                continue
            if blocks is not None:
                slots, levels = slots[blocks], levels[blocks]
            mapped = levels >= 0
            found.append(self._bases[table][levels[mapped]] + slots[mapped])
        found.append(np.array(alone, dtype=np.int64))
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _by_pool(self, addresses: Addresses) -> list[tuple[SlotPool, Int32]]:
        """Ascending addresses as slots of pools."""
        ends = [0, *np.searchsorted(addresses, self._bounds).tolist(), len(addresses)]
        return [
            (pool, (addresses[first:end] - self._starts[pool.key]).astype(np.int32))
            for pool, first, end in zip(self._pools, ends[:-1], ends[1:], strict=True)
            if first < end
        ]

    def _settle_all(self, addresses: Addresses) -> None:
        for pool, slots in self._by_pool(addresses):
            self.settle(pool, slots)

    # ---- whose pages are in the named slots --------------------------------------------------------------------------

    def _strangers(self, members: Membership) -> list[Request]:
        """The active requests, but for members, that have locked a page in a named slot."""
        core, found = self._core, []
        for uid, request in core.by_uid.items():
            if request.batch is members or not request.active:
                continue
            known = self._owners.get(uid)
            if known is None or known[0] != request.version:  # every change of a request's slots makes a newer version (R6.4)
                known = self._owners[uid] = (request.version, self._has_named(request))
            if known[1]:
                found.append(request)
        if len(self._owners) > 2 * len(core.by_uid):
            self._owners = {uid: known for uid, known in self._owners.items() if uid in core.by_uid}
        return found

    def _has_named(self, request: Request) -> bool:
        core = self._core
        numbers = np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
        return any(bool(self._entries[core.pages.slot[part] + self._starts[key]].any()) for key, part in core.by_key(numbers))

    def _ask_again(self, addresses: Addresses) -> None:
        """The tables have begun or ceased to name slots: what is known of the owners of the pages there counts no more."""
        for pool, slots in self._by_pool(addresses):
            pages = pool.page[slots]
            for owner in self._core.owners(pages[pages >= 0]):
                self._owners.pop(owner.uid, None)


def _each_once(blocks: Int32) -> Int32:
    return blocks if len(blocks) == 1 else np.unique(blocks)
