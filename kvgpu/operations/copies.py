"""The copies of one operation: submitted in a transaction, counted when it is kept, fenced when it is undone (R4.5-R4.8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kvgpu.config import LEVEL_NAMES, SlotKey
from kvgpu.device.api import DeviceError, Stream
from kvgpu.errors import CopyFailed
from kvgpu.operations.journal import Journal
from kvgpu.operations.room import Room
from kvgpu.operations.state import Core, TreeEvent
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, distinct, read
from kvgpu.storage.copier import Buffer, Side
from kvgpu.storage.faults import Direction
from kvgpu.storage.fences import EMPTY, Point, Wait
from kvgpu.storage.pages import NO_NODE
from kvgpu.storage.pools import SlotPool
from kvspec.config import Level

READY = "R7.1 readiness of a copied page"
OWNERS = "R7.1 work of the owners of a copied page"
OWNER_WORK = "R7.1 work so far of an owner"
COPY_OUT = "R7.2 freed slot: the copy out of it"
PRIVATE_COPY_OUT = "R7.1 slot: a private copy out of it"
REFUSED = "R4.8 work of a refused copy"
OWNER_AFTER = "R4.8 work of an owner after undone copies"
RESTORED = "R4.8 readiness: what an undone copy overwrote was put back"


@dataclass(frozen=True, slots=True)
class Submission:
    """A copy that was submitted. ``numbers``: its source pages; ``written``: the slots written; ``done``: its completion."""

    numbers: Int32
    source: SlotPool
    source_slots: Int32
    target: SlotPool
    target_slots: Int32
    written: Int32
    done: Point
    direction: Direction | None


@dataclass(frozen=True, slots=True)
class _Saved:
    """What was in slots before a copy overwrote them: pages in a buffer, one after the other."""

    pool: SlotPool
    slots: Int32
    buffer: Buffer


def slot_points(core: Core, pool: SlotPool, slots: Int32) -> tuple[Point, ...]:
    """What the next use of slots runs after: their fences, and the reads recorded on them."""
    return core.fences.points(read(pool.fence, slots), pool.readers(slots))


def owner_work(core: Core, owners: Iterable[Request]) -> list[Point]:
    """The work so far on the streams of owners of a copied page, a point a stream (R7.1)."""
    streams: dict[str, Stream] = {owner.stream.name: owner.stream for owner in owners if owner.stream is not None}
    return [core.fences.record(stream, OWNER_WORK) for stream in streams.values()]


def refused(source: SlotPool, target: SlotPool, numbers: Int32) -> str:
    """The beginning of what is said of a copy that was refused."""
    levels = f"{LEVEL_NAMES[source.key[0]]} to {LEVEL_NAMES[target.key[0]]}"
    return f"copy refused: {levels}, pool group {target.key[1]}, {len(numbers)} pages"


class Copies:
    """The copies of one transaction, in order. ``behind``: what those that come run after besides (``follow``)."""

    def __init__(self, journal: Journal, room: Room) -> None:
        """None yet."""
        self._journal = journal
        self._room = room
        self._submissions: list[Submission] = []
        self._moved: list[tuple[Int32, Int32, int]] = []
        self._saved: list[_Saved] = []
        self.behind: tuple[Point, ...] = ()

    # ---- submitting ------------------------------------------------------------------------------------------------

    def evict(self) -> None:
        """Submit the evictions that were decided (R3.14: before anything else). Raises ``CopyFailed``."""
        for numbers, target_key, slots in self._room.take_moves():
            self._move(numbers, target_key, slots, ())

    def follow(self, slots: dict[SlotKey, Int32]) -> None:
        """What is submitted from now on also runs after the fences of slots that an owner is about to take (R7.9)."""
        points = [slot_points(self._journal.core, self._journal.core.pool(key), taken) for key, taken in slots.items()]
        self.behind = tuple(point for each in points for point in each)

    def move(self, numbers: Int32, target_key: SlotKey, slots: Int32, more_owners: Sequence[Request] = ()) -> None:
        """Move pages of one pool group into slots of another, which were taken: one submission (R4.5). Raises ``CopyFailed``.

        ``more_owners``: requests that have locked them in this operation, though the page table does not say so yet.
        """
        journal, pages = self._journal, self._journal.core.pages
        was, source_level = read(pages.ready, numbers), int(pages.level[numbers[0]])
        ready = self._move(numbers, target_key, slots, more_owners)
        self._moved.append((numbers, was, ready))
        committed = numbers[read(pages.node, numbers) != NO_NODE]
        if not committed.size:
            return
        for page in committed[np.lexsort((pages.group[committed], pages.block[committed]))].tolist():  # R13.3
            tokens = journal.core.tree.node(int(pages.node[page])).prefix()
            journal.events.append(TreeEvent("level", tokens, int(pages.group[page]), source_level, target_key[0]))

    def _move(self, numbers: Int32, target_key: SlotKey, slots: Int32, more_owners: Sequence[Request]) -> int:
        """The move itself. The number of the pages' new readiness."""
        journal, pages, fences = self._journal, self._journal.core.pages, self._journal.core.fences
        source_key = journal.core.key_of(int(numbers[0]))
        source, target = journal.pool(source_key), journal.pool(target_key)
        old = read(pages.slot, numbers)
        left = Wait(slot_points(journal.core, source, old), where="R7.1 what is kept of the slots that pages leave")
        done = self._submit(numbers, source, old, target, slots, left, more_owners)
        ready = fences.add([done])
        journal.put("ready", numbers, ready)
        journal.put_slots(source, "fence", old, fences.add([fences.again(done, COPY_OUT)]))
        journal.take_over_readers(source, old)
        journal.vacate(source, old)
        journal.place(numbers, target, slots)
        evictable = numbers[read(pages.locks, numbers) == 0]
        source.evictable -= len(evictable)
        target.evictable += len(evictable)
        journal.unsettle(evictable)
        journal.core.queues[target_key[0]][target_key[1]].push(evictable)
        return ready

    def copy(self, numbers: Int32, copies: Int32, *, private: bool = False) -> None:
        """Copy the payloads of pages of one pool group to new pages of one pool group (R3.4). Raises ``CopyFailed``.

        ``private``: it waits for nothing but its sources and the slots that it writes (R14.12).
        """
        journal, pages, fences = self._journal, self._journal.core.pages, self._journal.core.fences
        source = journal.core.pool(journal.core.key_of(int(numbers[0])))
        target = journal.core.pool(journal.core.key_of(int(copies[0])))
        slots = pages.slot[numbers]
        kept = () if private else slot_points(journal.core, source, slots)
        wait = Wait(kept, where="R7.1 what is kept of the slots that a private copy reads")
        done = self._submit(numbers, source, slots, target, pages.slot[copies], wait, None if private else ())
        pages.ready[copies] = fences.add([done])
        pages.origin[copies] = np.where(pages.origin[numbers] < 0, pages.serial[numbers], pages.origin[numbers])
        pages.written[copies] = True
        # R7.1: the source stays where it is; its slot is not used again before the copy has run.
        journal.fence_slots(numbers, [fences.again(done, PRIVATE_COPY_OUT)])

    def _submit(
        self,
        numbers: Int32,
        source: SlotPool,
        source_slots: Int32,
        target: SlotPool,
        target_slots: Int32,
        source_fence: Wait,
        more_owners: Sequence[Request] | None,
    ) -> Point:
        """One submission, after everything that R7.1 names. Its completion. ``more_owners``: ``None`` for no owners at all."""
        core, fences = self._journal.core, self._journal.core.fences
        direction = _direction(source, target)
        refusal = core.faults.check(direction)
        if refusal is not None and not refusal.queued:
            raise CopyFailed(f"{refused(source, target, numbers)}; nothing has changed, call again")
        for pool in (source, target):
            if pool.file is not None and (problem := pool.file.problem()) is not None:
                raise CopyFailed(f"{refused(source, target, numbers)}: {problem}")
        waits = [
            Wait(fences.points(read(core.pages.ready, numbers)), READY),
            source_fence,
            Wait(self.behind, where="R7.9 slots that an owner is about to take"),
            Wait(slot_points(core, target, target_slots), where="R7.1 the slots that a copy writes"),
            Wait([] if more_owners is None else owner_work(core, [*core.owners(numbers), *more_owners]), OWNERS),
        ]
        try:
            waits.append(Wait(self._save(target, target_slots), "R3.14 after saving what a copy overwrites"))
            # Work of a copy that is refused stays away from slots that somebody gets back.
            made = np.ones(len(numbers), dtype=np.bool_) if refusal is None else self._journal.untouched(target, target_slots)
            done = core.copier.on_lane(
                Side(source_slots[made], source), Side(target_slots[made], target), waits, f"copy {direction or 'down or up'}"
            )
        except DeviceError as error:
            raise CopyFailed(f"{refused(source, target, numbers)}: {error}") from error
        self._submissions.append(
            Submission(numbers, source, source_slots, target, target_slots, target_slots[made], done, direction)
        )
        if refusal is not None:
            text = refused(source, target, numbers)
            raise CopyFailed(f"{text}, after its work was queued; nothing has changed but readiness, call again")
        self._journal.put_slots(target, "fence", target_slots, EMPTY)
        self._journal.take_over_readers(target, target_slots)
        return done

    def _save(self, target: SlotPool, slots: Int32) -> list[Point]:
        """If a copy is about to overwrite pages that this operation gave up, keep their payload: it may be undone (R4.8)."""
        given_up = self._journal.freed.get(target.key)
        if not given_up:
            return []
        lost = slots[np.isin(slots, np.concatenate(given_up))]
        if not lost.size:
            return []
        copier = self._journal.core.copier
        buffer = copier.buffers.take(len(lost) * target.spec.page_bytes)
        done = copier.on_lane(
            Side(lost, target),
            Side(np.arange(len(lost), dtype=np.int32), None, buffer),
            [Wait(slot_points(self._journal.core, target, lost), where="R3.14 the slots that are saved")],
            "R3.14 save what a copy overwrites",
        )
        buffer.kept = True
        self._saved.append(_Saved(target, lost, buffer))
        return [done]

    # ---- the end ---------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """The operation is kept: count (R13.2), and tell the owners of moved pages."""
        core = self._journal.core
        for submission in self._submissions:
            if submission.direction is not None:
                core.counters.copied(submission.direction, read(core.pages.group, submission.numbers))
        for numbers, was, ready in self._moved:
            self._tell_owners(numbers, was, ready)
        self._let_go()

    def _tell_owners(self, numbers: Int32, was: Int32, ready: int) -> None:
        pages = self._journal.core.pages
        owners = self._journal.core.owners(numbers)
        level = int(pages.level[numbers[0]])
        for owner in owners:
            self._journal.touch(owner)
            owner.maybe_deferred |= level == Level.GPU  # R5.3
            if len(owners) == 1 and owner.beam_width == 1:
                groups = read(pages.group, numbers)
                for group in distinct(groups):
                    mine = groups == group
                    own = numbers[mine]
                    owner.groups[group].moved(
                        pages,
                        self._journal.core.fences,
                        own,
                        read(pages.block, own),
                        read(pages.slot, own),
                        level,
                        was[mine],
                        ready,
                    )
            else:
                for blocks in owner.groups:
                    blocks.changed()

    def after_undo(self) -> list[Request]:
        """Everything was undone: queued work goes into the readiness of its sources and the fences of its targets (R4.8).

        Returns the requests whose version that makes newer.
        """
        core = self._journal.core
        newer: dict[Request, None] = {}
        for nth, submission in enumerate(self._submissions):
            work = [core.fences.again(submission.done, REFUSED)]
            target, slots = submission.target, submission.target_slots
            target.fence[slots] = core.fences.merged(target.fence[slots], work)
            back = target.page[submission.written][target.page[submission.written] >= 0]
            self._join(np.concatenate([submission.numbers, back]), work, newer)
            for earlier in self._submissions[:nth]:  # where those that are back had gone, and are put back from
                gone = earlier.target_slots[np.isin(earlier.numbers, back)]
                earlier.target.fence[gone] = core.fences.merged(earlier.target.fence[gone], work)
        self._put_back(newer)
        for request in newer:
            for blocks in request.groups:
                blocks.readiness_changed()
        self._let_go()
        return list(newer)

    def _join(self, numbers: Int32, work: list[Point], newer: dict[Request, None]) -> None:
        """Work of undone copies: part of the readiness of pages, and before what their owners, who are newer, do next (R4.8)."""
        core = self._journal.core
        core.pages.ready[numbers] = core.fences.merged(core.pages.ready[numbers], work)
        for owner in core.owners(numbers):
            assert owner.stream is not None
            core.fences.wait(owner.stream, work, OWNER_AFTER)
            newer[owner] = None

    def _put_back(self, newer: dict[Request, None]) -> None:
        """Copy back what undone submissions overwrote: from where an earlier one had copied it, or from what was saved."""
        core = self._journal.core
        reads: dict[tuple[SlotKey, int], list[Point]] = {}
        for nth, submission in reversed(list(enumerate(self._submissions))):  # a slot is read from before it is put back itself
            pool = submission.target
            for slot in submission.written[pool.page[submission.written] >= 0].tolist():
                page = int(pool.page[slot])
                source = self._kept_copy(page, pool, slot, nth)
                target = Side(np.array([slot], dtype=np.int32), pool)
                # What it is put back from was ready before the copy that overwrote it ran.
                before = [submission.done, *reads.get((pool.key, slot), ())]
                waits = [Wait(before, "R4.8 put back after the undone copy")]
                done = core.copier.on_lane(source, target, waits, "R4.8 put back what was overwritten")
                self._join(np.array([page], dtype=np.int32), [core.fences.again(done, RESTORED)], newer)
                if source.pool is not None:
                    work = [core.fences.again(done, REFUSED)]
                    reads.setdefault((source.pool.key, int(source.slots[0])), []).extend(work)
                    source.pool.fence[source.slots] = core.fences.merged(source.pool.fence[source.slots], work)

    def _kept_copy(self, page: int, pool: SlotPool, slot: int, before: int) -> Side:
        for earlier in reversed(self._submissions[:before]):
            found = np.flatnonzero(earlier.numbers == page)
            if found.size:
                return Side(earlier.target_slots[found[:1]], earlier.target)
        for saved in self._saved:
            found = np.flatnonzero(saved.slots == slot)
            if saved.pool is pool and found.size:
                return Side(found[:1].astype(np.int32), None, saved.buffer)
        raise AssertionError("a copy went into a slot in use, and nothing was saved")

    def _let_go(self) -> None:
        for saved in self._saved:
            saved.buffer.kept = False


def _direction(source: SlotPool, target: SlotPool) -> Direction | None:
    if source.key[0] == Level.GPU:
        return Direction.COPY if target.key[0] == Level.GPU else Direction.OFFLOAD
    return Direction.ONBOARD if target.key[0] == Level.GPU else None
