"""Resuming, suspending, prefetching requests (R3.2-R3.5, R3.10, R3.11)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvgpu.config import SlotKey
from kvgpu.errors import LogicError
from kvgpu.operations import places
from kvgpu.operations.deferral import claim_retries
from kvgpu.operations.growth import wait_for_slots
from kvgpu.operations.offload import (
    NONE,
    bring_up,
    host_counts,
    joined,
    offload,
    offload_or_attach,
    slot_counts,
    without_backing,
)
from kvgpu.operations.private_copies import (
    Pair,
    Wants,
    blocks_of,
    find,
    give_copies,
    new_backings,
    new_copies,
    sources_now,
    submit,
)
from kvgpu.operations.reserving import lacking, reserve, with_reserved
from kvgpu.operations.room import NoRoom
from kvgpu.operations.state import Core
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.runs import Int32
from kvgpu.storage.fences import Point
from kvgpu.storage.pages import NO_PAGE, NOBODY
from kvspec.config import Level
from kvspec.observation import Phase, RequestStatus

# ---- what a resume locks ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Wanted:
    """What a resume or prefetch finds. ``numbers``: pages of the request, all, in blocks that are not stale.

    ``history``: sparse ones wholly inside the history. ``sources``: matched pages to copy, by group, or no page for a fresh
    state of an SSM group.
    """

    numbers: Int32 = field(default_factory=lambda: NONE)
    history: Int32 = field(default_factory=lambda: NONE)
    sources: dict[int, int | None] = field(default_factory=dict)


def _find(core: Core, request: Request) -> _Wanted:
    numbers, history, wanted = [], [], _Wanted()
    for group in core.layout.groups:
        own = request.groups[group.number]
        if group.ssm:
            if request.resumed:
                numbers.append(own.page[0, :1])
            else:
                page = int(own.page[0, 0])
                wanted.sources[group.number] = None if page == NO_PAGE else page
            continue
        present = (own.page != NO_PAGE) & ~own.kept
        if request.partial:
            wanted.sources[group.number] = int(own.page[0, request.blocks - 1])
            present[0, request.blocks - 1] = False
        numbers.append(own.page[present])
        if group.sparse:
            history.append(own.page[:, : request.history_blocks][present[:, : request.history_blocks]])
    wanted.numbers, wanted.history = joined(numbers), joined(history)
    return wanted


def _added(left: dict[SlotKey, int], right: dict[SlotKey, int]) -> dict[SlotKey, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in sorted({*left, *right})}


def behind(core: Core, numbers: Int32) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """What the stream of a request that locks pages runs after: their readiness, and the reads recorded on their slots (R7.9).

    As they are where the request locks them: it waits for no offload of the same operation.
    """
    reads = [core.pool(key).readers(core.pages.slot[part]) for key, part in core.by_key(numbers)]
    return core.fences.points(core.pages.ready[numbers]), core.fences.points(*reads)


# ---- resume ----------------------------------------------------------------------------------------------------------


def too_full(core: Core) -> bool:
    """Whether GPU use is above ``max_util_for_resume`` (R3.5)."""
    limit = core.layout.max_util_for_resume
    growing = {group.pool_groups[Level.GPU] for group in core.layout.groups if not group.ssm}  # states take one slot each, once
    pools = [core.pools[Level.GPU][number] for number in growing]
    return any((pool.spec.slots - pool.free - pool.evictable) / pool.spec.slots > limit for pool in pools)


def resume(core: Core, request: Request, decode: bool) -> bool:
    """Make a suspended request active, decoding afterwards if ``decode`` (R3.2-R3.5)."""
    if too_full(core):
        return False
    try:
        with Transaction(core, core.scope()) as tx:
            (_resume if core.backings is None else _resume_private)(tx, request, decode)
            tx.commit()
    except NoRoom:
        return False
    return True


def _resume(tx: Transaction, request: Request, decode: bool) -> None:
    core, pages = tx.core, tx.core.pages
    wanted = _find(core, request)
    sources = np.array([page for page in wanted.sources.values() if page is not None], dtype=np.int32)
    tx.room.pin(wanted.numbers)
    tx.room.pin(sources)
    stay = wanted.history if decode else NONE
    rest = wanted.numbers[~np.isin(wanted.numbers, stay)]
    up = rest[pages.level[rest] != Level.GPU]
    to_host = stay[pages.level[stay] == Level.DISK]
    leaving = stay[(pages.level[stay] == Level.GPU) & (pages.needs[stay] == 0)]
    fit, retries = (leaving, NONE) if not request.decoding else (NONE, leaving)
    arriving = slot_counts(core, to_host, Level.HOST)
    tx.room.claim(_added(host_counts(core, fit), arriving))
    reserved = lacking(core, request, request.history) if decode else {}
    gpu_claims = slot_counts(core, up, Level.GPU, list(wanted.sources))
    tx.room.claim(with_reserved(core, gpu_claims, reserved))
    older, older_claims = claim_retries(tx, retries)
    tx.copies.evict()
    reserve(tx, request, reserved)
    gpu, below = tx.room.take(gpu_claims), tx.room.take(arriving)
    taken = dict(gpu)
    made = _make_private(tx, request, wanted.sources, gpu)
    bring_up(tx, up, gpu, Level.GPU)
    bring_up(tx, to_host, below, Level.HOST)
    submit(tx, _private(wanted.sources, made))
    ready, reads = behind(core, joined([wanted.numbers, *made.values()]))
    # Only now: a slot that a page has just left is free at once (R5.2), and may be the first to be handed out (R7.2).
    offload(tx, [(fit, tx.room.take(host_counts(core, fit))), (older, tx.room.take(older_claims))], [request])
    _activate(tx, request, wanted, made, decode)
    _go_on(tx, request, taken, ready, reads)


def _resume_private(tx: Transaction, request: Request, decode: bool) -> None:
    """The same with private ownership: sparse pages of the tree are adopted, copied or mapped (R14.4, R14.5)."""
    core, pages = tx.core, tx.core.pages
    wanted = _find(core, request)
    tx.room.pin_used(wanted.numbers)
    tx.room.pin(np.array([page for page in wanted.sources.values() if page is not None], dtype=np.int32))
    stay = wanted.history if decode else NONE
    wants = find(tx, request, wanted.numbers, stay)
    stays = np.isin(wants.plain, stay)
    up = wants.plain[~stays & (pages.level[wants.plain] != Level.GPU)]
    to_host = wants.plain[stays & (pages.level[wants.plain] == Level.DISK)]
    leaving = stay[(pages.level[stay] == Level.GPU) & ~np.isin(stay, wants.back)]
    fit, retries = (leaving, NONE) if not request.decoding else (NONE, leaving)
    needing = without_backing(core, fit)
    arriving = slot_counts(core, to_host, Level.HOST)
    tx.room.claim(_added(host_counts(core, joined([needing, wants.back])), arriving))
    reserved = lacking(core, request, request.history) if decode else {}
    gpu_claims = slot_counts(core, joined([up, wants.fill]), Level.GPU, list(wanted.sources))
    tx.room.claim(with_reserved(core, gpu_claims, reserved))
    older, _ = claim_retries(tx, without_backing(core, retries))
    backed = blocks_of(core, wants.back)
    tx.copies.evict()
    reserve(tx, request, reserved)
    gpu, below = tx.room.take(gpu_claims), tx.room.take(arriving)
    taken = dict(gpu)
    partial = {group: page for group, page in wanted.sources.items() if request.sparse[group] and page is not None}
    made = _make_private(tx, request, {group: page for group, page in wanted.sources.items() if group not in partial}, gpu)
    copies = new_copies(tx, request, wants.fill, [(page, request.blocks - 1) for page in partial.values()], gpu)
    made |= {int(pages.group[pair.target]): np.array([pair.target]) for pair in copies if pages.copy_of[pair.target] == NOBODY}
    bring_up(tx, up, gpu, Level.GPU)
    bring_up(tx, to_host, below, Level.HOST)
    dense = {group: page for group, page in wanted.sources.items() if group not in partial}
    submit(tx, [*_private(dense, made), *copies])
    back = [page for page in sources_now(request, backed) if pages.copy_of[page] != NOBODY]
    new_backings(tx, back, tx.room.take(host_counts(core, np.array(back, dtype=np.int32))))
    give_copies(tx, request, copies)
    wanted.numbers = _find(core, request).numbers
    ready, reads = behind(core, joined([wanted.numbers, *made.values()]))
    assert core.backings is not None
    _put_back_on_undo(tx, request)
    _activate(tx, request, wanted, made, decode)
    tx.lock(core.backings.behind(wanted.numbers), False)
    offload_or_attach(tx, request, joined([fit, retries]), joined([needing, older]), False)
    _go_on(tx, request, taken, ready, reads)


def _put_back_on_undo(tx: Transaction, request: Request) -> None:
    """What ``_activate`` changes of a request is taken back if a copy is refused after it (R14.11)."""
    was = request.status, request.phase, request.partial, request.maybe_deferred
    arrays = [(own.page.copy(), own.locked.copy()) for own in request.groups]

    def put_back() -> None:
        request.status, request.phase, request.partial, request.maybe_deferred = was
        for own, (page, locked) in zip(request.groups, arrays, strict=True):
            own.page, own.locked = page, locked
            own.changed()

    tx.on_undo(put_back)


def _go_on(
    tx: Transaction, request: Request, taken: dict[SlotKey, Int32], ready: tuple[Point, ...], reads: tuple[Point, ...]
) -> None:
    """Nothing fails any more: order the request's stream (R7.9)."""
    core = tx.core
    wait_for_slots(tx, request, taken)
    if request.resumed:
        core.counters.resumed()
    request.resumed = True
    assert request.stream is not None
    core.fences.wait(request.stream, ready, "R7.9 readiness of a page that a resume locks")
    core.fences.wait(request.stream, reads, where="R7.9 readers of the pages that a resume locks")


