"""Policy ``versions``: what may differ where a version of the system under test may be newer without a reason (R6.4).

A request is then dirty more often, a row is published again with what it shows already, and an acknowledgement of an older
version does not count. None of it loses anything; a version that is not newer where it has to be does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kvspec.harness.compare import Comparison
from kvspec.harness.memory import BatchMemory
from kvspec.ops import Operation

OF_THE_REFERENCE = frozenset({"dirty", "dirty_rows", "version", "version_since", "staging"})
"""Expectations to which the reference alone is held then; the system is compared with it."""


def may_be_newer(c: Comparison) -> bool:
    """Whether the policy is ``at_least``."""
    return c.shared.manager.policy.versions == "at_least"


def more_often(c: Comparison, one: Collection[object], two: Collection[object]) -> bool:
    """Whether it is only that: what the reference has, and more."""
    return may_be_newer(c) and set(one) <= set(two)


def same_but_newer(c: Comparison, op: Operation, one: object, two: object) -> bool:
    """Whether two outcomes differ only so: rows published again, or a version that is not the newest any more."""
    if op.verb == "publish" and isinstance(one, tuple) and isinstance(two, tuple):
        return more_often(c, one, two)
    return may_be_newer(c) and op.verb == "acknowledge" and (one, two) == (True, False)


def same_publication(
    c: Comparison, memories: tuple[BatchMemory, BatchMemory], positions: tuple[Iterable[int], Iterable[int]]
) -> bool:
    """Whether some publications of two systems are the same one: by their place in the order, or by what they say then."""
    if set(positions[0]) & set(positions[1]):
        return True
    if not may_be_newer(c):
        return False
    said = [
        {tuple(memory.publications[place].names(group) for group in memory.publications[place].entries) for place in places}
        for memory, places in zip(memories, positions, strict=True)
    ]
    return bool(said[0] & said[1])
