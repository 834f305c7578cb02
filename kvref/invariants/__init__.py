"""What holds of every state, and of every operation: each invariant once, by name, with its rule.

`kvspec explore` asks all of them after every operation of a small model, and tests do in random lifecycles.
"""

from __future__ import annotations

from kvref.invariants.registry import Invariant
from kvref.invariants.states import OF_STATES
from kvref.invariants.steps import OF_STEPS
from kvref.state import State
from kvspec.exploring import Broken
from kvspec.ops import Operation
from kvspec.system import Outcome

__all__ = ["OF_STATES", "OF_STEPS", "Invariant", "broken_by", "broken_in"]


def broken_in(state: State) -> list[Broken]:
    """The invariants that do not hold of a state."""
    return [Broken(one.name, one.rules, text) for one in OF_STATES for text in one.check(state)]


def broken_by(before: State, op: Operation, outcome: Outcome, after: State) -> list[Broken]:
    """The invariants that do not hold of an operation."""
    return [Broken(one.name, one.rules, text) for one in OF_STEPS for text in one.check(before, op, outcome, after)]
