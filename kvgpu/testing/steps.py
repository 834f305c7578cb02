"""The named breaks of decode steps: those that change nothing but lengths, and those that complete a block in the plain case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvgpu.batch import batch_lengths
from kvgpu.config import LayerGroup
from kvgpu.operations import growth, plain_step
from kvgpu.operations.state import Core
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.requests.request import Request
from kvgpu.storage.counters import Counters
from kvgpu.storage.faults import Direction, FaultPlan
from kvgpu.storage.pools import SlotPool
from kvgpu.testing.patches import Break, Patch, during, everywhere, instead, on


def _steady_if(which: Callable[[Any, int | None, int | None, int], bool]) -> Patch:
    """Rows of which ``which(member, capacity, history, limit)`` is true are taken for rows of which the lengths alone change."""

    def make(old: Any) -> Any:
        def other_rows(members: Any, limit: int, capacities: Any, histories: Any) -> Any:
            rows = old(members, limit, capacities, histories)
            return [row for row in rows if not taken(members[row], capacities[row], histories[row], limit)]

        return other_rows

    def taken(member: Request | None, capacity: int | None, history: int | None, limit: int) -> bool:
        return member is not None and which(member, capacity, history, limit)

    return everywhere(batch_lengths.other_rows, make)


def _same_blocks(member: Request, capacity: int | None, history: int | None) -> bool:
    """Whether the lengths are some between which no block comes or goes, completes or goes stale."""
    least, most, first, last = growth.steady_lengths(member.manager._core, member)  # type: ignore[attr-defined]
    room = member.capacity if capacity is None else capacity
    return least <= room <= most and first <= (member.history if history is None else history) <= last


def _ended(member: Request, capacity: int | None, history: int | None, limit: int) -> bool:
    return member.active and member.ended and _same_blocks(member, capacity, history)


def _suspended(member: Request, capacity: int | None, history: int | None, limit: int) -> bool:
    return not member.active and _same_blocks(member, capacity, history)


def _deferred(member: Request, capacity: int | None, history: int | None, limit: int) -> bool:
    return member.active and member.maybe_deferred and _same_blocks(member, capacity, history)


def _beyond(member: Request, capacity: int | None, history: int | None, limit: int) -> bool:
    room = member.capacity if capacity is None else capacity
    then = member.history if history is None else history
    return member.active and then > min(room, member.capacity) and _same_blocks(member, capacity, history)


def _too_large(member: Request, capacity: int | None, history: int | None, limit: int) -> bool:
    return member.active and capacity is not None and capacity > limit and _same_blocks(member, capacity, history)


def _whole_blocks(old: Any) -> Any:
    def steady(core: Any, request: Any) -> Any:
        found = old(core, request)
        size = request.tokens_per_block
        return found._replace(last=request.history - request.history % size + size - 1)

    return steady


def _one_further(old: Any) -> Any:
    def steady(core: Any, request: Any) -> Any:
        found = old(core, request)
        return found._replace(last=found.last + 1)

    return steady


def _one_more(old: Any) -> Any:
    def steady(core: Any, request: Any) -> Any:
        found = old(core, request)
        return found._replace(most=found.most + 1)

    return steady


def _one_less(old: Any) -> Any:
    def steady(core: Any, request: Any) -> Any:
        found = old(core, request)
        return found._replace(least=found.least - 1)

    return steady


def _nothing_deferred(old: Any) -> Any:
    def plain(core: Any, request: Any, capacity: int, history: int) -> Any:
        kept, request.maybe_deferred = request.maybe_deferred, False
        try:
            return old(core, request, capacity, history)
        finally:
            request.maybe_deferred = kept

    return plain


def _without_hook(old: Any) -> Any:
    def step(core: Any, *args: Any) -> Any:
        kept, core.hook = core.hook, None
        try:
            return old(core, *args)
        finally:
            core.hook = kept

    return step


def _counted_once(old: Any) -> Any:
    def moved(core: Any, *args: Any) -> None:
        calls = core.counters.calls[Direction.OFFLOAD]
        old(core, *args)
        core.counters.calls[Direction.OFFLOAD] = calls + 1

    return moved


def _first_alone(old: Any) -> Any:
    return lambda core, together, move: old(core, together[:1], move)


STEPS: tuple[Break, ...] = (
    ("R4.3 a plain step retries nothing", "R4.3", on(plain_step._plain, _nothing_deferred)),
    ("R3.7 a plain step lets go of nothing", "R3.7", during(plain_step._plain, LayerGroup.stale, instead((0, 0)))),
    ("R4.8 a plain step is not refused", "R4.8", on(FaultPlan.armed, instead(False))),
    ("R3.14 a plain step writes nothing", "R3.14", on(plain_step.steps, _without_hook)),
    ("R6.4 a plain step makes no version newer", "R6.4", during(plain_step._moved, Core.renew, instead(None))),
    (
        "R6.2 what a plain step moves is shown where it was",
        "R6.2",
        during(plain_step._moved, GroupBlocks.block_moved, instead(None)),
    ),
    ("R13.1 a plain step is not counted", "R13.1", during(plain_step._moved, Counters.copied, instead(None))),
    ("R4.6 a plain step frees no slot", "R4.6", during(plain_step._moved, SlotPool.give, instead(None))),
    ("R7.1 steps that wait for different things go together", "R7.1", on(plain_step._alike, instead(True))),
    ("R13.2 steps that go together count as one submission", "R13.2", on(plain_step._moved, _counted_once)),
    ("R8.9 of steps that go together the first alone is taken", "R8.9", on(plain_step._moved, _first_alone)),
    ("R3.6 the step that completes a block is one of lengths", "R3.6", everywhere(growth.steady_lengths, _one_further)),
    ("R3.6 a block that goes stale within another is not noticed", "R3.7", everywhere(growth.steady_lengths, _whole_blocks)),
    ("R3.6 the first token of a new block takes no page", "R3.6", everywhere(growth.steady_lengths, _one_more)),
    ("R3.6 a shrink by one token keeps the block", "R3.6", everywhere(growth.steady_lengths, _one_less)),
    ("R8.9 a member that has ended grows", "R8.9", _steady_if(_ended)),
    ("R8.9 a suspended member gets lengths", "R8.9", _steady_if(_suspended)),
    (
        "R8.9 a member with deferred pages does not retry",
        "R8.9",
        _steady_if(_deferred),
    ),
    ("R8.9 a history is beyond the capacity", "R8.9", _steady_if(_beyond)),
    ("R8.9 a member outgrows its row", "R8.9", _steady_if(_too_large)),
)
