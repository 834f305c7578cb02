"""Decode steps that complete one block each, in the plain case, which is nearly every one (R3.6, R4.5).

The block's pages are the request's own and may all move, the host has room, nothing goes stale and nothing is refused: then there
is nothing to plan, to evict or to take back. What is done is what ``growth.set_lengths`` does in a transaction, in its order;
a test holds the two together.

The steps of several members of a batch are as many operations, and as many submissions are counted. Where all of these would wait
for the same, the device gets one in their place (R8.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kvgpu.device.api import DeviceError
from kvgpu.errors import CopyFailed
from kvgpu.operations.copies import COPY_OUT, OWNER_WORK, OWNERS, READY, refused
from kvgpu.operations.payloads import unwritten
from kvgpu.operations.reserving import lacking
from kvgpu.operations.state import Core, WriteTarget
from kvgpu.requests.request import Request
from kvgpu.requests.row_entries import ChangedBlocks
from kvgpu.runs import Int32
from kvgpu.storage.copier import Side
from kvgpu.storage.faults import Direction
from kvgpu.storage.fences import EMPTY, Point, Wait
from kvgpu.storage.pages import NO_NODE
from kvgpu.storage.pools import FREE, SlotPool
from kvspec.config import Level

GPU, HOST = Level.GPU, Level.HOST
ON_GPU, ON_HOST = int(GPU), int(HOST)
COPY = f"copy {Direction.OFFLOAD}"
LEFT = "R7.1 what is kept of the slots that pages leave"
WRITTEN = "R7.1 the slots that a copy writes"

Wanted = tuple[Request, int, int]
"""A request, and the capacity and the history that it is to have."""


class _Plain(NamedTuple):
    """A step in the plain case. ``groups``, ``numbers``, ``old``: the pages of the block, and their slots."""

    request: Request
    capacity: int
    history: int
    groups: list[int]
    numbers: list[int]
    old: list[int]
    source: SlotPool
    target: SlotPool


class _Move(NamedTuple):
    """The pages of all the steps, one after the other, and where they go from and to. ``was``: their readiness before.

    ``reads``: whether reads were recorded on the slots from which, and to which they go. ``done``: the copy.
    """

    numbers: Int32
    old: Int32
    slots: Int32
    was: list[int]
    reads: tuple[bool, bool]
    done: Point


def step(core: Core, request: Request, capacity: int, history: int) -> bool:
    """Set the lengths, and offload the block that this completes, if the case is the plain one; whether it was.

    If not, nothing has changed. Raises ``CopyFailed``.
    """
    return steps(core, ((request, capacity, history),)) == 1


def steps(core: Core, wanted: Iterable[Wanted]) -> int:
    """The same for requests that step one after the other: for as many of the first as are done together. So many have stepped.

    Raises ``CopyFailed`` for the first one; then nothing has changed.
    """
    together, targets = _together(core, wanted)
    if not together:
        return 0
    core.scope()
    mark = together[0].target.mark()
    try:
        move = _submitted(core, together, targets)
        if move is None:  # they wait for different things
            together[0].target.restore(mark)
            del together[1:]
            move = _submitted(core, together, targets)
        assert move is not None
    except BaseException as error:
        together[0].target.restore(mark)
        if len(together) > 1 and isinstance(error, CopyFailed):
            return steps(core, [each[:3] for each in together[:1]])
        raise
    core.operations += len(together) - 1
    _moved(core, together, move)
    return len(together)


def _together(core: Core, wanted: Iterable[Wanted]) -> tuple[list[_Plain], list[WriteTarget]]:
    """The first of the steps, as far as they are plain and may go together; and what the first of them has to write before.

    A copy is behind all that the stream was given before, the writes of others among that: who has to write begins anew.
    """
    found: list[_Plain] = []
    targets: list[WriteTarget] = []
    pages = 0
    for request, capacity, history in wanted:
        if found and request.stream is not found[0].request.stream:
            break
        plain = _plain(core, request, capacity, history)
        if plain is None:
            break
        pages += len(plain.numbers)
        if pages > plain.target.free:
            break
        if core.hook is not None:
            unfinished = unwritten(core, request, request.history_blocks, request.history_blocks + 1)
            if unfinished and found:
                break
            targets = targets or unfinished
        found.append(plain)
    return found, targets


def _plain(core: Core, request: Request, capacity: int, history: int) -> _Plain | None:
    """The pages to move, in the plain case. Whether the host has room for them is not looked at."""
    size, was = request.tokens_per_block, request.history
    block = was // size
    if (
        not request.decoding
        or request.maybe_deferred
        or request.beam_width != 1
        or history // size != block + 1
        or -(-capacity // size) != request.blocks
        or core.faults.armed(Direction.OFFLOAD)
    ):
        return None
    pages = core.pages
    groups: list[int] = []
    numbers: list[int] = []
    old: list[int] = []
    pools = None
    for number, (group, own) in enumerate(zip(core.layout.groups, request.groups, strict=True)):
        if not group.sparse:
            if group.stale(history, size) != group.stale(was, size):
                return None
            continue
        # A block that becomes complete has not been shared or moved: whatever changes that goes through the transaction.
        page = int(own.page[0, block])
        if (
            not own.locked[0, block]
            or pages.level[page] != ON_GPU
            or pages.users[page] != 1
            or pages.needs[page]
            or pages.node[page] != NO_NODE
        ):
            return None
        if pools is not None and pools != group.pool_groups[:2]:
            return None
        pools = group.pool_groups[:2]
        groups.append(number)
        numbers.append(page)
        old.append(int(pages.slot[page]))
    if pools is None or (core.reserving and any(lacking(core, request, history).values())):
        return None
    return _Plain(request, capacity, history, groups, numbers, old, core.pools[GPU][pools[GPU]], core.pools[HOST][pools[HOST]])


def _submitted(core: Core, together: Sequence[_Plain], targets: Sequence[WriteTarget]) -> _Move | None:
    """One submission, after all that R7.1 names for each of the steps (R4.5).

    ``None``, and nothing is submitted, if they do not wait for the same: see ``_alike``.
    """
    fences, request, source, target = core.fences, together[0].request, together[0].source, together[0].target
    assert request.stream is not None
    numbers = np.array([page for each in together for page in each.numbers], dtype=np.int32)
    old = np.array([slot for each in together for slot in each.old], dtype=np.int32)
    slots = target.take(len(numbers))
    ready = core.pages.ready[numbers]
    was = ready.tolist()
    left, written = source.next_use(old), target.next_use(slots)
    waits = [
        Wait(fences.points(ready) if any(was) else (), READY),
        Wait(left.points, where=LEFT),
        Wait(written.points, where=WRITTEN),
    ]
    if len(together) > 1 and not _alike(core, request, waits):
        return None
    if targets:
        assert core.hook is not None
        core.hook(request, targets)
    waits.append(Wait((fences.record(request.stream, OWNER_WORK),), OWNERS))
    for _ in together:
        core.faults.check(Direction.OFFLOAD)
    try:
        done = core.copier.on_lane(Side(old, source), Side(slots, target), waits, COPY)
    except DeviceError as error:
        raise CopyFailed(f"{refused(source, target, numbers)}: {error}") from error
    return _Move(numbers, old, slots, was, (left.reads, written.reads), done)


def _alike(core: Core, request: Request, waits: Sequence[Wait]) -> bool:
    """Whether steps of requests on one stream wait for that alone: nothing may wait for what has no part in it (section 7)."""
    assert request.stream is not None
    own = core.fences.live(request.stream).name
    return all(point.key == own or point.event.done() for wait in waits for point in wait.points)


def _moved(core: Core, together: Sequence[_Plain], move: _Move) -> None:
    """The pages are on the host, and their old slots are free, both behind the copy (R4.6, R7.2, R7.3); the lengths are set."""
    pages, fences, (numbers, old, slots, was, reads, done) = core.pages, core.fences, move
    source, target = together[0].source, together[0].target
    ready, left = fences.add_one(done), fences.add_one(fences.again(done, COPY_OUT))
    new = slots.tolist()
    for page, slot, to in zip(numbers.tolist(), old.tolist(), new, strict=True):  # mostly a few: faster than by arrays
        pages.ready[page], pages.level[page], pages.slot[page] = ready, ON_HOST, to
        source.fence[slot], source.page[slot] = left, FREE
        target.fence[to], target.page[to] = EMPTY, page
    if reads[0]:
        source.readers_waited_for(old)
    if reads[1]:
        target.readers_waited_for(slots)
    source.give(old)
    at = 0
    for request, capacity, history, groups, *_ in together:
        core.counters.copied(Direction.OFFLOAD, groups)
        block = request.history_blocks
        blocks = np.array((block,), dtype=np.int32)
        owns = [request.groups[group] for group in groups]
        for own in owns:
            own.moves()
        for own in owns:
            changed = ChangedBlocks(blocks, slots[at : at + 1])
            own.block_moved(pages, fences, block, new[at], ON_HOST, was[at], ready, changed)
            at += 1
        request.capacity, request.history = capacity, history
        core.renew(request)
