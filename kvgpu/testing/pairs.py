"""Named breaks that show where two features meet: each feature alone is right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from weakref import WeakSet

import numpy as np

from kvgpu.batch.tables import Tables
from kvgpu.operations import commit, create, growth, lifecycle, tree_changes
from kvgpu.operations.copies import Copies
from kvgpu.operations.room import Room
from kvgpu.operations.transaction import Transaction
from kvgpu.storage import copier, copy_kernels
from kvgpu.testing.patches import Patch, during, everywhere, first, instead, on, within

# ---- windows -------------------------------------------------------------------------------------------------------------


def _larger_window_is_whole(old: Any) -> Any:
    def usable(core: Any, length: int, path: Any, present: Any) -> bool:
        windows = [(group.window, group.number) for group in core.layout.groups if group.window is not None]
        shown = present.copy()
        if len(windows) > 1:
            shown[:, max(windows)[1]] = True
        return bool(old(core, length, path, shown))

    return usable


def _released_twice(old: Any) -> Any:
    def release(self: Any, numbers: Any, request: Any) -> None:
        old(self, numbers, request)
        again = numbers[self.core.pages.users[numbers] > 0]
        if again.size:
            old(self, again, request)

    return release


def _only_unshared_fenced(old: Any) -> Any:
    def fence_slots(self: Any, numbers: Any, points: Any) -> None:
        old(self, numbers[self.core.pages.users[numbers] <= 1], points)

    return fence_slots


def _turn_renewed(old: Any) -> Any:
    def forget(tx: Any, request: Any, group: int, block: int) -> None:
        one = request.groups[group].page[0, block : block + 1].copy()
        old(tx, request, group, block)
        kept = one[tx.core.pages.alive[one]]
        tx.put("stamp", kept, tx.scope.stamp)
        for (level, number), part in tx.core.by_key(kept):
            tx.core.queues[level][number].push(part)

    return forget


# ---- room ----------------------------------------------------------------------------------------------------------------


def _use_with(extra: Callable[[Any, int], int]) -> Callable[[Any], Any]:
    """GPU use is measured with more, or fewer, evictable pages in each pool group."""

    def make(old: Any) -> Any:
        def too_full(core: Any) -> bool:
            before = [pool.evictable for pool in core.pools[0]]
            for number, pool in enumerate(core.pools[0]):
                pool.evictable += extra(core, number)
            try:
                return bool(old(core))
            finally:
                for pool, evictable in zip(core.pools[0], before, strict=True):
                    pool.evictable = evictable

        return too_full

    return make


def _further_holders(core: Any, number: int) -> int:
    pages = core.pages
    here = pages.alive & (pages.level == 0) & (pages.locks == 0) & (pages.users > 1) & (core.pool_group[pages.group, 0] == number)
    return int((pages.users[here] - 1).sum())


def _prefetched_is_use(old: Any) -> Any:
    def prefetch(core: Any, request: Any, level: int) -> bool:
        before = [pool.evictable for pool in core.pools[0]]
        done = bool(old(core, request, level))
        for pool, evictable in zip(core.pools[0], before, strict=True):
            pool.evictable = min(pool.evictable, evictable)
        return done

    return prefetch


def _snapshot_may_leave(old: Any) -> Any:
    def pin(self: Any, numbers: Any) -> None:
        core = self._journal.core
        ssm = np.array([group.ssm for group in core.layout.groups])
        old(self, numbers[~ssm[core.pages.group[numbers]]])

    return pin


# ---- copies, readers, failures -------------------------------------------------------------------------------------------


def _first_pool_alone(old: Any) -> Any:
    def copy(self: Any, numbers: Any, copies: Any) -> None:
        with within(copier, copy_kernels.segment_words, first(1))():
            old(self, numbers, copies)

    return copy


def _back_as_the_youngest(old: Any) -> Any:
    def remove(tx: Any, node: Any, events: Any) -> None:
        parent = node.parent

        def to_the_end() -> None:
            parent.children[node.tokens] = parent.children.pop(node.tokens)

        tx.on_undo(to_the_end)  # undone last, once the children are back
        old(tx, node, events)

    return remove


def _begun_tokens_counted(old: Any) -> Any:
    def commit_block(core: Any, scope: Any, request: Any, block: int, text: Any) -> None:
        try:
            old(core, scope, request, block, text)
        except Exception:
            if request.committed > block * request.tokens_per_block:
                request.tokens = [*request.tokens[: block * request.tokens_per_block], *text.tokens]
            raise

    return commit_block


def _suspended_without_fence(old: Any) -> Any:
    def close(core: Any, request: Any) -> None:
        if request.active:
            old(core, request)
            return
        with on(Transaction.fence_slots, instead(None))():
            old(core, request)

    return close


_tables: WeakSet[Tables] = WeakSet()


def _every_batch_waits(old: Any) -> Any:
    def note_reads(self: Any, reads: Any) -> None:
        for tables in [*_tables]:
            old(tables, reads)

    return note_reads


def _every_batch_is_known(old: Any) -> Any:
    def init(self: Any, *args: Any) -> None:
        old(self, *args)
        _tables.add(self)

    return init


def _other_readers() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(on(Tables.__init__, _every_batch_is_known)())
    stack.enter_context(on(Tables.note_reads, _every_batch_waits)())
    stack.callback(_tables.clear)
    return stack


PAIRS: tuple[tuple[str, str, Patch], ...] = (
    ("R3.1 the larger of two windows is taken for whole", "R3.1", on(create._usable, _larger_window_is_whole)),
    (
        "R3.7 a shared block is released twice by the one that slides off it",
        "R3.7",
        during(growth._give_up, Transaction.release, _released_twice),
    ),
    (
        "R7.4 a shared block has no fence behind the one that slid off it",
        "R7.4",
        during(growth._give_up, Transaction.fence_slots, _only_unshared_fenced),
    ),
    ("R10.2 a kept stale block is renewed by its commit", "R10.2", on(commit._forget_kept, _turn_renewed)),
    (
        "R3.5 a page is room once for each of its holders",
        "R3.5",
        everywhere(lifecycle.too_full, _use_with(_further_holders)),
    ),
    ("R3.5 prefetched pages count as use", "R3.5", on(lifecycle.prefetch, _prefetched_is_use)),
    ("R1.3 a snapshot is evicted for the copy of itself", "R1.3", during(lifecycle._resume, Room.pin, _snapshot_may_leave)),
    ("R3.4 a private copy has the first pool alone", "R3.4", on(Copies.copy, _first_pool_alone)),
    (
        "R3.14 a block that comes back is the youngest of its siblings",
        "R3.14",
        everywhere(tree_changes._remove, _back_as_the_youngest),
    ),
    ("R3.9 the tokens of a begun block that failed are counted", "R3.9", on(commit._commit_block, _begun_tokens_counted)),
    ("R7.4 the close of a suspended request fences nothing", "R7.4", on(commit.close, _suspended_without_fence)),
    ("R7.5 a publication waits for the readers of other batches", "R7.5", _other_readers),
)
