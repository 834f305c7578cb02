"""Lengths, phases and beams of active requests (R3.6-R3.8, R3.12)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.config import SlotKey
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError
from kvgpu.operations import plain_step
from kvgpu.operations.deferral import claim_retries
from kvgpu.operations.journal import released_work
from kvgpu.operations.offload import (
    NONE,
    eligible_pages,
    host_counts,
    joined,
    movable,
    offload,
    offload_or_attach,
    without_backing,
)
from kvgpu.operations.payloads import unwritten
from kvgpu.operations.reserving import lacking, reserve, reserved_counts, with_reserved
from kvgpu.operations.room import NoRoom
from kvgpu.operations.state import Core, WriteTarget
from kvgpu.operations.transaction import Transaction
from kvgpu.operations.tree_changes import release_kept
from kvgpu.requests.request import Request, Steady
from kvgpu.runs import Int32
from kvgpu.storage.fences import EMPTY, Point
from kvgpu.storage.pages import NO_NODE, NO_PAGE
from kvspec.config import Level
from kvspec.observation import Phase

Where = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]


def take_out(tx: Transaction, request: Request, group: int, where: Where, keep: bool) -> Int32:
    """Unlock blocks of a group, at ``where``; ``keep`` them as held, or take them out of the request's blocks. Their pages."""
    blocks = request.groups[group]
    numbers = blocks.page[where]
    tx.unlock(numbers, not request.decoding)
    tx.put_blocks(blocks, "locked", where, False)
    if keep:
        tx.put_blocks(blocks, "kept", where, True)
    else:
        tx.put_blocks(blocks, "page", where, NO_PAGE)
    return numbers


def grow_blocks(request: Request, group: int, first: int, end: int, stale: tuple[int, int]) -> tuple[Int32, Int32]:
    """(beam rows, blocks) of new pages for blocks ``first..end-1``, without the stale ones (R3.6, R3.12)."""
    if request.ssm[group] or first >= end:
        return NONE, NONE
    blocks = np.arange(first, end, dtype=np.int32)
    blocks = blocks[(blocks < stale[0]) | (blocks >= stale[1])]
    later = blocks[blocks * request.tokens_per_block >= request.prompt_length]
    rows = [np.zeros_like(blocks)] + [np.full_like(later, row) for row in range(1, request.beam_width)]
    return np.concatenate(rows), np.concatenate([blocks] + [later] * (request.beam_width - 1))


def put_new(tx: Transaction, request: Request, group: int, rows: Int32, blocks: Int32, numbers: Int32) -> None:
    """New pages become locked blocks of an active request."""
    own = request.groups[group]
    own.reserve(int(blocks.max()) + 1, int(rows.max()) + 1)
    tx.lock_new(numbers, request)
    tx.put_blocks(own, "page", (rows, blocks), numbers)
    tx.put_blocks(own, "locked", (rows, blocks), True)


def take_new(tx: Transaction, request: Request, wanted: Sequence[tuple[int, Int32, Int32]], slots: dict[SlotKey, Int32]) -> None:
    """Make new locked pages in reserved GPU slots. The request's stream has to ``wait_for_slots`` before it writes to them."""
    core = tx.core
    left = dict(slots)
    for group, rows, blocks in wanted:
        key = (Level.GPU, int(core.pool_group[group, Level.GPU]))
        mine, left[key] = left[key][: len(blocks)], left[key][len(blocks) :]
        tx.begin_slots(core.pool(key), mine)
        put_new(tx, request, group, rows, blocks, tx.new_pages(group, blocks, rows, key, mine, request.priority))


def wait_for_slots(tx: Transaction, request: Request, slots: dict[SlotKey, Int32]) -> None:
    """The request's stream runs after the fences of slots that it takes (R7.9)."""
    assert request.stream is not None
    for key, taken in slots.items():
        pool = tx.core.pool(key)
        points = tx.core.fences.points(pool.fence[taken], pool.readers(taken))
        tx.core.fences.wait(request.stream, points, where="R7.9 the slots that a request takes")
        tx.put_slots(pool, "fence", taken, EMPTY)
        tx.take_over_readers(pool, taken)