def _make_private(
    tx: Transaction, request: Request, sources: dict[int, int | None], gpu: dict[SlotKey, Int32]
) -> dict[int, Int32]:
    """New GPU pages for what the first resume copies or begins; the slots that are left stay in ``gpu``.

    States that begin take slots before what comes up, copies after it, in the order in which they are submitted (R7.2).
    """
    core = tx.core
    pool_of = {group: (Level.GPU, int(core.pool_group[group, Level.GPU])) for group in sources}
    fresh = [group for group, page in sources.items() if page is None]
    copied = sorted((pool_of[group], core.key_of(page), group) for group, page in sources.items() if page is not None)
    slots = {}
    for group in fresh:
        slots[group], gpu[pool_of[group]] = np.split(gpu[pool_of[group]], [1])
    for key, _, group in reversed(copied):
        gpu[key], slots[group] = np.split(gpu[key], [-1])
    made = {}
    for group, slot in slots.items():
        if group in fresh:
            tx.begin_slots(core.pool(pool_of[group]), slot)
        block = np.array([0 if request.ssm[group] else request.blocks - 1], dtype=np.int32)
        made[group] = tx.new_pages(group, block, np.zeros_like(block), pool_of[group], slot, request.priority)
    return made


def _private(sources: dict[int, int | None], made: dict[int, Int32]) -> list[Pair]:
    """The private copies to submit (R3.4)."""
    return [Pair(page, int(made[group][0])) for group, page in sources.items() if page is not None]


