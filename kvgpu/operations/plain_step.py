"""The decode step that completes one block, in the plain case, which is nearly every one (R3.6, R4.5).

The block's pages are the request's own and may all move, the host has room, nothing goes stale and nothing is refused: then there
is nothing to plan, to evict or to take back. What is done is what ``growth.set_lengths`` does in a transaction, in its order;
a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvgpu.device.api import DeviceError
from kvgpu.errors import CopyFailed
from kvgpu.operations.copies import COPY_OUT, OWNERS, READY, owner_work, refused, slot_points
from kvgpu.operations.payloads import unwritten
from kvgpu.operations.reserving import lacking
from kvgpu.operations.state import Core
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvgpu.storage.copier import Side
from kvgpu.storage.faults import Direction
from kvgpu.storage.fences import EMPTY, Point, Wait
from kvgpu.storage.pages import NO_NODE
from kvgpu.storage.pools import FREE, SlotPool
from kvspec.config import Level

GPU, HOST = Level.GPU, Level.HOST
COPY = f"copy {Direction.OFFLOAD}"


class _Plain(NamedTuple):
    """The pages of the block, by group, and where they go from and to. ``old``: their slots."""

    groups: list[int]
    numbers: Int32
    source: SlotPool
    old: Int32
    target: SlotPool


def step(core: Core, request: Request, capacity: int, history: int) -> bool:
    """Set the lengths, and offload the block that this completes, if the case is the plain one; whether it was.

    If not, nothing has changed. Raises ``CopyFailed``.
    """
    plain = _plain(core, request, capacity, history)
    if plain is None:
        return False
    core.scope()
    mark = plain.target.mark()
    try:
        slots = plain.target.take(len(plain.numbers))
        if core.hook is not None:
            written = unwritten(core, request, request.history_blocks, request.history_blocks + 1)
            if written:
                core.hook(request, written)
        done = _submit(core, request, plain, slots)
    except BaseException:
        plain.target.restore(mark)
        raise
    _moved(core, request, plain, slots, done)
    request.capacity, request.history = capacity, history
    core.renew(request)
    return True


def _plain(core: Core, request: Request, capacity: int, history: int) -> _Plain | None:
    """The pages to move, in the plain case."""
    size, block = request.tokens_per_block, request.history_blocks
    if (
        not request.decoding
        or request.maybe_deferred
        or request.beam_width != 1
        or history // size != block + 1
        or -(-capacity // size) != request.blocks
        or core.faults.armed(Direction.OFFLOAD)
    ):
        return None
    pages, groups, numbers, old = core.pages, [], [], []
    pools = None
    for number, (group, own) in enumerate(zip(core.layout.groups, request.groups, strict=True)):
        if not group.sparse:
            if group.stale(history, size) != group.stale(request.history, size):
                return None
            continue
        # A block that becomes complete has not been shared or moved: whatever changes that goes through the transaction.
        page = int(own.page[0, block])
        if (
            not own.locked[0, block]
            or int(pages.level[page]) != GPU
            or int(pages.users[page]) != 1
            or pages.needs[page]
            or int(pages.node[page]) != NO_NODE
        ):
            return None
        if pools is not None and pools != group.pool_groups[:2]:
            return None
        pools = group.pool_groups[:2]
        groups.append(number)
        numbers.append(page)
        old.append(int(pages.slot[page]))
    if pools is None or any(lacking(core, request, history).values()):
        return None
    source, target = core.pools[GPU][pools[GPU]], core.pools[HOST][pools[HOST]]
    if target.free < len(numbers):
        return None
    return _Plain(groups, np.array(numbers, dtype=np.int32), source, np.array(old, dtype=np.int32), target)


def _submit(core: Core, request: Request, plain: _Plain, slots: Int32) -> Point:
    """The one submission (R4.5), after all that R7.1 names. Its completion."""
    fences, (_, numbers, source, old, target) = core.fences, plain
    core.faults.check(Direction.OFFLOAD)
    waits = [
        Wait(fences.points(core.pages.ready[numbers]), READY),
        Wait(slot_points(core, source, old), where="R7.1 what is kept of the slots that pages leave"),
        Wait(slot_points(core, target, slots), where="R7.1 the slots that a copy writes"),
        Wait(owner_work(core, [request]), OWNERS),
    ]
    try:
        return core.copier.on_lane(Side(old, source), Side(slots, target), waits, COPY)
    except DeviceError as error:
        raise CopyFailed(f"{refused(source, target, numbers)}: {error}") from error


def _moved(core: Core, request: Request, plain: _Plain, slots: Int32, done: Point) -> None:
    """The pages are on the host, behind ``done``, and their old slots are free, behind it too (R4.6, R7.2, R7.3)."""
    pages, fences, (groups, numbers, source, old, target) = core.pages, core.fences, plain
    was, ready, left = pages.ready[numbers], fences.add([done]), fences.add([fences.again(done, COPY_OUT)])
    for page, slot, new in zip(numbers.tolist(), old.tolist(), slots.tolist(), strict=True):  # a few: faster than by arrays
        pages.ready[page], pages.level[page], pages.slot[page] = ready, HOST, new
        source.fence[slot], source.page[slot] = left, FREE
        target.fence[new], target.page[new] = EMPTY, page
    source.set_readers(old, EMPTY)
    target.set_readers(slots, EMPTY)
    source.give(old)
    core.counters.copied(Direction.OFFLOAD, pages.group[numbers])
    blocks = np.array([request.history_blocks], dtype=np.int32)
    for at, group in enumerate(groups):
        one = slice(at, at + 1)
        request.groups[group].moved(pages, fences, numbers[one], blocks, slots[one], HOST, was[one], ready)