def gpu_counts(core: Core, wanted: Sequence[tuple[int, Int32, Int32]]) -> dict[SlotKey, int]:
    """How many GPU slots new pages need, by pool group, in order."""
    counts: dict[SlotKey, int] = {}
    for group, _, blocks in wanted:
        key = (Level.GPU, int(core.pool_group[group, Level.GPU]))
        counts[key] = counts.get(key, 0) + len(blocks)
    return dict(sorted(counts.items()))


# ---- resize ----------------------------------------------------------------------------------------------------------


def check_lengths(request: Request, capacity: int | None, history: int | None) -> tuple[int, int]:
    """The lengths that a resize asks for. ``InvalidArgument`` as R3.6 says."""
    new_capacity = request.capacity if capacity is None else capacity
    new_history = request.history if history is None else history
    name = f"resize of {request.name}"
    if new_capacity < 0 or new_history < 0:
        raise InvalidArgument(f"{name}: capacity {new_capacity}, history {new_history}: lengths are not negative")
    if new_history < request.history:
        raise InvalidArgument(f"{name}: history {new_history} is less than {request.history}: history never shrinks")
    if new_capacity < new_history:
        raise InvalidArgument(f"{name}: capacity {new_capacity} is less than history {new_history}")
    if request.decoding and any(request.sparse) and new_history > max(request.capacity, request.history):
        raise InvalidArgument(
            f"{name}: history {new_history} is beyond the capacity {request.capacity} that it has; while decoding with sparse "
            f"groups, grow the capacity first"
        )
    return new_capacity, new_history


def check_growth(request: Request, capacity: int, history: int) -> None:
    """``LogicError`` if a request that has ended would grow (R3.9)."""
    if request.ended and (capacity > request.capacity or history > request.history):
        raise LogicError(f"{request.name} has ended its commits: neither capacity nor history grows any more")


def resize(core: Core, request: Request, capacity: int, history: int) -> bool:
    """Set the lengths, which were checked (R3.6)."""
    if _only_lengths(core, request, capacity, history):
        request.capacity, request.history = capacity, history
        return True
    if plain_step.step(core, request, capacity, history):
        request.steady = steady_lengths(core, request)
        return True
    return _in_transaction(core, request, capacity, history)


def resize_each(core: Core, wanted: Sequence[plain_step.Wanted]) -> list[bool | CopyFailed]:
    """Set the lengths of several requests, which were checked, each by itself (R8.9). The result of each, or what it raised.

    Those of which nothing else changes come first: the others do not see them.
    """
    results: list[bool | CopyFailed] = [True] * len(wanted)
    left = [at for at, (request, *lengths) in enumerate(wanted) if not _only_lengths(core, request, *lengths)]
    for request, capacity, history in [each for at, each in enumerate(wanted) if at not in set(left)]:
        request.capacity, request.history = capacity, history
    while left:
        done = 1
        try:
            done = plain_step.steps(core, (wanted[at] for at in left))
            for at in left[:done]:
                wanted[at][0].steady = steady_lengths(core, wanted[at][0])
            if not done:
                done = 1
                results[left[0]] = _in_transaction(core, *wanted[left[0]])
        except CopyFailed as error:
            results[left[0]] = error
        del left[:done]
    return results


def _in_transaction(core: Core, request: Request, capacity: int, history: int) -> bool:
    try:
        with Transaction(core, core.scope()) as tx:
            set_lengths(tx, request, capacity, history)
            tx.commit()
    except NoRoom:
        return False
    return True


def _only_lengths(core: Core, request: Request, capacity: int, history: int) -> bool:
    """Whether no block comes or goes, becomes complete history or stale, and none is to be retried: most decode steps."""
    if request.maybe_deferred and request.decoding:
        return False
    if not (_within(request.steady, request.capacity, request.history)):
        request.steady = steady_lengths(core, request)
    return _within(request.steady, capacity, history)


def _within(steady: Steady, capacity: int, history: int) -> bool:
    least, most, first, last = steady
    return least <= capacity <= most and first <= history <= last


def steady_lengths(core: Core, request: Request) -> Steady:
    """Between which lengths no block comes or goes, becomes complete history or stale: see ``Steady``."""
    size, blocks, now = request.tokens_per_block, request.blocks, request.history
    last = now - now % size + size - 1
    for group in core.layout.groups:
        if group.window is None or group.sparse:  # none is ever stale (R1.8)
            continue
        stale = group.stale(now, size)
        if group.stale(last, size) != stale:  # stale blocks grow with the history: find the last before they do
            last = now - 1 + bisect_left(range(now, last), True, key=lambda history: group.stale(history, size) != stale)
    return Steady((blocks - 1) * size + 1 if blocks else 0, blocks * size, now, last)


