"""A seed of two pool groups of which the second is refused: nothing is left of the first but what was queued (R3.14, R4.8)."""

from __future__ import annotations

import pytest

from kvgpu.errors import CopyFailed
from tests.kvgpu.build import Bench, bench, configuration, layer, payload

TOKENS = [1, 2, 3, 4]


def seed(made: Bench, tokens: list[int]) -> None:
    manager = made.manager
    manager.seed_prefix(tokens, 2, content=lambda prefix, group, block: payload(manager, "seed", group, prefix[0]))


@pytest.mark.parametrize("access", [1, 2])
def test_a_refused_seed_leaves_nothing(access: int) -> None:
    made = bench(configuration(layer("a", 64), layer("b", 96, sliding_window=64), slots=(2, 2, 1)))
    manager = made.manager
    gate = made.device.gate(made.stream, "shut")
    held = manager.fences.add([manager.fences.record(made.stream, "R7.4 freed slot: work before its release")])
    for pool in manager._core.pools[2]:
        pool.fence[:] = held
    before = made.state()
    manager.faults.arm_file(access)
    with pytest.raises(CopyFailed, match="the payloads of 1 seeded pages were refused"):
        seed(made, TOKENS)
    assert made.state() == before
    # What had been queued still writes into the one slot of the first pool group: its next use comes after that.
    seed(made, [5, 6, 7, 8])
    request = manager.create("r", [5, 6, 7, 8])
    assert request.history == 4 and manager.resume(request, made.stream)
    gate.open()
    made.device.settle()
    for group in range(2):
        assert manager.payload_now(int(request.pages(group)[0])) == payload(manager, "seed", group, 5)
    assert made.device.faults() == ()
    manager.shut()
