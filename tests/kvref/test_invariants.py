"""What holds of every state and operation, over random lifecycles of the reference alone, in both policies of ownership."""

from __future__ import annotations

from random import Random

import pytest

from kvref.invariants import broken_by, broken_in
from kvref.system import Reference
from kvspec.audit.drawing import STREAMS
from kvspec.audit.managers import Profile, random_manager
from kvspec.audit.workload import Chooser
from kvspec.config import Ownership
from kvspec.ops import Operation
from kvspec.system import Setup

SEEDS, STEPS = 25, 60


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("ownership", list(Ownership))
def test_every_state_of_a_lifecycle(seed: int, ownership: Ownership) -> None:
    rng, profile = Random(seed), Profile()
    manager = random_manager(rng, profile).model_copy(update={"ownership": ownership})
    chooser, system = Chooser(rng, manager, profile), Reference(Setup(manager, STREAMS))
    ending: list[Operation] | None = None
    for step in range(STEPS * 2):
        seen = system.observe()
        if step >= STEPS:
            ending = chooser.finish(seen) if ending is None else ending
            if not ending:
                break
        before, op = system.state, chooser.next(seen) if ending is None else ending.pop(0)
        assert op is not None
        outcome = system.apply(op)
        broken = [*broken_by(before, op, outcome, system.state), *broken_in(system.state)]
        assert [str(one) for one in broken] == [], f"step {step}, {op}"
    assert not system.state.pages, "R14.8: everything was let go of"
