"""Operations on the prefix tree and the pools (sections 1 and 10), and the counters (section 13)."""

from __future__ import annotations

from kvgpu.adapter.counters import counters
from kvgpu.adapter.run import Handlers, Run
from kvspec import ops
from kvspec.system import Value


def _is_sparse(run: Run, op: ops.IsSparse) -> bool:
    return run.manager.is_sparse(op.layer, op.role)


def _page_index_scale(run: Run, op: ops.PageIndexScale) -> int:
    return run.manager.page_index_scale(op.layer, op.role)


def _seed_prefix(run: Run, op: ops.SeedPrefix) -> None:
    groups = run.names.some_groups(op.groups)
    run.payloads.seed(op, groups)


def _evict(run: Run, op: ops.Evict) -> None:
    level, pool_group = run.names.pool_group(op.level, op.group)
    run.manager.evict(level, pool_group, op.pages)


def _clear_reusable(run: Run, op: ops.ClearReusable) -> None:
    run.manager.clear_reusable()


def _take_slots(run: Run, op: ops.TakeSlots) -> None:
    level, pool_group = run.names.pool_group(op.level, op.group)
    run.manager.take_slots(op.as_, level, pool_group, None if op.count == "all" else op.count)


def _give_slots(run: Run, op: ops.GiveSlots) -> None:
    run.manager.give_slots(op.as_)


def _stats(run: Run, op: ops.Stats) -> Value:
    return counters(run.names.groups, run.manager.counters(reset=op.reset))


HANDLERS: Handlers = {
    ops.IsSparse: _is_sparse,
    ops.PageIndexScale: _page_index_scale,
    ops.SeedPrefix: _seed_prefix,
    ops.Evict: _evict,
    ops.ClearReusable: _clear_reusable,
    ops.TakeSlots: _take_slots,
    ops.GiveSlots: _give_slots,
    ops.Stats: _stats,
}