def set_lengths(tx: Transaction, request: Request, capacity: int, history: int) -> None:
    """The resize itself, in a transaction; it retries what is deferred (R4.3). Raises ``NoRoom``, ``CopyFailed``."""
    core, size = tx.core, request.tokens_per_block
    old_blocks, new_blocks = request.blocks, -(-capacity // size)
    completed = (request.history // size, history // size)
    stale = [group.stale(history, size) for group in core.layout.groups]
    let_go = _give_up(tx, request, stale, old_blocks, new_blocks)
    wanted = [(group, *grow_blocks(request, group, old_blocks, new_blocks, stale[group])) for group in range(request.group_count)]
    wanted = [entry for entry in wanted if entry[2].size]
    fresh = eligible_pages(core, request, *completed) if request.decoding else NONE
    deferred = eligible_pages(core, request, 0, completed[0]) if request.decoding and request.maybe_deferred else NONE
    fit, retries = movable(core, fresh, 0), movable(core, deferred, 0)
    needing = without_backing(core, fit)
    reserved = lacking(core, request, history) if request.decoding else {}
    claims = tx.room.claim(host_counts(core, needing)), gpu_counts(core, wanted)
    tx.room.claim(with_reserved(core, claims[1], reserved))
    older, older_claims = claim_retries(tx, without_backing(core, retries))
    completes = completed[1] > completed[0] and core.hook is not None
    if completes and (leaving := tx.room.moving()):  # what is completed here goes with its payload (R3.14)
        early = [target for target in unwritten(core, request, *completed) if target.page in leaving]
        _write_completed(tx, request, early, let_go)
    tx.copies.evict()
    reserve(tx, request, reserved)
    gpu = tx.room.take(claims[1])
    found = [(fit, tx.room.take(claims[0])), (older, tx.room.take(older_claims))] if core.backings is None else []
    take_new(tx, request, wanted, gpu)
    # With sparse groups a copy may be refused yet, and no block that is written now is new (R3.6).
    offloads = request.decoding and any(request.sparse)
    if offloads:
        tx.copies.follow(gpu)
    else:
        wait_for_slots(tx, request, gpu)
    if completes:
        _write_completed(tx, request, unwritten(core, request, *completed), let_go)
    staying = len(fresh) + len(deferred) - len(fit) - len(older)
    if core.backings is None:
        offload(tx, found)
    elif offloads:
        staying = offload_or_attach(tx, request, joined([fit, retries]), joined([needing, older]), False)
    if offloads:
        wait_for_slots(tx, request, gpu)
    request.maybe_deferred = staying > 0
    if new_blocks != old_blocks:
        for group, own in enumerate(request.groups):
            if not request.ssm[group]:
                own.reserve(new_blocks, 1)  # also of a group in which the last blocks are stale, and have no page
        tx.touch(request)
    request.capacity, request.history = capacity, history


def _write_completed(tx: Transaction, request: Request, targets: list[WriteTarget], let_go: Int32) -> None:
    """Have blocks written that become complete history, also those among them that are let go of, but kept (R3.7)."""
    core = tx.core
    if core.hook is None or not targets:
        return
    core.hook(request, targets)
    pages = np.array([target.page for target in targets], dtype=np.int32)
    released = pages[core.pages.written[pages] & np.isin(pages, let_go)]
    if released.size:  # that is work before their release (R7.4), and behind the slots that the request has taken by then (R7.9)
        tx.fence_slots(released, [*released_work(core, request), *tx.copies.behind])


def _give_up(tx: Transaction, request: Request, stale: list[tuple[int, int]], old_blocks: int, new_blocks: int) -> Int32:
    """Let go of blocks that become stale, and of the tail (R3.6, R3.7). Their pages."""
    work: list[Point] = []
    let_go: list[Int32] = []
    for group, blocks in enumerate(request.groups):
        if request.ssm[group]:
            continue
        columns, (first, end) = blocks.locked.shape[1], stale[group]
        if first == end and new_blocks >= old_blocks:
            continue
        leave = np.concatenate([np.arange(first, min(end, columns)), np.arange(new_blocks, min(old_blocks, columns))])
        rows, found = np.nonzero(blocks.locked[:, leave])
        if not rows.size:
            continue
        work = work or released_work(tx.core, request)
        where = (rows, leave[found])  # by beam row, then block: the order in which their slots become free (R7.2)
        numbers = blocks.page[where]
        keep = request.may_commit & (where[1] < new_blocks) & (tx.core.pages.node[numbers] == NO_NODE)
        tx.touch(request)
        tx.fence_slots(numbers, work)
        let_go.append(numbers)
        if keep.any():
            take_out(tx, request, group, (where[0][keep], where[1][keep]), True)
        if not keep.all():
            tx.release(take_out(tx, request, group, (where[0][~keep], where[1][~keep]), False), request)
    return joined(let_go)


# ---- decode ----------------------------------------------------------------------------------------------------------


def enter_decode(core: Core, request: Request) -> bool:
    """Enter decode (R3.8). The request is active, in prefill."""
    try:
        with Transaction(core, core.scope()) as tx:
            eligible = eligible_pages(core, request, 0, request.history_blocks)
            numbers = movable(core, eligible, 1)
            needing = without_backing(core, numbers)
            reserved = lacking(core, request, request.history)
            claims = tx.room.claim(host_counts(core, needing))
            tx.room.claim(reserved_counts(core, reserved))
            tx.copies.evict()
            reserve(tx, request, reserved)
            for group in range(request.group_count):
                tx.need_no_more(request.locked_pages(group))
            if core.backings is None:
                offload(tx, [(numbers, tx.room.take(claims))])
            else:
                offload_or_attach(tx, request, numbers, needing, False)
            request.phase = Phase.DECODE
            request.maybe_deferred = len(numbers) < len(eligible)
            tx.touch(request)
            tx.commit()
    except NoRoom:
        return False
    return True


def give_back(core: Core, request: Request, capacity: int) -> None:
    """Let go of the blocks beyond a capacity, not below the history, and of nothing else: no retry, no copy (R11.5)."""
    with Transaction(core, core.scope()) as tx:
        old_blocks, new_blocks = request.blocks, -(-capacity // request.tokens_per_block)
        _give_up(tx, request, [(0, 0)] * request.group_count, old_blocks, new_blocks)
        if new_blocks != old_blocks:
            tx.touch(request)
        request.capacity = capacity
        tx.commit()


# ---- beams -----------------------------------------------------------------------------------------------------------


def set_beam_width(core: Core, request: Request, width: int) -> bool:
    """Split the blocks after the prompt (R3.12)."""
    if width < 1:
        raise InvalidArgument(f"beam width {width} of {request.name}: at least 1")
    if not request.active:
        raise LogicError(f"set_beam_width of {request.name}: it is {request.status.value}, not active")
    reason = _no_beams(request)
    if reason:
        raise LogicError(f"set_beam_width of {request.name}: {reason}")
    try:
        with Transaction(core, core.scope()) as tx:
            if width > 1:
                release_kept(tx, request)
            wanted = [entry for group in range(request.group_count) if (entry := _new_rows(request, group, width))[1].size]
            claims = tx.room.claim(gpu_counts(core, wanted))
            tx.copies.evict()
            for blocks in request.groups:
                blocks.reserve(0, width)
            slots = tx.room.take(claims)
            take_new(tx, request, wanted, slots)
            wait_for_slots(tx, request, slots)
            request.beam_width, request.beams_set = width, True
            if wanted:
                tx.touch(request)
            tx.commit()
    except NoRoom:
        return False
    return True


def _no_beams(request: Request) -> str | None:
    if request.beams_set:
        return "the beam width was set already"
    if request.decoding:
        return "it is decoding"
    if request.history > request.prompt_length:
        return f"history {request.history} is past the prompt of {request.prompt_length} tokens"
    return "it is in a batch; beams and batches do not go together" if request.batch is not None else None


def _new_rows(request: Request, group: int, width: int) -> tuple[int, Int32, Int32]:
    own = request.groups[group]
    if request.ssm[group]:
        return group, NONE, NONE
    blocks = np.flatnonzero(own.locked[0]).astype(np.int32)
    blocks = blocks[blocks * request.tokens_per_block >= request.prompt_length]
    rows = np.repeat(np.arange(1, width, dtype=np.int32), len(blocks))
    return group, rows, np.tile(blocks, width - 1)
