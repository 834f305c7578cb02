"""The named breaks that are patches: guards, roll-backs and counts, and fences that share a site's name with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvgpu.config import LayerGroup
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError
from kvgpu.manager import Manager
from kvgpu.operations import create, deferral, growth, lifecycle, offload, payloads, tree_changes
from kvgpu.operations import state as core_module
from kvgpu.operations.copies import Copies
from kvgpu.operations.inside import Inside
from kvgpu.operations.offload import NONE
from kvgpu.operations.room import Room
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.requests.request import Request
from kvgpu.serving import executor
from kvgpu.serving.executor import Executor
from kvgpu.storage.copier import Buffers, Copier
from kvgpu.storage.counters import Counters
from kvgpu.storage.eviction import EvictionQueue
from kvgpu.storage.fences import Fence, FenceTable
from kvgpu.storage.pages import NO_NODE
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.prefix_tree import PrefixTree
from kvgpu.testing.patches import Break, during, everywhere, first, instead, on, within
from kvgpu.testing.table_guards import TABLE_GUARDS
from kvgpu.upload.staging import StagingPool

# ---- what the guards put instead of the real thing ------------------------------------------------------------------


def _oldest_point(old: Any) -> Any:
    def init(self: Any, points: Any = ()) -> None:
        first: dict[str, Any] = {}
        for point in points:
            first.setdefault(point.key, point)
        old(self, first.values())

    return init


def _early_buffer(old: Any) -> Any:
    def acquire(self: Any) -> Any:
        buffer = self._buffers[0]
        buffer.busy_until = None
        return buffer

    return acquire


def _early_copy_buffer(old: Any) -> Any:
    def take(self: Any, nbytes: int) -> Any:
        for buffer in self._buffers:
            buffer.busy = None
        return old(self, nbytes)

    return take


def _keep_changes(old: Any) -> Any:
    def leave(self: Any, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, CopyFailed) and not self._committed:
            self.commit()
        else:
            old(self, kind, error, trace)

    return leave


def _first_owner_newer(old: Any) -> Any:
    def tell(self: Any, numbers: Any, was: Any, ready: int) -> None:
        before = set(self._journal._touched)
        old(self, numbers, was, ready)
        for owner in self._journal.core.owners(numbers)[1:]:
            if owner not in before:
                self._journal._touched.pop(owner, None)

    return tell


def _no_new_deferral(old: Any) -> Any:
    def tell(self: Any, numbers: Any, was: Any, ready: int) -> None:
        owners = [(owner, owner.maybe_deferred) for owner in self._journal.core.owners(numbers)]
        old(self, numbers, was, ready)
        for owner, deferred in owners:
            owner.maybe_deferred = deferred

    return tell


def _page_by_page_down(old: Any) -> Any:
    def offload(tx: Any, found: Any, more_owners: Sequence[Any] = ()) -> None:
        for numbers, slots in found:
            used = dict.fromkeys(slots, 0)
            for number in numbers.tolist():
                key = (1, int(tx.core.pool_group[tx.core.pages.group[number], 1]))
                mine = slots[key][used[key] : used[key] + 1]
                used[key] += 1
                old(tx, [(np.array([number], dtype=np.int32), {key: mine})], more_owners)

    return offload


def _page_by_page_up(old: Any) -> Any:
    def bring_up(tx: Any, numbers: Any, slots: Any, level: int) -> None:
        used = dict.fromkeys(slots, 0)
        for number in numbers.tolist():
            key = (level, int(tx.core.pool_group[tx.core.pages.group[number], level]))
            mine = slots[key][used[key] : used[key] + 1]
            used[key] += 1
            old(tx, np.array([number], dtype=np.int32), {key: mine}, level)

    return bring_up


def _low_blocks_first(old: Any) -> Any:
    def ordered(self: Any) -> Any:
        numbers, pages = old(self), self._pages
        return numbers[np.lexsort((pages.block[numbers], pages.stamp[numbers], pages.priority[numbers]))]

    return ordered


def _while_committing(old: Any) -> Any:
    return property(lambda self: self.committing)


def _always(lenient: bool) -> Callable[[Any], Any]:
    return lambda old: lambda self, requests, _=False: old(self, requests, lenient)


def _all_stay(old: Any) -> Any:
    return lambda core, scope, request, numbers: len(numbers)


def _last_first(old: Any) -> Any:
    def run(tx: Transaction, numbers: Any) -> Any:
        chosen, claims = old(tx, numbers)
        return numbers[len(numbers) - len(chosen) :], claims

    return run


def _in_its_own_scope(old: Any) -> Any:
    return lambda core, scope, *others: old(core, core.scope(), *others)


def _as_a_resize(old: Any) -> Any:
    return lambda core, request, capacity: growth.resize(core, request, capacity, request.history)


def _any_version(old: Any) -> Any:
    def acknowledge(self: Any, request: Any, version: int) -> bool:
        old(self, request, version)
        request.acknowledged = version
        return True

    return acknowledge


def _no_retry_when_decoding(old: Any) -> Any:
    return lambda self, request: True if request.active and request.decoding else old(self, request)


def _refused_are_counted(old: Any) -> Any:
    def after_undo(self: Any) -> Any:
        for submission in self._submissions:
            if submission.direction is not None:
                self._journal.core.counters.copied(submission.direction, self._journal.core.pages.group[submission.numbers])
        return old(self)

    return after_undo


def _evicted_again(old: Any) -> Any:
    def move(self: Any, page: int, key: Any, lower: Any) -> None:
        old(self, page, key, lower)
        self._journal.scope.evicted.discard(page)

    return move


def _committed_is_writable(old: Any) -> Any:
    def targets(core: Any, request: Any, group: int, block: int) -> Any:
        try:
            return old(core, request, group, block)
        except LogicError as error:
            if "committed" not in str(error):
                raise
            return []

    return targets


def _history_beyond_old_capacity(old: Any) -> Any:
    def check(request: Any, capacity: int | None, history: int | None) -> Any:
        try:
            return old(request, capacity, history)
        except InvalidArgument as error:
            if "grow the capacity first" not in str(error):
                raise
            return request.capacity if capacity is None else capacity, history

    return check


def _newest_child(old: Any) -> Any:
    @contextmanager
    def turned(node: Any) -> Iterator[None]:
        before = node.children
        node.children = dict(reversed(list(before.items())))
        try:
            yield
        finally:
            node.children = before

    def match(self: Any, tokens: Any) -> Any:
        last = old(self, tokens).whole
        with turned(last[-1] if last else self.root):
            return old(self, tokens)

    return match


def _not_partial(old: Any) -> Any:
    def adopt(core: Any, request: Any, tokens: Any) -> None:
        old(core, request, tokens)
        request.partial = False

    return adopt


def _kept_for_ever(old: Any) -> Any:
    return lambda tx, request: tx.put_attribute(request, "committing", False)


def _one_beam(old: Any) -> Any:
    def grow(request: Any, *args: Any) -> Any:
        rows, blocks = old(request, *args)
        return rows[rows == 0], blocks[rows == 0]

    return grow


def _gap_is_jumped(old: Any) -> Any:
    def on_host(self: Any, pages: Any, beam: int) -> int:
        return int((self.entries(pages, beam)[1] == 1).sum())

    return on_host


def _eligible_in_prefill(old: Any) -> Any:
    def eligible(self: Any, group: int, beam: int = 0) -> int:
        if not (self.active and self.sparse[group]):
            return 0
        return int(min(self.groups[group].on_host(self.table, beam), self.history_blocks))

    return eligible


def _shorter(old: Any) -> Any:
    def stale(self: Any, history: int, tokens_per_block: int) -> tuple[int, int]:
        first, end = old(self, history, tokens_per_block)
        return first, max(first, end - 1)

    return stale


def _held_is_dropped(old: Any) -> Any:
    def leave(self: Any, page: int, key: Any) -> bool:
        if old(self, page, key):
            return True
        if self._journal.core.pages.node[page] == NO_NODE:
            return False
        tree_changes.drop(self._journal, page, [])
        return True

    return leave


def _one_lane(old: Any) -> Any:
    return lambda self, after: self._lanes[0] if self._lanes else old(self, after)


def _any_gpu_pool(old: Any) -> Any:
    def too_full(core: Any) -> bool:
        limit = core.layout.max_util_for_resume
        return any((pool.spec.slots - pool.free - pool.evictable) / pool.spec.slots > limit for pool in core.pools[0])

    return too_full


def _block_by_block(old: Any) -> Any:
    def every_page(request: Any) -> Any:
        numbers = old(request)
        return numbers[np.argsort(request.manager.pages.block[numbers], kind="stable")]

    return every_page


def _overwritten_at_once(old: Any) -> Any:
    def vacate(self: Any, pool: Any, slots: Any) -> None:
        old(self, pool, slots)
        events = [point.event for point in self.core.fences.points(pool.fence[slots], pool.readers(slots))]
        if pool.memory is not None:
            self.core.device.poison(pool.memory, pool.ranges(slots), events, "R7.2 a released slot is overwritten at once")

    return vacate


def _written_early(old: Any) -> Any:
    def write_completed(tx: Any, request: Any, targets: Any, let_go: Any) -> None:
        tx.copies.behind, kept = (), tx.copies.behind
        old(tx, request, targets, let_go)
        tx.copies.behind = kept

    return write_completed


def _states_are_history(old: Any) -> Any:
    def writable(self: Any, request: Any, blocks: Any, groups: Any = None) -> Any:
        found = old(self, request, blocks, groups)
        if any(request.ssm[target.group] and request.history_blocks for target in found):
            raise LogicError("the state of a request with history is history")
        return found

    return writable


GUARDS: tuple[Break, ...] = (
    ("R1.3 the state of a request with history is not written", "R1.3", on(Manager.writable, _states_are_history)),
    ("R3.5 states count towards the limit of GPU use", "R3.5", everywhere(lifecycle.too_full, _any_gpu_pool)),
    ("R3.14 what a resize completes and evicts goes unwritten", "R3.14", on(Room.moving, instead(frozenset()))),
    (
        "R7.2 what a close releases becomes free block by block",
        "R7.2",
        everywhere(lifecycle.every_page, _block_by_block),
    ),
    ("R7.2 a released slot is overwritten before its next use", "R7.2", on(Transaction.vacate, _overwritten_at_once)),
    (
        "R7.2 the overwriting of one slot is taken for that of another",
        "R7.2",
        on(FenceTable.foreign, lambda old: lambda self, key, event, site: old(self, "poison", event, site)),
    ),
    (
        "R7.9 a block that goes stale is written before the slots are taken",
        "R7.9",
        on(growth._write_completed, _written_early),
    ),
    (
        "R1.8 the stale range ends a block early",
        "R1.8",
        on(LayerGroup.stale, _shorter),
    ),
    ("R2.1 committed pages can be written", "R2.1", everywhere(payloads._targets, _committed_is_writable)),
    ("R3.1 the newest child is matched", "R3.1", on(PrefixTree.match, _newest_child)),
    ("R3.1 matched pages are not held", "R3.1", on(Transaction.add_user, instead(None))),
    ("R3.4 no private copy of a partial match", "R3.4", everywhere(create.adopt_match, _not_partial)),
    ("R3.5 the limit of GPU use is ignored", "R3.5", everywhere(lifecycle.too_full, instead(False))),
    (
        "R3.6 history beyond the old capacity",
        "R3.6",
        everywhere(growth.check_lengths, _history_beyond_old_capacity),
    ),
    ("R3.7 stale pages are kept for a commit that beams rule out", "R3.7", on(Request.may_commit, _while_committing)),
    ("R3.7 kept pages stay when beams come", "R3.7", within(growth, tree_changes.release_kept, instead(None))),
    (
        "R3.7 kept pages stay when committing ends",
        "R3.7",
        everywhere(tree_changes.stop_committing, _kept_for_ever),
    ),
    ("R3.12 blocks after the prompt grow one beam row", "R3.12", everywhere(growth.grow_blocks, _one_beam)),
    ("R3.14 a refused copy undoes nothing", "R3.14", on(Transaction.__exit__, _keep_changes)),
    ("R3.14 free slots are not restored", "R3.14", on(SlotPool.restore, instead(None))),
    ("R3.14 pages in use are evicted", "R3.14", on(Room._is_pinned, instead(False))),
    (
        "R4.2 the prefill owners are not asked",
        "R4.2",
        everywhere(offload.movable, lambda old: lambda core, n, own: n),
    ),
    ("R4.2 a decode entry stays a prefill owner", "R4.2", on(Transaction.need_no_more, instead(None))),
    ("R4.3 a resize retries nothing", "R4.3", within(growth, deferral.claim_retries, instead((NONE, {})))),
    ("R4.3 a resume retries nothing", "R4.3", within(lifecycle, deferral.claim_retries, instead((NONE, {})))),
    ("R4.3 a publication retries nothing", "R4.3", on(Inside.retry_deferred, instead(None))),
    ("R8.6 a lenient publication raises", "R8.6", on(Inside.retry_deferred, _always(False))),
    ("R8.6 a strict publication is lenient", "R8.6", on(Inside.retry_deferred, _always(True))),
    ("R8.6 a lenient publication tries nothing", "R8.6", on(deferral._move_those_that_fit, _all_stay)),
    (
        "R8.6 a lenient publication tries the last blocks first",
        "R8.6",
        during(deferral._move_those_that_fit, deferral.claim_retries, _last_first),
    ),
    ("R4.3 enter_decode of a decoding request retries nothing", "R4.3", on(Manager.enter_decode, _no_retry_when_decoding)),
    ("R4.5 one submission per page offloaded", "R4.5", everywhere(offload.offload, _page_by_page_down)),
    ("R4.5 one submission per page onboarded", "R4.5", everywhere(offload.bring_up, _page_by_page_up)),
    ("R4.6 the index of other owners stays", "R4.6", during(Copies._tell_owners, core_module.Core.owners, first(1))),
    ("R4.6 a freed slot is lost", "R4.6", on(SlotPool.give, lambda old: lambda self, slots: old(self, slots[1:]))),
    ("R4.8 queued work of a refused copy is forgotten", "R4.8", on(Copies.after_undo, lambda old: lambda self: [])),
    ("R4.8 what was overwritten is not put back", "R4.8", on(Copies._put_back, instead(None))),
    ("R5.3 a promotion defers nothing", "R5.3", on(Copies._tell_owners, _no_new_deferral)),
    ("R6.3 the eligible count is one too many", "R6.3", on(Request.eligible, lambda old: lambda *args: old(*args) + 1)),
    ("R6.3 the eligible count jumps over a gap", "R6.3", on(GroupBlocks.on_host, _gap_is_jumped)),
    ("R6.3 pages are eligible in prefill", "R6.3", on(Request.eligible, _eligible_in_prefill)),
    ("R6.4 versions of other owners stay", "R6.4", on(Copies._tell_owners, _first_owner_newer)),
    ("R6.5 any version can be acknowledged", "R6.5", on(Manager.acknowledge, _any_version)),
    ("R7.2 of the points of a stream the oldest is kept", "R7.2", on(Fence.__init__, _oldest_point)),
    ("R7.2 slots behind a fence are taken as soon as others", "R7.2", on(Fence.passed, instead(True))),
    ("R7.2 slots whose fence has passed stay behind", "R7.2", on(SlotPool._look, instead(None))),
    ("R7.6 a staging buffer is used too early", "R7.6", on(StagingPool.acquire, _early_buffer)),
    ("R7.6 a staging buffer is never used again", "R7.6", on(StagingPool.acquire, lambda old: lambda self: self._grow())),
    ("R7.6 a copy buffer is used too early", "R7.6", on(Buffers.take, _early_copy_buffer)),
    ("R7.1 all copies stand in one lane", "R7.1", on(Copier.lane, _one_lane)),
    *TABLE_GUARDS,
    ("R10.1 a page is evicted twice by one operation", "R10.1", on(Room._move, _evicted_again)),
    ("R10.1 each row that a publication retries is an operation", "R10.1", on(deferral.retry_deferred, _in_its_own_scope)),
    ("R10.1 held pages are dropped", "R10.1", on(Room._leave, _held_is_dropped)),
    ("R10.2 the last page in leaves first", "R10.2", on(EvictionQueue.ordered, lambda old: lambda self: old(self)[::-1])),
    ("R10.2 lower blocks leave first", "R10.2", on(EvictionQueue.ordered, _low_blocks_first)),
    ("R10.3 a block without pages stays in the tree", "R10.3", everywhere(tree_changes._remove, instead(None))),
    ("R11.3 dense offsets of pages on the host", "R11.3", everywhere(executor._must_be_dense, instead(None))),
    ("R11.5 giving back is a resize, which retries", "R11.5", on(growth.give_back, _as_a_resize)),
    ("R11.5 a refused request keeps what was grown for it", "R11.5", on(Executor._give_back, instead(None))),
    ("R13.1 dropped pages are not counted", "R13.1", on(Counters.dropped, instead(None))),
    ("R13.2 refused copies are counted", "R13.2", on(Copies.after_undo, _refused_are_counted)),
)