def _activate(tx: Transaction, request: Request, wanted: _Wanted, made: dict[int, Int32], decode: bool) -> None:
    """Lock everything: the request is active."""
    core = tx.core
    request.status = RequestStatus.ACTIVE
    request.phase = Phase.DECODE if decode else Phase.PREFILL
    tx.lock(wanted.numbers, not decode)
    for group, page in wanted.sources.items():
        own = request.groups[group]
        block = 0 if request.ssm[group] else request.blocks - 1
        if page is not None:
            old = own.page[0, block : block + 1].copy()  # with private ownership no longer the page that was copied (R14.2)
            if core.backings is not None and core.backings.has_places(old).any():
                places.let_go(tx, old, request)
            else:
                tx.release(old, request)
        tx.lock_new(made[group], request)
        own.page[0, block] = made[group][0]
    for own in request.groups:
        own.locked = (own.page != NO_PAGE) & ~own.kept
        own.changed()
    request.partial = False
    request.maybe_deferred = decode
    tx.touch(request)


# ---- suspend, prefetch -----------------------------------------------------------------------------------------------


def every_locked_page(request: Request) -> Int32:
    """The page numbers that a request has locked, in all groups."""
    return joined([request.locked_pages(group) for group in range(request.group_count)])


def every_page(request: Request) -> Int32:
    """The page numbers that a request keeps, locked or not, in all groups."""
    return joined([request.pages(group) for group in range(request.group_count)])


