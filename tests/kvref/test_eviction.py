"""Which pages leave first, and where to (section 10)."""

from __future__ import annotations

import pytest

from kvref.system import Reference
from kvspec.config import Level
from kvspec.errors import ErrorKind
from tests.kvref.driving import apply, reference, run

DENSE = """
tokens_per_block: 2
levels: [{kind: gpu, slots: 4}, {kind: host, slots: 1}]
layers: [{name: kv, buffers: [{role: key, bytes: 64}]}]
"""


def order(system: Reference, level: Level = Level.GPU) -> list[tuple[int, ...] | None]:
    seen = system.observe()
    return [seen.pages[i].tokens for i in seen.pools[level, "kv"].evictable]


def test_lower_priority_then_older_then_higher_blocks_leave_first() -> None:
    system = reference(DENSE)
    run(system, "seed_prefix: {tokens: [1, 1, 2, 2], level: gpu}\nseed_prefix: {tokens: [3, 3], level: gpu, priority: 1}")
    run(system, "seed_prefix: {tokens: [0, 0], level: gpu}")
    assert order(system) == [(3, 3), (1, 1, 2, 2), (1, 1), (0, 0)]
    run(system, "create: {request: a, tokens: [1, 1]}")
    assert order(system) == [(3, 3), (1, 1, 2, 2), (1, 1), (0, 0)]  # a hold renews nothing
    run(system, "resume: a")
    assert order(system) == [(3, 3), (1, 1, 2, 2), (0, 0)]
    run(system, "suspend: a")
    assert order(system) == [(3, 3), (1, 1, 2, 2), (0, 0), (1, 1)]
    run(system, "close: a")
    assert order(system)[-1] == (1, 1)  # since it was unlocked, not since the close


def test_a_full_level_below_drops_what_only_the_tree_keeps() -> None:
    system = reference(DENSE)
    run(system, "seed_prefix: {tokens: [1, 1, 2, 2], level: gpu}\nevict: {level: gpu, pages: 1}")
    assert order(system, Level.HOST) == [(1, 1, 2, 2)]
    run(system, "create: {request: a, tokens: [1, 1, 2, 2]}\ntake_slots: {level: gpu, count: all, as: t}")
    assert apply(system, "evict: {level: gpu, pages: 1}").error is ErrorKind.OUT_OF_PAGES  # held, and nothing below gives way
    run(system, "close: a\nevict: {level: gpu, pages: 1}")
    assert [p.tokens for p in system.observe().pages] == [(1, 1)]
    assert system.observe().lifetime.groups["kv"].drop_pages == 1  # the one on the host gave way


def test_dropping_a_block_frees_what_is_below_it_but_not_what_a_request_keeps() -> None:
    system = reference(DENSE.replace("{kind: host, slots: 1}", ""))
    run(system, "seed_prefix: {tokens: [1, 1], level: gpu, priority: 0}\nseed_prefix: {tokens: [1, 1, 2, 2, 3, 3], level: gpu}")
    run(system, "evict: {level: gpu, pages: 1}")
    assert (system.observe().pages, system.observe().tree) == ((), ())
    assert len(system.observe().events) == 3
    assert system.observe().pools[Level.GPU, "kv"].free == 4


@pytest.mark.parametrize(("pages", "left"), [(1, 2), (3, 0)])
def test_evict_takes_as_many_as_asked_and_all_or_nothing(pages: int, left: int) -> None:
    system = reference(DENSE)
    run(system, "seed_prefix: {tokens: [1, 1, 2, 2, 3, 3], level: gpu}")
    before = system.observe()
    assert apply(system, "evict: {level: gpu, pages: 4}").error is ErrorKind.OUT_OF_PAGES
    assert system.observe().pages == before.pages
    run(system, f"evict: {{level: gpu, pages: {pages}}}")
    assert len(system.observe().pools[Level.GPU, "kv"].evictable) == left
