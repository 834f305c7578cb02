"""The reference as a system that the harness can drive."""

from __future__ import annotations

from typing import ClassVar

from kvref.exploring import Explored
from kvref.observe import observe
from kvref.policies import OFFERED
from kvref.step import initial, step
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.policies import Offer
from kvspec.system import Outcome, Setup, Turn


class Reference:
    """The reference model as a `System` of the harness: it holds the current state, and nothing else."""

    capabilities: ClassVar[frozenset[str]] = frozenset(VERBS) | {
        "async",
        "capture",
        "disk",
        "beams",
        "ssm",
        "faults",
        "keys",
        "private",
    }

    policies: ClassVar[Offer] = OFFERED
    """It follows those of its ``Setup`` (R16.1)."""

    exploring: ClassVar[Explored] = Explored()
    """For `kvspec explore`."""

    def __init__(self, setup: Setup) -> None:
        """Start with every slot free. Raises ``ValueError`` for a configuration that cannot be (R1.2)."""
        self.state = initial(setup)

    def apply(self, op: Operation) -> Outcome:
        """Carry out one operation: the next state is kept, the outcome returned."""
        self.state, outcome = step(self.state, op)
        return outcome

    def observe(self) -> Observation:
        """Everything that can be seen of the state."""
        return observe(self.state)

    def turns(self) -> list[Turn]:
        """R10.2: what decides the order of eviction, of each page that is observed."""
        return [Turn(page.priority, page.since[0]) for page in self.state.pages.values()]

    def close(self) -> None:
        """Nothing to give back: there is only a value."""