def suspend(tx: Transaction, request: Request) -> None:
    """Locks become holds (R3.10). The caller fences the slots (R7.4)."""
    numbers = every_locked_page(request)
    tx.unlock(numbers, not request.decoding)
    if tx.core.backings is not None:
        tx.unlock(tx.core.backings.behind(numbers), False)
    for own in request.groups:
        own.locked[:] = False
        own.changed()
    request.status = RequestStatus.SUSPENDED
    tx.touch(request)


def prefetch(core: Core, request: Request, level: int) -> bool:
    """Bring pages of a suspended request to ``level``, or to where a resume would lock them if that is lower (R3.11, R14.9)."""
    try:
        with Transaction(core, core.scope()) as tx:
            pages = core.pages
            wanted = _find(core, request)
            # Nothing of its own moves down, what is left alone included.
            tx.room.pin_used(every_page(request))
            stay = wanted.history if request.decoding else NONE
            wants = find(tx, request, wanted.numbers, stay) if level == Level.GPU else Wants(NONE, NONE, wanted.numbers)
            rest = wants.plain[~np.isin(wants.plain, stay)]
            up = rest[pages.level[rest] != Level.GPU] if level == Level.GPU else NONE
            below = joined([stay, rest]) if level == Level.HOST else stay if level == Level.GPU else NONE
            to_host = below[pages.level[below] == Level.DISK]
            claims = (
                tx.room.claim(slot_counts(core, to_host, Level.HOST)),
                tx.room.claim(slot_counts(core, joined([up, wants.fill]), Level.GPU)),
            )
            tx.copies.evict()
            host, gpu = (tx.room.take(each) for each in claims)
            copies = new_copies(tx, request, wants.fill, (), gpu) if wants.fill.size else []
            bring_up(tx, up, gpu, Level.GPU)
            bring_up(tx, to_host, host, Level.HOST)
            if copies:
                submit(tx, copies)
                give_copies(tx, request, copies)
            tx.commit()
    except NoRoom:
        return False
    return True


# ---- rows by hand ----------------------------------------------------------------------------------------------------


def bind_row(core: Core, request: Request, row: int | None) -> None:
    """Give a row to a request in no batch, or take it away (R6.6). ``LogicError`` if it is closed, negative, in a batch."""
    negative = row is not None and row < 0
    if request.closed or negative or request.batch is not None:
        why = "it is closed" if request.closed else f"row {row} is negative" if negative else "it is in a batch"
        raise LogicError(f"bind_row of {request.name}: {why}")
    request.row = row
    core.renew(request)
